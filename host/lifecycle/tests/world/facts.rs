//! What a process was told and what it asked for, kept by the book and apart from the life: promises are judged by this.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use moorline_lifecycle::{
    ACKNOWLEDGMENT_KEY, Action, Answer, Assignment, Call, CniSubject, Desired, Exit, Failure, FailureKind, Ledger,
    Node, Note, Observation, Operation, Outcome, Pool, Routes, Site, State, Subject, Taint, Verdict,
};
use serde_json::Value;

/// What the CNI state has to be.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Wanted {
    File(String),
    None,
}

/// The failures of one operation, and when it may be tried again.
#[derive(Debug, Clone, Copy, Default, Hash)]
pub struct Tried {
    pub failures: u32,
    pub not_before: Duration,
}

/// An admission verdict against a taint removal.
#[derive(Debug, Clone, Hash)]
pub struct Denial {
    pub at: Duration,
    /// The Node that the denied patch was made from.
    pub node: Option<Node>,
    /// The Node has been seen with other taints, labels or another UID since.
    pub changed: bool,
}

/// The last word of a hook on each input.
#[derive(Debug, Clone, Hash)]
pub struct Said<I>(Vec<(I, Outcome)>);

impl<I> Default for Said<I> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<I: PartialEq> Said<I> {
    pub fn insert(&mut self, input: I, outcome: Outcome) {
        self.0.retain(|(asked, _)| *asked != input);
        self.0.push((input, outcome));
    }

    fn get(&self, input: &I) -> Option<&Outcome> {
        self.0.iter().find(|(asked, _)| asked == input).map(|(_, outcome)| outcome)
    }

    pub fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.0.iter().map(|(_, outcome)| outcome)
    }
}

#[derive(Debug, Clone, Default, Hash)]
pub struct Facts {
    pub now: Duration,
    pub own_pod: String,
    pub calls: BTreeSet<Call>,
    pub adoptions: u32,
    pub adopted: Option<(Assignment, Node)>,
    /// The last word on the projection and on drift, each with what was asked.
    pub projection: Option<(Node, Outcome)>,
    pub assessment: Option<(Observation, Outcome)>,
    pub unwanted: Said<Subject>,
    pub rendered: Said<CniSubject>,
    /// The newest observation of the own Node, and whether a GET or the stream after it vouches for it.
    pub node: Option<Node>,
    pub validated: bool,
    pub node_stream: Option<Call>,
    pub deleted: bool,
    pub absences: u32,
    /// This very event says that there is no such Node, to a process that has a ledger.
    pub just_missing: bool,
    pub has_ledger: bool,
    pub site: Option<Site>,
    pub pool: Option<Pool>,
    pub site_said: bool,
    pub pool_said: bool,
    /// Every worker has been joined, and none was started since.
    pub joined: bool,
    /// Cleanup has asked for that.
    pub joining: bool,
    /// Local cleanup has begun to undo something.
    pub undoing: bool,
    pub applied: Option<(Desired, Routes)>,
    pub shown_routes: Option<BTreeMap<String, Value>>,
    /// The acknowledgment that was sent, until its outcome is known.
    pub unresolved: Option<BTreeMap<String, Option<String>>>,
    pub saved: bool,
    /// A read has said what became of an acknowledgment.
    pub resolved: bool,
    /// This very event says that the acknowledgment is saved; the watch that was open then.
    pub just_saved: Option<Option<Call>>,
    /// The Node's UID in the record that was found on the own Pod.
    pub recorded: Option<String>,
    /// An acknowledgment may stand on the own Pod, as far as the agent can know.
    pub may_stand: bool,
    pub terminated: Option<Duration>,
    pub drifted: Option<(Duration, String)>,
    pub ending: Option<Duration>,
    pub ledger_trouble: bool,
    pub tried: BTreeMap<Operation, Tried>,
    pub denial: Option<Denial>,
    pub requests: Vec<Duration>,
    pub exit: Option<Exit>,
    /// The state that the life has told last.
    pub state: Option<State>,
}

pub fn view(node: &Node) -> Node {
    Node { resource_version: String::new(), ..node.clone() }
}

/// The floor below the wait after so many failures in a row.
pub fn floor(failures: u32) -> Duration {
    Duration::from_millis(50 << failures.saturating_sub(1).min(5)).min(Duration::from_secs(1))
}

pub fn is_acknowledgment(patch: &BTreeMap<String, Option<String>>) -> bool {
    patch.get(ACKNOWLEDGMENT_KEY).is_some_and(Option::is_some)
}

pub fn is_request(action: &Action) -> bool {
    matches!(
        action,
        Action::ReadNode(_)
            | Action::WatchNode(..)
            | Action::WatchSite(..)
            | Action::WatchPool(..)
            | Action::ReadPod(_)
            | Action::PatchPod(..)
            | Action::PatchTaints { .. }
            | Action::ReadRoutes(_)
            | Action::PatchRoutes(..)
            | Action::WriteEvent(..)
    )
}

impl Facts {
    pub fn new(own_pod: &str, ledger: Option<&Ledger>) -> Self {
        let may_stand = ledger.is_none_or(|ledger| {
            ledger.acknowledgment.as_ref().is_some_and(|acknowledged| acknowledged.pod_uid == own_pod)
        });
        Self { own_pod: own_pod.into(), may_stand, has_ledger: ledger.is_some(), ..Self::default() }
    }

    pub fn assignment(&self) -> Option<&Assignment> {
        self.adopted.as_ref().map(|(assignment, _)| assignment)
    }

    /// Which operation an action is a try of.
    pub fn operation(&self, action: &Action, durable: Option<&Ledger>) -> Option<Operation> {
        let own = durable.and_then(|ledger| ledger.assignment.as_ref()) == self.assignment() && self.adopted.is_some();
        Some(match action {
            Action::ReadNode(_) if self.validated => Operation::TaintRemoval,
            Action::ReadNode(_) => Operation::NodeRead,
            Action::WatchNode(..) => Operation::NodeWatch,
            Action::WatchSite(..) => Operation::SiteWatch,
            Action::WatchPool(..) => Operation::PoolWatch,
            Action::ReadPod(_) if self.unresolved.is_some() => Operation::Acknowledgment,
            Action::ReadPod(_) => Operation::PodRead,
            Action::PatchPod(_, patch) if is_acknowledgment(patch) => Operation::Acknowledgment,
            Action::PatchPod(..) => Operation::Withdrawal,
            Action::PatchTaints { .. } => Operation::TaintRemoval,
            Action::ReadRoutes(_) | Action::PatchRoutes(..) if own => Operation::Advertisement,
            Action::ReadRoutes(_) | Action::PatchRoutes(..) => Operation::Withdrawal,
            Action::SaveLedger(..) => Operation::LedgerWrite,
            Action::PlanDataPlane(..) | Action::ApplyDataPlane(..) => Operation::DataPlane,
            Action::WriteCni(..) => Operation::CniWrite,
            Action::DisableCni(..) if own => Operation::CniWrite,
            Action::JoinWorkers(_) if self.ending.is_some() => return None,
            Action::JoinWorkers(_) | Action::DisableCni(..) | Action::TearDownDataPlane(..) => Operation::Cleanup,
            _ => return None,
        })
    }

    /// Takes in what the life wants done.
    pub fn ask(&mut self, action: &Action) {
        match action {
            Action::WatchNode(call, ..) => self.node_stream = Some(*call),
            Action::WatchSite(_, _, None, _) => self.site_said = false,
            Action::WatchPool(_, _, None, _) => self.pool_said = false,
            Action::CloseWatch(call) if self.node_stream == Some(*call) => {
                self.node_stream = None;
                self.validated = false;
            }
            Action::PatchPod(_, patch) if is_acknowledgment(patch) => {
                self.unresolved = Some(patch.clone());
                self.may_stand = true;
            }
            Action::ApplyDataPlane(..) => self.joined = false,
            Action::JoinWorkers(_) => self.joining |= self.ending.is_none(),
            Action::DisableCni(..) | Action::TearDownDataPlane(..) => self.undoing = true,
            Action::PlanDataPlane(..) => self.undoing = false,
            Action::Note(Note::Adopted { assignment, .. }) => {
                self.adoptions += 1;
                self.adopted = self.node.as_ref().map(|node| (assignment.clone(), view(node)));
            }
            Action::Note(Note::Entered { state, .. }) => self.state = Some(*state),
            Action::Note(Note::Drifted { reason }) => {
                self.drifted.get_or_insert((self.now, reason.clone()));
            }
            Action::Note(Note::Ending { .. }) => drop(self.ending.get_or_insert(self.now)),
            Action::Note(Note::GaveUp { operation, .. }) => {
                let not_before =
                    self.tried.get(operation).map_or(self.now, |tried| tried.not_before.min(self.now + floor(1)));
                self.tried.insert(*operation, Tried { failures: 0, not_before });
            }
            Action::Exit(exit) => self.exit = Some(exit.clone()),
            _ => {}
        }
        if is_request(action) {
            self.requests.push(self.now);
        }
    }

    /// The assignment that the adoption hook gave the Node as it is; none where the last word on it is no answer.
    pub fn projected(&self) -> Option<Option<Assignment>> {
        let node = view(self.node.as_ref()?);
        match self.projection.as_ref().filter(|(asked, _)| *asked == node).map(|(_, outcome)| outcome)? {
            Outcome::Decided(Verdict::Assigned { site, pool, .. }, _) => {
                Some(Some(Assignment { node_uid: node.uid, site: site.clone(), pool: pool.clone() }))
            }
            Outcome::Held(..) => None,
            _ => Some(None),
        }
    }

    /// The last word on drift, together with whether the projection is another than what was adopted.
    pub fn assessed(&self) -> Option<(&Outcome, bool)> {
        let (adopted, adopted_node) = self.adopted.clone()?;
        let projected = self.projected()?;
        let observed = view(self.node.as_ref()?);
        let changed = projected.as_ref() != Some(&adopted);
        let observation = Observation { adopted, adopted_node, observed, projected };
        self.assessment.as_ref().filter(|(asked, _)| *asked == observation).map(|(_, outcome)| (outcome, changed))
    }

    /// The taints that the taints hook wants gone from the Node as it is.
    pub fn unwanted_taints(&self) -> Option<Vec<&Taint>> {
        let node = self.node.as_ref()?;
        let subject = Subject { adopted: self.assignment()?.clone(), node: view(node) };
        let Outcome::Decided(Verdict::Unwanted(unwanted, _), _) = self.unwanted.get(&subject)? else { return None };
        Some(node.taints.iter().filter(|t| unwanted.contains(&(t.key.clone(), t.effect.clone()))).collect())
    }

    /// What the cni hook wants here, by the last word on Node, Site and pool as they are.
    pub fn wanted_cni(&self) -> Option<Wanted> {
        let (adopted, _) = self.adopted.clone()?;
        let (site, node) = (self.site.clone()?, view(self.node.as_ref()?));
        let pool = if adopted.pool.is_some() { Some(self.pool.clone()?) } else { None };
        match self.rendered.get(&CniSubject { adopted, node, site, pool })? {
            Outcome::Decided(Verdict::Managed(text, _), _) if !text.contains("evil") => {
                Some(Wanted::File(format!("{text}\n")))
            }
            Outcome::Decided(Verdict::Unmanaged(_), _) => Some(Wanted::None),
            _ => None,
        }
    }

    /// Whether what is set up here is over without a successor: its Node is confirmed absent, or is another.
    pub fn is_over(&self, durable: Option<&Ledger>, node_name: &str) -> bool {
        let listed = durable.and_then(|ledger| ledger.assignment.as_ref()).map(|assignment| &assignment.node_uid);
        let Some(uid) = listed.or(self.recorded.as_ref()) else { return false };
        let absent = self.absences >= 2 && durable.is_some_and(|ledger| ledger.node_name == node_name);
        absent || self.node.as_ref().is_some_and(|node| node.uid != *uid)
    }
}

/// Whether what a patch asks for is there.
pub fn shows<T: PartialEq>(there: &BTreeMap<String, T>, patch: &BTreeMap<String, Option<T>>) -> bool {
    patch.iter().all(|(key, value)| there.get(key) == value.as_ref())
}

/// How an answer says that its call failed.
pub fn failure(answer: &Answer) -> Option<Failure> {
    let machine =
        |failure: &moorline_lifecycle::MachineFailure| Failure::new(FailureKind::Other, failure.message.clone());
    match answer {
        Answer::Node(answer) => answer.as_ref().err().cloned(),
        Answer::Pod(answer) => answer.as_ref().err().cloned(),
        Answer::Routes(answer) => answer.as_ref().err().cloned(),
        Answer::EventWritten(answer) => answer.as_ref().err().cloned(),
        Answer::Done(answer) => answer.as_ref().err().map(machine),
        Answer::Plan(answer) => answer.as_ref().err().map(machine),
        Answer::Applied(answer) => answer.as_ref().err().map(machine),
        Answer::Policy(_) | Answer::Joined(_) => None,
    }
}
