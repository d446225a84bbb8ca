//! The life as seen from outside: a function of its facts.

use crate::event::{Outcome, Verdict};
use crate::floors;
use crate::life::Life;
use crate::life::observe::Assessment;
use crate::note::Note;
use crate::row::{Operation, Row, Standing};
use crate::slot::AnySlot;
use crate::status::{Missing, State, Status};

impl Life {
    /// The life as seen from outside, now.
    pub fn status(&self) -> Status {
        Status {
            state: self.state,
            since: self.state_since,
            ready: matches!(self.state, State::Settled | State::WaitingForAssignment) && !self.is_in_trouble(),
            missing: self.missing(),
            assignment: self.adopted.as_ref().map(|adopted| adopted.assignment.clone()),
            adoption_reason: self.adopted.as_ref().map(|adopted| adopted.reason.clone()),
            node_watched: self.node.stream.is_some(),
        }
    }

    pub(super) fn tell_state(&mut self) {
        let state = self.current_state();
        let reason = match state {
            // The end has a note of its own, with its reason.
            State::Settled | State::Starting | State::Identifying | State::Ending | State::Ended => None,
            _ if self.is_busy() => None,
            _ => self.missing().into_iter().next().map(|missing| missing.reason),
        };
        if state != self.state {
            self.state = state;
            self.state_since = self.now;
        } else if reason == self.state_reason || !is_stable(state) || self.is_busy() {
            return;
        }
        self.state_reason.clone_from(&reason);
        self.note(Note::Entered { state, reason });
    }

    /// Whether an answer is under way that may change what is missing: until it is there, nothing is worth telling.
    fn is_busy(&self) -> bool {
        let asking = self.slots().into_iter().any(AnySlot::is_under_way);
        let trying = self.rows.iter().any(|(operation, row)| {
            !is_watch(*operation) && *operation != Operation::NodeWatch && matches!(row.standing, Standing::Trying(_))
        });
        trying || asking || self.site.is_reading() || self.pool.is_reading()
    }

    fn current_state(&self) -> State {
        if self.ended {
            State::Ended
        } else if self.ending.is_some() {
            State::Ending
        } else if !self.started || self.now < self.splayed_until {
            State::Starting
        } else if self.settled() {
            State::Settled
        } else if self.node.absent {
            State::NodeAbsent
        } else if self.cleanup.is_some() {
            State::HandingOff
        } else if self.acknowledgment.is_open() {
            State::Acknowledging
        } else if self.adopted.is_some() {
            if self.ledger.assignment == self.adopted.as_ref().map(|adopted| adopted.assignment.clone())
                && self.desired().is_some()
                && self.cni_wanted().is_ok()
            {
                State::Reconciling
            } else {
                State::Adopted
            }
        } else if self.node.observed.is_some() && self.projection.was_answered() {
            State::WaitingForAssignment
        } else {
            State::Identifying
        }
    }

    /// A policy that fails in adoption is no Node without an assignment.
    fn is_in_trouble(&self) -> bool {
        let fails = self.rows.contains_key(&Operation::Reconciliation);
        let is_held =
            || self.node_view().is_some_and(|node| matches!(self.projection.outcome(&node), Some(Outcome::Held(..))));
        fails || (!self.settled() && is_held())
    }

    /// What is missing before the agent is settled, in the order of the life; of a settled agent, what a person should know.
    fn missing(&self) -> Vec<Missing> {
        let mut missing = Vec::new();
        let mut add = |what: &str, reason: String| missing.push(Missing { what: what.into(), reason });
        if let Some(ending) = &self.ending {
            add("process", ending.reason().to_owned());
        }
        if self.started && self.now < self.splayed_until {
            add("start", "The start is splayed, because another process started less than a minute ago.".into());
        }
        if self.settled() {
            self.missing_of_settled(&mut add);
        } else if self.started {
            self.missing_of_unsettled(&mut add);
        }
        for (operation, row) in &self.rows {
            if let Row { standing: Standing::Asking(..) | Standing::Waiting(_), number, message, .. } = row
                && row.deadline().is_none_or(|until| until > self.now)
                && (!self.settled() || !is_watch(*operation))
            {
                add(operation.as_str(), format!("Try {number} failed: {message}"));
            }
        }
        missing
    }

    fn missing_of_settled(&self, add: &mut impl FnMut(&str, String)) {
        let Some(adopted) = &self.adopted else { return };
        if self.site.deleted {
            add("site", format!("Site {} was deleted; what is on disk stays.", adopted.assignment.site));
        }
        if let (true, Some(pool)) = (self.pool.deleted, &adopted.assignment.pool) {
            add("pool", format!("GatewayPool {pool} was deleted; what is on disk stays."));
        }
        if let Err(reason) = self.cni_wanted() {
            add("cni", reason);
        }
        if let Some(message) = self.cni_in_the_way() {
            add("cni", message.to_owned());
        }
    }

    fn missing_of_unsettled(&self, add: &mut impl FnMut(&str, String)) {
        let name = &self.settings.node_name;
        if self.node.absent {
            add("node", format!("Node {name} is confirmed absent."));
        } else if !self.node.validated {
            add("node", format!("Node {name} has not been read since the start or the last disconnect."));
        }
        let Some(adopted) = &self.adopted else {
            if let Some(reason) = self.unadopted() {
                add("assignment", reason);
            }
            return;
        };
        if self.site.object.is_none() {
            let site = &adopted.assignment.site;
            add(
                "site",
                if self.site.synced {
                    format!("Site {site} does not exist.")
                } else {
                    format!("Site {site} has not been read yet.")
                },
            );
        }
        if let (Some(pool), None) = (&adopted.assignment.pool, &self.pool.object) {
            add(
                "pool",
                if self.pool.synced {
                    format!("GatewayPool {pool} does not exist.")
                } else {
                    format!("GatewayPool {pool} has not been read yet.")
                },
            );
        }
        if let (Some(_), Err(reason)) = (self.desired(), self.cni_wanted()) {
            add("cni", reason);
        }
        if self.cleanup.is_some() || self.earlier_setup() {
            add("handoff", "What an earlier assignment set up is still there.".into());
        }
        match self.unwanted_present() {
            Ok(present) if !present.is_empty() => add(
                "taints",
                format!(
                    "Unwanted on the Node: {}.",
                    list(present.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)))
                ),
            ),
            Err(reason) if self.work.is_begun() => add("taints", reason),
            _ => {}
        }
        if let Assessment::Open(reason) = self.assess() {
            add("drift", reason);
        }
        add("acknowledgment", "Not saved yet.".into());
    }

    fn unadopted(&self) -> Option<String> {
        match self.projection.outcome(&self.node_view()?)? {
            Outcome::NoBinding => Some("No binding answers the adoption hook.".into()),
            Outcome::Held(_, error) => Some(error.clone()),
            Outcome::Decided(Verdict::Wait(reason), _) => Some(reason.clone()),
            Outcome::Decided(Verdict::Assigned { site, pool, .. }, binding) => {
                floors::assignment_problem(site, pool.as_deref()).map(|problem| {
                    format!("The verdict of the adoption binding {} was refused: {problem}", binding.name)
                })
            }
            Outcome::Decided(..) => Some("The adoption hook gave a verdict of another hook.".into()),
        }
    }
}

/// States in which the life can stand for long, so that another reason is worth telling.
fn is_stable(state: State) -> bool {
    matches!(
        state,
        State::WaitingForAssignment | State::Adopted | State::HandingOff | State::Reconciling | State::Settled
    )
}

fn is_watch(operation: Operation) -> bool {
    matches!(operation, Operation::SiteWatch | Operation::PoolWatch)
}

fn list(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(", ")
}
