//! The acknowledgment: the record of the running assignment on the agent's own Pod, written once all of it is true, and
//! the read of the own Pod where no ledger says what stands there.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{Action, Failure, FailureKind, Outcome, Question, Verdict};
use crate::floors;
use crate::ledger::Acknowledged;
use crate::life::observe::Assessment;
use crate::life::{CNI, Life};
use crate::note::Note;
use crate::objects::{Assignment, Pod};
use crate::row::Operation;

/// How far the acknowledgment is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) enum Acknowledgment {
    /// Not written.
    #[default]
    None,
    /// The patch is under way.
    Writing(BTreeMap<String, String>),
    /// Nobody knows whether the patch took effect: a read has to say.
    Unknown(BTreeMap<String, String>),
    /// Saved.
    Saved,
}

impl Acknowledgment {
    pub(super) fn is_saved(&self) -> bool {
        matches!(self, Self::Saved)
    }

    /// Whether a write is under way, or its outcome unknown.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Writing(_) | Self::Unknown(_))
    }
}

impl Life {
    pub(super) fn drive_pod(&mut self) {
        if self.pod_unread {
            self.request(Operation::PodRead, Action::ReadPod);
        }
    }

    /// What an earlier process left on the own Pod goes into the ledger, as if it had been there.
    pub(super) fn pod_read(&mut self, answer: Result<Pod, Failure>) {
        match answer {
            Ok(pod) => {
                self.succeed(Operation::PodRead);
                self.pod_unread = false;
                // Where there is no record, nothing of ours is: other keys under our prefixes came with the Pod.
                if let Some(record) = pod.annotations.get(floors::ACKNOWLEDGMENT_KEY) {
                    let keys = pod.annotations.keys().filter(|key| self.is_own_annotation(key)).cloned().collect();
                    let recorded = floors::recorded_assignment(record);
                    let owed = recorded.is_none();
                    self.ledger.assignment = recorded;
                    self.ledger.acknowledgment = Some(Acknowledged { pod_uid: pod.uid, keys, owed });
                }
            }
            Err(failure) if self.is_pod_lost(&failure) => self.pod_lost(&failure),
            Err(failure) => self.fail(Operation::PodRead, failure),
        }
    }

    fn is_own_annotation(&self, key: &str) -> bool {
        self.settings.annotation_prefixes.iter().any(|prefix| key.starts_with(prefix.as_str()))
    }

    /// Whether all that the acknowledgment says is true by the last validated observation.
    fn may_acknowledge(&self) -> Option<Option<(Option<Assignment>, String)>> {
        if !self.node.validated || self.pod_unread || !self.is_reconciled() {
            return None;
        }
        match self.assess() {
            Assessment::Clear { tolerated } => Some(tolerated),
            _ => None,
        }
    }

    pub(super) fn drive_acknowledgment(&mut self) {
        if let Acknowledgment::Unknown(_) = self.acknowledgment {
            self.request(Operation::Acknowledgment, Action::ReadPod);
            return;
        }
        if self.acknowledgment != Acknowledgment::None || !self.is_ready(Operation::Acknowledgment) {
            return;
        }
        let Some(tolerated) = self.may_acknowledge() else { return };
        let Some(subject) = self.subject() else { return };
        self.ask(|life| &mut life.annotations, &subject, Question::Annotate);
        let (mut annotations, overridden) = match self.annotations.outcome(&subject) {
            None => return,
            Some(Outcome::Decided(Verdict::Annotations(annotations, _), binding)) => {
                match floors::annotations_problem(annotations, &self.settings.annotation_prefixes) {
                    None => (annotations.clone(), None),
                    Some(problem) => {
                        let reason = format!("The host's own record alone is written: {problem}");
                        let (hook, binding) = ("acknowledgment".into(), binding.name.clone());
                        (BTreeMap::new(), Some(Note::Overridden { hook, binding, reason }))
                    }
                }
            }
            Some(_) => (BTreeMap::new(), None),
        };
        let record = floors::record(&floors::Record {
            assignment: &subject.adopted,
            pod_uid: &self.settings.pod_uid,
            identity: &self.identity,
            started_ms: self.wall_ms,
            acknowledged_ms: self.wall_now_ms(),
            tolerated: tolerated.as_ref().map(|(projection, _)| projection.as_ref()),
            adoption_reason: self.adopted.as_ref().map(|adopted| adopted.reason.as_str()).unwrap_or_default(),
        });
        annotations.insert(floors::ACKNOWLEDGMENT_KEY.into(), record);
        // The intent is durable before the write: whatever happens, the next process knows every key.
        let mut keys: BTreeSet<_> = annotations.keys().cloned().collect();
        if let Some(earlier) = &self.ledger.acknowledgment
            && earlier.pod_uid == self.settings.pod_uid
        {
            keys.extend(earlier.keys.iter().cloned());
        }
        self.ledger.acknowledgment =
            Some(Acknowledged { pod_uid: self.settings.pod_uid.clone(), keys: keys.clone(), owed: false });
        if !self.is_durable() {
            return;
        }
        let patch = keys.into_iter().map(|key| (key.clone(), annotations.get(&key).cloned())).collect();
        if self.request(Operation::Acknowledgment, |call| Action::PatchPod(call, patch)).is_some() {
            self.acknowledgment = Acknowledgment::Writing(annotations);
            self.actions.extend(overridden.map(Action::Note));
            if let Some((_, reason)) = tolerated {
                self.note(Note::Tolerated { reason });
            }
        }
    }

    pub(super) fn acknowledgment_answered(&mut self, answer: Result<Pod, Failure>) {
        let (reading, annotations) = match std::mem::take(&mut self.acknowledgment) {
            Acknowledgment::Writing(annotations) => (false, annotations),
            Acknowledgment::Unknown(annotations) => (true, annotations),
            other => {
                self.acknowledgment = other;
                return;
            }
        };
        match answer {
            Ok(pod) if annotations.iter().all(|(key, value)| pod.annotations.get(key) == Some(value)) => {
                self.acknowledgment_saved();
            }
            Ok(_) if reading => {
                // The write did not take effect: another try, as after any failure.
                let message = "The answer to the acknowledgment was lost, and a read shows that it was not written.";
                self.fail(Operation::Acknowledgment, Failure::new(FailureKind::Unavailable, message));
            }
            Ok(_) => {
                let message = "The API server took the acknowledgment and answered with a Pod that does not show it.";
                self.fail(Operation::Acknowledgment, Failure::new(FailureKind::Other, message));
            }
            Err(failure) if self.is_pod_lost(&failure) => self.pod_lost(&failure),
            Err(failure) => {
                if reading || failure.effect_unknown {
                    self.acknowledgment = Acknowledgment::Unknown(annotations);
                }
                self.fail(Operation::Acknowledgment, failure);
            }
        }
    }

    fn acknowledgment_saved(&mut self) {
        self.acknowledgment = Acknowledgment::Saved;
        self.succeed(Operation::Acknowledgment);
        if self.ending.is_some() {
            return;
        }
        // The next action after the acknowledgment is saved, before anything else.
        self.close_node_watch();
        for operation in [Operation::NodeRead, Operation::NodeWatch, Operation::TaintRemoval] {
            self.abandon(operation);
        }
        self.forget_questions(|hook| hook != CNI);
        if let Some(adopted) = &self.adopted {
            let assignment = adopted.assignment.clone();
            self.note(Note::AcknowledgmentSaved { assignment });
        }
    }
}
