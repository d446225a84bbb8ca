//! Write a Moorline policy in Rust: a trait for each hook, settings by serde, logging; `export!` makes it a component.
//! It gives a policy nothing but its input: no clock, no randomness, no files, no network.
//!
//! ```
//! use moorline_policy_sdk::{Description, Node, Policy, PolicyError, Settings, adoption, describe, entry, info};
//! use serde::Deserialize;
//!
//! /// What an operator may set; `{}` is the default.
//! #[derive(Deserialize)]
//! #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
//! struct Rack {
//!     label: String,
//! }
//!
//! impl Default for Rack {
//!     fn default() -> Self {
//!         Self { label: "example.com/rack".to_owned() }
//!     }
//! }
//!
//! impl Settings for Rack {}
//!
//! struct RackIsSite;
//!
//! impl Policy for RackIsSite {
//!     type Settings = Rack;
//!
//!     fn describe() -> Description {
//!         describe!("A Node's rack is its Site.")
//!     }
//! }
//!
//! impl adoption::Hook for RackIsSite {
//!     fn adopt(node: Node, settings: Rack) -> Result<adoption::Verdict, PolicyError> {
//!         info!("Node {} has {} labels", node.name, node.labels.len());
//!         Ok(match entry(&node.labels, &settings.label) {
//!             Some(rack) => adoption::Verdict::Assigned(adoption::Assigned {
//!                 site: rack.to_owned(),
//!                 pool: None,
//!                 reason: format!("label {} is \"{rack}\"", settings.label),
//!             }),
//!             None => adoption::Verdict::Wait(format!("label {} is absent", settings.label)),
//!         })
//!     }
//! }
//!
//! moorline_policy_sdk::export!(RackIsSite: adoption);
//! ```
//!
//! Build it with `crate-type = ["cdylib"]` for `wasm32-unknown-unknown` and make the core module a component.
//!
//! Each call runs in an instance of its own whose memory goes with it, so the guest's allocator, which this crate sets, gives
//! nothing back within a call. What a call allocates in all counts towards `limits.memory`; a policy that builds large things
//! again and again does well to build them in place.
#![deny(missing_docs)]

#[doc(hidden)]
#[allow(
    missing_docs,
    unsafe_code,
    unreachable_pub,
    unused_imports,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated from the WIT, whose ABI is raw pointers"
)]
pub mod bindings;
mod hooks;
mod log;
#[cfg(target_arch = "wasm32")]
mod memory;
mod pointer;
mod settings;

pub use bindings::{
    policy::{Description, SettingError},
    shared::moorline::policy::types::{Assignment, Entry, Node, PolicyError, Pool, Site, Taint},
};
pub use hooks::{acknowledgment, adoption, cni, drift, retry, taints};
pub use log::{Level, enabled, log};
pub use pointer::pointer_key;
pub use settings::{NoSettings, Problems, Settings, check, read};

/// What every policy has, whichever hooks it answers.
pub trait Policy {
    /// What an operator may set; [`NoSettings`] for nothing.
    type Settings: Settings;

    /// Name, version, one line for people, and the schema of the settings; `describe!` fills in most of it.
    fn describe() -> Description;
}

/// The value of `key` in a list of entries (labels, annotations, `extra`).
#[must_use]
pub fn entry<'a>(entries: &'a [Entry], key: &str) -> Option<&'a str> {
    // The host sorts entries, but a policy may be asked by a test that didn't.
    entries.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
}

/// A [`Description`] with the name and version of the crate that calls it, a summary, and the settings' JSON Schema if given.
#[macro_export]
macro_rules! describe {
    ($summary:expr $(, $schema:expr)?) => {
        $crate::Description {
            name: env!("CARGO_PKG_NAME").into(),
            version: env!("CARGO_PKG_VERSION").into(),
            summary: $summary.into(),
            settings_schema: None$(.or(Some($schema.into())))?,
        }
    };
}

/// Exports a type as a component: `export!(MyPolicy: drift, taints)`.
///
/// The type implements [`Policy`], and `Hook` of every module named (such as [`drift::Hook`]). Those hooks, and no others, are
/// exported. Outside WebAssembly nothing is exported, so that the crate's logic can be tested natively.
#[macro_export]
macro_rules! export {
    ($policy:ty: $($hook:ident),+ $(,)?) => {
        // Checked natively too, so that a missing hook shows before there is a guest's toolchain.
        const _: fn() = || {
            fn answers<P: $($crate::$hook::Hook +)+>() {}
            answers::<$policy>();
        };

        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct Described;

            impl $crate::bindings::policy::Guest for Described {
                fn describe() -> $crate::Description {
                    $crate::__enter();
                    <$policy as $crate::Policy>::describe()
                }

                fn validate_settings(hook: String, settings: String) -> Result<(), Vec<$crate::SettingError>> {
                    $crate::__enter();
                    $crate::__validate::<<$policy as $crate::Policy>::Settings>(&[$(stringify!($hook)),+], &hook, &settings)
                }
            }

            type Answers = $crate::__Exported<$policy>;

            $crate::bindings::policy::export!(Described with_types_in $crate::bindings::policy);
            $($crate::bindings::$hook::export!(Answers with_types_in $crate::bindings::$hook);)+
        };
    };
}

#[doc(hidden)]
pub use hooks::Exported as __Exported;
#[doc(hidden)]
pub use log::log_panics as __enter;
#[doc(hidden)]
pub use settings::validate as __validate;
