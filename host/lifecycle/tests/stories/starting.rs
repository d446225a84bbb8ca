//! From the start to the adoption, and to what has to be known before anything is set up.

use moorline_lifecycle::{Action, FailureKind, Note, Question, State};

use crate::world::api::{CAME_WITH_THE_POD, POOL_LABEL, SITE_LABEL};
use crate::world::policies::{Adoption, Cni, Policies};
use crate::world::{Fault, Kind, Says};
use crate::*;

#[test]
fn a_quiet_worker_makes_four_requests_and_one_more_where_no_ledger_says_what_its_pod_shows() {
    let mut world = settled(None, false);
    assert_eq!(requests(&world), ["ReadNode", "ReadPod", "WatchNode", "WatchSite", "PatchPod"]);
    again(&mut world, |_| {});
    settle(&mut world, SECOND).unwrap();
    assert_eq!(requests(&world), ["ReadNode", "WatchNode", "WatchSite", "PatchPod"]);
}

#[test]
fn a_gateway_makes_five_requests_and_two_more_to_write_its_routes() {
    let mut world = settled(Some("edge"), false);
    again(&mut world, |_| {});
    settle(&mut world, SECOND).unwrap();
    assert_eq!(requests(&world), ["ReadNode", "WatchNode", "WatchSite", "WatchPool", "PatchPod"]);

    let mut world = settled(Some("edge"), true);
    again(&mut world, |world| world.api.put_routes(&["10.1.0.0/16"]));
    settle(&mut world, SECOND).unwrap();
    let expected = ["ReadNode", "WatchNode", "WatchSite", "WatchPool", "ReadRoutes", "PatchRoutes", "PatchPod"];
    assert_eq!(requests(&world), expected);
}

#[test]
fn nothing_is_written_to_the_ledger_while_there_is_nothing_to_list() {
    let mut world = started(None, None);
    quiet(&mut world);
    world.tell(moorline_lifecycle::Event::Terminate).unwrap();
    ends(&mut world);
    assert_eq!(said(&world, |action| matches!(action, Action::SaveLedger(..))), 0);
}

#[test]
fn a_node_without_a_site_is_watched_and_that_watch_goes_on_as_the_startup_watch() {
    let mut world = started(None, None);
    quiet(&mut world);
    assert_eq!(world.state(), State::WaitingForAssignment);
    assert!(world.life.status().ready, "an unassigned Node must not stall a rollout");
    relabel(&mut world, SITE_LABEL, Some("berlin"));
    settle(&mut world, SECOND).unwrap();
    assert_eq!(said(&world, |action| matches!(action, Action::WatchNode(..))), 1);
    assert_eq!(said(&world, |action| matches!(action, Action::ReadNode(_))), 1);
}

#[test]
fn every_closed_stream_waits_before_the_next_get_and_the_get_comes_before_the_next_watch() {
    let mut world = started(None, None);
    world.policies.retry = world::policies::Retry::AtOnce;
    for _ in 0..5 {
        quiet(&mut world);
        let closed_at = world.now();
        world.stream(Kind::Node, Says::Closed).unwrap();
        let place = until(&mut world, |action| matches!(action, Action::ReadNode(_)));
        assert!(world.now() >= closed_at + Duration::from_millis(50));
        world.deliver(place, Fault::None).unwrap();
        quiet(&mut world);
        assert!(world.node.is_some(), "the watch is open again");
    }
}

#[test]
fn a_site_that_is_missing_is_waited_for_and_nothing_is_set_up_meanwhile() {
    let mut world = started(Some("rome"), None);
    live(&mut world, 600 * SECOND);
    assert_eq!(world.state(), State::Adopted);
    let status = world.life.status();
    assert!(!status.ready && status.missing.iter().any(|missing| missing.reason == "Site rome does not exist."));
    assert_eq!(requests(&world), ["ReadNode", "ReadPod", "WatchNode", "WatchSite"]);
    assert!(world.machine.cni.is_none() && world.machine.items.is_empty());
    world.api.put_site("rome", None);
    settle(&mut world, SECOND).unwrap();
}

#[test]
fn a_mistyped_pool_that_is_put_right_again_touches_nothing() {
    let mut world = settled(None, false);
    let (cni, items, shown) = (world.machine.cni.clone(), world.machine.items.clone(), world.api.pod.clone());
    again(&mut world, |world| world.api.label(POOL_LABEL, Some("typo")));
    live(&mut world, 3600 * SECOND);
    let changes = |action: &Action| !matches!(action, Action::Ask(..) | Action::Note(_) | Action::Cancel(_));
    let asked: Vec<_> = world.actions.iter().map(|(_, action)| action.clone()).filter(changes).collect();
    assert_eq!(names(asked.into_iter()), ["ReadNode", "WatchNode", "WatchSite", "WatchPool"]);
    relabel(&mut world, POOL_LABEL, None);
    assert_eq!(ends(&mut world).number(), 10);
    world.pass(SECOND);
    world.start().unwrap();
    settle(&mut world, 60 * SECOND).unwrap();
    assert_eq!(said(&world, |action| matches!(action, Action::DisableCni(..) | Action::TearDownDataPlane(..))), 0);
    assert_eq!((world.machine.cni, world.machine.items), (cni, items));
    assert_eq!(world.api.pod.annotations.len(), shown.annotations.len());
}

#[test]
fn a_cni_verdict_that_is_none_keeps_what_is_on_disk_and_is_not_acknowledged() {
    for cni in [Cni::Evil, Cni::Broken, Cni::Wait, Cni::NoBinding, Cni::Held] {
        let mut world = settled(None, false);
        let before = world.machine.cni.clone();
        again(&mut world, |world| {
            world.policies.cni = cni;
            world.api.put_site("berlin", None);
        });
        live(&mut world, 3600 * SECOND);
        assert_eq!(world.machine.cni, before, "{cni:?}");
        assert_eq!(said(&world, acknowledgment), 0, "{cni:?}");
        assert!(world.life.status().missing.iter().any(|missing| missing.what == "cni"), "{cni:?}");
        world.policies_changed(Policies::default()).unwrap();
        settle(&mut world, 360 * SECOND).unwrap();
        assert_ne!(world.machine.cni, before, "{cni:?}");
    }
}

#[test]
fn an_adoption_that_names_nonsense_fails_or_is_nobodys_is_none() {
    for adoption in [Adoption::Nonsense, Adoption::NoBinding, Adoption::Held] {
        let mut world = new_world(Some("berlin"), None);
        world.policies.adoption = adoption;
        world.start().unwrap();
        live(&mut world, 3600 * SECOND);
        assert!(world.facts.adopted.is_none() && world.state() == State::WaitingForAssignment, "{adoption:?}");
        world.policies_changed(Policies::default()).unwrap();
        settle(&mut world, SECOND).unwrap();
    }
}

#[test]
fn a_failed_adoption_policy_is_asked_again_after_a_native_wait_that_doubles_to_five_minutes() {
    let mut world = new_world(Some("berlin"), None);
    world.policies.adoption = Adoption::Held;
    world.start().unwrap();
    live(&mut world, 1800 * SECOND);
    let asked: Vec<_> = world
        .actions
        .iter()
        .filter(|(_, action)| matches!(world::flight::hook(action), Some("adoption")))
        .map(|(at, _)| at.as_secs())
        .collect();
    assert_eq!(asked, [0, 30, 90, 210, 450, 750, 1050, 1350, 1650]);
    let failures = said(&world, |action| matches!(action, Action::Note(Note::PolicyTrouble { .. })));
    assert_eq!(failures, asked.len());
    assert!(!world.life.status().ready, "a policy that fails is no Node without an assignment");
}

#[test]
fn the_pod_is_read_only_where_no_ledger_tells_and_annotations_that_came_with_it_stay() {
    let mut world = new_world(Some("berlin"), None);
    world.api.pod.annotations.insert(CAME_WITH_THE_POD.into(), "1234".into());
    world.start().unwrap();
    settle(&mut world, SECOND).unwrap();
    assert_eq!(said(&world, withdrawal), 0);
    assert_eq!(world.api.pod.annotations[CAME_WITH_THE_POD], "1234");
}

#[test]
fn without_a_ledger_only_annotations_under_the_own_prefixes_are_taken_for_the_agents_own() {
    let mut world = settled(None, false);
    again(&mut world, |world| {
        world.machine.lose_ledger();
        world.api.pod.annotations.insert("example.com/someone".into(), "else's".into());
        world.api.label(SITE_LABEL, Some("paris"));
    });
    settle(&mut world, 60 * SECOND).unwrap();
    assert_eq!(said(&world, withdrawal), 1);
    assert_eq!(world.api.pod.annotations["example.com/someone"], "else's");
}

#[test]
fn a_start_within_a_minute_of_the_last_one_is_splayed_and_a_later_one_is_not() {
    let mut waits = Vec::new();
    let mut world = started(Some("berlin"), None);
    for _ in 0..8 {
        world.kill(false);
        world.pass(SECOND);
        world.start().unwrap();
        assert!(world.flight.is_empty() && world.state() == State::Starting);
        waits.push(world.life.deadline().unwrap());
        world.tick().unwrap();
        assert_eq!(world.flight.len(), 2);
    }
    assert!(waits.iter().all(|wait| *wait <= 10 * SECOND) && waits.iter().any(|wait| *wait > SECOND), "{waits:?}");
    again(&mut world, |_| {});
    assert_eq!(world.flight.len(), 2);
}

#[test]
fn an_expired_watch_begins_again_with_what_there_is() {
    let mut world = started(Some("berlin"), None);
    until(&mut world, patch_pod);
    world.stream(Kind::Site, Says::Fails(FailureKind::Expired)).unwrap();
    let place = until(&mut world, |action| matches!(action, Action::PatchPod(..)));
    world.deliver(place, Fault::None).unwrap();
    live(&mut world, 120 * SECOND);
    let from: Vec<_> = world
        .actions
        .iter()
        .filter_map(|(_, action)| match action {
            Action::WatchSite(_, _, from, _) => Some(from.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(from, [None, None]);
}

#[test]
fn what_was_deleted_while_a_watch_was_expired_is_gone() {
    let plans = |action: &Action| matches!(action, Action::PlanDataPlane(..));
    for kind in [Kind::Site, Kind::Pool] {
        let mut world = started(Some("berlin"), Some("edge"));
        until(&mut world, plans);
        world.stream(kind, Says::Fails(FailureKind::Expired)).unwrap();
        match kind {
            Kind::Pool => world.api.delete_pool("edge"),
            _ => world.api.delete_site("berlin"),
        }
        // The data plane takes its time, so that the agent does not settle meanwhile.
        until(&mut world, |action| matches!(action, Action::Ask(_, Question::Pause(_))));
        while world.now() < 10 * SECOND {
            match world.flight.iter().position(|flight| !plans(&flight.action)) {
                Some(place) => world.deliver(place, Fault::None).unwrap(),
                None if world.stream(kind, Says::Next).unwrap() => {}
                None if world.life.deadline().is_some() => world.tick().unwrap(),
                None => break,
            }
        }
        let missing = &world.life.status().missing[0];
        assert!(missing.reason.ends_with(" does not exist."), "{missing:?}");
    }
}
