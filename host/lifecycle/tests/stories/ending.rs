//! The end of a process: what it no longer waits for, and that nothing comes after it.

use moorline_lifecycle::{Action, Event, ExitCode};

use crate::world::Fault;
use crate::world::api::SITE_LABEL;
use crate::*;

fn read_node(action: &Action) -> bool {
    matches!(action, Action::ReadNode(_))
}

#[test]
fn an_end_cancels_what_is_under_way_before_it_waits_for_the_workers() {
    let mut world = started(Some("berlin"), None);
    let place = until(&mut world, read_node);
    let (call, before) = (world.flight[place].call, world.actions.len());
    world.tell(Event::Terminate).unwrap();
    let actions = names(world.actions[before..].iter().map(|(_, action)| action.clone()));
    let joins = actions.iter().position(|name| name == "JoinWorkers").unwrap();
    let cancelled = world.actions[before..].iter().position(|(_, action)| *action == Action::Cancel(call));
    assert!(cancelled.is_some_and(|at| at < joins), "{actions:?}");
}

#[test]
fn a_life_wants_no_tick_before_it_has_started_nor_after_its_end() {
    let mut world = new_world(Some("berlin"), None);
    assert_eq!(world.life.deadline(), None);
    world.start().unwrap();
    world.tell(Event::Terminate).unwrap();
    assert!(world.life.deadline().is_some(), "the deadline of the end");
    ends(&mut world);
    assert_eq!(world.life.deadline(), None);
}

#[test]
fn a_signal_before_the_start_ends_the_process_too() {
    let mut world = new_world(Some("berlin"), None);
    world.tell(Event::Terminate).unwrap();
    assert!(world.life.deadline().is_some(), "the deadline of the end");
    assert_eq!(ends(&mut world), ExitCode::Asked);
}

#[test]
fn an_end_closes_every_watch() {
    let mut world = started(Some("rome"), Some("typo"));
    quiet(&mut world);
    assert!(world.node.is_some() && world.site.is_some() && world.pool.is_some());
    world.tell(Event::Terminate).unwrap();
    assert!(world.node.is_none() && world.site.is_none() && world.pool.is_none());
}

#[test]
fn after_drift_the_end_waits_for_the_event_that_says_so_within_its_deadline() {
    let event = |action: &Action| matches!(action, Action::WriteEvent(..));
    for answered in [true, false] {
        let mut world = started(Some("rome"), None);
        quiet(&mut world);
        relabel(&mut world, SITE_LABEL, Some("paris"));
        while let Some(place) = world.flight.iter().position(|flight| !event(&flight.action)) {
            world.deliver(place, Fault::None).unwrap();
        }
        assert!(!world.ended() && said(&world, event) == 1);
        if answered {
            answer(&mut world, event, Fault::None);
        } else {
            world.tick().unwrap();
        }
        assert!(world.ended());
    }
}
