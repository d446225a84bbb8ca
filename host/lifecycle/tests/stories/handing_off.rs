//! Handoff: in which order an earlier assignment is left, and what holds that up.

use std::collections::BTreeSet;

use moorline_lifecycle::{Action, FailureKind, State};
use serde_json::json;

use crate::world::Fault;
use crate::world::api::{POOL_LABEL, SITE_LABEL};
use crate::world::policies::{Cni, Policies};
use crate::*;

fn works(action: &Action) -> bool {
    is_request(action)
        || matches!(
            action,
            Action::SaveLedger(..)
                | Action::JoinWorkers(_)
                | Action::DisableCni(..)
                | Action::TearDownDataPlane(..)
                | Action::PlanDataPlane(..)
                | Action::ApplyDataPlane(..)
                | Action::WriteCni(..)
        )
}

fn work(world: &World) -> Vec<String> {
    names(world.actions.iter().map(|(_, action)| action.clone()).filter(works))
}

fn join(action: &Action) -> bool {
    matches!(action, Action::JoinWorkers(_))
}

fn undoes(action: &Action) -> bool {
    matches!(action, Action::DisableCni(..) | Action::TearDownDataPlane(..))
}

/// A gateway had settled, with a route; its pool label is gone, and the next process starts.
fn demoted() -> World {
    let mut world = settled(Some("edge"), true);
    assert!(!world.api.routes.as_ref().unwrap().routes.is_empty());
    again(&mut world, |world| world.api.label(POOL_LABEL, None));
    world
}

#[test]
fn first_the_api_then_the_workers_then_cni_then_the_data_plane_then_the_new() {
    let mut world = demoted();
    settle(&mut world, SECOND).unwrap();
    let api =
        ["ReadNode", "WatchNode", "WatchSite", "PatchPod", "ReadRoutes", "SaveLedger", "PatchRoutes", "SaveLedger"];
    let local = ["JoinWorkers", "DisableCni", "TearDownDataPlane", "SaveLedger"];
    let new = ["PlanDataPlane", "SaveLedger", "ApplyDataPlane", "WriteCni", "ReadRoutes", "SaveLedger", "PatchPod"];
    let expected = [&api[..], &local, &new].concat();
    assert_eq!(work(&world), expected);
    assert!(world.api.routes.as_ref().unwrap().routes.is_empty());
}

#[test]
fn nothing_is_torn_down_while_the_api_does_not_take_its_part() {
    let mut world = demoted();
    for _ in 0..20 {
        answer(&mut world, withdrawal, Fault::Fails(FailureKind::Unavailable));
    }
    assert_eq!(world.state(), State::HandingOff);
    assert_eq!(said(&world, |action| join(action) || undoes(action)), 0);
    settle(&mut world, 600 * SECOND).unwrap();
}

#[test]
fn a_withdrawal_that_its_answer_does_not_show_is_tried_again() {
    let mut world = demoted();
    answer(&mut world, withdrawal, Fault::Ignored);
    quiet(&mut world);
    assert_eq!(said(&world, |action| matches!(action, Action::ReadRoutes(_))), 0);
    settle(&mut world, 60 * SECOND).unwrap();
    assert_eq!(said(&world, withdrawal), 2);
}

#[test]
fn routes_are_cleared_when_an_answer_shows_that_there_are_none() {
    let mut world = demoted();
    answer(&mut world, |action| matches!(action, Action::PatchRoutes(..)), Fault::Ignored);
    quiet(&mut world);
    assert_eq!(said(&world, |action| join(action) || undoes(action)), 0, "the routes are still there");
    settle(&mut world, 60 * SECOND).unwrap();
    assert!(world.api.routes.as_ref().unwrap().routes.is_empty());
}

#[test]
fn a_server_that_never_shows_the_routes_is_not_hammered() {
    let mut world = new_world(Some("berlin"), Some("edge"));
    world.machine.advertises = true;
    world.start().unwrap();
    for _ in 0..10 {
        answer(&mut world, |action| matches!(action, Action::PatchRoutes(..)), Fault::Ignored);
    }
    assert!(world.now() > 5 * SECOND, "ten patches within {:?}", world.now());
}

#[test]
fn routes_of_an_object_that_is_absent_are_no_routes_when_leaving_and_a_wait_when_wanted() {
    let mut world = demoted();
    world.api.routes = None;
    settle(&mut world, SECOND).unwrap();

    let mut world = new_world(Some("berlin"), Some("edge"));
    world.machine.advertises = true;
    world.api.routes = None;
    world.start().unwrap();
    live(&mut world, 300 * SECOND);
    assert_eq!((world.state(), said(&world, acknowledgment)), (State::Reconciling, 0));
    world.api.put_routes(&[]);
    settle(&mut world, 400 * SECOND).unwrap();
}

#[test]
fn workers_that_ignore_their_cancellation_hold_the_cleanup() {
    let mut world = demoted();
    for _ in 0..3 {
        answer(&mut world, join, Fault::Fails(FailureKind::Other));
        quiet(&mut world);
    }
    assert_eq!(said(&world, undoes), 0);
    settle(&mut world, 60 * SECOND).unwrap();
}

#[test]
fn p5_a_successor_that_is_lost_while_workers_are_joined_stops_the_cleanup() {
    for lose in [
        |world: &mut World| world.api.delete_site("berlin"),
        |world: &mut World| {
            world.policies_changed(Policies { cni: Cni::Held, ..Policies::default() }).unwrap();
        },
    ] {
        let mut world = demoted();
        until(&mut world, join);
        lose(&mut world);
        live(&mut world, 600 * SECOND);
        assert_eq!(said(&world, undoes), 0);
        world.api.put_site("berlin", None);
        world.policies_changed(Policies::default()).unwrap();
        settle(&mut world, 600 * SECOND).unwrap();
        assert_eq!(said(&world, undoes), 2);
    }
}

#[test]
fn cleanup_resumes_after_a_crash_at_any_point() {
    let points: [fn(&Action) -> bool; 6] = [
        withdrawal,
        |action| matches!(action, Action::PatchRoutes(..)),
        join,
        |action| matches!(action, Action::DisableCni(..)),
        |action| matches!(action, Action::TearDownDataPlane(..)),
        |action| matches!(action, Action::ApplyDataPlane(..)),
    ];
    for (number, point) in points.into_iter().enumerate() {
        for reached in [false, true] {
            let mut world = demoted();
            until(&mut world, point);
            world.kill(reached);
            world.pass(90 * SECOND);
            world.start().unwrap();
            settle(&mut world, 60 * SECOND).unwrap();
            let expected = BTreeSet::from(["link-berlin".to_owned(), "route-site-2-1".to_owned()]);
            assert_eq!(world.machine.items, expected, "point {number}, reached: {reached}");
            assert!(world.api.routes.as_ref().unwrap().routes.is_empty(), "point {number}, reached: {reached}");
        }
    }
}

#[test]
fn the_plan_in_effect_stays_listed_until_the_next_one_is() {
    let mut world = settled(None, false);
    again(&mut world, |world| world.api.put_site("berlin", None));
    until(&mut world, |action| matches!(action, Action::ApplyDataPlane(..)));
    let old = json!({ "items": ["link-berlin", "route-site-2-1"] });
    let new = json!({ "items": ["link-berlin", "route-site-2-2"] });
    assert_eq!(world.machine.durable().unwrap().data_plane, [old.clone(), new.clone()]);
    // A crash now, and another assignment: both are undone.
    world.kill(true);
    assert!(world.machine.items.contains("route-site-2-1") && world.machine.items.contains("route-site-2-2"));
    world.api.label(SITE_LABEL, Some("paris"));
    world.pass(90 * SECOND);
    world.start().unwrap();
    settle(&mut world, 60 * SECOND).unwrap();
    assert_eq!(said(&world, |action| matches!(action, Action::TearDownDataPlane(..))), 2);
    assert!(!world.machine.items.iter().any(|item| item.starts_with("route-site-2")));
}

#[test]
fn a_missing_ledger_does_not_stop_a_start_and_the_record_on_the_pod_stands_in_for_it() {
    let mut world = settled(Some("edge"), false);
    again(&mut world, |world| {
        world.machine.lose_ledger();
        world.api.label(POOL_LABEL, None);
    });
    settle(&mut world, 60 * SECOND).unwrap();
    assert_eq!(&work(&world)[..5], ["ReadNode", "ReadPod", "SaveLedger", "WatchNode", "WatchSite"]);
    assert_eq!((said(&world, withdrawal), said(&world, acknowledgment)), (1, 1));
}

#[test]
fn a_cni_state_that_is_being_written_is_not_known() {
    let mut world = started(Some("berlin"), None);
    let cni = |action: &Action| matches!(action, Action::WriteCni(..));
    until(&mut world, |action| cni(action));
    quiet_but_acknowledgment(&mut world);
    let first = world.machine.cni.clone();
    // Another configuration is on its way, and fails after it is on disk; meanwhile the first one is wanted again.
    tell_node(&mut world, |node| node.pod_cidrs = vec!["10.8.2.0/24".into()]);
    let place = until(&mut world, |action| cni(action));
    tell_node(&mut world, |node| node.pod_cidrs = vec!["10.1.2.0/24".into()]);
    world.deliver(place, Fault::Lost(true)).unwrap();
    settle(&mut world, 60 * SECOND).unwrap();
    assert_eq!(world.machine.cni, first);
}

/// Everything goes well until the acknowledgment is asked for, and the policy does not answer.
fn quiet_but_acknowledgment(world: &mut World) {
    until(world, |action| world::flight::hook(action) == Some("acknowledgment"));
}

#[test]
fn a_site_without_managed_cni_has_no_file_to_be_disabled_when_it_is_left() {
    let mut world = settled_in(|world| world.api.put_site("berlin", Some(false)));
    again(&mut world, |world| world.api.label(SITE_LABEL, Some("paris")));
    settle(&mut world, 60 * SECOND).unwrap();
    assert_eq!(said(&world, |action| matches!(action, Action::DisableCni(..))), 0);
    assert!(world.machine.cni.is_some());
}

#[test]
fn what_a_lost_ledger_listed_is_the_agents_own_also_for_the_process_after_the_next() {
    let mut world = settled(None, false);
    again(&mut world, |world| {
        world.machine.lose_ledger();
        world.api.delete_site("berlin");
    });
    quiet(&mut world);
    let ledger = world.machine.durable().unwrap();
    assert!(ledger.incomplete && ledger.cni.contains(world.machine.cni.as_ref().unwrap()), "{ledger:?}");
    again(&mut world, |world| {
        world.api.put_site("berlin", None);
        world.api.label(POOL_LABEL, Some("edge"));
    });
    settle(&mut world, 60 * SECOND).unwrap();
    let ledger = world.machine.durable().unwrap();
    assert!(!ledger.incomplete && ledger.cni.len() == 1, "{ledger:?}");
    // The same without a change of the assignment: another version of the Site, and a process that ends before it writes.
    world.machine.lose_ledger();
    again(&mut world, |world| world.api.put_site("berlin", None));
    until(&mut world, |action| matches!(action, Action::ApplyDataPlane(..)));
    again(&mut world, |_| {});
    settle(&mut world, 60 * SECOND).unwrap();
}
