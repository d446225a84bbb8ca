//! What the agent counts. Labels are words from short lists and names from the configuration, never error texts or names
//! of objects.

use std::time::Duration;

use moorline_policy::BindingStatus;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

/// A request to the API server that has been answered, or has failed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    /// `get`, `watch`, `patch` or `create`.
    pub verb: &'static str,
    /// The resource, such as `nodes` or `gatewaypoolnodes/status`.
    pub resource: &'static str,
    /// The status code; 0 where no answer came.
    pub code: u16,
}

/// A call of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PolicyLabels {
    /// The hook.
    pub hook: &'static str,
    /// The binding, as the policy set names it.
    pub binding: String,
    /// The kind of outcome, such as `decided`, `not-applicable`, `trapped` or `timed-out`.
    pub outcome: &'static str,
}

/// The hook that was asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct HookLabels {
    /// The hook.
    pub hook: &'static str,
}

/// The state of the life, or of a binding.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StateLabels {
    /// The state's word.
    pub state: &'static str,
}

/// Why a process ended, or why an Event was written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabels {
    /// The reason's word.
    pub reason: &'static str,
}

/// Something that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OutcomeLabels {
    /// `ok`, or the kind of failure in one word.
    pub outcome: &'static str,
}

/// What the data plane was asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct DataPlaneLabels {
    /// `plan`, `apply` or `teardown`.
    pub action: &'static str,
    /// `ok`, or the kind of failure in one word.
    pub outcome: &'static str,
}

/// Everything that is counted. Clones count into the same registry.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Requests to the API server.
    pub requests: Family<RequestLabels, Counter>,
    /// Calls of policies.
    pub policy_calls: Family<PolicyLabels, Counter>,
    /// The time of policy calls.
    pub policy_call_time: Family<HookLabels, Histogram>,
    /// Loads of a policy folder that had changed.
    pub policy_reloads: Family<OutcomeLabels, Counter>,
    policy_bindings: Family<StateLabels, Gauge>,
    state: Family<StateLabels, Gauge>,
    /// 1 while `/readyz` says so.
    pub ready: Gauge,
    /// Ends of the process.
    pub ends: Family<ReasonLabels, Counter>,
    /// Events that were written, or were to be.
    pub events: Family<ReasonLabels, Counter>,
    /// Writes of the ledger.
    pub ledger_writes: Family<OutcomeLabels, Counter>,
    /// Writes of the CNI file, disabling included.
    pub cni_writes: Family<OutcomeLabels, Counter>,
    /// Runs of the data plane.
    pub data_plane_runs: Family<DataPlaneLabels, Counter>,
}

/// From 50 µs, about what a call costs, to 0.8 s, beyond its deadline.
const CALL_SECONDS: [f64; 12] = [0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.05, 0.2, 0.5, 0.8];

impl Metrics {
    /// Makes them, and registers them under `moorline_`. `version` is the agent's.
    pub fn register(registry: &mut Registry, version: &str) -> Self {
        let metrics = Self {
            requests: Family::default(),
            policy_calls: Family::default(),
            policy_call_time: Family::new_with_constructor(|| Histogram::new(CALL_SECONDS)),
            policy_reloads: Family::default(),
            policy_bindings: Family::default(),
            state: Family::default(),
            ready: Gauge::default(),
            ends: Family::default(),
            events: Family::default(),
            ledger_writes: Family::default(),
            cni_writes: Family::default(),
            data_plane_runs: Family::default(),
        };
        let ours = registry.sub_registry_with_prefix("moorline");
        ours.register("build", "The agent", Info::new([("version", version.to_owned())]));
        ours.register("requests", "Requests to the API server; code 0 means no answer", metrics.requests.clone());
        ours.register("policy_calls", "Calls of policies by outcome", metrics.policy_calls.clone());
        ours.register_with_unit("policy_call", "Time of policy calls", Unit::Seconds, metrics.policy_call_time.clone());
        ours.register("policy_reloads", "Loads of a changed policy folder by outcome", metrics.policy_reloads.clone());
        ours.register("policy_bindings", "Bindings that answer, rest or were refused", metrics.policy_bindings.clone());
        ours.register("state", "1 for the state of the life, 0 for the others that it was in", metrics.state.clone());
        ours.register("ready", "1 while the agent is ready", metrics.ready.clone());
        ours.register("ends", "Ends of the process by reason", metrics.ends.clone());
        ours.register("events", "Events about the Node by reason", metrics.events.clone());
        ours.register("ledger_writes", "Writes of the ledger", metrics.ledger_writes.clone());
        ours.register("cni_writes", "Writes of the CNI file, disabling included", metrics.cni_writes.clone());
        ours.register("data_plane_runs", "Runs of the data plane", metrics.data_plane_runs.clone());
        metrics
    }

    /// Says in which state the life is now, by its word, and in which it was.
    pub fn enter(&self, state: &'static str, from: Option<&'static str>) {
        if let Some(from) = from {
            self.state.get_or_create(&StateLabels { state: from }).set(0);
        }
        self.state.get_or_create(&StateLabels { state }).set(1);
    }

    /// How the bindings are.
    pub fn bindings(&self, bindings: &[BindingStatus]) {
        let count = |state, is: &dyn Fn(&BindingStatus) -> bool| {
            let many = bindings.iter().filter(|binding| is(binding)).count();
            self.policy_bindings.get_or_create(&StateLabels { state }).set(i64::try_from(many).unwrap_or(i64::MAX));
        };
        count("refused", &|binding| binding.refused.is_some());
        count("resting", &|binding| binding.resting_seconds.is_some());
        count("answering", &|binding| binding.refused.is_none() && binding.resting_seconds.is_none());
    }

    /// A policy was asked, in real time.
    pub fn policy_called(&self, hook: &'static str, binding: String, outcome: &'static str, took: Duration) {
        self.policy_calls.get_or_create(&PolicyLabels { hook, binding, outcome }).inc();
        self.policy_call_time.get_or_create(&HookLabels { hook }).observe(took.as_secs_f64());
    }
}
