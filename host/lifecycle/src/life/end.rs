//! The end of a process, within its deadline: after drift with an acknowledgment in flight resolved and withdrawn, or
//! owed; after SIGTERM with nothing torn down.

use std::time::Duration;

use crate::event::{Action, Answer, Call, Exit, ExitCode, TroubleReason};
use crate::life::Life;
use crate::note::Note;
use crate::row::{Operation, Row, Standing};

/// An end under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Ending {
    code: ExitCode,
    reason: String,
    until: Duration,
    joining: Option<Call>,
    joined: bool,
}

impl Ending {
    pub(super) fn deadline(&self) -> Duration {
        self.until
    }

    pub(super) fn is_joining(&self, call: Call) -> bool {
        self.joining == Some(call)
    }

    pub(super) fn reason(&self) -> &str {
        &self.reason
    }
}

impl Life {
    /// SIGTERM: nothing is torn down, and its deadline wins over that of an end under way.
    pub(super) fn terminate(&mut self) {
        let until = self.now + self.settings.end_deadline;
        match &mut self.ending {
            None => self.end(ExitCode::Asked, "SIGTERM: the process ends as asked, and what it set up stays.".into()),
            Some(ending) => {
                if ending.code != ExitCode::Asked {
                    ending.reason = format!("SIGTERM, while ending because: {}", ending.reason);
                }
                ending.code = ExitCode::Asked;
                ending.until = ending.until.min(until);
            }
        }
    }

    /// Drift is known: the process ends, and its container starts anew.
    pub(super) fn drifted(&mut self, code: ExitCode, reason: String) {
        if self.ending.is_some() {
            return;
        }
        self.note(Note::Drifted { reason: reason.clone() });
        self.trouble(TroubleReason::AssignmentChanged, reason.clone());
        if self.acknowledgment.is_open()
            && let Some(acknowledged) = &mut self.ledger.acknowledgment
        {
            // Owed until a withdrawal is confirmed, and durable before the process can be gone.
            acknowledged.owed = true;
        }
        self.end(code, reason);
    }

    pub(super) fn end(&mut self, code: ExitCode, reason: String) {
        if self.ending.is_some() {
            return;
        }
        self.note(Note::Ending { reason: reason.clone() });
        self.ending =
            Some(Ending { code, reason, until: self.now + self.settings.end_deadline, joining: None, joined: false });
        self.close_node_watch();
        self.close_successor_watches();
        let keep = [Operation::Acknowledgment, Operation::LedgerWrite];
        let under_way: Vec<_> = self.rows.keys().copied().filter(|operation| !keep.contains(operation)).collect();
        for operation in under_way {
            self.abandon(operation);
        }
        self.forget_questions(|_| true);
        let call = self.call();
        if let Some(ending) = &mut self.ending {
            ending.joining = Some(call);
        }
        self.actions.push(Action::JoinWorkers(call));
    }

    pub(super) fn end_joined(&mut self, answer: Answer) {
        let left = answer.joined();
        if let Some(ending) = &mut self.ending {
            ending.joining = None;
            ending.joined = true;
            if !left.is_empty() {
                ending.reason =
                    format!("{} Workers that ignored their cancellation: {}.", ending.reason, left.join(", "));
            }
        }
    }

    pub(super) fn drive_end(&mut self) {
        let Some(Ending { code, joined, until, .. }) = self.ending.clone() else { return };
        let done = match code {
            ExitCode::AssignmentChanged | ExitCode::NodeDeleted => {
                let resolved = self.resolve_acknowledgment();
                self.drive_troubles();
                resolved && self.troubles.is_idle()
            }
            _ => true,
        };
        let durable = self.is_ledger_silent() || self.is_durable();
        if (joined && done && durable) || self.now >= until {
            self.exit();
        }
    }

    /// Whether nothing is left to learn or to withdraw.
    fn resolve_acknowledgment(&mut self) -> bool {
        if self.is_trying(Operation::Acknowledgment) {
            return false;
        }
        if self.acknowledgment.is_open() {
            // Whether it was written or not, withdrawing it makes sure: nobody has to read first.
            self.acknowledgment = super::Acknowledgment::None;
            self.abandon(Operation::Acknowledgment);
        }
        if self.acknowledgment.is_saved() || self.owes_withdrawal() {
            self.acknowledgment = super::Acknowledgment::None;
            if self.owes_withdrawal() {
                self.withdraw();
                return false;
            }
        }
        true
    }

    fn exit(&mut self) {
        let Some(Ending { code, reason, .. }) = self.ending.clone() else { return };
        self.ended = true;
        for row in std::mem::take(&mut self.rows).into_values() {
            if let Row { standing: Standing::Trying(call) | Standing::Asking(call, _), .. } = row {
                self.actions.push(Action::Cancel(call));
            }
        }
        // The last note comes before: nothing comes after the exit.
        self.tell_state();
        self.actions.push(Action::Exit(Exit { code, reason }));
    }
}
