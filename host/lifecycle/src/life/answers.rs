//! Finds the one who waits for an answer. An answer of the wrong form is an effector's bug and counts as a failure.

use std::time::Duration;

use crate::event::{Answer, Call, Failure, FailureKind, MachineFailure, Outcome, PolicyAnswer, Verdict};
use crate::life::Life;
use crate::note::Note;
use crate::objects::{GatewayPoolNode, Node, Pod, Routes};
use crate::row::{self, Operation, Row, Standing};

impl Life {
    pub(super) fn answered(&mut self, call: Call, answer: Answer) {
        if let Answer::Policy(policy) = answer {
            self.policy_answered(call, policy);
            return;
        }
        if self.troubles.is_writing(call) {
            self.trouble_written(&answer);
            return;
        }
        if self.ending.as_ref().is_some_and(|ending| ending.is_joining(call)) {
            self.end_joined(answer);
            return;
        }
        let Some(operation) = self.who(|standing| matches!(standing, Standing::Trying(trying) if *trying == call))
        else {
            return;
        };
        match operation {
            Operation::NodeRead => self.node_read(answer.node()),
            Operation::PodRead => self.pod_read(self.own_pod(answer)),
            Operation::Acknowledgment => self.acknowledgment_answered(self.own_pod(answer)),
            Operation::Withdrawal if matches!(answer, Answer::Routes(_)) => {
                self.cleared_routes_answered(answer.routes());
            }
            Operation::Withdrawal => self.withdrawal_answered(answer.pod()),
            Operation::Cleanup => self.cleanup_answered(answer),
            Operation::LedgerWrite => self.ledger_saved(answer.done()),
            Operation::DataPlane => self.data_plane_answered(answer),
            Operation::CniWrite => self.cni_written(answer.done()),
            Operation::TaintRemoval => self.taints_answered(answer.node()),
            Operation::Advertisement => self.routes_answered(answer.routes()),
            // Streams are not answered, and reconciliation as a whole is not one action.
            Operation::NodeWatch | Operation::SiteWatch | Operation::PoolWatch | Operation::Reconciliation => {}
        }
    }

    /// The own Pod; another one of its name is as good as none.
    fn own_pod(&self, answer: Answer) -> Result<Pod, Failure> {
        let pod = answer.pod()?;
        if pod.uid == self.settings.pod_uid {
            return Ok(pod);
        }
        Err(Failure::new(FailureKind::NotFound, format!("The Pod of this name has UID {}.", pod.uid)))
    }

    fn who(&self, waits: impl Fn(&Standing) -> bool) -> Option<Operation> {
        self.rows.iter().find(|(_, row)| waits(&row.standing)).map(|(operation, _)| *operation)
    }

    fn policy_answered(&mut self, call: Call, answer: PolicyAnswer) {
        let PolicyAnswer { outcome, passed_over } = answer;
        let retrying = self.who(|standing| matches!(standing, Standing::Asking(asking, _) if *asking == call));
        let now = self.now;
        let asked = self.slots_mut().into_iter().find(|(_, slot)| slot.is_asking(call));
        let hook = if let Some((hook, slot)) = asked {
            slot.answer(now, outcome.clone());
            hook
        } else if let Some(operation) = retrying {
            self.pause(operation, &outcome);
            "retry"
        } else {
            return;
        };
        for message in passed_over {
            self.policy_trouble(hook, message);
        }
        if let Outcome::Held(_, message) = outcome {
            self.policy_trouble(hook, message);
        }
    }

    /// The wait that comes of what the retry hook says, of the floors, and of the server's Retry-After.
    fn pause(&mut self, operation: Operation, outcome: &Outcome) {
        let Some(Row { standing: Standing::Asking(_, failure), number, .. }) = self.rows.get(&operation).cloned()
        else {
            return;
        };
        let (verdict, mut reason, binding) = match outcome {
            Outcome::Decided(Verdict::Pause(wait, reason), binding) => (Some(*wait), reason.clone(), Some(binding)),
            Outcome::Decided(Verdict::GiveUp(reason), binding) => (None, reason.clone(), Some(binding)),
            _ if row::native_gives_up(operation, failure.kind, number) => {
                (None, "No policy answers; the host gives this kind of row up.".to_owned(), None)
            }
            _ => (
                Some(row::native_wait(operation, number, &mut self.rng)),
                "No policy answers; the host's own backoff.".to_owned(),
                None,
            ),
        };
        if verdict.is_none() && operation.is_nested() {
            self.give_up(operation, failure, reason);
            return;
        }
        let (wait, overruled) =
            row::wait(number, verdict.unwrap_or(row::LONGEST_WAIT), failure.retry_after, &mut self.rng);
        if overruled {
            let asked = verdict.unwrap_or(Duration::ZERO);
            reason = format!("{reason} The host waits longer than the {asked:?} asked for.");
            if let (Some(binding), true) = (binding, failure.retry_after.is_none_or(|after| after <= asked)) {
                self.note(Note::Overridden {
                    hook: "retry".into(),
                    binding: binding.name.clone(),
                    reason: format!("{asked:?} is below the floor for try {number} of {}.", operation.as_str()),
                });
            }
        }
        self.row(operation).standing = Standing::Waiting(self.now + wait);
        self.note(Note::Waiting { operation, failure: failure.kind, message: failure.message, number, wait, reason });
    }

    /// A nested operation is given up: its error goes to reconciliation as a whole.
    fn give_up(&mut self, operation: Operation, failure: Failure, reason: String) {
        self.row(operation).reset();
        self.note(Note::GaveUp { operation, reason });
        if self.is_ready(Operation::Reconciliation) {
            let message = format!("{} was given up: {}", operation.as_str(), failure.message);
            self.fail(Operation::Reconciliation, Failure { message, ..failure });
        }
    }
}

fn wrong_form() -> Failure {
    Failure::new(FailureKind::Other, "The effector gave an answer of the wrong form, which is a bug in the agent.")
}

impl Answer {
    fn node(self) -> Result<Node, Failure> {
        if let Self::Node(node) = self { node } else { Err(wrong_form()) }
    }

    fn pod(self) -> Result<Pod, Failure> {
        if let Self::Pod(pod) = self { pod } else { Err(wrong_form()) }
    }

    pub(super) fn routes(self) -> Result<Option<GatewayPoolNode>, Failure> {
        if let Self::Routes(routes) = self { routes } else { Err(wrong_form()) }
    }

    pub(super) fn done(self) -> Result<(), MachineFailure> {
        if let Self::Done(done) = self { done } else { Err(wrong_form().into()) }
    }

    pub(super) fn plan(self) -> Result<serde_json::Value, MachineFailure> {
        if let Self::Plan(plan) = self { plan } else { Err(wrong_form().into()) }
    }

    pub(super) fn applied(self) -> Result<Routes, MachineFailure> {
        if let Self::Applied(routes) = self { routes } else { Err(wrong_form().into()) }
    }

    pub(super) fn joined(self) -> Vec<String> {
        if let Self::Joined(left) = self { left } else { vec![wrong_form().message] }
    }
}

impl From<Failure> for MachineFailure {
    fn from(failure: Failure) -> Self {
        Self { blocked: false, message: failure.message }
    }
}

impl From<MachineFailure> for Failure {
    fn from(failure: MachineFailure) -> Self {
        Self::new(FailureKind::Other, failure.message)
    }
}
