//! Keeps the ledger durable: what it has to say is saved before what it says is done.

use crate::event::{Action, MachineFailure};
use crate::ledger::Ledger;
use crate::life::Life;
use crate::row::Operation;

impl Life {
    /// Whether all that the ledger has to say is durable. Where it is not, its save is wanted now.
    pub(super) fn is_durable(&mut self) -> bool {
        if self.saving.is_none() {
            if self.durable.as_ref() == Some(&self.ledger) && !self.durable_in_doubt {
                return true;
            }
            let ledger = self.ledger.clone();
            if self.local(Operation::LedgerWrite, |call| Action::SaveLedger(call, Box::new(ledger))).is_some() {
                self.saving = Some(self.ledger.clone());
            }
        }
        false
    }

    /// A ledger that lists nothing, and never did, is not written at all.
    pub(super) fn is_ledger_silent(&self) -> bool {
        let empty = Ledger { incomplete: true, ..Ledger::empty(&self.settings.node_name) };
        self.durable.is_none() && self.saving.is_none() && self.ledger == empty
    }

    /// Saves what changed without anyone waiting for it; the first ledger also has what the own Pod says.
    pub(super) fn drive_ledger(&mut self) {
        if !self.is_ledger_silent() && !self.pod_unread {
            self.is_durable();
        }
    }

    pub(super) fn ledger_saved(&mut self, answer: Result<(), MachineFailure>) {
        let saved = self.saving.take();
        match answer {
            Ok(()) => {
                self.durable = saved;
                self.durable_in_doubt = false;
                self.succeed(Operation::LedgerWrite);
            }
            Err(failure) => {
                self.durable_in_doubt = true;
                self.fail(Operation::LedgerWrite, failure.into());
            }
        }
    }
}
