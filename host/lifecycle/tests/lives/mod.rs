//! What the model checker is given: a state is a world and what is left of the bounds; a move is what may happen next.
//!
//! In every state the world may go its usual way (streams say what there is, then calls are answered, the oldest first,
//! then time passes until the life wants to be ticked), which costs nothing but ticks and starts. A *detour* takes another
//! call, stream or tick first, or has a call take effect long before its answer. A *trouble* is a fault, a change of the
//! cluster, other policies, a signal or a crash. Bounds are how many of each a path has.
//!
//! Nothing is merged that could go on differently: states that differ in a call's number or in an absolute time count as
//! different ones. A path ends where the life waits for nothing that time or an answer brings, or where its bounds are used
//! up; there the environment stops failing, and the life has to come to rest (L1).

mod moves;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::world::World;
use crate::world::promises::Check;
use crate::world::rest::comes_to_rest;
use moves::{Move, moves, take, worlds};

/// Which troubles there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alphabet {
    /// Every kind of fault, change, policy and crash.
    All,
    /// Those that change most.
    Core,
}

/// How far the check goes.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub alphabet: Alphabet,
    /// Troubles on a path.
    pub troubles: u8,
    /// Turns off the usual order on a path.
    pub detours: u8,
    /// Times on a path that time passes.
    pub ticks: u8,
    /// Processes on a path, the first included.
    pub starts: u8,
    /// At one of so many ends, by the state's fingerprint, the life has to come to rest.
    pub rest: u64,
}

impl Bounds {
    /// These where `MOORLINE_MODEL` is `long`, otherwise the short ones; each may be told otherwise by
    /// `MOORLINE_MODEL_TROUBLES`, `…_DETOURS`, `…_TICKS`, `…_STARTS` and `…_REST`.
    pub fn or(self, short: Self) -> Self {
        let chosen = if std::env::var("MOORLINE_MODEL").is_ok_and(|form| form == "long") { self } else { short };
        chosen.as_told()
    }

    fn as_told(self) -> Self {
        let number = |name: &str, otherwise| match std::env::var(format!("MOORLINE_MODEL_{name}")) {
            Ok(text) => text.parse().unwrap_or_else(|_| panic!("MOORLINE_MODEL_{name} has to be a number: {text:?}")),
            Err(_) => otherwise,
        };
        let small = |name, otherwise: u8| u8::try_from(number(name, otherwise.into())).unwrap();
        Self {
            alphabet: self.alphabet,
            troubles: small("TROUBLES", self.troubles),
            detours: small("DETOURS", self.detours),
            ticks: small("TICKS", self.ticks),
            starts: small("STARTS", self.starts),
            rest: number("REST", self.rest),
        }
    }
}

/// A world, and what is left.
#[derive(Clone)]
pub struct Point {
    world: World,
    left: Left,
    /// The promise that the last move broke.
    broken: Option<String>,
    fingerprint: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Left {
    troubles: u8,
    detours: u8,
    ticks: u8,
    starts: u8,
}

impl Point {
    fn new(world: World, left: Left, outcome: Check) -> Self {
        let fingerprint = world.fingerprint();
        Self { world, left, broken: outcome.err(), fingerprint }
    }
}

impl PartialEq for Point {
    fn eq(&self, other: &Self) -> bool {
        (self.fingerprint, self.left, &self.broken) == (other.fingerprint, other.left, &other.broken)
    }
}

impl Hash for Point {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.fingerprint, self.left, &self.broken).hash(state);
    }
}

impl fmt::Debug for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {:?}", self.world.state(), self.left)
    }
}

struct Lives {
    bounds: Bounds,
    seen: Arc<Seen>,
}

/// What came up in a check.
#[derive(Default)]
struct Seen {
    /// Fingerprints of worlds, whatever was left of the bounds there.
    worlds: Mutex<HashSet<u64>>,
    ends: Mutex<[u64; 2]>,
    situations: Mutex<BTreeMap<&'static str, u64>>,
    troubles: Mutex<BTreeMap<String, u64>>,
}

type Holds = fn(&Lives, &Point) -> bool;

const PROMISES: [(&str, Holds); 12] = [
    ("P1", |_, point| holds("P1", point)),
    ("P2", |_, point| holds("P2", point)),
    ("P3", |_, point| holds("P3", point)),
    ("P4", |_, point| holds("P4", point)),
    ("P5", |_, point| holds("P5", point)),
    ("P6", |_, point| holds("P6", point)),
    ("P7", |_, point| holds("P7", point)),
    ("P8", |_, point| holds("P8", point)),
    ("P9", |_, point| holds("P9", point)),
    ("P10", |_, point| holds("P10", point)),
    ("L1", |_, point| holds("L1", point)),
    ("the rest", |_, point| point.broken.as_deref().is_none_or(|why| promise(why).is_some())),
];

/// The promise that a sentence is about.
fn promise(why: &str) -> Option<&str> {
    let name = why.split([' ', ':']).next()?;
    PROMISES.iter().any(|(known, _)| *known == name).then_some(name)
}

fn holds(name: &str, point: &Point) -> bool {
    point.broken.as_deref().and_then(promise) != Some(name)
}

impl Model for Lives {
    type State = Point;
    type Action = Move;

    fn init_states(&self) -> Vec<Point> {
        let Bounds { troubles, detours, ticks, starts, .. } = self.bounds;
        let left = Left { troubles, detours, ticks, starts: starts - 1 };
        let start = |mut world: World| {
            let outcome = world.start();
            Point::new(world, left, outcome)
        };
        let broken =
            |why: String| panic!("{} is broken before the check begins: {why}", promise(&why).unwrap_or("something"));
        worlds(self.bounds.alphabet).unwrap_or_else(broken).into_iter().map(start).collect()
    }

    fn actions(&self, point: &Point, actions: &mut Vec<Move>) {
        if point.broken.is_none() {
            moves(point, self.bounds.alphabet, actions);
        }
    }

    fn next_state(&self, last: &Point, action: Move) -> Option<Point> {
        let mut world = last.world.clone();
        world.actions.clear();
        let left = last.left.without(action);
        let outcome = take(&mut world, action);
        let mut next = Point::new(world, left, outcome);
        if next.broken.is_none() && next.fingerprint == last.fingerprint && action.is_trouble() {
            // It has made no difference.
            return None;
        }
        self.look(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        PROMISES.iter().map(|(name, condition)| Property::always(name, *condition)).collect()
    }
}

impl Left {
    fn without(self, action: Move) -> Self {
        let Self { troubles, detours, ticks, starts } = self;
        Self {
            troubles: troubles - u8::from(action.is_trouble()),
            detours: detours - u8::from(action.is_detour()),
            ticks: ticks - u8::from(matches!(action, Move::Tick | Move::EarlyTick)),
            starts: starts - u8::from(action.starts()),
        }
    }
}

impl Lives {
    /// Keeps what came up, and asks L1 at an end.
    fn look(&self, point: &mut Point, action: Move) {
        if !self.seen.worlds.lock().unwrap().insert(point.fingerprint) {
            return;
        }
        let visited = std::mem::take(&mut point.world.visited);
        let mut situations = self.seen.situations.lock().unwrap();
        visited.into_iter().for_each(|situation| *situations.entry(situation).or_default() += 1);
        drop(situations);
        if action.is_trouble() {
            *self.seen.troubles.lock().unwrap().entry(action.kind()).or_default() += 1;
        }
        let mut further = Vec::new();
        self.actions(point, &mut further);
        if point.broken.is_none() && further.is_empty() {
            let asked = point.fingerprint.is_multiple_of(self.bounds.rest);
            let mut ends = self.seen.ends.lock().unwrap();
            ends[0] += 1;
            ends[1] += u64::from(asked);
            drop(ends);
            if asked {
                point.broken = comes_to_rest(&mut point.world.clone()).err();
            }
        }
    }
}

/// The check ends with the first promise that it finds broken; where `MOORLINE_MODEL_UNTIL` names one, it goes on until that
/// one is, and finds others on its way.
fn finish() -> HasDiscoveries {
    let Ok(wanted) = std::env::var("MOORLINE_MODEL_UNTIL") else { return HasDiscoveries::Any };
    let known = PROMISES.iter().map(|(name, _)| *name).find(|name| *name == wanted);
    let name = known.unwrap_or_else(|| panic!("MOORLINE_MODEL_UNTIL has to be a promise, P1 to P10 or L1: {wanted:?}"));
    HasDiscoveries::AnyOf(BTreeSet::from([name]))
}

/// Checks every state within the bounds, and tells what that was.
pub fn check(bounds: Bounds) {
    let began = Instant::now();
    let seen = Arc::new(Seen::default());
    let model = Lives { bounds, seen: seen.clone() };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let checker = model.checker().threads(threads).finish_when(finish()).spawn_dfs().join();
    let worlds = seen.worlds.lock().unwrap().len();
    println!("{bounds:?}");
    println!("{} states, {worlds} of them with another world, {:.0?}", checker.unique_state_count(), began.elapsed());
    let [ends, asked] = *seen.ends.lock().unwrap();
    println!("{ends} ends of paths, {asked} of them asked whether the life comes to rest there");
    println!("Troubles, and in how many new worlds each came to: {:#?}", seen.troubles.lock().unwrap());
    println!("Situations, and in how many worlds: {:#?}", seen.situations.lock().unwrap());
    let mut broken = Vec::new();
    for (name, path) in checker.discoveries() {
        let states = path.into_vec();
        let why = states.last().and_then(|(point, _)| point.broken.clone()).unwrap_or_default();
        let story = tell(&states);
        broken.push(format!("{name} is broken: {why}\n\nWhat happens:\n{story}\n"));
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(checker.is_done(), "the check did not come to its end");
}

/// The way to a state, for people.
fn tell(states: &[(Point, Option<Move>)]) -> String {
    let mut world = states[0].0.world.clone();
    world.story = Some(vec![format!("(a beginning: {:?})", world.state())]);
    for (_, action) in states {
        let Some(action) = action else { break };
        if action.is_trouble() || action.is_detour() {
            world.story.as_mut().unwrap().push(format!("    {action:?}"));
        }
        if take(&mut world, *action).is_err() {
            break;
        }
    }
    world.story.unwrap_or_default().join("\n")
}
