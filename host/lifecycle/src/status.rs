//! The life as seen from outside: for /readyz, /status, logs and metrics.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::objects::Assignment;

/// The state of the life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The start is splayed, or nothing is known yet.
    Starting,
    /// The own Node is being read.
    Identifying,
    /// The adoption hook says `wait`.
    WaitingForAssignment,
    /// The Node is confirmed absent.
    NodeAbsent,
    /// Adopted; Site, pool or CNI verdict are not known yet.
    Adopted,
    /// What an earlier assignment set up is being left.
    HandingOff,
    /// Machine and objects are being made to match the assignment.
    Reconciling,
    /// The acknowledgment is being written.
    Acknowledging,
    /// Acknowledged, startup watch closed, serving.
    Settled,
    /// The process is ending.
    Ending,
    /// The process has ended.
    Ended,
}

impl State {
    /// The word in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Identifying => "identifying",
            Self::WaitingForAssignment => "waiting-for-assignment",
            Self::NodeAbsent => "node-absent",
            Self::Adopted => "adopted",
            Self::HandingOff => "handing-off",
            Self::Reconciling => "reconciling",
            Self::Acknowledging => "acknowledging",
            Self::Settled => "settled",
            Self::Ending => "ending",
            Self::Ended => "ended",
        }
    }
}

/// Something that is missing before the agent is settled, or that a person should know.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Missing {
    /// What, in a word or two (`assignment`, `site`, `pool`, `taints`, …).
    pub what: String,
    /// Why, for people.
    pub reason: String,
}

/// The life as seen from outside at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The state.
    pub state: State,
    /// Since when, as time since the start of the process.
    pub since: Duration,
    /// Whether /readyz says so: settled while no reconciliation fails, or waiting for an assignment.
    pub ready: bool,
    /// What is missing, the first cause first.
    pub missing: Vec<Missing>,
    /// The adopted assignment.
    pub assignment: Option<Assignment>,
    /// The reason of the adoption.
    pub adoption_reason: Option<String>,
    /// Whether the startup watch is open.
    pub node_watched: bool,
}
