//! A loaded policy: what it says about itself, and the calls to it. Loading is `loader.rs`, the sandbox is `store.rs`; which
//! policy is asked when is not decided here.

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use wasmtime::component::{ComponentExportIndex, ComponentType, InstancePre, Lift, Lower};

use crate::{
    CallError, CallFault, Digest, Engine, Hook, KnownHook, Level, Limits, Logs,
    error::Raise,
    hook::{Params, PolicyError, Results},
    hooks::cut,
    store::{self, Host},
};

/// What a policy says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
#[serde(rename_all = "kebab-case")]
pub struct Description {
    /// What its author calls it.
    pub name: String,
    /// Its version.
    pub version: String,
    /// One line for people.
    pub summary: String,
    /// A JSON Schema of the settings.
    #[component(name = "settings-schema")]
    pub settings_schema: Option<String>,
}

/// Something that a policy dislikes in its settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
pub struct SettingError {
    /// JSON pointer into the settings.
    pub path: String,
    /// What is wrong there.
    pub message: String,
}

/// What a policy replied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply<V> {
    /// Its verdict.
    Verdict(V),
    /// It has no opinion here.
    NotApplicable,
}

/// A finished call, whether or not it gave a verdict.
#[derive(Clone, Debug)]
pub struct CallOutcome<V> {
    /// The reply, or why there is none.
    pub result: Result<Reply<V>, CallError>,
    /// Units of fuel used: the same for the same call on every machine.
    pub fuel: u64,
    /// Wall-clock time, instantiation included.
    pub elapsed: Duration,
    /// What the policy logged.
    pub logs: Logs,
}

/// A policy, loaded and looked over, with the limits of its calls. Clones share the code.
#[derive(Clone)]
pub struct Policy {
    loaded: Arc<Loaded>,
    limits: Arc<Limits>,
}

pub(crate) struct Loaded {
    pub(crate) name: String,
    pub(crate) digest: Digest,
    pub(crate) engine: Engine,
    pub(crate) pre: InstancePre<Host>,
    pub(crate) description: Description,
    pub(crate) validate_settings: ComponentExportIndex,
    pub(crate) hooks: Vec<(KnownHook, ComponentExportIndex)>,
}

impl Policy {
    pub(crate) fn new(loaded: Loaded, limits: Limits) -> Self {
        Self { loaded: Arc::new(loaded), limits: Arc::new(limits) }
    }

    /// What the host calls it: the name it was loaded under.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.loaded.name
    }

    /// SHA-256 of the component.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.loaded.digest
    }

    /// What it says about itself, as asked once at load.
    #[must_use]
    pub fn describe(&self) -> &Description {
        &self.loaded.description
    }

    /// The known hooks that it answers.
    pub fn hooks(&self) -> impl Iterator<Item = &KnownHook> {
        self.loaded.hooks.iter().map(|(hook, _)| hook)
    }

    /// The limits of its calls.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether it is the same code, loaded once, under the same limits.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.loaded, &other.loaded) && self.limits == other.limits
    }

    /// The same policy under other limits.
    #[must_use]
    pub fn with_limits(&self, limits: Limits) -> Self {
        Self { loaded: self.loaded.clone(), limits: Arc::new(limits) }
    }

    /// Asks the policy one question. `settings` is a JSON document, `{}` where there are none.
    ///
    /// The call blocks for as long as the deadline allows: make it on a thread that may wait.
    #[must_use]
    pub fn call<H: Hook>(&self, input: &H::Input, settings: &str) -> CallOutcome<H::Verdict> {
        let limits = &*self.limits;
        if !H::fits(input, limits.input_string_bytes) {
            let mut shortened = input.clone();
            H::cut(&mut shortened, limits.input_string_bytes);
            return self.call_with::<H>(&shortened, settings);
        }
        self.call_with::<H>(input, settings)
    }

    fn call_with<H: Hook>(&self, input: &H::Input, settings: &str) -> CallOutcome<H::Verdict> {
        let (loaded, limits) = (&*self.loaded, &*self.limits);
        let Some((_, export)) = loaded.hooks.iter().find(|(hook, _)| hook.interface == H::INTERFACE) else {
            let result = Err(self.error::<H>(CallFault::NotExported, None));
            return CallOutcome { result, fuel: 0, elapsed: Duration::ZERO, logs: Logs::default() };
        };
        let mut ran =
            store::call::<Params<'_, H>, Results<H>>(&loaded.engine, &loaded.pre, export, (input, settings), limits);
        let (fuel, elapsed, logs, said) = (ran.fuel, ran.elapsed, std::mem::take(&mut ran.logs), ran.panic.take());
        self.pass_on::<H>(&logs);
        let result = match ran.result {
            Err(failure) => Err(CallFault::of(failure, limits)),
            Ok((Err(PolicyError::NotApplicable),)) => Ok(Reply::NotApplicable),
            Ok((Err(PolicyError::InvalidInput(text)),)) => Err(CallFault::InvalidInput(shortened(text, limits))),
            Ok((Err(PolicyError::Internal(text)),)) => Err(CallFault::Internal(shortened(text, limits))),
            Ok((Ok(verdict),)) => checked::<H>(&verdict, limits).map(|()| Reply::Verdict(verdict)),
        };
        let result = result.map_err(|fault| self.error::<H>(fault, said));
        CallOutcome { result, fuel, elapsed, logs }
    }

    fn error<H: Hook>(&self, fault: CallFault, said: Option<String>) -> CallError {
        CallError { policy: self.name().to_owned(), digest: self.digest(), function: H::NAME, fault, said }
    }

    /// Asks one of its hooks, by name, with an input in JSON. `None` when it doesn't answer that hook.
    ///
    /// # Errors
    /// When `input` is not an input of that hook.
    pub fn call_json(
        &self,
        hook: &str,
        input: Value,
        settings: &str,
    ) -> Option<Result<CallOutcome<Value>, serde_json::Error>> {
        let known = self.hooks().find(|known| known.name == hook)?;
        Some((known.call_json)(self, input, settings))
    }

    /// Asks the policy what it dislikes in the settings of a binding to one of its hooks.
    ///
    /// # Errors
    /// When the policy fails to say.
    pub fn validate_settings(&self, hook: &str, settings: &str) -> Result<Vec<SettingError>, CallError> {
        let (loaded, limits) = (&*self.loaded, &*self.limits);
        let ran = store::unless_late(|| {
            store::call::<(&str, &str), ValidateResults>(
                &loaded.engine,
                &loaded.pre,
                &loaded.validate_settings,
                (hook, settings),
                limits,
            )
        });
        let (answer,) = ran.reported(self.name(), self.digest(), "validate-settings", limits)?;
        Ok(answer.err().unwrap_or_default())
    }

    /// Repeats what the policy logged on the host's own log, under a target of its own. `error` is the host's word for "a
    /// person has to act", so a guest gets no further than `warn`.
    fn pass_on<H: Hook>(&self, logs: &Logs) {
        let (policy, hook) = (self.name(), H::NAME);
        for (level, line) in &logs.lines {
            match level {
                Level::Trace => tracing::trace!(target: "moorline_policy::guest", policy, hook, "{line}"),
                Level::Debug => tracing::debug!(target: "moorline_policy::guest", policy, hook, "{line}"),
                Level::Info => tracing::info!(target: "moorline_policy::guest", policy, hook, "{line}"),
                Level::Warn | Level::Error => tracing::warn!(target: "moorline_policy::guest", policy, hook, "{line}"),
            }
        }
        if logs.dropped > 0 {
            tracing::debug!(target: "moorline_policy::guest", policy, hook, dropped = logs.dropped, "log lines were dropped");
        }
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy").field("name", &self.name()).field("digest", &self.digest()).finish_non_exhaustive()
    }
}

/// Results of `validate-settings`.
pub(crate) type ValidateResults = (Result<(), Vec<SettingError>>,);

fn checked<H: Hook>(verdict: &H::Verdict, limits: &Limits) -> Result<(), CallFault> {
    let bytes = H::reason(verdict).len();
    if bytes > limits.reason_bytes {
        return Err(CallFault::BadOutput(format!(
            "its reason has {bytes} bytes and may have {}.{}",
            limits.reason_bytes,
            Raise("reason")
        )));
    }
    H::check(verdict).map_err(CallFault::BadOutput)
}

/// What a policy says about its own failure, no longer than a reason.
fn shortened(mut text: String, limits: &Limits) -> String {
    cut(&mut text, limits.reason_bytes);
    text
}
