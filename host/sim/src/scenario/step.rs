//! The steps of a scenario: when each is taken, and what it does. Data only.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use super::pattern::{EntryPattern, ObjectCheck, ObjectRef, RequestPattern};
use super::time::Time;
use super::timeline::{Source, TimelineEntry};
use crate::server::Verb;

/// One step. It is taken once the step before it was taken and its own time has come, or its condition was seen since
/// then. It has at most one of `at`, `after` and `when`, and exactly one action.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Step {
    /// The time since the start of the run.
    pub at: Option<Time>,
    /// The time since the step before it; together with `when`, since the condition was seen.
    pub after: Option<Time>,
    /// What has to be seen.
    pub when: Option<Condition>,
    /// Why, for the timeline.
    pub note: Option<String>,

    /// Creates an object, or replaces it by this one (with the uid that it has here, if it has one).
    pub apply: Option<Value>,
    /// Merge-patches an object.
    pub patch: Option<PatchStep>,
    /// Deletes an object.
    pub delete: Option<ObjectRef>,
    /// Sets labels; `null` removes one.
    pub label: Option<LabelStep>,
    /// Adds or removes taints of a Node.
    pub taint: Option<TaintStep>,
    /// Disturbs the next requests of a kind.
    pub fault: Option<FaultStep>,
    /// Puts an admission policy in force, or lifts it.
    pub admission: Option<AdmissionStep>,
    /// Ends the open watches of a kind.
    pub closing: Option<ClosingStep>,
    /// Forgets all versions but the present ones: older watches expire.
    pub compact: Option<Nothing>,
    /// Does something to the agent.
    pub agent: Option<AgentStep>,
    /// Puts a file on the machine, or removes it.
    pub file: Option<FileStep>,
    /// Remembers the machine's files under this name, for expectations.
    pub snapshot: Option<String>,
}

/// No settings: written `{}`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// Something that is seen. It has exactly one of these, and a count where one is not enough.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Condition {
    /// A request was answered; a watch was opened.
    pub request: Option<RequestPattern>,
    /// A request has arrived, and is not answered yet.
    pub arrival: Option<RequestPattern>,
    /// An entry of the timeline.
    pub entry: Option<EntryPattern>,
    /// The agent enters a state, such as `settled`.
    pub state: Option<String>,
    /// The agent ends with this exit code.
    pub exit: Option<i32>,
    /// An object is like this; also if it has been for long.
    pub object: Option<ObjectCheck>,
    /// How many times; once where it isn't said.
    pub count: Option<usize>,
}

/// A merge patch.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchStep {
    /// Group and version, where the kind alone isn't enough.
    #[serde(default)]
    pub api_version: Option<String>,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The namespace; only for what lives in one.
    #[serde(default)]
    pub namespace: Option<String>,
    /// `status`, where that is patched.
    #[serde(default)]
    pub subresource: Option<String>,
    /// The patch.
    pub merge: Value,
}

/// Labels to be set.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelStep {
    /// The kind; the agent's Node where neither kind nor name is said.
    pub kind: Option<String>,
    /// The name.
    pub name: Option<String>,
    /// The namespace; only for what lives in one.
    pub namespace: Option<String>,
    /// The labels; `null` removes one.
    pub set: BTreeMap<String, Option<String>>,
}

/// Taints to be added and removed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaintStep {
    /// The Node; the agent's own where it isn't said.
    pub node: Option<String>,
    /// In kubectl's words: `key=value:effect`.
    #[serde(default)]
    pub add: Vec<String>,
    /// Keys, or `key:effect`.
    #[serde(default)]
    pub remove: Vec<String>,
}

/// A disturbance of the next requests of a kind. It has exactly one of `status`, `delay`, `lost`, `stream` and
/// `errorEvent`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FaultStep {
    /// Which requests of the agent.
    pub on: FaultTarget,
    /// How many of them; one where it isn't said.
    #[serde(default = "one")]
    pub times: u32,
    /// They are answered with a failure, and do nothing.
    pub status: Option<StatusFault>,
    /// They take effect, and are answered, so much later.
    pub delay: Option<Time>,
    /// What is lost of them.
    pub lost: Option<Lost>,
    /// What their streams do. Only for watches.
    pub stream: Option<StreamFault>,
    /// Their streams begin with an error event. Only for watches.
    pub error_event: Option<StatusFault>,
}

fn one() -> u32 {
    1
}

/// Requests that a disturbance is meant for. What is left out matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct FaultTarget {
    /// The verb, in the words of RBAC.
    #[serde(deserialize_with = "super::pattern::verb")]
    pub verb: Option<Verb>,
    /// The plural, such as `nodes`.
    pub resource: Option<String>,
    /// The subresource; an empty one means the object itself.
    pub subresource: Option<String>,
    /// The object's name.
    pub name: Option<String>,
}

/// A failure as the API server tells it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct StatusFault {
    /// The status code.
    pub code: u16,
    /// The Status' reason.
    pub reason: String,
    /// The Status' message.
    pub message: String,
    /// After how many seconds the client may come back.
    pub retry_after: Option<u32>,
    /// A plain text body in place of a Status.
    pub body: Option<String>,
}

/// What is lost of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Lost {
    /// It does nothing, and the connection breaks.
    Request,
    /// It takes effect, and the connection breaks before the answer.
    Answer,
}

/// What a stream does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StreamFault {
    /// It ends, or goes silent,
    pub is: StreamEnd,
    /// so long after it was opened: at once where it isn't said.
    #[serde(default)]
    pub after: Option<Time>,
}

/// How a stream goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StreamEnd {
    /// It ends.
    Closed,
    /// It says nothing any more.
    Silent,
}

/// An admission policy.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdmissionStep {
    /// The policy's name.
    pub policy: String,
    /// Which requests of the agent it denies; left out, the policy is lifted.
    pub denies: Option<FaultTarget>,
    /// What it says.
    #[serde(default)]
    pub message: Option<String>,
    /// 422, 403 or 413; 422 where it isn't said.
    #[serde(default)]
    pub code: Option<u16>,
}

/// Watches that end.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClosingStep {
    /// The plural, such as `nodes`.
    pub resource: String,
}

/// What happens to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AgentStep {
    /// It is gone at once (SIGKILL), and restarted as its Pod's container is.
    Kill,
    /// It is asked to end (SIGTERM), and restarted as its Pod's container is.
    Terminate,
    /// It is asked to end, its Pod is deleted, and a new Pod with another name and UID takes its place.
    ReplacePod,
}

/// A file of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileStep {
    /// Where, from the machine's root folder.
    pub path: PathBuf,
    /// What it holds; left out, it is removed.
    pub content: Option<String>,
}

impl Condition {
    /// Whether an entry of the timeline is what is waited for.
    pub(crate) fn is_seen_in(&self, entry: &TimelineEntry) -> bool {
        let field = |source, kind, name, wanted: Option<Value>| {
            wanted.is_some_and(|wanted| {
                entry.source == source && entry.kind == kind && entry.fields.get(name) == Some(&wanted)
            })
        };
        self.request.as_ref().is_some_and(|pattern| pattern.matches(entry))
            || self.arrival.as_ref().is_some_and(|pattern| pattern.matches_arrival(entry))
            || self.entry.as_ref().is_some_and(|pattern| pattern.matches(entry))
            || field(Source::Agent, "entered", "state", self.state.clone().map(Value::String))
            || field(Source::Kubelet, "exited", "code", self.exit.map(Value::from))
    }
}
