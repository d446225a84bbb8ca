//! What is under way: calls that were not answered yet, open watches, and how the other side may treat them.

use std::collections::VecDeque;
use std::time::Duration;

use moorline_lifecycle::{Action, Answer, Call, Failure, FailureKind, Node, Operation, Question, Stream};

use super::api::Versions;

/// A call that was not answered yet.
#[derive(Debug, Clone, Hash)]
pub struct Flight {
    pub call: Call,
    pub action: Action,
    pub operation: Option<Operation>,
    /// What the other side has answered; it is on its way.
    pub served: Option<Answer>,
    /// For a taint patch: the Node that it was made from.
    pub node: Option<Node>,
}

/// An open watch.
#[derive(Debug, Clone, Hash)]
pub struct Open<T> {
    pub call: Call,
    pub opened_at: Duration,
    pub name: String,
    pub place: usize,
    pub initial: VecDeque<Stream<T>>,
}

/// How the other side treats a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Fault {
    /// It does what is asked.
    #[default]
    None,
    Fails(FailureKind),
    /// 429 with Retry-After in seconds.
    Throttled(u16),
    /// An admission verdict against a write.
    Denied,
    /// The answer is lost; the effect took place or not.
    Lost(bool),
    /// A write is answered as if well, and the answer shows that nothing changed.
    Ignored,
}

/// What a watch does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Says {
    Next,
    Bookmark,
    Closed,
    Fails(FailureKind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Node,
    Site,
    Pool,
}

pub fn call(action: &Action) -> Option<Call> {
    match action {
        Action::ReadNode(call)
        | Action::WatchNode(call, ..)
        | Action::WatchSite(call, ..)
        | Action::WatchPool(call, ..)
        | Action::ReadPod(call)
        | Action::PatchPod(call, _)
        | Action::PatchTaints { call, .. }
        | Action::ReadRoutes(call)
        | Action::PatchRoutes(call, ..)
        | Action::WriteEvent(call, _)
        | Action::Ask(call, _)
        | Action::SaveLedger(call, _)
        | Action::PlanDataPlane(call, _)
        | Action::ApplyDataPlane(call, _)
        | Action::TearDownDataPlane(call, _)
        | Action::JoinWorkers(call)
        | Action::WriteCni(call, ..)
        | Action::DisableCni(call, _) => Some(*call),
        Action::CloseWatch(_) | Action::Cancel(_) | Action::Note(_) | Action::Exit(_) => None,
    }
}

pub fn open<T: Clone>(
    call: Call,
    now: Duration,
    name: &str,
    from: Option<&str>,
    log: &Versions<T>,
    version: u64,
) -> Open<T> {
    let mut initial = VecDeque::new();
    let place = match from {
        Some(from) => log.after(from.parse().unwrap()),
        None => {
            initial.extend(log.current(name).cloned().map(Stream::Changed));
            initial.push_back(Stream::Bookmark { resource_version: version.to_string(), initial: true });
            log.log.len()
        }
    };
    Open { call, opened_at: now, name: name.into(), place, initial }
}

pub fn say<T: Clone>(open: &mut Open<T>, log: &Versions<T>, version: u64, says: Says) -> Option<Stream<T>> {
    match says {
        Says::Next => open.initial.pop_front().or_else(|| log.next(&mut open.place, &open.name)),
        Says::Bookmark => {
            let behind = !open.initial.is_empty() || log.next(&mut open.place.clone(), &open.name).is_some();
            (!behind).then(|| Stream::Bookmark { resource_version: version.to_string(), initial: false })
        }
        Says::Closed => Some(Stream::Closed),
        Says::Fails(kind) => Some(Stream::Failed(Failure::new(kind, "The stream broke."))),
    }
}

/// One line, cut.
pub fn brief(what: &impl std::fmt::Debug) -> String {
    let text = format!("{what:?}");
    if text.len() <= 170 { text } else { format!("{}…", &text[..text.floor_char_boundary(170)]) }
}

pub fn brief_action(action: &Action) -> String {
    let text = format!("{action:?}");
    text.split(['(', ' ']).next().unwrap_or_default().to_owned()
}

/// Which hook a question goes to, for tests.
pub fn hook(action: &Action) -> Option<&'static str> {
    match action {
        Action::Ask(_, question) => Some(Question::hook(question)),
        _ => None,
    }
}
