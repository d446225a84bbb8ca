//! Ask a policy a hook in a plain `cargo test`: with the real host and no cluster.
//!
//! ```no_run
//! use moorline_policy_test::{hooks::{Drift, DriftVerdict}, load, observation};
//!
//! let policy = load("my_policy.wasm");
//! let verdict = policy.ask::<Drift>(observation().relabel("example.org/rack", "7"));
//! assert!(matches!(verdict, DriftVerdict::Same(_)));
//! ```
//!
//! Paths are relative to the package under test. Compiled components are kept in `policy-cache` of the target folder and
//! shared by all tests. Everything here fails by panicking, with a message that is meant to be read.
#![deny(missing_docs)]
#![allow(clippy::panic, reason = "a test helper fails a test by panicking")]

mod builders;

use std::{
    fmt::Display,
    path::{Path, PathBuf},
    sync::OnceLock,
};

pub use builders::{
    AttemptBuilder, CniSubjectBuilder, GATEWAY_TAINT, NodeBuilder, ObservationBuilder, POOL_LABEL, SITE_LABEL,
    SubjectBuilder, attempt, cni_subject, node, observation, subject,
};
pub use moorline_policy::{CallOutcome, Description, Hook, Limits, Logs, Reply, SettingError, hooks};
use moorline_policy::{CompileCache, Engine, EngineConfig, Loader, Policy};
use serde_json::Value;
pub use serde_json::json;

/// A policy under test, with the settings of a binding.
#[derive(Clone, Debug)]
pub struct Tested {
    policy: Policy,
    settings: String,
}

/// Loads a component from a file, as an agent would.
///
/// # Panics
/// When an agent would refuse it; the message says why.
#[track_caller]
#[must_use]
pub fn load(file: impl AsRef<Path>) -> Tested {
    let file = file.as_ref();
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    tested(loader().load_file(&name, file, None))
}

/// Loads a component from memory, as an agent would.
///
/// # Panics
/// When an agent would refuse it; the message says why.
#[track_caller]
#[must_use]
pub fn load_bytes(name: &str, component: &[u8]) -> Tested {
    tested(loader().load(name, component))
}

#[track_caller]
fn tested<E: Display>(loaded: Result<Policy, E>) -> Tested {
    Tested { policy: expect(loaded), settings: "{}".into() }
}

#[track_caller]
fn expect<T, E: Display>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

impl Tested {
    /// The same policy with these settings, as its binding would have them.
    ///
    /// # Panics
    /// When the policy refuses them for one of its hooks.
    #[track_caller]
    #[must_use]
    pub fn with_settings(mut self, settings: Value) -> Self {
        for hook in self.policy.hooks() {
            let errors = self.setting_errors(hook.name, &settings);
            assert!(errors.is_empty(), "the policy refuses these settings for `{}`: {errors:?}", hook.name);
        }
        self.settings = settings.to_string();
        self
    }

    /// The same policy under other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.policy = self.policy.with_limits(limits);
        self
    }

    /// Asks one of its hooks and returns the verdict.
    ///
    /// # Panics
    /// When there is none: the call failed, or the policy says `not-applicable`.
    #[track_caller]
    #[must_use]
    pub fn ask<H: Hook>(&self, input: impl Into<H::Input>) -> H::Verdict {
        match expect(self.outcome::<H>(input).result) {
            Reply::Verdict(verdict) => verdict,
            Reply::NotApplicable => panic!("the policy says `not-applicable` to `{}`", H::NAME),
        }
    }

    /// Asks one of its hooks and returns all that came of it: reply or error, fuel, log lines.
    #[must_use]
    pub fn outcome<H: Hook>(&self, input: impl Into<H::Input>) -> CallOutcome<H::Verdict> {
        self.policy.call::<H>(&input.into(), &self.settings)
    }

    /// What the policy dislikes in settings for one of its hooks.
    ///
    /// # Panics
    /// When the policy fails to say.
    #[track_caller]
    #[must_use]
    pub fn setting_errors(&self, hook: &str, settings: &Value) -> Vec<SettingError> {
        expect(self.policy.validate_settings(hook, &settings.to_string()))
    }

    /// What the policy says about itself.
    #[must_use]
    pub fn describe(&self) -> &Description {
        self.policy.describe()
    }

    /// The policy itself, for what isn't here.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }
}

/// One loader for all tests of a process.
#[track_caller]
fn loader() -> &'static Loader {
    static LOADER: OnceLock<Loader> = OnceLock::new();
    LOADER.get_or_init(|| {
        let loader = Loader::new(&expect(Engine::new(&EngineConfig::default())));
        match cache_folder() {
            Some(folder) => loader.with_cache(expect(CompileCache::open(folder))),
            None => loader,
        }
    })
}

/// Where compiled components are kept: in the target folder that this test was built into. None outside of one, as in a doc test.
#[must_use]
pub fn cache_folder() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let target = test.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file())?;
    Some(target.join("policy-cache"))
}
