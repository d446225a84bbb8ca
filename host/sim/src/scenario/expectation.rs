//! What has to be true of a run. Data only; `check` decides.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::pattern::{Count, EntryPattern, ObjectCheck, RequestPattern, Turn};
use super::time::Time;

/// One expectation: exactly one thing, at the end of the run, at a moment, or at some moment up to a limit.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expectation {
    /// What it is about, for the report.
    pub name: Option<String>,
    /// It has to become true up to this time.
    pub by: Option<Time>,
    /// It has to be true at this time.
    pub at: Option<Time>,

    /// The agent is settled, with this assignment.
    pub settled: Option<AssignmentCheck>,
    /// The acknowledgment on the agent's own Pod.
    pub acknowledgment: Option<AcknowledgmentCheck>,
    /// Taints of the agent's own Node.
    pub taints: Option<TaintsCheck>,
    /// The routes that are advertised on the agent's own GatewayPoolNode: these and no others.
    pub routes: Option<Vec<String>>,
    /// Any object.
    pub object: Option<ObjectCheck>,
    /// How many requests there were.
    pub requests: Option<RequestsCheck>,
    /// No write but such ones.
    pub only_writes: Option<Vec<RequestPattern>>,
    /// In no process a watch on Nodes is opened once its acknowledgment is saved, and none stays open.
    pub startup_watch_ends: Option<bool>,
    /// Entries of the timeline in this order, whatever stands between them.
    pub timeline: Option<Vec<Turn>>,
    /// How many entries of a kind the timeline has.
    pub entries: Option<EntriesCheck>,
    /// How many answers of policies there were.
    pub verdicts: Option<VerdictsCheck>,
    /// The files under a folder of the machine: these and no others.
    pub folder: Option<FolderCheck>,
    /// One file of the machine.
    pub file: Option<FileCheck>,
    /// The exit codes of all processes that have ended, in order; a killed one has 137.
    pub exits: Option<Vec<i32>>,
    /// What `/readyz` says.
    pub readyz: Option<ReadyzCheck>,
}

/// A settled assignment.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AssignmentCheck {
    /// The Site.
    pub site: String,
    /// The GatewayPool; left out, the Node is a worker.
    pub pool: Option<String>,
}

/// The acknowledgment on the agent's own Pod.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AcknowledgmentCheck {
    /// Whether there is one; true where it isn't said.
    #[serde(default = "yes")]
    pub present: bool,
    /// What its JSON says, among others.
    #[serde(default)]
    pub says: Map<String, Value>,
}

fn yes() -> bool {
    true
}

/// Taints of a Node, by key or as `key:effect`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaintsCheck {
    /// These are there.
    #[serde(default)]
    pub present: Vec<String>,
    /// These are not.
    #[serde(default)]
    pub absent: Vec<String>,
}

/// A number of requests of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RequestsCheck {
    /// Which.
    #[serde(default)]
    pub of: RequestPattern,
    /// Which part of a process' life.
    #[serde(default)]
    pub during: Phase,
    /// Not fewer.
    pub min: Option<usize>,
    /// Not more.
    pub max: Option<usize>,
    /// Just so many.
    pub exactly: Option<usize>,
}

/// A part of a process' life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// All of it.
    #[default]
    Life,
    /// From its start until it is settled.
    Startup,
    /// From then on.
    Settled,
}

/// A number of entries of the timeline.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EntriesCheck {
    /// Which.
    pub of: EntryPattern,
    /// Not fewer.
    pub min: Option<usize>,
    /// Not more.
    pub max: Option<usize>,
    /// Just so many.
    pub exactly: Option<usize>,
}

/// A number of answers of policies.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VerdictsCheck {
    /// Of this hook.
    pub hook: Option<String>,
    /// Of this policy.
    pub policy: Option<String>,
    /// With this verdict.
    pub verdict: Option<String>,
    /// With this in the reason; `*` stands for anything between two parts.
    pub reason: Option<String>,
    /// Not fewer.
    pub min: Option<usize>,
    /// Not more.
    pub max: Option<usize>,
    /// Just so many.
    pub exactly: Option<usize>,
}

impl From<&RequestsCheck> for Count {
    fn from(check: &RequestsCheck) -> Self {
        Self { min: check.min, max: check.max, exactly: check.exactly }
    }
}

impl From<&EntriesCheck> for Count {
    fn from(check: &EntriesCheck) -> Self {
        Self { min: check.min, max: check.max, exactly: check.exactly }
    }
}

impl From<&VerdictsCheck> for Count {
    fn from(check: &VerdictsCheck) -> Self {
        Self { min: check.min, max: check.max, exactly: check.exactly }
    }
}

/// The files under a folder.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FolderCheck {
    /// The folder, from the machine's root folder.
    #[serde(default)]
    pub path: PathBuf,
    /// The paths of the files in it and below, from this folder; `*` stands for anything.
    pub holds: Vec<String>,
}

/// One file.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileCheck {
    /// Where, from the machine's root folder.
    pub path: PathBuf,
    /// Whether it is there.
    pub exists: Option<bool>,
    /// What it holds.
    pub content: Option<String>,
    /// The JSON that it holds.
    pub json: Option<Value>,
    /// Members that its JSON has, among others.
    pub includes: Option<Value>,
    /// It holds what it held at this snapshot.
    pub same_as: Option<String>,
    /// It was not written since this snapshot, not even with the same content.
    pub untouched_since: Option<String>,
}

/// What `/readyz` says.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadyzCheck {
    /// Whether it says so.
    pub ready: Option<bool>,
    /// Parts of its text.
    #[serde(default)]
    pub contains: Vec<String>,
}
