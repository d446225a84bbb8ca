//! Taints: which go, how races and denials are borne, and what is left alone.

use moorline_lifecycle::{Action, FailureKind, Note, Operation, State, TroubleReason};

use crate::world::api::{self, GATEWAY_TAINT};
use crate::world::policies::{Drift, Policies, Retry, Taints};
use crate::world::{Fault, Kind};
use crate::*;

fn tainted(pool: Option<&str>) -> World {
    let mut world = new_world(Some("berlin"), pool);
    world
        .api
        .change_node(|node| node.taints = [vec![api::taint("example.com/disk", "slow")], gateway_taint()].concat());
    world.start().unwrap();
    world
}

fn gateway_taint_is_there(world: &World) -> bool {
    world.api.node().unwrap().taints.iter().any(|taint| taint.key == GATEWAY_TAINT)
}

fn taint(world: &mut World, there: bool) {
    tell_node(world, |node| {
        node.taints.retain(|taint| taint.key != GATEWAY_TAINT);
        node.taints.extend(there.then(api::gateway_taint));
    });
}

fn events(world: &World) -> Vec<TroubleReason> {
    let reason = |action: &Action| match action {
        Action::WriteEvent(_, trouble) => Some(trouble.reason),
        _ => None,
    };
    world.actions.iter().filter_map(|(_, action)| reason(action)).collect()
}

#[test]
fn someone_elses_taint_stays_as_it_is_with_its_time() {
    let mut world = tainted(None);
    world.policies.taints = Taints::Everything;
    settle(&mut world, SECOND).unwrap();
    assert_eq!(world.api.node().unwrap().taints, [api::taint("example.com/disk", "slow")]);
    assert_eq!(said(&world, patch_taints), 1);
}

#[test]
fn the_gateway_taint_is_never_removed_from_a_gateway() {
    let mut world = tainted(Some("edge"));
    world.policies.taints = Taints::Everything;
    settle(&mut world, SECOND).unwrap();
    assert!(gateway_taint_is_there(&world));
    assert_eq!(said(&world, patch_taints), 0);
}

#[test]
fn a_worker_is_not_acknowledged_with_the_gateway_taint_whatever_the_policy_says() {
    for taints in [Taints::Nothing, Taints::NoBinding, Taints::Held] {
        let mut world = tainted(None);
        world.policies.taints = taints;
        live(&mut world, 600 * SECOND);
        assert_eq!((said(&world, patch_taints), said(&world, acknowledgment)), (0, 0), "{taints:?}");
        world.policies_changed(Policies::default()).unwrap();
        settle(&mut world, 60 * SECOND).unwrap();
    }
}

#[test]
fn a_race_is_tried_again_from_a_fresh_read_each_time() {
    let mut world = tainted(None);
    for _ in 0..3 {
        answer(&mut world, patch_taints, Fault::Fails(FailureKind::Conflict));
    }
    settle(&mut world, 60 * SECOND).unwrap();
    let tries: Vec<_> =
        requests(&world).into_iter().filter(|name| matches!(&name[..], "ReadNode" | "PatchTaints")).collect();
    let retries = ["PatchTaints", "ReadNode"].repeat(3);
    assert_eq!(tries, [&["ReadNode"][..], &retries, &["PatchTaints"]].concat());
}

#[test]
fn a_watch_that_is_behind_the_answer_to_a_patch_brings_no_removed_taint_back() {
    let mut world = tainted(None);
    let place = until(&mut world, patch_taints);
    // Somebody else is quicker; the watch has that still to say when the next patch has been answered.
    world.api.change_node(|node| drop(node.annotations.insert("turn".into(), "1".into())));
    world.deliver(place, Fault::None).unwrap();
    for _ in 0..50 {
        if said(&world, patch_taints) == 2 && !world.flight.iter().any(|flight| patch_taints(&flight.action)) {
            break;
        }
        if world.flight.is_empty() {
            world.tick().unwrap();
        } else {
            world.deliver(0, Fault::None).unwrap();
        }
    }
    assert!(!gateway_taint_is_there(&world) && world.has_news(Kind::Node));
    settle(&mut world, 60 * SECOND).unwrap();
    assert_eq!(said(&world, patch_taints), 2);
    assert_eq!(world.state(), State::Settled);
    let failed = |action: &Action| {
        matches!(action, Action::Note(Note::Waiting { operation: Operation::TaintRemoval, number: 2.., .. }))
    };
    assert_eq!(said(&world, failed), 0, "nobody put it back");
}

#[test]
fn without_a_policy_six_races_are_borne_and_then_reconciliation_waits() {
    let mut world = tainted(None);
    world.policies.retry = world::policies::Retry::NoBinding;
    for _ in 0..6 {
        answer(&mut world, patch_taints, Fault::Fails(FailureKind::Conflict));
        quiet(&mut world);
    }
    let gave_up =
        |action: &Action| matches!(action, Action::Note(Note::GaveUp { operation: Operation::TaintRemoval, .. }));
    assert_eq!(said(&world, gave_up), 1);
    assert!(world.now() < 20 * SECOND, "the inner loop is quick: {:?}", world.now());
    settle(&mut world, 300 * SECOND).unwrap();
}

#[test]
fn p7_a_denial_parks_the_removal_until_its_interval_has_passed() {
    let mut world = tainted(None);
    answer(&mut world, patch_taints, Fault::Denied);
    let denied_at = world.now();
    live(&mut world, 299 * SECOND);
    assert_eq!((said(&world, patch_taints), world.state()), (1, State::Reconciling));
    assert_eq!(events(&world), [TroubleReason::TaintRemovalDenied]);
    until(&mut world, patch_taints);
    let waited = world.now() - denied_at;
    assert!((300 * SECOND..=360 * SECOND).contains(&waited), "{waited:?}");
    settle(&mut world, SECOND).unwrap();
}

#[test]
fn a_denied_removal_succeeds_without_a_patch_when_someone_else_removes_the_taint() {
    let mut world = tainted(None);
    answer(&mut world, patch_taints, Fault::Denied);
    quiet(&mut world);
    taint(&mut world, false);
    until(&mut world, acknowledgment);
    let missing: Vec<_> = world.life.status().missing.into_iter().map(|missing| missing.what).collect();
    assert_eq!(missing, ["acknowledgment"], "the removal is not waited for any more");
    settle(&mut world, SECOND).unwrap();
    assert_eq!(said(&world, patch_taints), 1);
}

#[test]
fn a_denied_removal_is_tried_again_when_the_node_changes_but_not_for_a_heartbeat() {
    let mut world = tainted(None);
    answer(&mut world, patch_taints, Fault::Denied);
    live(&mut world, SECOND);
    tell_node(&mut world, |node| drop(node.annotations.insert("beat".into(), "1".into())));
    live(&mut world, SECOND);
    assert_eq!(said(&world, patch_taints), 1);
    tell_node(&mut world, |node| drop(node.labels.insert("allowed".into(), "yes".into())));
    settle(&mut world, SECOND).unwrap();
    assert_eq!(said(&world, patch_taints), 2);
}

#[test]
fn a_change_that_is_seen_before_the_denial_arrives_wakes_the_removal_too() {
    let mut world = tainted(None);
    let place = until(&mut world, patch_taints);
    world.serve(place, Fault::Denied).unwrap();
    tell_node(&mut world, |node| drop(node.labels.insert("allowed".into(), "yes".into())));
    answer(&mut world, patch_taints, Fault::Denied);
    settle(&mut world, 10 * SECOND).unwrap();
    assert_eq!(said(&world, patch_taints), 2);
}

#[test]
fn a_taint_that_comes_back_is_fought_ever_more_slowly() {
    for judged_in_between in [false, true] {
        let mut world = tainted(None);
        // Without a word on drift nothing is acknowledged, and the Node is watched on.
        world.policies = Policies { retry: Retry::AtOnce, drift: Drift::Held, ..Policies::default() };
        for _ in 0..12 {
            answer(&mut world, patch_taints, Fault::None);
            if judged_in_between {
                quiet(&mut world);
            }
            taint(&mut world, true);
        }
        let patches = world.actions.iter().filter(|(_, action)| patch_taints(action));
        let times: Vec<_> = patches.map(|(at, _)| *at).collect();
        let waits: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(waits[0] >= Duration::from_millis(50), "{waits:?}");
        assert!(waits[6..].iter().all(|wait| *wait >= SECOND), "{judged_in_between}: {waits:?}");
        assert_eq!(said(&world, acknowledgment), 0);
    }
}
