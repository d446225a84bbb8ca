//! Waits: floors, Retry-After, giving up, the token bucket, and what SIGTERM does to all of them.

use moorline_lifecycle::{Action, Event, ExitCode, FailureKind, LONGEST_WAIT, Note, Operation, Question, REFILL};

use crate::world::Fault;
use crate::world::policies::Retry;
use crate::*;

/// The waits that follow so many failures of the first GET, with a retry policy and a fault.
fn waits(retry: Retry, fault: Fault, failures: usize) -> Vec<Duration> {
    let mut world = new_world(Some("berlin"), None);
    world.policies.retry = retry;
    world.start().unwrap();
    for _ in 0..failures {
        answer(&mut world, |action| matches!(action, Action::ReadNode(_)), fault);
    }
    quiet(&mut world);
    let wait = |action: &Action| match action {
        Action::Note(Note::Waiting { operation: Operation::NodeRead, wait, .. }) => Some(*wait),
        _ => None,
    };
    world.actions.iter().filter_map(|(_, action)| wait(action)).collect()
}

#[test]
fn a_retry_policy_is_told_the_time_since_the_first_failure_in_the_row() {
    let mut world = new_world(Some("berlin"), None);
    world.policies.retry = Retry::Hour;
    world.start().unwrap();
    let mut told = Vec::new();
    for _ in 0..3 {
        answer(&mut world, |action| matches!(action, Action::ReadNode(_)), Fault::Fails(FailureKind::Timeout));
        let asked = world.flight.iter().find_map(|flight| match &flight.action {
            Action::Ask(_, Question::Pause(attempt)) => Some((attempt.number, attempt.elapsed)),
            _ => None,
        });
        told.push(asked.unwrap());
    }
    assert_eq!(told, [(1, Duration::ZERO), (2, LONGEST_WAIT), (3, 2 * LONGEST_WAIT)]);
}

#[test]
fn p6_a_policy_that_wants_no_wait_meets_a_floor_that_doubles_from_50_ms_to_1_s() {
    let waits = waits(Retry::AtOnce, Fault::Fails(FailureKind::Unavailable), 8);
    let floors = [50, 100, 200, 400, 800, 1000, 1000, 1000].map(Duration::from_millis);
    for (wait, floor) in waits.iter().zip(floors) {
        assert!((floor..=floor.mul_f64(1.2)).contains(wait), "{waits:?}");
    }
    assert_eq!(waits.len(), floors.len());
}

#[test]
fn no_verdict_waits_longer_than_five_minutes_and_giving_up_a_top_level_operation_is_that() {
    for retry in [Retry::Hour, Retry::GiveUp] {
        assert_eq!(waits(retry, Fault::Fails(FailureKind::Unavailable), 3), [LONGEST_WAIT; 3], "{retry:?}");
    }
}

#[test]
fn retry_after_wins_over_a_shorter_verdict_and_up_to_20_percent_are_added() {
    let waits = waits(Retry::AtOnce, Fault::Throttled(10), 12);
    assert!(waits.iter().all(|wait| (10 * SECOND..=12 * SECOND).contains(wait)), "{waits:?}");
    assert!(waits.windows(2).any(|pair| pair[0] != pair[1]), "a fleet would return as one: {waits:?}");
}

#[test]
fn a_policy_is_said_to_be_overridden_where_a_floor_wins_and_not_where_a_server_asked_for_more() {
    for (fault, overridden) in [(Fault::Fails(FailureKind::Unavailable), 1), (Fault::Throttled(10), 0)] {
        let mut world = new_world(Some("berlin"), None);
        world.policies.retry = Retry::AtOnce;
        world.start().unwrap();
        answer(&mut world, |action| matches!(action, Action::ReadNode(_)), fault);
        quiet(&mut world);
        assert_eq!(said(&world, |action| matches!(action, Action::Note(Note::Overridden { .. }))), overridden);
    }
}

#[test]
fn a_verdict_that_is_longer_than_retry_after_stands() {
    assert_eq!(waits(Retry::Hour, Fault::Throttled(10), 1), [LONGEST_WAIT]);
}

#[test]
fn where_no_policy_answers_or_holds_the_host_backs_off_by_itself() {
    for retry in [Retry::NoBinding, Retry::Held] {
        let waits = waits(retry, Fault::Fails(FailureKind::Timeout), 12);
        assert!(waits.iter().all(|wait| *wait <= 61 * SECOND), "{waits:?}");
        assert!(waits.iter().sum::<Duration>() > 30 * SECOND, "{waits:?}");
    }
}

#[test]
fn only_a_nested_operation_is_given_up_and_its_error_goes_to_reconciliation() {
    let mut world = new_world(Some("berlin"), None);
    world.policies.retry = Retry::GiveUp;
    world.start().unwrap();
    answer(&mut world, |action| matches!(action, Action::WriteCni(..)), Fault::Fails(FailureKind::Other));
    quiet(&mut world);
    let note = |wanted: &'static str| move |action: &Action| matches!(action, Action::Note(note) if format!("{note:?}").starts_with(wanted));
    assert_eq!(said(&world, note("GaveUp { operation: CniWrite")), 1);
    assert_eq!(said(&world, note("Waiting { operation: Reconciliation")), 1);
    let message = |action: &Action| matches!(action, Action::Note(Note::Waiting { message, .. }) if message.starts_with("cni-write was given up: "));
    assert_eq!(said(&world, message), 1);
    settle(&mut world, 400 * SECOND).unwrap();
}

#[test]
fn all_requests_together_stay_within_a_burst_of_20_and_one_per_2_s() {
    let mut world = new_world(Some("berlin"), None);
    world.policies.retry = Retry::AtOnce;
    world.start().unwrap();
    // The API server takes connections and answers nothing well.
    while world.now() < 120 * SECOND {
        assert!(!world.flight.is_empty() || world.life.deadline().is_some(), "it has given up");
        match world.flight.iter().position(|flight| is_request(&flight.action)) {
            Some(place) => world.deliver(place, Fault::Fails(FailureKind::Unavailable)).unwrap(),
            None if well(&mut world).unwrap() => {}
            None => world.tick().unwrap(),
        }
    }
    let sent = requests(&world).len();
    assert!((70..=20 + 61).contains(&sent), "{sent} requests in two minutes, with one per {REFILL:?}");
}

#[test]
fn p9_sigterm_ends_every_state_at_once_and_changes_nothing() {
    // After each thing that happens in a life with a handoff, a denial and a lost answer.
    for moment in 0..60 {
        let mut world = settled(Some("edge"), true);
        again(&mut world, |world| {
            world.api.label(world::api::POOL_LABEL, None);
            world.api.change_node(|node| node.taints = gateway_taint());
        });
        for _ in 0..moment {
            if !well(&mut world).unwrap() && world.life.deadline().is_some() {
                world.tick().unwrap();
            }
        }
        let (cni, items) = (world.machine.cni.is_some(), world.machine.items.clone());
        world.tell(Event::Terminate).unwrap();
        let told_at = world.now();
        let before = world.actions.len();
        assert_eq!(ends(&mut world), ExitCode::Asked, "moment {moment}");
        assert_eq!(world.now(), told_at, "moment {moment}: it waits for something");
        let undone = world.actions[before..].iter().any(|(_, action)| {
            matches!(action, Action::DisableCni(..) | Action::TearDownDataPlane(..) | Action::PatchTaints { .. })
        });
        assert!(!undone, "moment {moment}");
        // What was under way may still have been done; nothing that was there goes.
        let kept = world.machine.cni.is_some() >= cni && world.machine.items.is_superset(&items);
        assert!(kept || world.facts.undoing, "moment {moment}");
    }
}

#[test]
fn sigterm_ends_a_long_wait_at_once() {
    let mut world = new_world(Some("berlin"), None);
    world.policies.retry = Retry::Hour;
    world.start().unwrap();
    answer(&mut world, |action| matches!(action, Action::ReadNode(_)), Fault::Fails(FailureKind::Unavailable));
    quiet(&mut world);
    world.pass(SECOND);
    world.tell(Event::Terminate).unwrap();
    assert_eq!(ends(&mut world), ExitCode::Asked);
    assert_eq!(world.now(), SECOND);
}

#[test]
fn sigterm_ends_the_process_within_its_deadline_although_nothing_answers() {
    let mut world = started(Some("berlin"), None);
    until(&mut world, |action| matches!(action, Action::SaveLedger(..)));
    world.tell(Event::Terminate).unwrap();
    assert_eq!(world.life.deadline(), Some(world.now() + 10 * SECOND));
    world.tick().unwrap();
    assert!(world.ended());
}

#[test]
fn the_deadline_of_sigterm_wins_over_that_of_an_end_under_way_but_never_makes_it_longer() {
    let mut world = started(Some("rome"), None);
    quiet(&mut world);
    world.pass(SECOND);
    relabel(&mut world, world::api::SITE_LABEL, Some("paris"));
    let drifting = |world: &World| world.state() == moorline_lifecycle::State::Ending;
    while !drifting(&world) {
        assert!(!world.flight.is_empty(), "nobody judges");
        world.deliver(0, Fault::None).unwrap();
    }
    world.pass(5 * SECOND);
    world.tell(Event::Terminate).unwrap();
    assert_eq!(world.life.deadline(), Some(11 * SECOND));
    assert_eq!(ends(&mut world), ExitCode::Asked);
    let reason = &world.facts.exit.as_ref().unwrap().reason;
    assert!(reason.starts_with("SIGTERM, while ending because:"), "{reason}");
}
