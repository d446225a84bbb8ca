//! What `wit/policy.wit` says, as Rust. Generated, and wrapped by the rest of the crate.
//! Each interface is bound on its own, so that a component exports, and declares, only the hooks it answers.

/// The types that hooks share, and the one import.
pub mod shared {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package moorline:bind-shared;
            world shared {
                import moorline:policy/types@0.1.0;
                import moorline:policy/host-log@0.1.0;
            }
        ",
        additional_derives: [PartialEq, Eq],
        generate_unused_types: true,
        generate_all,
        disable_run_ctors_once_workaround: true,
    });
}

/// Binds one exported interface; the types that it uses are the shared ones.
macro_rules! bind {
    ($module:ident, $world:literal) => {
        bind!($module, $world, { "moorline:policy/types@0.1.0": crate::bindings::shared::moorline::policy::types });
    };
    ($module:ident, $world:literal, $with:tt) => {
        pub mod $module {
            wit_bindgen::generate!({
                path: "../../wit",
                inline: $world,
                with: $with,
                additional_derives: [PartialEq, Eq],
                pub_export_macro: true,
                disable_run_ctors_once_workaround: true,
            });
            pub use exports::moorline::policy::$module::*;
        }
    };
}

bind!(policy, "package moorline:bind-policy; world policy { export moorline:policy/policy@0.1.0; }", {});
bind!(adoption, "package moorline:bind-adoption; world adoption { export moorline:policy/adoption@0.1.0; }");
bind!(drift, "package moorline:bind-drift; world drift { export moorline:policy/drift@0.1.0; }");
bind!(retry, "package moorline:bind-retry; world retry { export moorline:policy/retry@0.1.0; }");
bind!(taints, "package moorline:bind-taints; world taints { export moorline:policy/taints@0.1.0; }");
bind!(cni, "package moorline:bind-cni; world cni { export moorline:policy/cni@0.1.0; }");
bind!(
    acknowledgment,
    "package moorline:bind-acknowledgment; world acknowledgment { export moorline:policy/acknowledgment@0.1.0; }"
);
