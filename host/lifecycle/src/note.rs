//! What the life has to tell people: one note per turn of the story, with its reason, from which logs and timelines are made.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::FailureKind;
use crate::objects::Assignment;
use crate::row::Operation;
use crate::status::State;

/// A turn of the story.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "note")]
pub enum Note {
    /// The life entered a state.
    Entered {
        /// The state.
        state: State,
        /// What is waited for there, if anything.
        reason: Option<String>,
    },
    /// The assignment was adopted.
    Adopted {
        /// The assignment.
        assignment: Assignment,
        /// The policy's reason.
        reason: String,
    },
    /// An operation failed and is tried again later, or given up.
    Waiting {
        /// The operation.
        operation: Operation,
        /// How it failed.
        failure: FailureKind,
        /// What the other side said.
        message: String,
        /// 1 for the first failure in a row.
        number: u32,
        /// Until the next try.
        wait: Duration,
        /// Who decided the wait, and why.
        reason: String,
    },
    /// A nested operation was given up: its error goes to reconciliation.
    GaveUp {
        /// The operation.
        operation: Operation,
        /// Why.
        reason: String,
    },
    /// A floor of the host stood against a verdict.
    Overridden {
        /// The hook.
        hook: String,
        /// The binding whose verdict it was.
        binding: String,
        /// What the host did instead, and why.
        reason: String,
    },
    /// A policy failed; its hook holds or the failure fell through.
    PolicyTrouble {
        /// The hook.
        hook: String,
        /// The failure.
        message: String,
    },
    /// The drift that ends the process.
    Drifted {
        /// Why.
        reason: String,
    },
    /// A change of the projection is tolerated by a binding that was granted it.
    Tolerated {
        /// The policy's reason.
        reason: String,
    },
    /// Transition cleanup begins, or one of its parts is done.
    HandingOff {
        /// What.
        what: String,
    },
    /// A part of reconciliation is done.
    Reconciled {
        /// What.
        what: String,
    },
    /// Something is wrong with the CNI configuration that was put in place.
    CniTrouble {
        /// What.
        what: String,
    },
    /// Something stands still until a person, or someone else, acts.
    Parked {
        /// The operation.
        operation: Operation,
        /// What was said.
        message: String,
        /// Until it is tried again all the same.
        wait: Duration,
    },
    /// The acknowledgment is saved.
    AcknowledgmentSaved {
        /// The assignment that it is about.
        assignment: Assignment,
    },
    /// An earlier acknowledgment was withdrawn.
    AcknowledgmentWithdrawn,
    /// The process ends.
    Ending {
        /// Why.
        reason: String,
    },
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Entered { state, reason: Some(reason) } => write!(f, "State {}: {reason}", state.as_str()),
            Self::Entered { state, reason: None } => write!(f, "State {}.", state.as_str()),
            Self::Adopted { assignment, reason } => write!(f, "Adopted: {assignment}, because {reason}"),
            Self::Waiting { operation, failure, message, number, wait, reason } => write!(
                f,
                "Try {number} of {} failed ({}): {message} The next try is in {wait:.1?}: {reason}",
                operation.as_str(),
                failure.as_str()
            ),
            Self::GaveUp { operation, reason } => write!(f, "Gave up {}: {reason}", operation.as_str()),
            Self::Overridden { hook, binding, reason } => {
                write!(f, "A floor stands against the binding {binding} of the hook {hook}: {reason}")
            }
            Self::PolicyTrouble { message, .. } => f.write_str(message),
            Self::Drifted { reason } => write!(f, "Drift: {reason}"),
            Self::Tolerated { reason } => write!(f, "A changed assignment is tolerated: {reason}"),
            Self::HandingOff { what } => write!(f, "Handoff: {what}"),
            Self::Reconciled { what } | Self::CniTrouble { what } | Self::Ending { reason: what } => f.write_str(what),
            Self::Parked { operation, message, wait } => write!(
                f,
                "{} was denied and stands still until something changes, or for {wait:.0?}: {message}",
                operation.as_str()
            ),
            Self::AcknowledgmentSaved { assignment } => write!(f, "The acknowledgment is saved: {assignment}."),
            Self::AcknowledgmentWithdrawn => f.write_str("An earlier acknowledgment is withdrawn."),
        }
    }
}
