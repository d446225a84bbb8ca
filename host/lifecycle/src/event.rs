//! What happens to the life, and what the life wants done: the whole boundary between the pure core and the world.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ledger::Ledger;
use crate::note::Note;
use crate::objects::{Assignment, GatewayPoolNode, Node, Pod, Pool, Routes, Site, Taint};

/// Names one action, so that its answer finds its way back and a late answer to a cancelled one is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Call(pub u64);

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Event {
    /// The process is up: health is served, the lock is held, policies are loaded, the ledger was read.
    Started,
    /// The time that [`crate::Life::deadline`] named has come.
    Tick,
    /// SIGTERM, within which deadline the process has to be gone.
    Terminate,
    /// Other policies answer from now on, name and digest of each; every question whose answer can still change is asked
    /// again.
    PoliciesChanged(Vec<(String, String)>),
    /// Other policies were to answer and are refused, for this reason: those before go on.
    PoliciesRefused(String),
    /// A call was answered.
    Answer(Call, Answer),
    /// The watch on the own Node says something.
    NodeStream(Call, Stream<Node>),
    /// The watch on the Site says something.
    SiteStream(Call, Stream<Site>),
    /// The watch on the GatewayPool says something.
    PoolStream(Call, Stream<Pool>),
    /// Somebody looked at the CNI folder, where [`crate::Life::cni_in_place`] has to be.
    CniSeen(CniSeen),
}

/// What was found in the CNI folder while a configuration had to be in place there.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CniSeen {
    /// The configuration is there as it was put there: nobody took it away or changed it, or made its folder anew.
    pub in_place: bool,
    /// For people: a file of someone else for which a container runtime may load nothing, and why.
    pub in_the_way: Option<String>,
}

/// The answer to a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Action::ReadNode`] and [`Action::PatchTaints`].
    Node(Result<Node, Failure>),
    /// To [`Action::ReadPod`] and [`Action::PatchPod`].
    Pod(Result<Pod, Failure>),
    /// To [`Action::ReadRoutes`] and [`Action::PatchRoutes`]; none when the object does not exist.
    Routes(Result<Option<GatewayPoolNode>, Failure>),
    /// To [`Action::WriteEvent`].
    EventWritten(Result<(), Failure>),
    /// To [`Action::Ask`].
    Policy(PolicyAnswer),
    /// To [`Action::SaveLedger`], [`Action::WriteCni`], [`Action::DisableCni`] and [`Action::TearDownDataPlane`].
    Done(Result<(), MachineFailure>),
    /// To [`Action::PlanDataPlane`]: what it will put where, for the ledger.
    Plan(Result<serde_json::Value, MachineFailure>),
    /// To [`Action::ApplyDataPlane`].
    Applied(Result<Routes, MachineFailure>),
    /// To [`Action::JoinWorkers`]: the names of workers that ignored the cancellation.
    Joined(Vec<String>),
}

/// What a watch says.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stream<T> {
    /// The object was added or modified.
    Changed(T),
    /// The object was deleted.
    Deleted,
    /// Everything up to this resourceVersion has been said; `initial` marks the end of the initial events.
    Bookmark {
        /// The resourceVersion from which a renewal can go on.
        resource_version: String,
        /// Whether this is the bookmark that ends the initial events.
        initial: bool,
    },
    /// The stream has ended as streams do.
    Closed,
    /// The stream could not be opened, broke, went silent beyond the idle limit, or gave an error event.
    Failed(Failure),
}

/// How a request to the API server failed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Failure {
    /// The class of the failure.
    pub kind: FailureKind,
    /// An admission policy or webhook said no, whatever the status code.
    pub denied: bool,
    /// The request may have taken effect although no answer says so.
    pub effect_unknown: bool,
    /// The server's Retry-After.
    pub retry_after: Option<Duration>,
    /// For people: what was asked of whom, and what came back.
    pub message: String,
}

/// The class of a failure, in the words that the retry hook knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// Someone else wrote first: 409 without an admission verdict.
    Conflict,
    /// The object does not exist: a Status with reason NotFound whose details name it. Any other 404 is `Unavailable`.
    NotFound,
    /// 401.
    Unauthorized,
    /// 403 without an admission verdict.
    Forbidden,
    /// 429.
    Throttled,
    /// No connection, 5xx, or an answer that makes no sense.
    Unavailable,
    /// No answer in time.
    Timeout,
    /// A stream has ended.
    Closed,
    /// 410: the resourceVersion is too old.
    Expired,
    /// 400, 422.
    Invalid,
    /// Anything else.
    Other,
}

impl FailureKind {
    /// The word in the contract with policies, in logs and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::NotFound => "not-found",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::Throttled => "throttled",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Expired => "expired",
            Self::Invalid => "invalid",
            Self::Other => "other",
        }
    }
}

impl Failure {
    /// A failure of a kind with a message and nothing else.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, denied: false, effect_unknown: false, retry_after: None, message: message.into() }
    }
}

/// How work on this machine failed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MachineFailure {
    /// Something of someone else is in the way (a foreign file, a symlink, a folder): only a person can help.
    pub blocked: bool,
    /// For people: which file or command, and what went wrong.
    pub message: String,
}

/// What the life wants done. Every action but [`Action::Cancel`], [`Action::CloseWatch`], [`Action::Note`] and
/// [`Action::Exit`] is answered by exactly one [`Event::Answer`] (or, for watches, by stream events) with its call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Action {
    /// GET the own Node.
    ReadNode(Call),
    /// WATCH the own Node from this resourceVersion, for this long at most.
    WatchNode(Call, String, Duration),
    /// WATCH the Site of this name: from a resourceVersion, or with its initial events.
    WatchSite(Call, String, Option<String>, Duration),
    /// WATCH the GatewayPool of this name: from a resourceVersion, or with its initial events.
    WatchPool(Call, String, Option<String>, Duration),
    /// End this watch. No answer.
    CloseWatch(Call),
    /// GET the own Pod.
    ReadPod(Call),
    /// Merge-patch annotations of the own Pod, guarded by its UID; none removes the key.
    PatchPod(Call, BTreeMap<String, Option<String>>),
    /// Merge-patch the own Node's taints to exactly these, guarded by uid and resourceVersion.
    PatchTaints {
        /// Names this action.
        call: Call,
        /// The guard: the Node's UID.
        uid: String,
        /// The guard: the resourceVersion of the observation that the list was made from.
        resource_version: String,
        /// The whole list that is to stay.
        taints: Vec<Taint>,
    },
    /// GET the own GatewayPoolNode.
    ReadRoutes(Call),
    /// Merge-patch the status of the own GatewayPoolNode, guarded by resourceVersion; none removes the entry.
    PatchRoutes(Call, String, BTreeMap<String, Option<serde_json::Value>>),
    /// Write an Event about the own Node.
    WriteEvent(Call, Trouble),
    /// Ask a hook.
    Ask(Call, Question),
    /// Make this ledger durable.
    SaveLedger(Call, Box<Ledger>),
    /// Ask the data plane what it would put where.
    PlanDataPlane(Call, Box<Desired>),
    /// Have the data plane make it so.
    ApplyDataPlane(Call, Box<Desired>),
    /// Have the data plane undo what the ledger lists as its plan.
    TearDownDataPlane(Call, serde_json::Value),
    /// Cancel the data plane's workers and wait for them until their deadline.
    JoinWorkers(Call),
    /// Put this configuration into the agent's CNI file. The set holds every content that is known as the agent's own.
    WriteCni(Call, String, BTreeSet<String>),
    /// Disable the agent's CNI file, if it is the agent's own.
    DisableCni(Call, BTreeSet<String>),
    /// Nobody waits for this call any more.
    Cancel(Call),
    /// Something worth telling people. No answer.
    Note(Note),
    /// End the process. Nothing comes after it.
    Exit(Exit),
}

/// What a data plane has to make true.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Desired {
    /// The adopted assignment.
    pub assignment: Assignment,
    /// The Site as read.
    pub site: Site,
    /// The GatewayPool as read; present on a gateway.
    pub pool: Option<Pool>,
    /// The Node's podCIDRs.
    pub pod_cidrs: Vec<String>,
}

/// An Event about the own Node: trouble that a person should see in `kubectl describe node`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Trouble {
    /// The Event's reason.
    pub reason: TroubleReason,
    /// The Event's message.
    pub message: String,
    /// The UID of the Node that it is about.
    pub node_uid: String,
}

/// Why an Event is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TroubleReason {
    /// The process ends because its Node's assignment changed.
    AssignmentChanged,
    /// An admission policy or webhook denied the removal of a taint.
    TaintRemovalDenied,
    /// The CNI configuration can't be written or was refused.
    CniBlocked,
    /// A policy failed and its hook holds, or falls through.
    PolicyFailed,
    /// A policy was refused at load.
    PolicyRefused,
    /// A policy ended the process again and again for no change in the assignment.
    PolicyRestartLoop,
}

impl TroubleReason {
    /// The reason as it stands in the Event.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AssignmentChanged => "AssignmentChanged",
            Self::TaintRemovalDenied => "TaintRemovalDenied",
            Self::CniBlocked => "CniBlocked",
            Self::PolicyFailed => "PolicyFailed",
            Self::PolicyRefused => "PolicyRefused",
            Self::PolicyRestartLoop => "PolicyRestartLoop",
        }
    }
}

/// A question to a hook. Sites by which bindings are limited come from the assignment in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Question {
    /// adoption: which assignment does this Node have?
    Adopt(Box<Node>),
    /// drift: does this oblige the process to end?
    Assess(Box<Observation>),
    /// retry: how long before the next try?
    Pause(Attempt),
    /// taints: which must be gone?
    Unwanted(Box<Subject>),
    /// cni: which configuration?
    Render(Box<CniSubject>),
    /// acknowledgment: what does the record say?
    Annotate(Box<Subject>),
}

impl Question {
    /// The name of the hook that answers it.
    pub fn hook(&self) -> &'static str {
        match self {
            Self::Adopt(_) => "adoption",
            Self::Assess(_) => "drift",
            Self::Pause(_) => "retry",
            Self::Unwanted(_) => "taints",
            Self::Render(_) => "cni",
            Self::Annotate(_) => "acknowledgment",
        }
    }
}

/// The input of the taints and acknowledgment hooks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Subject {
    /// The adopted assignment.
    pub adopted: Assignment,
    /// The Node as last observed.
    pub node: Node,
}

/// The input of the drift hook.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Observation {
    /// The adopted assignment.
    pub adopted: Assignment,
    /// The Node as it was at adoption.
    pub adopted_node: Node,
    /// The Node as it is now.
    pub observed: Node,
    /// The assignment that the adoption hook would give it now; none when it would wait.
    pub projected: Option<Assignment>,
}

/// The input of the cni hook.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CniSubject {
    /// The adopted assignment.
    pub adopted: Assignment,
    /// The Node as last observed.
    pub node: Node,
    /// The Site as read.
    pub site: Site,
    /// The GatewayPool as read; present on a gateway.
    pub pool: Option<Pool>,
}

/// The input of the retry hook.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attempt {
    /// What is tried.
    pub operation: crate::Operation,
    /// How it failed.
    pub failure: FailureKind,
    /// 1 for the first failure in a row.
    pub number: u32,
    /// Time since the first failure in this row.
    pub elapsed: Duration,
    /// A server's Retry-After, if it gave one.
    pub retry_after: Option<Duration>,
    /// Uniform in [0, 2^32).
    pub jitter: u32,
    /// The adopted Site, by which bindings may be limited.
    pub site: Option<String>,
}

/// What the bindings of a hook came to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PolicyAnswer {
    /// The outcome.
    pub outcome: Outcome,
    /// Failures of bindings that were passed over on the way, in words.
    pub passed_over: Vec<String>,
}

/// The outcome of a question.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// A binding decided.
    Decided(Verdict, Binding),
    /// No binding matches, or all said `not-applicable`.
    NoBinding,
    /// A binding that holds failed, or was skipped by its breaker: the operation waits.
    Held(Binding, String),
}

/// The binding behind an outcome, with what the operator granted it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Binding {
    /// The binding's name.
    pub name: String,
    /// Its policy's digest.
    pub digest: String,
    /// Its `same` stands although the projection changed.
    pub may_tolerate: bool,
    /// CNI plugin types beyond the known ones that it may use.
    pub plugin_types: BTreeSet<String>,
}

/// A hook's verdict.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Verdict {
    /// adoption: this Site and pool, for this reason.
    Assigned {
        /// The Site's name.
        site: String,
        /// The GatewayPool's name.
        pool: Option<String>,
        /// For people.
        reason: String,
    },
    /// adoption and cni: not yet, for this reason.
    Wait(String),
    /// drift: nothing that matters changed, for this reason.
    Same(String),
    /// drift: the process has to end, for this reason.
    Drifted(String),
    /// retry: wait this long, for this reason.
    Pause(Duration, String),
    /// retry: no further try in this row, for this reason.
    GiveUp(String),
    /// taints: these (key, effect) have to be gone, for this reason.
    Unwanted(BTreeSet<(String, String)>, String),
    /// cni: this configuration list, for this reason.
    Managed(String, String),
    /// cni: someone else looks after CNI, for this reason.
    Unmanaged(String),
    /// acknowledgment: these annotations too, for this reason.
    Annotations(BTreeMap<String, String>, String),
}

/// How and why the process ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Exit {
    /// The exit code's meaning.
    pub code: ExitCode,
    /// For people: log and termination message.
    pub reason: String,
}

/// What the exit code of the process means. The numbers are documented and stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ExitCode {
    /// 0: ended as asked.
    Asked,
    /// 1: anything else.
    Failed,
    /// 2: the configuration is wrong.
    Configuration,
    /// 3: the environment is wrong: no permission, no credentials, someone else's Pod.
    Environment,
    /// 10: the assignment changed.
    AssignmentChanged,
    /// 11: the Node was deleted.
    NodeDeleted,
}

impl ExitCode {
    /// The number that the process exits with.
    pub fn number(self) -> u8 {
        match self {
            Self::Asked => 0,
            Self::Failed => 1,
            Self::Configuration => 2,
            Self::Environment => 3,
            Self::AssignmentChanged => 10,
            Self::NodeDeleted => 11,
        }
    }
}
