//! Short lives, each told for one promise or one sentence of the design. Every promise is asked after every step of these too.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

mod world;

#[path = "stories/acknowledging.rs"]
mod acknowledging;
#[path = "stories/drifting.rs"]
mod drifting;
#[path = "stories/ending.rs"]
mod ending;
#[path = "stories/handing_off.rs"]
mod handing_off;
#[path = "stories/leaving.rs"]
mod leaving;
#[path = "stories/serving.rs"]
mod serving;
#[path = "stories/starting.rs"]
mod starting;
#[path = "stories/tainted.rs"]
mod tainted;
#[path = "stories/waiting.rs"]
mod waiting;
#[path = "stories/words.rs"]
mod words;

use std::time::Duration;

use moorline_lifecycle::{Action, ExitCode, State};

use world::api::{self, Api};
use world::facts::is_request;
use world::rest::{comes_to_rest, settle};
use world::steps::well;
use world::{Fault, World};

const SECOND: Duration = Duration::from_secs(1);

/// A world with a Node that has no taints, its Site, its pool and its GatewayPoolNode, in which a process has started.
fn started(site: Option<&str>, pool: Option<&str>) -> World {
    let mut world = new_world(site, pool);
    world.start().unwrap();
    world
}

fn new_world(site: Option<&str>, pool: Option<&str>) -> World {
    let mut api = Api::new();
    api.create_node(site, pool, Vec::new());
    api.put_site("berlin", None);
    api.put_site("paris", None);
    api.put_pool("edge");
    api.put_routes(&[]);
    World::new(api)
}

/// A world in which a process has settled.
fn settled(pool: Option<&str>, advertises: bool) -> World {
    let mut world = new_world(Some("berlin"), pool);
    world.machine.advertises = advertises;
    world.start().unwrap();
    settle(&mut world, 60 * SECOND).unwrap();
    assert_eq!(world.state(), State::Settled);
    world
}

/// A world with a worker that has settled in what differs from the usual.
fn settled_in(differs: impl FnOnce(&mut World)) -> World {
    let mut world = new_world(Some("berlin"), None);
    differs(&mut world);
    world.start().unwrap();
    settle(&mut world, 60 * SECOND).unwrap();
    world
}

/// The process is killed, the world changes, and the next one starts, long enough after it.
fn again(world: &mut World, change: impl FnOnce(&mut World)) {
    world.kill(false);
    change(world);
    world.pass(90 * SECOND);
    world.start().unwrap();
}

/// Everything goes well until this call is under way; its place among the calls.
fn until(world: &mut World, what: impl Fn(&Action) -> bool) -> usize {
    for _ in 0..500 {
        if let Some(place) = world.flight.iter().position(|flight| what(&flight.action)) {
            return place;
        }
        if !well(world).unwrap() {
            assert!(world.life.deadline().is_some() && !world.ended(), "it never comes: {:#?}", world.life.status());
            world.tick().unwrap();
        }
    }
    panic!("it does not come within 500 steps: {:#?}", world.life.status());
}

/// Everything goes well until this call is under way, which is answered in this way.
fn answer(world: &mut World, what: impl Fn(&Action) -> bool, fault: Fault) {
    let place = until(world, what);
    world.deliver(place, fault).unwrap();
}

/// Everything goes well as long as something is to be done now.
fn quiet(world: &mut World) {
    for _ in 0..500 {
        if !well(world).unwrap() {
            return;
        }
    }
    panic!("there is no end to it");
}

/// Everything goes well until the process ends; how it ends.
fn ends(world: &mut World) -> ExitCode {
    for _ in 0..500 {
        if world.ended() {
            break;
        }
        if !well(world).unwrap() {
            world.tick().unwrap();
        }
    }
    world.facts.exit.as_ref().unwrap().code
}

/// So much time passes, with a tick whenever the life wants one, and everything goes well.
fn live(world: &mut World, time: Duration) {
    let until = world.now() + time;
    loop {
        quiet(world);
        match world.life.deadline() {
            Some(deadline) if deadline <= until => world.tick().unwrap(),
            _ => break,
        }
    }
    world.pass(until.saturating_sub(world.now()));
}

fn said(world: &World, what: impl Fn(&Action) -> bool) -> usize {
    world.actions.iter().filter(|(_, action)| what(action)).count()
}

fn names(actions: impl Iterator<Item = Action>) -> Vec<String> {
    let name = |action: &Action| {
        let text = format!("{action:?}");
        text.split(['(', ' ']).next().unwrap_or_default().to_owned()
    };
    actions.map(|action| name(&action)).collect()
}

/// The requests of this process, in order.
fn requests(world: &World) -> Vec<String> {
    names(world.actions.iter().map(|(_, action)| action.clone()).filter(is_request))
}

fn patch_pod(action: &Action) -> bool {
    matches!(action, Action::PatchPod(..))
}

fn patch_taints(action: &Action) -> bool {
    matches!(action, Action::PatchTaints { .. })
}

fn acknowledgment(action: &Action) -> bool {
    matches!(action, Action::PatchPod(_, patch) if world::facts::is_acknowledgment(patch))
}

fn withdrawal(action: &Action) -> bool {
    patch_pod(action) && !acknowledgment(action)
}

/// Changes the Node and lets the watch tell.
fn tell_node(world: &mut World, change: impl FnOnce(&mut moorline_lifecycle::Node)) {
    world.api.change_node(change);
    while world.stream(world::Kind::Node, world::Says::Next).unwrap() {}
}

fn relabel(world: &mut World, key: &str, value: Option<&str>) {
    world.api.label(key, value);
    while world.stream(world::Kind::Node, world::Says::Next).unwrap() {}
}

fn gateway_taint() -> Vec<moorline_lifecycle::Taint> {
    vec![api::gateway_taint()]
}
