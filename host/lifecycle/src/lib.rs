//! The life of a Moorline agent as a pure state machine.
//!
//! [`Life::step`] takes the time and one [`Event`] and returns the [`Action`]s that are wanted now. It never reads a
//! clock, a file or a network, never asks a policy by itself (a question is an action, its verdict an event) and never
//! sleeps ([`Life::deadline`] says when it wants to be ticked). The same events at the same times give the same actions,
//! so that a recorded life replays and a model checker can walk through all of them.
//!
//! ```
//! use std::time::Duration;
//! use moorline_lifecycle::{Action, Boot, Event, Life, Settings};
//!
//! let mut life = Life::new(Boot::new(Settings::new("node-1", "agent-pod", "kube-system", "pod-uid")));
//! let actions = life.step(Duration::ZERO, Event::Started);
//! assert!(actions.iter().any(|action| matches!(action, Action::ReadNode(_))));
//! ```
#![deny(missing_docs)]

mod boot;
mod bucket;
mod event;
mod floors;
mod ledger;
mod life;
mod note;
mod objects;
mod rng;
mod row;
mod slot;
mod status;

pub use boot::{AgentIdentity, Boot, CniBounds, LedgerFound, Settings};
pub use bucket::{BURST, REFILL};
pub use event::{
    Action, Answer, Attempt, Binding, Call, CniSeen, CniSubject, Desired, Event, Exit, ExitCode, Failure, FailureKind,
    MachineFailure, Observation, Outcome, PolicyAnswer, Question, Stream, Subject, Trouble, TroubleReason, Verdict,
};
pub use floors::ACKNOWLEDGMENT_KEY;
pub use ledger::{Acknowledged, LEDGER_VERSION, Ledger, PolicyEnd};
pub use life::Life;
pub use note::Note;
pub use objects::{Assignment, GatewayPoolNode, Node, Pod, Pool, Routes, Site, Taint};
pub use row::{LONGEST_WAIT, Operation};
pub use status::{Missing, State, Status};
