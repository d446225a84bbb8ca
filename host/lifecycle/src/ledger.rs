//! The durable list of what the agent has put on this machine and in the cluster. This module says what it holds; where
//! it is kept and how it reaches the disk is an effector's.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::objects::Assignment;

/// The version of the ledger's form that this code writes.
pub const LEDGER_VERSION: u32 = 1;

/// What the agent has put where. Written before it is done, so that after a crash at any point the ledger lists at least
/// what there is; transition cleanup undoes what it lists, and only that.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// The version of the form; see [`LEDGER_VERSION`].
    pub version: u32,
    /// The Node that this ledger is about.
    pub node_name: String,
    /// The assignment that is set up, or that was last being set up.
    pub assignment: Option<Assignment>,
    /// The machine's boot id when the ledger was written: interface indexes of another boot mean nothing.
    pub boot_id: Option<String>,
    /// Contents that the agent may have put into its CNI file: the last one written, and the one about to be.
    #[serde(default)]
    pub cni: BTreeSet<String>,
    /// What the data plane said it would put where: the plan that is in effect, and the one about to be.
    #[serde(default)]
    pub data_plane: Vec<serde_json::Value>,
    /// No ledger was there when this one began, and no data plane has been set up since: what an earlier process put on this
    /// machine may be here and not listed, so that marks alone tell what is the agent's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub incomplete: bool,
    /// Routes may be advertised on the own GatewayPoolNode.
    #[serde(default)]
    pub advertised: bool,
    /// The acknowledgment that was, or was about to be, written.
    pub acknowledgment: Option<Acknowledged>,
    /// Ends that only a policy wanted, for the restart guard; the oldest first.
    #[serde(default)]
    pub policy_ends: Vec<PolicyEnd>,
    /// Fields of a newer version, kept as they are.
    #[serde(flatten)]
    pub unknown: serde_json::Map<String, serde_json::Value>,
}

/// An acknowledgment in the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Acknowledged {
    /// The Pod on which it stands. Another Pod's has nothing to withdraw: that Pod is gone.
    pub pod_uid: String,
    /// Every annotation key that was written.
    pub keys: BTreeSet<String>,
    /// It has to be withdrawn as the first write of the next process on the same Pod.
    #[serde(default)]
    pub owed: bool,
}

/// An end of a process that a policy's `drifted` caused although the projection was unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyEnd {
    /// The binding that said so.
    pub binding: String,
    /// Wall clock, milliseconds since the Unix epoch.
    pub at_ms: i64,
}

impl Ledger {
    /// A ledger that lists nothing yet.
    pub fn empty(node_name: impl Into<String>) -> Self {
        Self {
            version: LEDGER_VERSION,
            node_name: node_name.into(),
            assignment: None,
            boot_id: None,
            cni: BTreeSet::new(),
            data_plane: Vec::new(),
            incomplete: false,
            advertised: false,
            acknowledgment: None,
            policy_ends: Vec::new(),
            unknown: serde_json::Map::new(),
        }
    }
}
