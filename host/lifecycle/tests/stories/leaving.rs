//! Assignments that are over without a successor: another UID, a confirmed absence, another machine's ledger.

use moorline_lifecycle::{Action, ExitCode, FailureKind, State};

use crate::world::api::SITE_LABEL;
use crate::world::policies::{Cni, Policies};
use crate::world::{Fault, Kind, Says};
use crate::*;

fn read_node(action: &Action) -> bool {
    matches!(action, Action::ReadNode(_))
}

fn undone(world: &World) -> bool {
    world.machine.cni.is_none() && world.machine.items.is_empty()
}

#[test]
fn p10_an_absence_is_confirmed_by_two_reads_a_retry_interval_apart() {
    let mut world = settled(None, false);
    again(&mut world, |world| world.api.delete_node());
    answer(&mut world, read_node, Fault::None);
    quiet(&mut world);
    assert!(!undone(&world) && said(&world, |action| matches!(action, Action::JoinWorkers(_))) == 0);
    let first = world.now();
    answer(&mut world, read_node, Fault::None);
    assert!(world.now() >= first + Duration::from_millis(50));
    quiet(&mut world);
    assert!(undone(&world));
    live(&mut world, 60 * SECOND);
    assert_eq!((world.state(), world.machine.durable().unwrap().assignment.clone()), (State::NodeAbsent, None));
}

#[test]
fn a_404_that_is_not_about_this_node_never_tears_down_a_network() {
    let mut world = settled(None, false);
    again(&mut world, |_| {});
    for fault in [FailureKind::Unavailable, FailureKind::NotFound, FailureKind::Unavailable, FailureKind::NotFound] {
        answer(&mut world, read_node, Fault::Fails(fault));
    }
    assert!(!undone(&world));
    settle(&mut world, 60 * SECOND).unwrap();
    assert_eq!(said(&world, |action| matches!(action, Action::JoinWorkers(_))), 0);
}

#[test]
fn the_agent_goes_on_waiting_for_a_node_that_is_absent_and_settles_when_it_comes() {
    let mut world = settled(None, false);
    again(&mut world, |world| world.api.delete_node());
    live(&mut world, 3600 * SECOND);
    world.api.create_node(Some("paris"), None, Vec::new());
    settle(&mut world, 120 * SECOND).unwrap();
    assert_eq!(said(&world, |action| matches!(action, Action::Note(moorline_lifecycle::Note::Adopted { .. }))), 1);
}

#[test]
fn another_uid_is_cleaned_up_at_once_without_a_successor() {
    let mut world = settled(Some("edge"), true);
    again(&mut world, |world| {
        world.api.delete_node();
        world.api.create_node(None, None, Vec::new());
    });
    quiet(&mut world);
    assert!(undone(&world));
    assert_eq!((said(&world, withdrawal), world.api.pod.annotations.len()), (1, 0));
    assert!(world.api.routes.as_ref().unwrap().routes.is_empty());
    assert_eq!(world.state(), State::WaitingForAssignment);
}

#[test]
fn what_the_api_does_not_take_within_the_deadline_of_a_forced_cleanup_is_owed_and_still_tried() {
    let mut world = settled(Some("edge"), true);
    again(&mut world, |world| {
        world.api.delete_node();
        world.api.create_node(None, None, Vec::new());
    });
    let api = |action: &Action| patch_pod(action) || matches!(action, Action::ReadRoutes(_));
    // The API takes nothing of it until a minute has passed.
    for _ in 0..500 {
        if world.now() > 60 * SECOND {
            break;
        }
        match world.flight.iter().position(|flight| api(&flight.action)) {
            Some(place) => world.deliver(place, Fault::Fails(FailureKind::Forbidden)).unwrap(),
            None if well(&mut world).unwrap() => {}
            None => world.tick().unwrap(),
        }
    }
    assert!(undone(&world));
    let ledger = world.machine.durable().unwrap();
    assert!(ledger.assignment.is_none() && ledger.advertised && ledger.acknowledgment.as_ref().unwrap().owed);
    live(&mut world, 120 * SECOND);
    assert!(world.machine.durable().unwrap().acknowledgment.is_none() && world.api.pod.annotations.is_empty());
    // The routes wait for a successor: they are a handoff of their own, also where nothing is advertised any more.
    world.machine.advertises = false;
    relabel(&mut world, SITE_LABEL, Some("berlin"));
    settle(&mut world, 120 * SECOND).unwrap();
    assert!(world.api.routes.as_ref().unwrap().routes.is_empty());
}

#[test]
fn a_forced_cleanup_is_over_at_its_deadline_although_the_api_never_answers() {
    let mut world = settled(None, false);
    again(&mut world, |world| {
        world.api.delete_node();
        world.api.create_node(None, None, Vec::new());
    });
    until(&mut world, withdrawal);
    let all_but = |world: &mut World| {
        while let Some(place) = world.flight.iter().position(|flight| !patch_pod(&flight.action)) {
            world.deliver(place, Fault::None).unwrap();
        }
    };
    all_but(&mut world);
    assert!(undone(&world) && world.machine.durable().unwrap().assignment.is_none());
    assert_eq!((world.state(), world.life.deadline()), (State::HandingOff, Some(world.settings.cleanup_deadline)));
    world.tick().unwrap();
    all_but(&mut world);
    assert_ne!(world.state(), State::HandingOff);
    assert!(world.machine.durable().unwrap().acknowledgment.as_ref().unwrap().owed);
}

#[test]
fn a_handoff_on_behalf_of_a_pod_that_is_gone_ends_and_tears_nothing_down() {
    let mut world = settled(None, false);
    again(&mut world, |world| world.api.label(SITE_LABEL, Some("paris")));
    until(&mut world, withdrawal);
    world.api.replace_pod();
    assert_eq!(ends(&mut world), ExitCode::Environment);
    assert!(!undone(&world));
}

#[test]
fn what_has_begun_to_go_goes_although_the_verdict_on_the_successor_is_lost() {
    let mut world = settled(None, false);
    again(&mut world, |world| world.api.label(SITE_LABEL, Some("paris")));
    let tears_down = |action: &Action| matches!(action, Action::TearDownDataPlane(..));
    answer(&mut world, tears_down, Fault::Fails(FailureKind::Other));
    world.policies_changed(Policies { cni: Cni::Wait, ..Policies::default() }).unwrap();
    answer(&mut world, tears_down, Fault::None);
    live(&mut world, 60 * SECOND);
    assert!(undone(&world) && world.state() == State::Adopted);
}

#[test]
fn a_forced_cleanup_goes_on_when_the_pod_is_gone_with_its_node() {
    let mut world = settled(None, false);
    again(&mut world, |world| world.api.delete_node());
    until(&mut world, withdrawal);
    world.api.replace_pod();
    live(&mut world, 60 * SECOND);
    assert!(undone(&world) && !world.ended());
}

#[test]
fn a_handoff_that_is_forced_later_has_its_whole_deadline_from_then() {
    let mut world = settled(None, false);
    again(&mut world, |world| world.api.label(SITE_LABEL, Some("paris")));
    for _ in 0..8 {
        answer(&mut world, withdrawal, Fault::Fails(FailureKind::Unavailable));
    }
    assert!(world.now() > 10 * SECOND);
    world.stream(Kind::Node, Says::Closed).unwrap();
    world.api.delete_node();
    world.api.create_node(Some("paris"), None, Vec::new());
    // The Node is another: this process ends, the next one cleans up, and withdraws.
    ends(&mut world);
    world.pass(90 * SECOND);
    world.start().unwrap();
    settle(&mut world, 60 * SECOND).unwrap();
    assert_eq!(said(&world, withdrawal), 1);
}

#[test]
fn the_ledger_of_another_node_is_cleaned_up_here_and_left_alone_in_the_cluster() {
    let mut world = settled(Some("edge"), true);
    let mut ledger = world.machine.durable().unwrap().clone();
    ledger.node_name = "node-2".into();
    ledger.assignment.as_mut().unwrap().node_uid = "node-of-another-machine".into();
    ledger.acknowledgment.as_mut().unwrap().pod_uid = "pod-of-another-machine".into();
    again(&mut world, |world| {
        world.machine.save(&ledger);
        world.api.pod.annotations.clear();
        world.api.label(SITE_LABEL, None);
    });
    quiet(&mut world);
    assert!(undone(&world));
    assert_eq!(requests(&world), ["ReadNode", "WatchNode"]);
    world.machine.advertises = false;
    relabel(&mut world, SITE_LABEL, Some("berlin"));
    settle(&mut world, 60 * SECOND).unwrap();
    assert_eq!(world.machine.durable().unwrap().node_name, "node-1");
}

#[test]
fn an_absence_says_nothing_about_the_ledger_of_another_node() {
    let mut world = settled(None, false);
    let mut ledger = world.machine.durable().unwrap().clone();
    ledger.node_name = "node-2".into();
    again(&mut world, |world| {
        world.machine.save(&ledger);
        world.api.delete_node();
    });
    live(&mut world, 600 * SECOND);
    assert!(!undone(&world));
}

#[test]
fn fields_of_a_newer_ledger_are_kept() {
    let mut world = settled(None, false);
    let mut ledger = world.machine.durable().unwrap().clone();
    ledger.unknown.insert("leaseOfLater".into(), serde_json::json!({ "a": 1 }));
    again(&mut world, |world| {
        world.machine.save(&ledger);
        world.api.label(SITE_LABEL, Some("paris"));
    });
    settle(&mut world, 60 * SECOND).unwrap();
    assert_eq!(world.machine.durable().unwrap().unknown, ledger.unknown);
}

#[test]
fn a_withdrawal_that_was_told_when_to_come_back_does_not_come_earlier_because_the_process_ends() {
    let mut world = settled(None, false);
    let mut ledger = world.machine.durable().unwrap().clone();
    ledger.acknowledgment.as_mut().unwrap().owed = true;
    again(&mut world, |world| world.machine.save(&ledger));
    answer(&mut world, withdrawal, Fault::Throttled(8));
    quiet(&mut world);
    let told_at = world.now();
    world.pass(SECOND);
    relabel(&mut world, SITE_LABEL, Some("paris"));
    assert_eq!(ends(&mut world).number(), 10);
    let times: Vec<_> = world.actions.iter().filter(|(_, action)| withdrawal(action)).map(|(at, _)| *at).collect();
    assert!(times.len() == 2 && times[1] >= told_at + 8 * SECOND, "{times:?}");
}

#[test]
fn a_withdrawal_that_was_denied_is_left_alone_for_its_interval_although_the_process_ends() {
    let mut world = settled(None, false);
    let mut ledger = world.machine.durable().unwrap().clone();
    ledger.acknowledgment.as_mut().unwrap().owed = true;
    again(&mut world, |world| world.machine.save(&ledger));
    answer(&mut world, withdrawal, Fault::Denied);
    quiet(&mut world);
    world.pass(SECOND);
    relabel(&mut world, SITE_LABEL, Some("paris"));
    assert_eq!(ends(&mut world).number(), 10);
    assert_eq!(said(&world, withdrawal), 1, "its interval is longer than the end may take");
    assert!(world.machine.durable().unwrap().acknowledgment.as_ref().unwrap().owed);
}
