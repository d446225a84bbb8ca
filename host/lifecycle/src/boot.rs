//! What a life is born with: the operator's settings and bounds, who it is, and what earlier lives left.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ledger::Ledger;

/// The operator's part: names, floors, deadlines.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Settings {
    /// The own Node's name.
    pub node_name: String,
    /// The own Pod's name.
    pub pod_name: String,
    /// The own Pod's namespace.
    pub pod_namespace: String,
    /// The own Pod's UID: every write on the Pod is guarded by it.
    pub pod_uid: String,
    /// Taint keys that a verdict may have removed.
    pub allowed_taints: BTreeSet<String>,
    /// The gateway taint's key: never removed from a gateway, never acknowledged on a worker.
    pub gateway_taint: String,
    /// Prefixes (with their slash) of annotation keys that a verdict may set on the Pod.
    pub annotation_prefixes: BTreeSet<String>,
    /// Bounds on a CNI configuration.
    pub cni: CniBounds,
    /// The time an end may take, from its cause to the exit.
    pub end_deadline: Duration,
    /// The time that the API's part of a forced cleanup may take before it is owed.
    pub cleanup_deadline: Duration,
    /// The wait after an admission denial (up to 20 % more).
    pub denial_interval: Duration,
    /// The shortest and the longest time that a watch is asked to live; each takes a random one between.
    pub watch_lifetime: (Duration, Duration),
    /// The longest splay of a start that follows another within a minute.
    pub start_splay: Duration,
    /// The longest delay between a change of a settled agent's Site and rendering again.
    pub render_splay: Duration,
    /// Whether Events are written at all.
    pub events: bool,
}

/// Bounds on a CNI configuration that no verdict crosses.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CniBounds {
    /// Plugin types beyond the strictly parsed ones that every binding may use.
    pub plugin_types: BTreeSet<String>,
    /// Names that a bridge may have.
    pub bridge_names: BTreeSet<String>,
    /// Folders that host-local may keep its data in.
    pub data_dirs: BTreeSet<String>,
    /// The largest configuration, in bytes.
    pub max_bytes: usize,
}

/// Who the agent is, for the record that it leaves.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct AgentIdentity {
    /// The agent's version.
    pub version: String,
    /// The policies in use: name and digest.
    pub policies: Vec<(String, String)>,
}

/// What the ledger's folder held.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LedgerFound {
    /// No ledger, or one that could not be read and was set aside.
    None,
    /// This one.
    Some(Box<Ledger>),
}

/// What a life is born with.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Boot {
    /// The operator's part.
    pub settings: Settings,
    /// Who the agent is.
    pub identity: AgentIdentity,
    /// Policies that were refused at load, each with the reason: an Event tells of them.
    pub refused_policies: Vec<String>,
    /// What earlier lives left.
    pub ledger: LedgerFound,
    /// Where there is no ledger: the CNI configuration that is in place, if it is recognised as the agent's own all the same.
    pub cni_in_place: Option<String>,
    /// The machine's boot id.
    pub boot_id: Option<String>,
    /// How long ago the last process started, where known.
    pub previous_start_ago: Option<Duration>,
    /// The wall clock at time zero, milliseconds since the Unix epoch; for records, never for waits.
    pub wall_ms: i64,
    /// Seeds the jitter.
    pub seed: u64,
}

impl Settings {
    /// The documented defaults.
    pub fn new(
        node_name: impl Into<String>,
        pod_name: impl Into<String>,
        pod_namespace: impl Into<String>,
        pod_uid: impl Into<String>,
    ) -> Self {
        let gateway_taint = "net.unbounded-cloud.io/gateway-node";
        Self {
            node_name: node_name.into(),
            pod_name: pod_name.into(),
            pod_namespace: pod_namespace.into(),
            pod_uid: pod_uid.into(),
            allowed_taints: BTreeSet::from([gateway_taint.into()]),
            gateway_taint: gateway_taint.into(),
            annotation_prefixes: BTreeSet::from(["moorline.dev/".into()]),
            cni: CniBounds::default(),
            end_deadline: Duration::from_secs(10),
            cleanup_deadline: Duration::from_secs(10),
            denial_interval: Duration::from_secs(300),
            watch_lifetime: (Duration::from_secs(1800), Duration::from_secs(3600)),
            start_splay: Duration::from_secs(10),
            render_splay: Duration::from_secs(30),
            events: true,
        }
    }
}

impl Default for CniBounds {
    fn default() -> Self {
        Self {
            plugin_types: BTreeSet::new(),
            bridge_names: BTreeSet::from(["cbr0".into()]),
            data_dirs: BTreeSet::from(["/var/lib/cni/networks".into()]),
            max_bytes: 64 * 1024,
        }
    }
}

impl Boot {
    /// A first start on this Node: nothing was left, time zero is the Unix epoch, no jitter worth the name.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            identity: AgentIdentity::default(),
            refused_policies: Vec::new(),
            ledger: LedgerFound::None,
            cni_in_place: None,
            boot_id: None,
            previous_start_ago: None,
            wall_ms: 0,
            seed: 0,
        }
    }
}
