//! The words by which policies, logs, metrics and people know things: stable, and the same wherever they stand.

use crate::*;
use std::fmt::Debug;
use std::time::Duration;

use moorline_lifecycle::{Assignment, ExitCode, FailureKind, Note, Operation, State, TroubleReason};
use serde::Serialize;

/// Each is written in JSON as it is called, and no two are called the same.
fn are_called<T: Serialize + Debug + Copy>(all: &[T], word: fn(T) -> &'static str, words: &[&str]) {
    let called: Vec<_> = all.iter().map(|each| word(*each)).collect();
    assert_eq!(called, words);
    for each in all {
        assert_eq!(serde_json::to_value(each).unwrap(), word(*each), "{each:?}");
    }
}

#[test]
fn failures_operations_states_and_troubles_have_their_words() {
    use FailureKind as F;
    are_called(
        &[
            F::Conflict,
            F::NotFound,
            F::Unauthorized,
            F::Forbidden,
            F::Throttled,
            F::Unavailable,
            F::Timeout,
            F::Closed,
            F::Expired,
            F::Invalid,
            F::Other,
        ],
        F::as_str,
        &[
            "conflict",
            "not-found",
            "unauthorized",
            "forbidden",
            "throttled",
            "unavailable",
            "timeout",
            "closed",
            "expired",
            "invalid",
            "other",
        ],
    );
    use Operation as O;
    are_called(
        &[
            O::NodeRead,
            O::NodeWatch,
            O::PodRead,
            O::SiteWatch,
            O::PoolWatch,
            O::Reconciliation,
            O::Acknowledgment,
            O::Withdrawal,
            O::Cleanup,
            O::LedgerWrite,
            O::DataPlane,
            O::CniWrite,
            O::TaintRemoval,
            O::Advertisement,
        ],
        O::as_str,
        &[
            "node-read",
            "node-watch",
            "pod-read",
            "site-watch",
            "pool-watch",
            "reconciliation",
            "acknowledgment",
            "withdrawal",
            "cleanup",
            "ledger-write",
            "data-plane",
            "cni-write",
            "taint-removal",
            "advertisement",
        ],
    );
    use State as S;
    are_called(
        &[
            S::Starting,
            S::Identifying,
            S::WaitingForAssignment,
            S::NodeAbsent,
            S::Adopted,
            S::HandingOff,
            S::Reconciling,
            S::Acknowledging,
            S::Settled,
            S::Ending,
            S::Ended,
        ],
        S::as_str,
        &[
            "starting",
            "identifying",
            "waiting-for-assignment",
            "node-absent",
            "adopted",
            "handing-off",
            "reconciling",
            "acknowledging",
            "settled",
            "ending",
            "ended",
        ],
    );
    use TroubleReason as T;
    are_called(
        &[
            T::AssignmentChanged,
            T::TaintRemovalDenied,
            T::CniBlocked,
            T::PolicyFailed,
            T::PolicyRefused,
            T::PolicyRestartLoop,
        ],
        T::as_str,
        &[
            "AssignmentChanged",
            "TaintRemovalDenied",
            "CniBlocked",
            "PolicyFailed",
            "PolicyRefused",
            "PolicyRestartLoop",
        ],
    );
}

#[test]
fn exit_codes_have_their_numbers() {
    let codes = [
        (ExitCode::Asked, 0),
        (ExitCode::Failed, 1),
        (ExitCode::Configuration, 2),
        (ExitCode::Environment, 3),
        (ExitCode::AssignmentChanged, 10),
        (ExitCode::NodeDeleted, 11),
    ];
    for (code, number) in codes {
        assert_eq!(code.number(), number, "{code:?}");
    }
}

#[test]
fn every_turn_of_the_story_is_told_in_words() {
    let why = || "It is so.".to_owned();
    let worker = Assignment { node_uid: "u".into(), site: "east".into(), pool: None };
    let gateway = Assignment { pool: Some("edge".into()), ..worker.clone() };
    let (wait, operation) = (Duration::from_millis(1500), Operation::NodeRead);
    let told = [
        (Note::Entered { state: State::Adopted, reason: Some(why()) }, "State adopted: It is so."),
        (Note::Entered { state: State::Settled, reason: None }, "State settled."),
        (
            Note::Adopted { assignment: gateway, reason: why() },
            "Adopted: gateway in Site east and GatewayPool edge, because It is so.",
        ),
        (
            Note::Waiting {
                operation,
                failure: FailureKind::Timeout,
                message: "No answer.".into(),
                number: 3,
                wait,
                reason: why(),
            },
            "Try 3 of node-read failed (timeout): No answer. The next try is in 1.5s: It is so.",
        ),
        (Note::GaveUp { operation, reason: why() }, "Gave up node-read: It is so."),
        (
            Note::Overridden { hook: "cni".into(), binding: "b".into(), reason: why() },
            "A floor stands against the binding b of the hook cni: It is so.",
        ),
        (Note::PolicyTrouble { hook: "cni".into(), message: why() }, "It is so."),
        (Note::Drifted { reason: why() }, "Drift: It is so."),
        (Note::Tolerated { reason: why() }, "A changed assignment is tolerated: It is so."),
        (Note::HandingOff { what: why() }, "Handoff: It is so."),
        (Note::Reconciled { what: why() }, "It is so."),
        (
            Note::Parked { operation: Operation::TaintRemoval, message: why(), wait: Duration::from_secs(300) },
            "taint-removal was denied and stands still until something changes, or for 300s: It is so.",
        ),
        (Note::AcknowledgmentSaved { assignment: worker }, "The acknowledgment is saved: worker in Site east."),
        (Note::AcknowledgmentWithdrawn, "An earlier acknowledgment is withdrawn."),
        (Note::Ending { reason: why() }, "It is so."),
    ];
    for (note, words) in told {
        assert_eq!(note.to_string(), words);
    }
}

/// The states of this process in order, each with what was missing there.
fn entered(world: &World) -> Vec<String> {
    let entered = |action: &Action| match action {
        Action::Note(Note::Entered { state, reason }) => Some(match reason {
            Some(reason) => format!("{}: {reason}", state.as_str()),
            None => state.as_str().to_owned(),
        }),
        _ => None,
    };
    world.actions.iter().filter_map(|(_, action)| entered(action)).collect()
}

#[test]
fn a_state_says_what_is_missing_only_when_nothing_is_under_way_that_may_bring_it() {
    let mut world = started(Some("berlin"), Some("edge"));
    settle(&mut world, 60 * SECOND).unwrap();
    assert_eq!(entered(&world), ["identifying", "adopted", "reconciling", "acknowledging", "settled"]);

    let mut world = started(Some("rome"), None);
    live(&mut world, 60 * SECOND);
    let missing = "adopted: Site rome does not exist.";
    assert_eq!(entered(&world), ["identifying", "adopted", missing]);

    let mut world = new_world(Some("berlin"), None);
    world.policies.cni = crate::world::policies::Cni::Wait;
    world.start().unwrap();
    live(&mut world, 60 * SECOND);
    assert_eq!(entered(&world), ["identifying", "adopted", "adopted: Not yet."]);

    let mut world = started(None, None);
    live(&mut world, 60 * SECOND);
    assert_eq!(entered(&world), ["identifying", "waiting-for-assignment: The Node has no Site label."]);
}
