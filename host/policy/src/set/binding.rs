//! One binding: a policy, its settings, the Sites that it is for, and what its failure means. It can be asked by itself, which
//! is how a decision stays with the component that made it.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::Serialize;

use super::{Grants, Trouble, TroubleCause, breaker::Breaker, file::Sites};
use crate::{CallFault, CallRecord, Digest, Hook, LoadError, Observer, OnFailure, Policy, Reply};

/// A policy bound to a hook.
pub struct Binding {
    parts: BindingParts,
    breaker: Mutex<Breaker>,
}

pub(super) struct BindingParts {
    pub(super) hook: &'static str,
    pub(super) name: String,
    pub(super) module: String,
    pub(super) sites: Option<Sites>,
    pub(super) settings: String,
    pub(super) on_failure: OnFailure,
    pub(super) grants: Grants,
    pub(super) policy: Result<Policy, Arc<LoadError>>,
    pub(super) observer: Option<Arc<dyn Observer>>,
}

/// What asking one binding yields.
#[derive(Clone, Debug)]
pub enum Asked<V> {
    /// Its verdict.
    Verdict(V),
    /// It has no opinion here.
    NotApplicable,
    /// It didn't answer.
    Failed(Trouble),
}

/// A binding as `/status` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct BindingStatus {
    /// The hook.
    pub hook: &'static str,
    /// The binding's name.
    pub binding: String,
    /// The module's name.
    pub module: String,
    /// Name and version that the policy gives itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The component's digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The globs of the Sites that it is for; all Sites where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<String>,
    /// What its failure means.
    pub on_failure: OnFailure,
    /// Failures in a row.
    pub failures: u32,
    /// Seconds until it is called again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resting_seconds: Option<u64>,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl Binding {
    pub(super) fn new(parts: BindingParts) -> Self {
        Self { parts, breaker: Mutex::default() }
    }

    /// Whether asking the other would be the same as asking this one, but for what its breaker remembers.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let BindingParts { hook, name, module, sites, settings, on_failure, grants, policy, observer: _ } = &self.parts;
        let of = &other.parts;
        let globs = |sites: &Option<Sites>| sites.as_ref().map(|sites| sites.globs.clone());
        let same_policy = matches!((policy, &of.policy), (Ok(one), Ok(other)) if one.is_same(other));
        (hook, name, module, settings, on_failure, grants)
            == (&of.hook, &of.name, &of.module, &of.settings, &of.on_failure, &of.grants)
            && globs(sites) == globs(&of.sites)
            && same_policy
    }

    /// The hook that it answers.
    #[must_use]
    pub fn hook(&self) -> &'static str {
        self.parts.hook
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.parts.name
    }

    /// What its failure means.
    #[must_use]
    pub fn on_failure(&self) -> OnFailure {
        self.parts.on_failure
    }

    pub(super) fn holds(&self) -> bool {
        self.parts.on_failure == OnFailure::Hold
    }

    /// What the operator trusts it with.
    #[must_use]
    pub fn grants(&self) -> &Grants {
        &self.parts.grants
    }

    /// Its settings, as JSON.
    #[must_use]
    pub fn settings(&self) -> &str {
        &self.parts.settings
    }

    /// Its policy.
    ///
    /// # Errors
    /// When the policy was refused at load.
    pub fn policy(&self) -> Result<&Policy, &Arc<LoadError>> {
        self.parts.policy.as_ref()
    }

    /// Whether it is for this Site. A binding limited to Sites matches nothing while the Site isn't known.
    #[must_use]
    pub fn matches(&self, site: Option<&str>) -> bool {
        match (&self.parts.sites, site) {
            (None, _) => true,
            (Some(sites), Some(site)) => sites.contain(site),
            (Some(_), None) => false,
        }
    }

    /// Asks this binding alone, whatever its Sites. `now` is the clock that [`PolicySet::ask`](crate::PolicySet::ask) uses.
    #[must_use]
    pub fn ask<H: Hook>(&self, input: &H::Input, now: Duration) -> Asked<H::Verdict> {
        let policy = match &self.parts.policy {
            Ok(policy) => policy,
            Err(error) => return self.not_called(TroubleCause::Refused(error.clone()), None),
        };
        if let Some(rest) = self.breaker().forbids(now) {
            return self.not_called(TroubleCause::Resting(rest.last), Some(rest.until));
        }
        // Not under the lock: a call may take as long as its deadline.
        let outcome = policy.call::<H>(input, &self.parts.settings);
        if let Some(observer) = &self.parts.observer {
            observer.called(&CallRecord::new::<H>(self, policy, input, &outcome));
        }
        match outcome.result {
            Ok(reply) => {
                self.breaker().succeeded();
                match reply {
                    Reply::Verdict(verdict) => Asked::Verdict(verdict),
                    Reply::NotApplicable => Asked::NotApplicable,
                }
            }
            Err(error) => {
                let mut breaker = self.breaker();
                let until = match error.fault {
                    CallFault::PoolFull => breaker.resting_until(),
                    _ => breaker.failed(now, &error),
                };
                drop(breaker);
                Asked::Failed(self.trouble(TroubleCause::Failed(error), until))
            }
        }
    }

    fn not_called<V>(&self, cause: TroubleCause, ask_again_at: Option<Duration>) -> Asked<V> {
        let trouble = self.trouble(cause, ask_again_at);
        if let Some(observer) = &self.parts.observer {
            observer.not_called(self, &trouble);
        }
        Asked::Failed(trouble)
    }

    /// How it is, for people and machines that look from outside.
    #[must_use]
    pub fn status(&self, now: Duration) -> BindingStatus {
        let (policy, refused) = (self.parts.policy.as_ref().ok(), self.parts.policy.as_ref().err());
        let breaker = self.breaker();
        BindingStatus {
            hook: self.parts.hook,
            binding: self.parts.name.clone(),
            module: self.parts.module.clone(),
            policy: policy.map(|policy| format!("{} {}", policy.describe().name, policy.describe().version)),
            digest: policy.map(Policy::digest).or_else(|| refused.and_then(|error| error.digest)),
            sites: self.parts.sites.as_ref().map(|sites| sites.globs.clone()).unwrap_or_default(),
            on_failure: self.parts.on_failure,
            failures: breaker.failures(),
            resting_seconds: breaker.resting_until().map(|until| until.saturating_sub(now).as_secs()),
            refused: refused.map(ToString::to_string),
        }
    }

    fn trouble(&self, cause: TroubleCause, ask_again_at: Option<Duration>) -> Trouble {
        Trouble { hook: self.parts.hook, binding: self.parts.name.clone(), cause, ask_again_at }
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Binding")
            .field("hook", &self.hook())
            .field("name", &self.name())
            .field("policy", &self.parts.policy)
            .finish_non_exhaustive()
    }
}
