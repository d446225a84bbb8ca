//! The acknowledgment: when it is sent, what becomes of its answer, and who withdraws it.

use moorline_lifecycle::{
    ACKNOWLEDGMENT_KEY, Action, Answer, Event, ExitCode, Failure, FailureKind, Note, Operation, Question, State,
};

use crate::world::Fault;
use crate::world::api::SITE_LABEL;
use crate::world::policies::{Acknowledgment, Drift};
use crate::*;

const RACK: &str = "moorline.dev/rack";

fn acknowledging() -> World {
    let mut world = started(Some("berlin"), None);
    until(&mut world, acknowledgment);
    world
}

/// The Node drifts and the policies say so, while other answers are still on their way.
fn drift_is_judged(world: &mut World) {
    relabel(world, SITE_LABEL, Some("paris"));
    while let Some(place) = world.flight.iter().position(|flight| matches!(flight.action, Action::Ask(..))) {
        world.deliver(place, Fault::None).unwrap();
    }
}

fn stands(world: &World) -> bool {
    world.api.pod.annotations.contains_key(ACKNOWLEDGMENT_KEY)
}

#[test]
fn p3_the_watch_is_closed_by_the_next_action_and_the_node_is_not_looked_at_again() {
    let mut world = acknowledging();
    let watch = world.node.as_ref().unwrap().call;
    let before = world.actions.len();
    answer(&mut world, acknowledgment, Fault::None);
    assert_eq!(world.actions[before].1, Action::CloseWatch(watch));
    live(&mut world, 24 * 3600 * SECOND);
    assert_eq!(said(&world, |action| matches!(action, Action::ReadNode(_) | Action::WatchNode(..))), 2);
}

#[test]
fn the_intent_is_durable_before_the_write() {
    let mut world = started(Some("berlin"), None);
    world.policies.acknowledgment = Acknowledgment::Rack;
    until(&mut world, acknowledgment);
    let listed = world.machine.durable().unwrap().acknowledgment.clone().unwrap();
    assert_eq!(listed.pod_uid, "pod-1");
    assert_eq!(listed.keys.into_iter().collect::<Vec<_>>(), [ACKNOWLEDGMENT_KEY, "moorline.dev/rack"]);
}

#[test]
fn what_a_retry_policy_is_told_of_a_lost_write_and_of_one_that_is_not_shown_is_different() {
    for (fault, kind) in [(Fault::Lost(false), FailureKind::Unavailable), (Fault::Ignored, FailureKind::Other)] {
        let mut world = acknowledging();
        answer(&mut world, acknowledgment, fault);
        let told = |action: &Action| match action {
            Action::Note(Note::Waiting { operation: Operation::Acknowledgment, failure, message, .. }) => {
                Some((*failure, message.contains("a read shows")))
            }
            _ => None,
        };
        settle(&mut world, 60 * SECOND).unwrap();
        let told: Vec<_> = world.actions.iter().filter_map(|(_, action)| told(action)).collect();
        assert_eq!(told.last(), Some(&(kind, kind == FailureKind::Unavailable)), "{fault:?}");
    }
}

#[test]
fn what_was_rendered_before_the_acknowledgment_is_not_rendered_again_after_it() {
    let mut world = settled(None, false);
    live(&mut world, 60 * SECOND);
    assert_eq!(said(&world, |action| matches!(action, Action::Ask(_, Question::Render(_)))), 1);
}

#[test]
fn a_key_that_the_policy_no_longer_writes_is_removed_with_the_next_acknowledgment() {
    let mut world = settled_in(|world| world.policies.acknowledgment = Acknowledgment::Rack);
    assert!(world.api.pod.annotations.contains_key(RACK));
    again(&mut world, |world| world.policies.acknowledgment = Acknowledgment::NoBinding);
    settle(&mut world, 60 * SECOND).unwrap();
    assert_eq!(world.api.pod.annotations.keys().collect::<Vec<_>>(), [ACKNOWLEDGMENT_KEY]);
    assert_eq!(world.machine.durable().unwrap().acknowledgment.as_ref().unwrap().keys.len(), 2);
}

#[test]
fn keys_on_an_earlier_pod_are_not_written_to_this_one() {
    let mut world = settled_in(|world| world.policies.acknowledgment = Acknowledgment::Rack);
    again(&mut world, |world| {
        world.api.replace_pod();
        world.policies.acknowledgment = Acknowledgment::NoBinding;
    });
    settle(&mut world, 60 * SECOND).unwrap();
    let keys = world.actions.iter().find_map(|(_, action)| match action {
        Action::PatchPod(_, patch) => Some(patch.keys().cloned().collect::<Vec<_>>()),
        _ => None,
    });
    assert_eq!(keys.unwrap(), [ACKNOWLEDGMENT_KEY]);
}

#[test]
fn without_a_ledger_every_key_under_the_own_prefixes_is_withdrawn() {
    let mut world = settled_in(|world| world.policies.acknowledgment = Acknowledgment::Rack);
    again(&mut world, |world| {
        world.machine.lose_ledger();
        world.api.label(SITE_LABEL, Some("paris"));
    });
    answer(&mut world, withdrawal, Fault::None);
    assert!(world.api.pod.annotations.is_empty(), "{:?}", world.api.pod.annotations);
}

#[test]
fn an_own_pod_that_is_gone_when_it_is_read_ends_the_process() {
    for gone in [FailureKind::NotFound, FailureKind::Invalid] {
        let mut world = started(Some("berlin"), None);
        let place = until(&mut world, |action| matches!(action, Action::ReadPod(_)));
        let call = world.flight.remove(place).call;
        world.tell(Event::Answer(call, Answer::Pod(Err(Failure::new(gone, "It is gone."))))).unwrap();
        assert_eq!(ends(&mut world), ExitCode::Environment);
        assert_eq!(said(&world, patch_pod), 0);
    }
}

#[test]
fn a_lost_answer_is_resolved_by_reading_and_a_write_that_took_effect_is_not_repeated() {
    let mut world = acknowledging();
    answer(&mut world, acknowledgment, Fault::Lost(true));
    settle(&mut world, 60 * SECOND).unwrap();
    assert_eq!(said(&world, acknowledgment), 1);
    assert!(requests(&world).ends_with(&["PatchPod".into(), "ReadPod".into()]));
}

#[test]
fn a_lost_answer_to_a_write_without_effect_leads_to_another() {
    let mut world = acknowledging();
    answer(&mut world, acknowledgment, Fault::Lost(false));
    settle(&mut world, 60 * SECOND).unwrap();
    assert!(requests(&world).ends_with(&["PatchPod".into(), "ReadPod".into(), "PatchPod".into()]));
}

#[test]
fn p4_drift_while_the_acknowledgment_is_in_flight_waits_for_its_outcome_and_withdraws_it() {
    let mut world = acknowledging();
    let place = until(&mut world, acknowledgment);
    world.serve(place, Fault::None).unwrap();
    drift_is_judged(&mut world);
    assert!(world.state() == State::Ending && stands(&world));
    assert_eq!(said(&world, withdrawal), 0);
    assert_eq!(ends(&mut world), ExitCode::AssignmentChanged);
    assert_eq!(said(&world, withdrawal), 1);
    assert!(!stands(&world) && world.machine.durable().unwrap().acknowledgment.is_none());
}

#[test]
fn drift_after_a_lost_answer_withdraws_without_reading_first() {
    let mut world = acknowledging();
    answer(&mut world, acknowledgment, Fault::Lost(true));
    relabel(&mut world, SITE_LABEL, Some("paris"));
    let before = requests(&world).len();
    assert_eq!(ends(&mut world), ExitCode::AssignmentChanged);
    let after: Vec<_> = requests(&world)[before..].iter().filter(|name| *name != "WriteEvent").cloned().collect();
    assert_eq!(after, ["PatchPod"]);
    assert!(!stands(&world));
}

#[test]
fn what_can_not_be_withdrawn_in_time_is_owed_and_the_next_process_writes_that_first() {
    let mut world = acknowledging();
    let place = until(&mut world, acknowledgment);
    world.serve(place, Fault::None).unwrap();
    drift_is_judged(&mut world);
    let ending = |world: &mut World| {
        for _ in 0..200 {
            if world.ended() {
                return;
            }
            match world.flight.iter().position(|flight| !withdrawal(&flight.action)) {
                Some(place) => world.deliver(place, Fault::None).unwrap(),
                None if world.flight.is_empty() => world.tick().unwrap(),
                None => world.deliver(0, Fault::Fails(FailureKind::Unavailable)).unwrap(),
            }
        }
    };
    ending(&mut world);
    assert!(world.ended() && stands(&world));
    assert!(world.now() <= 10 * SECOND, "it ends within its deadline");
    assert!(world.machine.durable().unwrap().acknowledgment.as_ref().unwrap().owed);

    world.pass(90 * SECOND);
    world.start().unwrap();
    assert_eq!(requests(&world), ["PatchPod", "ReadNode"]);
    assert_eq!(said(&world, withdrawal), 1);
    settle(&mut world, 60 * SECOND).unwrap();
    let record = &world.api.pod.annotations[ACKNOWLEDGMENT_KEY];
    assert!(record.contains(r#""site":"paris""#), "{record}");
}

#[test]
fn what_is_owed_to_another_pod_is_owed_to_nobody() {
    let mut world = settled(None, false);
    let mut ledger = world.machine.durable().unwrap().clone();
    ledger.acknowledgment.as_mut().unwrap().owed = true;
    again(&mut world, |world| {
        world.machine.save(&ledger);
        world.api.replace_pod();
    });
    settle(&mut world, SECOND).unwrap();
    assert_eq!(said(&world, withdrawal), 0);
}

#[test]
fn a_server_that_does_not_show_the_acknowledgment_has_not_taken_it() {
    let mut world = acknowledging();
    answer(&mut world, acknowledgment, Fault::Ignored);
    quiet(&mut world);
    assert_ne!(world.state(), State::Settled);
    settle(&mut world, 60 * SECOND).unwrap();
    assert!(stands(&world));
}

#[test]
fn a_pod_that_is_another_ends_the_process_and_nothing_is_written_to_it() {
    let mut world = acknowledging();
    world.api.replace_pod();
    assert_eq!(ends(&mut world), ExitCode::Environment);
    assert!(world.api.pod.annotations.is_empty());
}

#[test]
fn an_annotation_that_is_the_hosts_own_is_refused_and_that_is_said_once() {
    let mut world = new_world(Some("berlin"), None);
    world.policies.acknowledgment = Acknowledgment::HostsKey;
    world.start().unwrap();
    settle(&mut world, SECOND).unwrap();
    assert_eq!(said(&world, |action| matches!(action, Action::Note(Note::Overridden { .. }))), 1);
    assert_ne!(world.api.pod.annotations[ACKNOWLEDGMENT_KEY], "7");
}

#[test]
fn nobody_to_annotate_leaves_the_hosts_record_alone() {
    for acknowledgment in [Acknowledgment::NoBinding, Acknowledgment::Held] {
        let mut world = new_world(Some("berlin"), None);
        world.policies.acknowledgment = acknowledgment;
        world.start().unwrap();
        settle(&mut world, SECOND).unwrap();
        assert_eq!(world.api.pod.annotations.keys().collect::<Vec<_>>(), [ACKNOWLEDGMENT_KEY]);
    }
}

#[test]
fn nothing_is_acknowledged_while_the_watch_is_closed_or_drift_is_not_judged() {
    let mut world = started(Some("berlin"), None);
    world.policies.drift = Drift::Held;
    live(&mut world, 3600 * SECOND);
    assert_eq!((said(&world, acknowledgment), world.state()), (0, State::Reconciling));
    world.stream(world::Kind::Node, world::Says::Closed).unwrap();
    world.policies_changed(world::policies::Policies::default()).unwrap();
    while let Some(place) = world.flight.iter().position(|flight| !matches!(flight.action, Action::ReadNode(_))) {
        world.deliver(place, Fault::None).unwrap();
    }
    assert_eq!(said(&world, acknowledgment), 0, "nothing vouches for the Node");
    settle(&mut world, 60 * SECOND).unwrap();
}

#[test]
fn sigterm_while_the_acknowledgment_is_in_flight_does_not_wait_for_it() {
    let mut world = acknowledging();
    world.tell(Event::Terminate).unwrap();
    answer(&mut world, |action| matches!(action, Action::JoinWorkers(_)), Fault::None);
    assert!(world.ended());
}
