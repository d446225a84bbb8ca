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
use crate::health::Health;
use crate::health::metrics::Metrics;
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
}

impl View {
    pub(super) fn new(health: watch::Sender<Health>, metrics: Metrics) -> Self {
        Self { health, metrics, status: None, calls: BTreeMap::new() }
    }

    /// A policy was called, or should have been.
    pub(super) fn called(&mut self, call: PolicyCall) {
        let binding = call.binding.clone().unwrap_or_default();
        self.metrics.policy_called(call.hook, binding, call.outcome, call.took);
        self.calls.insert(call.hook, call);
    }

    /// The driver is alive.
    pub(super) fn alive(&self) {
        self.health.send_modify(|health| health.alive_until = Some(Instant::now() + DEAD));
    }

    /// Shows the life. Whether that is another picture than before.
    pub(super) fn show(&mut self, status: &Status, policies: &PolicySet, now: Duration) -> bool {
        self.alive();
        if self.status.as_ref() == Some(status) {
            return false;
        }
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
        self.status = Some(status.clone());
        true
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
            "policySet": policies.digest().to_string(),
        })
    }
}
