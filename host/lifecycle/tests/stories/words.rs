//! The words by which policies, logs, metrics and people know things: stable, and the same wherever they stand.

use crate::world::api::{POOL_LABEL, SITE_LABEL};
use crate::world::policies::{Cni, Drift, Policies};
use crate::world::{Fault, Kind, Says};
use crate::*;
use std::fmt::Debug;
use std::time::Duration;

use moorline_lifecycle::{Action, Assignment, Event, ExitCode, FailureKind, Note, Operation, State, TroubleReason};
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
    let none = "adopted: Site rome does not exist.";
    assert_eq!(entered(&world), ["identifying", "adopted", none]);

    let mut world = new_world(Some("berlin"), None);
    world.policies.cni = Cni::Wait;
    world.start().unwrap();
    live(&mut world, 60 * SECOND);
    assert_eq!(entered(&world), ["identifying", "adopted", "adopted: Not yet."]);

    let mut world = started(None, None);
    live(&mut world, 60 * SECOND);
    assert_eq!(entered(&world), ["identifying", "waiting-for-assignment: The Node has no Site label."]);
    assert_eq!(missing(&world), ["assignment: The Node has no Site label."]);
}

/// What is missing now, as /readyz says it.
fn missing(world: &World) -> Vec<String> {
    world.life.status().missing.iter().map(|missing| format!("{}: {}", missing.what, missing.reason)).collect()
}

/// Everything goes well until nothing more is to be done now; what was first among the missing on the way.
fn firsts(world: &mut World) -> Vec<String> {
    let mut firsts = Vec::new();
    loop {
        firsts.extend(missing(world).into_iter().next());
        firsts.dedup();
        if !well(world).unwrap() {
            return firsts;
        }
    }
}

const UNREAD: &str = "node: Node node-1 has not been read since the start or the last disconnect.";
const UNSAVED: &str = "acknowledgment: Not saved yet.";

#[test]
fn what_is_missing_is_told_in_the_order_of_the_life() {
    let mut world = started(Some("berlin"), Some("edge"));
    let told = firsts(&mut world);
    assert_eq!(
        told[..3],
        [UNREAD, "site: Site berlin has not been read yet.", "pool: GatewayPool edge has not been read yet."]
    );
    assert_eq!(
        told[3..],
        [
            "cni: The cni policy has not answered yet.",
            UNSAVED,
            "taints: The taints policy has not answered yet.",
            UNSAVED
        ]
    );
    let mut world = settled(Some("edge"), true);
    again(&mut world, |world| world.api.label(POOL_LABEL, None));
    assert_eq!(firsts(&mut world)[3], "handoff: What an earlier assignment set up is still there.");
}

#[test]
fn all_that_is_missing_is_told() {
    let mut world = started(Some("rome"), Some("typo"));
    quiet(&mut world);
    let objects = ["site: Site rome does not exist.", "pool: GatewayPool typo does not exist."];
    assert_eq!(missing(&world), [&objects[..], &[UNSAVED]].concat());
    world.tell(Event::Terminate).unwrap();
    assert_eq!(missing(&world)[0], "process: SIGTERM: the process ends as asked, and what it set up stays.");

    let mut world = new_world(Some("berlin"), None);
    (world.policies.drift, world.policies.cni) = (Drift::Held, Cni::Evil);
    world.start().unwrap();
    quiet(&mut world);
    let told = missing(&world);
    assert!(told[0].starts_with("cni: The conflist of the cni binding renderer was refused: "), "{told:?}");
    assert_eq!(told[1..], ["drift: It trapped.", UNSAVED]);

    let mut world = new_world(Some("berlin"), None);
    world.api.change_node(|node| node.taints = gateway_taint());
    world.start().unwrap();
    answer(&mut world, patch_taints, Fault::Denied);
    quiet(&mut world);
    let taints = "taints: Unwanted on the Node: net.unbounded-cloud.io/gateway-node:NoSchedule.";
    assert_eq!(missing(&world), [taints, UNSAVED, "taint-removal: Try 1 failed: The request failed."]);

    let mut world = settled(None, true);
    again(&mut world, |world| world.api.delete_node());
    live(&mut world, 60 * SECOND);
    let told = missing(&world);
    assert_eq!(told[0], "node: Node node-1 is confirmed absent.");
    assert!(
        told[1].starts_with("node-read: Try ") && told[1].ends_with(" failed: nodes \"node-1\" not found"),
        "{told:?}"
    );
}

#[test]
fn a_splayed_start_says_so() {
    let mut world = started(Some("berlin"), None);
    while world.life.status().state != State::Starting {
        world.kill(false);
        world.pass(SECOND);
        world.start().unwrap();
    }
    let splayed = "start: The start is splayed, because another process started less than a minute ago.";
    assert_eq!(missing(&world), [splayed, UNREAD]);
}

#[test]
fn a_settled_agent_says_what_a_person_should_know() {
    let mut world = settled(Some("edge"), true);
    assert_eq!(missing(&world), Vec::<String>::new());
    world.api.delete_site("berlin");
    world.api.delete_pool("edge");
    world.policies_changed(Policies { cni: Cni::Wait, ..Policies::default() }).unwrap();
    live(&mut world, 60 * SECOND);
    let gone = [
        "site: Site berlin was deleted; what is on disk stays.",
        "pool: GatewayPool edge was deleted; what is on disk stays.",
    ];
    assert_eq!(missing(&world), [&gone[..], &["cni: Not yet."]].concat());
    assert!(world.life.status().ready);
    assert_eq!(entered(&world).last().map(String::as_str), Some("settled"), "it is no other state");
}

#[test]
fn an_object_whose_watch_has_just_been_opened_is_not_missing_yet() {
    for silent in [&[Kind::Site, Kind::Pool][..], &[Kind::Pool]] {
        let mut world = started(Some("berlin"), Some("edge"));
        let heard = |world: &mut World| {
            let mut kinds = [Kind::Node, Kind::Site, Kind::Pool].into_iter().filter(|kind| !silent.contains(kind));
            kinds.any(|kind| world.stream(kind, Says::Next).unwrap())
        };
        while heard(&mut world) || !world.flight.is_empty() {
            if !world.flight.is_empty() {
                world.deliver(0, Fault::None).unwrap();
            }
        }
        assert_eq!(entered(&world), ["identifying", "adopted"]);
    }
}

#[test]
fn a_lost_answer_to_the_acknowledgment_is_no_other_state() {
    let mut world = started(Some("berlin"), None);
    answer(&mut world, acknowledgment, Fault::Lost(true));
    settle(&mut world, 60 * SECOND).unwrap();
    assert_eq!(entered(&world), ["identifying", "adopted", "reconciling", "acknowledging", "settled"]);
}

#[test]
fn an_agent_is_reconciling_once_the_ledger_is_about_its_assignment_and_all_is_known() {
    let mut world = started(Some("berlin"), None);
    until(&mut world, |action| matches!(action, Action::PlanDataPlane(..)));
    assert_eq!(world.state(), State::Adopted);
    until(&mut world, |action| matches!(action, Action::ApplyDataPlane(..)));
    assert_eq!(world.state(), State::Reconciling);
    settle(&mut world, 60 * SECOND).unwrap();
    again(&mut world, |world| world.api.delete_site("berlin"));
    quiet(&mut world);
    assert_eq!(world.state(), State::Adopted);
}

#[test]
fn an_earlier_set_up_is_missing_its_end_although_its_handoff_can_not_begin() {
    let mut world = settled(None, false);
    again(&mut world, |world| world.api.label(SITE_LABEL, Some("rome")));
    quiet(&mut world);
    let handoff = "handoff: What an earlier assignment set up is still there.";
    assert_eq!(missing(&world), ["site: Site rome does not exist.", handoff, UNSAVED]);
}

#[test]
fn a_watch_that_broke_is_missing_only_before_the_agent_has_settled() {
    let broken = |world: &mut World| {
        world.stream(Kind::Site, Says::Fails(FailureKind::Unavailable)).unwrap();
        while let Some(place) = world.flight.iter().position(|flight| matches!(flight.action, Action::Ask(..))) {
            world.deliver(place, Fault::None).unwrap();
        }
        missing(world)
    };
    let mut world = started(Some("rome"), None);
    quiet(&mut world);
    let told = broken(&mut world);
    assert!(told.last().is_some_and(|told| told.starts_with("site-watch: Try 1 failed: ")), "{told:?}");
    assert!(broken(&mut settled(None, false)).is_empty());
}

#[test]
fn a_settled_agent_that_fails_to_write_says_so_and_is_not_ready() {
    let mut world = settled(None, false);
    world.api.put_site("berlin", None);
    answer(&mut world, |action| matches!(action, Action::WriteCni(..)), Fault::Fails(FailureKind::Other));
    quiet(&mut world);
    let told = missing(&world);
    assert!(
        told.last().is_some_and(|told| told.starts_with("reconciliation: Try 1 failed: cni-write was")),
        "{told:?}"
    );
    assert!(!world.life.status().ready);
    live(&mut world, 60 * SECOND);
    assert!(missing(&world).is_empty() && world.life.status().ready);
}

#[test]
fn what_was_done_is_told_once() {
    let mut world = started(Some("berlin"), Some("edge"));
    settle(&mut world, 60 * SECOND).unwrap();
    world.api.put_site("berlin", Some(false));
    live(&mut world, 60 * SECOND);
    let told = |action: &Action| match action {
        Action::Note(Note::Reconciled { what }) => Some(what.clone()),
        _ => None,
    };
    let told: Vec<_> = world.actions.iter().filter_map(|(_, action)| told(action)).collect();
    let (set_up, matches) = ("The data plane is set up.", "Machine and objects match the assignment.");
    let unmanaged = "CNI is not managed here: no configuration of the agent's own is active.";
    assert_eq!(told, [set_up, "The CNI configuration is the Site's.", matches, set_up, unmanaged]);
}
