//! The life as the outside sees it: probes, /status, metrics. It shows what there is and asks nobody.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use moorline_lifecycle::{State, Status};
use moorline_policy::PolicySet;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::VERSION;
use crate::config::PolicyMode;
use crate::health::Health;
use crate::health::metrics::{Metrics, OutcomeLabels};
use crate::journal::PolicyCall;

/// The driver turns at least once in this time.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(10);
/// A driver that has not turned for so long is dead.
const DEAD: Duration = Duration::from_secs(60);

/// What was last shown.
pub(super) struct View {
    health: watch::Sender<Health>,
    metrics: Metrics,
    status: Option<Status>,
    /// The last call for each hook.
    calls: BTreeMap<&'static str, PolicyCall>,
    mode: PolicyMode,
    /// Since when the policy set is in use.
    set_since: Duration,
    /// When a set was last refused, and why, until one is in use again.
    refusal: Option<(Duration, String)>,
    /// What is shown isn't what there is, although the life is the same.
    stale: bool,
}

impl View {
    pub(super) fn new(health: watch::Sender<Health>, metrics: Metrics, mode: PolicyMode, now: Duration) -> Self {
        Self { health, metrics, status: None, calls: BTreeMap::new(), mode, set_since: now, refusal: None, stale: true }
    }

    /// The policy folder was loaded anew: the set in use is another one, or the same.
    pub(super) fn reloaded(&mut self, now: Duration, outcome: &'static str) {
        self.metrics.policy_reloads.get_or_create(&OutcomeLabels { outcome }).inc();
        if outcome != "unchanged" {
            self.set_since = now;
        }
        self.refusal = None;
        self.stale = true;
    }

    /// The policy folder holds a set that is refused.
    pub(super) fn refused(&mut self, now: Duration, reason: String) {
        self.metrics.policy_reloads.get_or_create(&OutcomeLabels { outcome: "refused" }).inc();
        self.refusal = Some((now, reason));
        self.stale = true;
    }

    /// Nothing happened for a while, but for time.
    pub(super) fn beat(&mut self) {
        self.stale = true;
    }

    /// A policy was called, or should have been.
    pub(super) fn called(&mut self, call: PolicyCall) {
        let binding = call.binding.clone().unwrap_or_default();
        self.metrics.policy_called(call.hook, binding, call.outcome, call.took);
        self.calls.insert(call.hook, call);
        self.stale = true;
    }

    fn alive(&self) {
        self.health.send_modify(|health| health.alive_until = Some(Instant::now() + DEAD));
    }

    /// Shows the life, of a driver that is alive. Whether the life is another one than before.
    pub(super) fn show(&mut self, status: &Status, policies: &PolicySet, now: Duration) -> bool {
        self.alive();
        let changed = self.status.as_ref() != Some(status);
        if !changed && !std::mem::take(&mut self.stale) {
            return false;
        }
        self.stale = false;
        let before = self.status.as_ref().map_or(State::Starting, |status| status.state);
        if before != status.state {
            self.metrics.enter(status.state.as_str(), Some(before.as_str()));
        }
        self.metrics.ready.set(status.ready.into());
        let page = Arc::new(self.page(status, policies, now));
        self.health.send_modify(|health| {
            health.ready = status.ready;
            health.missing.clone_from(&status.missing);
            health.status = page;
        });
        if changed {
            self.status = Some(status.clone());
        }
        changed
    }

    fn page(&self, status: &Status, policies: &PolicySet, now: Duration) -> Value {
        let verdict = |call: &PolicyCall| {
            json!({
                "binding": call.binding,
                "policy": call.policy,
                "digest": call.digest,
                "verdict": call.verdict,
                "reason": call.reason,
            })
        };
        let verdicts: Map<_, _> = self.calls.iter().map(|(hook, call)| ((*hook).to_owned(), verdict(call))).collect();
        let bindings: Vec<_> = policies.bindings().map(|binding| binding.status(now)).collect();
        self.metrics.bindings(&bindings);
        let refusal =
            self.refusal.as_ref().map(|(at, reason)| json!({"atSeconds": at.as_secs_f64(), "reason": reason}));
        json!({
            "version": VERSION,
            "state": status.state,
            "sinceSeconds": status.since.as_secs_f64(),
            "ready": status.ready,
            "missing": status.missing,
            "assignment": status.assignment,
            "adoptionReason": status.adoption_reason,
            "nodeWatched": status.node_watched,
            "lastVerdicts": verdicts,
            "bindings": bindings,
            "policySet": {
                "digest": policies.digest(),
                "mode": self.mode,
                "sinceSeconds": self.set_since.as_secs_f64(),
                "refused": refusal,
                "warnings": policies.warnings(),
            },
        })
    }
}
