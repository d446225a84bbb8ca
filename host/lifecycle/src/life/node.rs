//! The own Node: GET, the watch on it until the acknowledgment is saved, confirmed absence. Every closed stream, error
//! event or deletion waits its retry interval before the next GET.

use std::time::Duration;

use crate::event::{Action, Call, ExitCode, Failure, FailureKind, Stream};
use crate::life::Life;
use crate::objects::Node;
use crate::row::Operation;

/// GETs in a row, a retry interval apart, that make an absence a fact.
const CONFIRMING_READS: u32 = 2;

/// What is known of the own Node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct NodeTrack {
    /// The last observation.
    pub(super) observed: Option<Node>,
    /// A GET, or the stream that follows one without a gap, vouches for it.
    pub(super) validated: bool,
    /// The open watch and when it was opened.
    pub(super) stream: Option<(Call, Duration)>,
    /// GETs in a row that found no such Node.
    absences: u32,
    /// The absence is confirmed.
    pub(super) absent: bool,
    /// The binding whose `drifted` is ignored, because it ended the process again and again for no change.
    pub(super) ignored_binding: Option<String>,
}

impl Life {
    pub(super) fn drive_node(&mut self) {
        if self.settled() || self.node.stream.is_some() {
            return;
        }
        if !self.node.validated {
            if self.is_ready(Operation::NodeWatch) {
                self.request(Operation::NodeRead, Action::ReadNode);
            }
        } else if self.projection.was_answered()
            && let Some(from) = self.node.observed.as_ref().map(|node| node.resource_version.clone())
        {
            let lifetime = self.watch_lifetime();
            let call = self.request(Operation::NodeWatch, |call| Action::WatchNode(call, from, lifetime));
            self.node.stream = call.map(|call| (call, self.now));
        }
    }

    pub(super) fn node_read(&mut self, answer: Result<Node, Failure>) {
        match answer {
            Ok(node) => {
                self.succeed(Operation::NodeRead);
                self.node.absences = 0;
                self.node.absent = false;
                self.node.validated = true;
                // A GET is the truth even where its resourceVersion says nothing.
                self.node.observed = Some(node);
            }
            Err(failure) => {
                if failure.kind == FailureKind::NotFound {
                    self.node_missing();
                } else {
                    self.node.absences = 0;
                }
                if self.ending.is_none() {
                    self.fail(Operation::NodeRead, failure);
                }
            }
        }
    }

    fn node_missing(&mut self) {
        self.node.absences = self.node.absences.saturating_add(1);
        if self.node.absences < CONFIRMING_READS {
            return;
        }
        let name = self.settings.node_name.clone();
        if self.adopted.is_some() {
            self.drifted(
                ExitCode::NodeDeleted,
                format!("Node {name} does not exist any more: {} reads say so.", self.node.absences),
            );
        } else if self.durable.as_ref().is_some_and(|ledger| ledger.node_name == name) {
            self.node.absent = true;
            self.node.observed = None;
        }
    }

    pub(super) fn node_stream(&mut self, call: Call, stream: Stream<Node>) {
        let Some((_, opened_at)) = self.node.stream.filter(|(open, _)| *open == call) else { return };
        let failure = match stream {
            Stream::Changed(node) => {
                self.observe(node);
                return;
            }
            // Every reconnect begins with a GET, so there is nothing to remember; and a bookmark's version is not the
            // object's: as a guard of a patch it would be a conflict.
            Stream::Bookmark { .. } => return,
            Stream::Deleted => {
                self.node.observed = None;
                let name = &self.settings.node_name;
                let message = format!("Node {name} was deleted.");
                if self.adopted.is_some() {
                    self.drifted(ExitCode::NodeDeleted, message);
                    return;
                }
                // The stream goes on, but what follows is another Node: it begins with a GET again.
                self.actions.push(Action::CloseWatch(call));
                Failure::new(FailureKind::NotFound, message)
            }
            Stream::Closed => Failure::new(FailureKind::Closed, "The watch on the own Node was closed."),
            Stream::Failed(failure) => failure,
        };
        self.node.stream = None;
        self.node.validated = false;
        self.stream_failed(Operation::NodeWatch, opened_at, failure);
    }

    /// Takes an observation, unless a newer one is known (the answer to a patch overtakes the watch).
    pub(super) fn observe(&mut self, node: Node) {
        if !self.node.observed.as_ref().is_some_and(|observed| node.is_older_than(observed)) {
            self.node.observed = Some(node);
        }
    }

    pub(super) fn close_node_watch(&mut self) {
        if let Some((call, _)) = self.node.stream.take() {
            self.rows.remove(&Operation::NodeWatch);
            self.actions.push(Action::CloseWatch(call));
        }
    }
}
