//! The steps of which orders of events are made: what may happen to the calls under way, to watches, to the world, to time
//! and to the process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use moorline_lifecycle::{Action, Event};

use super::api::{self, Api, GATEWAY_TAINT, POOL_LABEL, SITE_LABEL};
use super::policies::Policies;
use super::promises::Check;
use super::rest::settle;
use super::{Fault, Kind, Says, World};

#[derive(Debug, Clone, Copy, PartialEq, Hash)]
pub enum Change {
    Site(Option<&'static str>),
    Pool(Option<&'static str>),
    CreateNode(Option<&'static str>, Option<&'static str>),
    DeleteNode,
    GatewayTaint(bool),
    ForeignTaint(bool),
    PodCidr(u8),
    Heartbeat,
    PutSite(&'static str, Option<bool>),
    DeleteSite(&'static str),
    PutPool(&'static str),
    DeletePool(&'static str),
    PutRoutes(&'static str),
    DeleteRoutes,
    ReplacePod,
}

/// What may happen to a call of some kind.
#[derive(Debug, Clone, Copy)]
pub enum Happening {
    /// It is answered in this way.
    Answered(Fault),
    /// Something changes, and watches tell, before it reaches the other side.
    Before(Change),
    /// Something changes, and watches tell, after it has had its effect and before its answer arrives.
    During(Change),
    Terminate,
    Kill {
        reached: bool,
        new_pod: bool,
    },
}

/// Kinds of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    ReadNode,
    Pod,
    Taints,
    Routes,
    Ledger,
    Plane,
    TearDown,
    Join,
    Cni,
    Ask,
}

#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// So many things go well: streams say what they have to say, calls are answered, the oldest first, and when nothing
    /// else is to be done the life is ticked at its time.
    Well(u8),
    /// The next call of this kind that would go well meets with this.
    Upon(Of, Happening),
    /// A call is answered in this way.
    Answer(u8, Fault),
    /// A call reaches the other side; its answer is on its way.
    Serve(u8, Fault),
    Stream(Kind, Says),
    World(Change),
    Policies(Policies),
    /// Time passes until the life wants to be ticked, and then so many milliseconds more.
    Tick(u32),
    /// Time passes, and nobody ticks.
    Pass(u32),
    LateAnswer(u8),
    LookAtCni {
        taken: bool,
    },
    Terminate,
    Kill {
        reached: bool,
        new_pod: bool,
        lose_ledger: bool,
    },
}

#[derive(Debug, Clone, Copy)]
pub struct Beginning {
    pub site: Option<&'static str>,
    pub pool: Option<&'static str>,
    pub objects: bool,
    pub advertises: bool,
    pub foreign_taint: bool,
    pub policies: Policies,
    /// An earlier process settled, as this.
    pub earlier: Option<Option<&'static str>>,
}

#[derive(Clone)]
pub struct Order {
    pub beginning: Beginning,
    pub steps: Vec<Step>,
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n  {:?}", self.beginning)?;
        self.steps.iter().try_for_each(|step| write!(f, "\n  {step:?}"))
    }
}

pub fn change(world: &mut World, change: Change) {
    let api = &mut world.api;
    match change {
        Change::Site(site) => api.label(SITE_LABEL, site),
        Change::Pool(pool) => api.label(POOL_LABEL, pool),
        Change::CreateNode(site, pool) => {
            api.delete_node();
            api.create_node(site, pool, vec![api::gateway_taint()]);
        }
        Change::DeleteNode => api.delete_node(),
        Change::GatewayTaint(there) => api.change_node(|node| {
            node.taints.retain(|taint| taint.key != GATEWAY_TAINT);
            node.taints.extend(there.then(api::gateway_taint));
        }),
        Change::ForeignTaint(there) => api.change_node(|node| {
            node.taints.retain(|taint| taint.key != "example.com/disk");
            node.taints.extend(there.then(|| api::taint("example.com/disk", "slow")));
        }),
        Change::PodCidr(n) => api.change_node(|node| {
            node.pod_cidrs = if n == 0 { Vec::new() } else { vec![format!("10.{n}.2.0/24")] };
        }),
        Change::Heartbeat => api.change_node(|node| {
            let beat = node.annotations.get("beat").map_or(0, |beat| beat.len()) + 1;
            node.annotations.insert("beat".into(), "x".repeat(beat % 7 + 1));
        }),
        Change::PutSite(name, manage_cni) => api.put_site(name, manage_cni),
        Change::DeleteSite(name) => api.delete_site(name),
        Change::PutPool(name) => api.put_pool(name),
        Change::DeletePool(name) => api.delete_pool(name),
        Change::PutRoutes(route) => api.put_routes(&[route]),
        Change::DeleteRoutes => api.routes = None,
        Change::ReplacePod => api.replace_pod(),
    }
}

pub fn new_world(
    site: Option<&str>,
    pool: Option<&str>,
    objects: bool,
    advertises: bool,
    foreign_taint: bool,
) -> World {
    let mut api = Api::new();
    let foreign = foreign_taint.then(|| api::taint("example.com/disk", "slow"));
    api.create_node(site, pool, [api::gateway_taint()].into_iter().chain(foreign).collect());
    if objects {
        api.put_site("berlin", None);
        api.put_site("paris", None);
        api.put_pool("edge");
        api.put_routes(&["10.200.0.0/16"]);
    }
    let mut world = World::new(api);
    world.machine.advertises = advertises;
    world
}

/// A world in which a process has settled, made once.
pub fn settled_world(pool: Option<&'static str>, advertises: bool, foreign_taint: bool) -> Result<World, String> {
    thread_local! {
        static WORLDS: RefCell<BTreeMap<(bool, bool, bool), World>> = const { RefCell::new(BTreeMap::new()) };
    }
    let key = (pool.is_some(), advertises, foreign_taint);
    if let Some(world) = WORLDS.with_borrow(|worlds| worlds.get(&key).cloned()) {
        return Ok(world);
    }
    let mut world = new_world(Some("berlin"), pool, true, advertises, foreign_taint);
    world.start()?;
    settle(&mut world, Duration::from_secs(600))?;
    WORLDS.with_borrow_mut(|worlds| worlds.insert(key, world.clone()));
    Ok(world)
}

/// The world before the first step: new, or left by an earlier process, which was killed once it had settled.
pub fn begin(beginning: &Beginning) -> Result<World, String> {
    let Beginning { site, pool, objects, advertises, foreign_taint, policies, earlier } = *beginning;
    let mut world = match earlier {
        None => new_world(site, pool, objects, advertises, foreign_taint),
        Some(earlier) => {
            let mut world = settled_world(earlier, advertises, foreign_taint)?;
            world.kill(false);
            world.api.label(SITE_LABEL, site);
            world.api.label(POOL_LABEL, pool);
            world.pass(Duration::from_secs(90));
            world
        }
    };
    world.visited.clear();
    world.policies = policies;
    Ok(world)
}

/// Ends and restarts count: a container that has ended starts again.
pub fn restart_if_ended(world: &mut World) -> Check {
    if !world.ended() {
        return Ok(());
    }
    let after = world.life.step(world.now(), Event::Tick);
    if !after.is_empty() || world.life.deadline().is_some() {
        return Err(format!("an ended process does something: {after:?}"));
    }
    world.pass(Duration::from_secs(1));
    world.start()
}

pub fn kind(action: &Action) -> Option<Of> {
    Some(match action {
        Action::ReadNode(_) => Of::ReadNode,
        Action::ReadPod(_) | Action::PatchPod(..) => Of::Pod,
        Action::PatchTaints { .. } => Of::Taints,
        Action::ReadRoutes(_) | Action::PatchRoutes(..) => Of::Routes,
        Action::SaveLedger(..) => Of::Ledger,
        Action::PlanDataPlane(..) | Action::ApplyDataPlane(..) => Of::Plane,
        Action::TearDownDataPlane(..) => Of::TearDown,
        Action::JoinWorkers(_) => Of::Join,
        Action::WriteCni(..) | Action::DisableCni(..) => Of::Cni,
        Action::Ask(..) => Of::Ask,
        _ => return None,
    })
}

pub fn kill(world: &mut World, reached: bool, new_pod: bool, lose_ledger: bool) -> Check {
    world.kill(reached);
    if new_pod {
        world.api.replace_pod();
    }
    if lose_ledger {
        world.machine.lose_ledger();
    }
    world.pass(Duration::from_millis(1500));
    world.start()
}

pub fn happen(world: &mut World, happening: Happening) -> Check {
    match happening {
        Happening::Answered(fault) => world.deliver(0, fault)?,
        Happening::Before(what) => change(world, what),
        Happening::During(what) => {
            world.serve(0, Fault::None)?;
            change(world, what);
        }
        Happening::Terminate => world.tell(Event::Terminate)?,
        Happening::Kill { reached, new_pod } => kill(world, reached, new_pod, false)?,
    }
    Ok(())
}

pub fn take(world: &mut World, upon: &mut Vec<(Of, Happening)>, step: Step) -> Check {
    restart_if_ended(world)?;
    match step {
        Step::Well(things) => {
            for _ in 0..things {
                let met = world.flight.first().and_then(|flight| {
                    let here = kind(&flight.action);
                    upon.iter().position(|(of, _)| Some(*of) == here)
                });
                if let (Some(met), false) = (met, watches_have_news(world)) {
                    let (_, happening) = upon.remove(met);
                    happen(world, happening)?;
                } else if !well(world)? && (world.life.deadline().is_none() || world.ended()) {
                    break;
                } else if world.flight.is_empty() && !world.ended() {
                    world.tick()?;
                }
            }
        }
        Step::Upon(of, happening) => upon.push((of, happening)),
        Step::Answer(index, fault) if !world.flight.is_empty() => {
            world.deliver(usize::from(index) % world.flight.len(), fault)?;
        }
        Step::Serve(index, fault) if !world.flight.is_empty() => {
            world.serve(usize::from(index) % world.flight.len(), fault)?;
        }
        Step::Answer(..) | Step::Serve(..) => {}
        Step::Stream(kind, says) => drop(world.stream(kind, says)?),
        Step::World(what) => change(world, what),
        Step::Policies(policies) => world.policies_changed(policies)?,
        Step::Tick(late) => {
            world.pass(Duration::from_millis(late.into()));
            world.tick()?;
        }
        Step::Pass(time) => world.pass(Duration::from_millis(time.into())),
        Step::LateAnswer(index) if !world.late.is_empty() => {
            world.late_answer(usize::from(index) % world.late.len())?;
        }
        Step::LateAnswer(_) => {}
        Step::LookAtCni { taken } => world.look_at_cni(taken && world.life.cni_in_place().is_some())?,
        Step::Terminate => world.tell(Event::Terminate)?,
        Step::Kill { reached, new_pod, lose_ledger } => kill(world, reached, new_pod, lose_ledger)?,
    }
    Ok(())
}

pub fn watches_have_news(world: &World) -> bool {
    [Kind::Node, Kind::Site, Kind::Pool].into_iter().any(|kind| world.has_news(kind))
}

/// One thing goes well: a stream says what it has to say, or the oldest call is answered.
pub fn well(world: &mut World) -> Result<bool, String> {
    for kind in [Kind::Node, Kind::Site, Kind::Pool] {
        if world.stream(kind, Says::Next)? {
            return Ok(true);
        }
    }
    if world.flight.is_empty() || world.ended() {
        return Ok(false);
    }
    world.deliver(0, Fault::None)?;
    Ok(true)
}

pub fn run(order: &Order, world: &mut World) -> Check {
    world.start()?;
    let mut upon = Vec::new();
    order.steps.iter().try_for_each(|step| take(world, &mut upon, *step))
}
