//! What is drift, what is not, and who may say so.

use moorline_lifecycle::{ACKNOWLEDGMENT_KEY, Action, ExitCode, Note, PolicyEnd, State, TroubleReason};

use crate::world::api::{POOL_LABEL, SITE_LABEL};
use crate::world::policies::{Drift, Policies};
use crate::world::{Fault, Kind, Says};
use crate::*;

/// A worker that waits for its Site, so that the startup watch is open.
fn watching() -> World {
    let mut world = started(Some("rome"), None);
    quiet(&mut world);
    assert_eq!(world.state(), State::Adopted);
    world
}

#[test]
fn another_site_another_pool_and_no_site_are_drift() {
    for (key, value) in [(SITE_LABEL, Some("paris")), (POOL_LABEL, Some("edge")), (SITE_LABEL, None)] {
        let mut world = watching();
        relabel(&mut world, key, value);
        assert_eq!(ends(&mut world), ExitCode::AssignmentChanged, "{key} {value:?}");
        assert_eq!(world.facts.exit.as_ref().unwrap().code.number(), 10);
    }
}

#[test]
fn other_labels_annotations_and_a_deletion_timestamp_are_not() {
    let mut world = watching();
    tell_node(&mut world, |node| {
        node.deleting = true;
        node.labels.insert("rack".into(), "7".into());
        node.annotations.insert("note".into(), "x".into());
    });
    quiet(&mut world);
    assert_eq!(world.state(), State::Adopted);
}

#[test]
fn a_heartbeat_asks_nobody() {
    let mut world = watching();
    let before = world.actions.len();
    world.api.put_site("elsewhere", None);
    tell_node(&mut world, |node| node.resource_version.push('0'));
    assert_eq!(world.actions.len(), before);
}

#[test]
fn a_deletion_event_ends_the_process_and_the_next_one_confirms_the_absence() {
    let mut world = settled(None, false);
    again(&mut world, |world| world.api.label(SITE_LABEL, Some("rome")));
    quiet(&mut world);
    world.api.delete_node();
    assert_eq!(ends(&mut world), ExitCode::NodeDeleted);
    assert_eq!(world.facts.exit.as_ref().unwrap().code.number(), 11);
    assert!(world.machine.cni.is_some(), "nothing is torn down by the process that was told");
    world.pass(90 * SECOND);
    world.start().unwrap();
    live(&mut world, 60 * SECOND);
    assert!(world.machine.cni.is_none() && world.machine.items.is_empty());
}

#[test]
fn another_uid_is_drift_whatever_a_policy_says() {
    let mut world = watching();
    world.policies_changed(Policies { drift: Drift::MayTolerate, ..Policies::default() }).unwrap();
    quiet(&mut world);
    world.stream(Kind::Node, Says::Closed).unwrap();
    world.api.delete_node();
    world.api.create_node(Some("rome"), None, Vec::new());
    assert_eq!(ends(&mut world), ExitCode::AssignmentChanged);
}

#[test]
fn same_stands_against_a_changed_projection_only_where_it_was_granted() {
    for (drift, stands) in [(Drift::AlwaysSame, false), (Drift::MayTolerate, true)] {
        let mut world = watching();
        world.policies_changed(Policies { drift, ..Policies::default() }).unwrap();
        quiet(&mut world);
        relabel(&mut world, POOL_LABEL, Some("edge"));
        quiet(&mut world);
        assert_eq!(!world.ended(), stands, "{drift:?}");
        if stands {
            world.api.put_site("rome", None);
            settle(&mut world, SECOND).unwrap();
            let record = &world.api.pod.annotations[ACKNOWLEDGMENT_KEY];
            assert!(record.contains(r#""tolerated":true"#) && record.contains(r#""pool":null"#), "{record}");
            assert_eq!(said(&world, |action| matches!(action, Action::Note(Note::Tolerated { .. }))), 1);
        }
    }
}

#[test]
fn a_failed_drift_policy_holds_but_not_a_changed_projection_unless_a_grant_is_involved() {
    for (drift, lives) in [(Drift::Held, false), (Drift::HeldMayTolerate, true), (Drift::NoBinding, false)] {
        let mut world = watching();
        world.policies_changed(Policies { drift, ..Policies::default() }).unwrap();
        quiet(&mut world);
        assert!(!world.ended(), "{drift:?}: nothing has changed yet");
        relabel(&mut world, SITE_LABEL, Some("paris"));
        quiet(&mut world);
        assert_eq!(!world.ended(), lives, "{drift:?}");
    }
}

#[test]
fn a_failed_projection_is_no_drift_and_no_acknowledgment() {
    let mut world = started(Some("berlin"), None);
    until(&mut world, |action| matches!(action, Action::WriteCni(..)));
    tell_node(&mut world, |node| drop(node.labels.insert("rack".into(), "7".into())));
    answer(
        &mut world,
        |action| world::flight::hook(action) == Some("adoption"),
        Fault::Fails(moorline_lifecycle::FailureKind::Other),
    );
    quiet(&mut world);
    assert_eq!((said(&world, acknowledgment), world.ended()), (0, false));
    settle(&mut world, 60 * SECOND).unwrap();
}

#[test]
fn a_policy_that_ends_three_processes_for_no_change_is_ignored_by_the_fourth() {
    let mut world = new_world(Some("berlin"), None);
    world.policies.drift = Drift::AlwaysDrifted;
    for _ in 0..3 {
        world.start().unwrap();
        assert_eq!(ends(&mut world), ExitCode::AssignmentChanged);
        world.pass(90 * SECOND);
    }
    world.start().unwrap();
    live(&mut world, 3600 * SECOND);
    assert!(!world.ended() && !world.life.status().ready);
    assert_eq!(said(&world, acknowledgment), 0);
    let events: Vec<_> = world
        .actions
        .iter()
        .filter_map(|(_, action)| match action {
            Action::WriteEvent(_, trouble) => Some(trouble.reason.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(events, ["PolicyRestartLoop"], "although the ends in the ledger have grown old");
    world.policies_changed(Policies::default()).unwrap();
    settle(&mut world, SECOND).unwrap();
}

#[test]
fn ends_for_no_change_that_are_far_apart_are_not_a_loop() {
    let mut world = new_world(Some("berlin"), None);
    world.policies.drift = Drift::AlwaysDrifted;
    for _ in 0..5 {
        world.start().unwrap();
        assert_eq!(ends(&mut world), ExitCode::AssignmentChanged);
        assert_eq!(said(&world, restart_loop), 0);
        world.pass(400 * SECOND);
    }
    assert_eq!(world.machine.durable().unwrap().policy_ends.len(), 2, "only those within ten minutes are kept");
}

#[test]
fn only_recent_ends_by_the_same_binding_count() {
    let nervous = || {
        let mut world = new_world(Some("berlin"), None);
        world.policies.drift = Drift::AlwaysDrifted;
        world.start().unwrap();
        ends(&mut world);
        let end = world.machine.durable().unwrap().policy_ends[0].clone();
        (world, end)
    };
    let (_, end) = nervous();
    let by_others = PolicyEnd { binding: "someone@else".into(), ..end.clone() };
    let (long_ago, to_come) = (1_000 * 1_000, -1_000 * 1_000);
    let old = PolicyEnd { at_ms: end.at_ms - long_ago, ..end.clone() };
    let later = PolicyEnd { at_ms: end.at_ms - to_come, ..end.clone() };
    for (recorded, ignored) in [(by_others, false), (old, false), (later, false), (end, true)] {
        let (mut world, _) = nervous();
        let mut ledger = world.machine.durable().unwrap().clone();
        ledger.policy_ends = vec![recorded.clone(); 3];
        again(&mut world, |world| world.machine.save(&ledger));
        quiet(&mut world);
        assert_eq!((said(&world, restart_loop) == 1, !world.ended()), (ignored, ignored), "{recorded:?}");
    }
}

fn restart_loop(action: &Action) -> bool {
    matches!(action, Action::WriteEvent(_, trouble) if trouble.reason == TroubleReason::PolicyRestartLoop)
}

#[test]
fn changed_policies_judge_the_last_observation_again() {
    let mut world = watching();
    world.policies_changed(Policies { drift: Drift::MayTolerate, ..Policies::default() }).unwrap();
    quiet(&mut world);
    relabel(&mut world, SITE_LABEL, Some("paris"));
    quiet(&mut world);
    assert!(!world.ended());
    world.policies_changed(Policies::default()).unwrap();
    assert_eq!(ends(&mut world), ExitCode::AssignmentChanged);
}

#[test]
fn the_end_says_why_in_an_event_and_in_its_reason() {
    let mut world = watching();
    world.policies_changed(Policies { drift: Drift::NoBinding, ..Policies::default() }).unwrap();
    relabel(&mut world, SITE_LABEL, Some("paris"));
    ends(&mut world);
    let reason = "Site changed from rome to paris.";
    assert_eq!(world.facts.exit.as_ref().unwrap().reason, reason);
    let event = |action: &Action| matches!(action, Action::WriteEvent(_, trouble) if trouble.message == reason);
    assert_eq!(said(&world, event), 1);
}
