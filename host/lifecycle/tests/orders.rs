//! Ten thousand orders of events, with every promise asked after every step: P1 to P10 while everything may fail, and L1
//! once it does not fail any more.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

mod world;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use moorline_lifecycle::{Action, Event, FailureKind};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use world::api::{self, Api, GATEWAY_TAINT, POOL_LABEL, SITE_LABEL};
use world::policies::{Acknowledgment, Adoption, Cni, Drift, Policies, Retry, Taints};
use world::promises::Check;
use world::{Fault, Kind, Says, World};

#[derive(Debug, Clone, Copy)]
enum Change {
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
enum Happening {
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
enum Of {
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
enum Step {
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
    Terminate,
    Kill {
        reached: bool,
        new_pod: bool,
        lose_ledger: bool,
    },
}

#[derive(Debug, Clone, Copy)]
struct Beginning {
    site: Option<&'static str>,
    pool: Option<&'static str>,
    objects: bool,
    advertises: bool,
    foreign_taint: bool,
    policies: Policies,
    /// An earlier process settled, as this.
    earlier: Option<Option<&'static str>>,
}

#[derive(Clone)]
struct Order {
    beginning: Beginning,
    steps: Vec<Step>,
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n  {:?}", self.beginning)?;
        self.steps.iter().try_for_each(|step| write!(f, "\n  {step:?}"))
    }
}

fn change(world: &mut World, change: Change) {
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

fn new_world(site: Option<&str>, pool: Option<&str>, objects: bool, advertises: bool, foreign_taint: bool) -> World {
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
fn settled_world(pool: Option<&'static str>, advertises: bool, foreign_taint: bool) -> Result<World, String> {
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
fn begin(beginning: &Beginning) -> Result<World, String> {
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
fn restart_if_ended(world: &mut World) -> Check {
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

fn kind(action: &Action) -> Option<Of> {
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

fn kill(world: &mut World, reached: bool, new_pod: bool, lose_ledger: bool) -> Check {
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

fn happen(world: &mut World, happening: Happening) -> Check {
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

fn take(world: &mut World, upon: &mut Vec<(Of, Happening)>, step: Step) -> Check {
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
        Step::Terminate => world.tell(Event::Terminate)?,
        Step::Kill { reached, new_pod, lose_ledger } => kill(world, reached, new_pod, lose_ledger)?,
    }
    Ok(())
}

fn watches_have_news(world: &World) -> bool {
    [Kind::Node, Kind::Site, Kind::Pool].into_iter().any(|kind| world.has_news(kind))
}

/// One thing goes well: a stream says what it has to say, or the oldest call is answered.
fn well(world: &mut World) -> Result<bool, String> {
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

/// Everything goes well from now on, until the life is at rest.
fn settle(world: &mut World, within: Duration) -> Check {
    let until = world.clock + within;
    for _ in 0..20_000 {
        restart_if_ended(world)?;
        if well(world)? {
            continue;
        }
        if world.ended() {
            continue;
        }
        if world::promises::at_rest(world) {
            return Ok(());
        }
        if world.clock > until || world.life.deadline().is_none() {
            break;
        }
        world.tick()?;
    }
    let status = world.life.status();
    Err(format!("L1: after {within:?} without a fault the life is not at rest: {status:?}"))
}

fn run(order: &Order, world: &mut World) -> Check {
    world.start()?;
    let mut upon = Vec::new();
    order.steps.iter().try_for_each(|step| take(world, &mut upon, *step))
}

const KINDS: [FailureKind; 11] = [
    FailureKind::Conflict,
    FailureKind::NotFound,
    FailureKind::Unauthorized,
    FailureKind::Forbidden,
    FailureKind::Throttled,
    FailureKind::Unavailable,
    FailureKind::Timeout,
    FailureKind::Closed,
    FailureKind::Expired,
    FailureKind::Invalid,
    FailureKind::Other,
];

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        2 => Just(Fault::None),
        3 => prop::sample::select(&KINDS[..]).prop_map(Fault::Fails),
        1 => (0..400_u16).prop_map(Fault::Throttled),
        2 => Just(Fault::Denied),
        2 => any::<bool>().prop_map(Fault::Lost),
        1 => Just(Fault::Ignored),
    ]
}

const SITES: [Option<&str>; 4] = [Some("berlin"), Some("berlin"), Some("paris"), None];
const POOLS: [Option<&str>; 4] = [None, None, Some("edge"), Some("typo")];

fn a_change() -> impl Strategy<Value = Change> {
    let site = || prop::sample::select(&SITES[..]);
    let pool = || prop::sample::select(&POOLS[..]);
    let name = || prop::sample::select(&["berlin", "paris"][..]);
    prop_oneof![
        2 => site().prop_map(Change::Site),
        3 => pool().prop_map(Change::Pool),
        1 => (site(), pool()).prop_map(|(site, pool)| Change::CreateNode(site, pool)),
        1 => Just(Change::DeleteNode),
        3 => prop::bool::weighted(0.7).prop_map(Change::GatewayTaint),
        1 => any::<bool>().prop_map(Change::ForeignTaint),
        1 => (0..3_u8).prop_map(Change::PodCidr),
        1 => Just(Change::Heartbeat),
        3 => (name(), prop::sample::select(&[None, None, Some(true), Some(false)][..]))
            .prop_map(|(name, manage)| Change::PutSite(name, manage)),
        1 => name().prop_map(Change::DeleteSite),
        1 => Just(Change::PutPool("edge")),
        1 => Just(Change::DeletePool("edge")),
        1 => Just(Change::PutRoutes("10.9.0.0/16")),
        1 => Just(Change::DeleteRoutes),
        1 => Just(Change::ReplacePod),
    ]
}

fn policies() -> impl Strategy<Value = Policies> {
    use prop::sample::select;
    let adoption = select(&[Adoption::Default, Adoption::Nonsense, Adoption::NoBinding, Adoption::Held][..]);
    let drift = select(
        &[
            Drift::Default,
            Drift::AlwaysDrifted,
            Drift::AlwaysSame,
            Drift::MayTolerate,
            Drift::NoBinding,
            Drift::Held,
            Drift::HeldMayTolerate,
        ][..],
    );
    let retry = select(
        &[Retry::Default, Retry::AtOnce, Retry::AtOnce, Retry::Hour, Retry::GiveUp, Retry::NoBinding, Retry::Held][..],
    );
    let taints = select(&[Taints::Default, Taints::Everything, Taints::Nothing, Taints::NoBinding, Taints::Held][..]);
    let cni = select(&[Cni::Default, Cni::Evil, Cni::Broken, Cni::Wait, Cni::Unmanaged, Cni::NoBinding, Cni::Held][..]);
    let acknowledgment = select(
        &[
            Acknowledgment::Default,
            Acknowledgment::Rack,
            Acknowledgment::HostsKey,
            Acknowledgment::NoBinding,
            Acknowledgment::Held,
        ][..],
    );
    // One or two hooks answer in their own way; more would only stand still.
    prop_oneof![
        3 => Just(Policies::default()),
        2 => retry.prop_map(|retry| Policies { retry, ..Policies::default() }),
        1 => adoption.prop_map(|adoption| Policies { adoption, ..Policies::default() }),
        2 => (drift, acknowledgment)
            .prop_map(|(drift, acknowledgment)| Policies { drift, acknowledgment, ..Policies::default() }),
        2 => (taints, cni).prop_map(|(taints, cni)| Policies { taints, cni, ..Policies::default() }),
    ]
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        6 => fault().prop_map(Happening::Answered),
        2 => a_change().prop_map(Happening::Before),
        4 => a_change().prop_map(Happening::During),
        1 => Just(Happening::Terminate),
        2 => (any::<bool>(), prop::bool::weighted(0.3))
            .prop_map(|(reached, new_pod)| Happening::Kill { reached, new_pod }),
    ]
}

fn a_step() -> impl Strategy<Value = Step> {
    let of = prop::sample::select(
        &[
            Of::ReadNode,
            Of::Pod,
            Of::Pod,
            Of::Taints,
            Of::Taints,
            Of::Routes,
            Of::Ledger,
            Of::Plane,
            Of::TearDown,
            Of::Join,
            Of::Cni,
            Of::Ask,
        ][..],
    );
    let kind = prop::sample::select(&[Kind::Node, Kind::Node, Kind::Site, Kind::Pool][..]);
    let says = prop_oneof![
        4 => Just(Says::Next),
        1 => Just(Says::Bookmark),
        1 => Just(Says::Closed),
        1 => prop::sample::select(&[FailureKind::Expired, FailureKind::Unavailable, FailureKind::Other][..])
            .prop_map(Says::Fails),
    ];
    prop_oneof![
        30 => (1..16_u8).prop_map(Step::Well),
        20 => (of, happening()).prop_map(|(of, happening)| Step::Upon(of, happening)),
        5 => (any::<u8>(), fault()).prop_map(|(index, fault)| Step::Answer(index, fault)),
        2 => (any::<u8>(), fault()).prop_map(|(index, fault)| Step::Serve(index, fault)),
        4 => (kind, says).prop_map(|(kind, says)| Step::Stream(kind, says)),
        5 => a_change().prop_map(Step::World),
        2 => policies().prop_map(Step::Policies),
        5 => prop_oneof![3 => Just(0_u32), 1 => 0..20_000_u32].prop_map(Step::Tick),
        2 => prop_oneof![0..100_u32, 0..700_000_u32].prop_map(Step::Pass),
        1 => any::<u8>().prop_map(Step::LateAnswer),
        1 => Just(Step::Terminate),
        2 => (any::<bool>(), prop::bool::weighted(0.3), prop::bool::weighted(0.1))
            .prop_map(|(reached, new_pod, lose_ledger)| Step::Kill { reached, new_pod, lose_ledger }),
    ]
}

/// Orders that begin in one of these ways: with a Node on which no process has settled before, or one has, as a worker or
/// as a gateway.
fn order(earlier: &'static [Option<Option<&'static str>>]) -> impl Strategy<Value = Order> {
    let site = prop::sample::select(&SITES[..]);
    let pool = prop::sample::select(&POOLS[..]);
    let earlier = prop::sample::select(earlier);
    let beginning = (site, pool, prop::bool::weighted(0.8), any::<bool>(), any::<bool>(), policies(), earlier)
        .prop_map(|(site, pool, objects, advertises, foreign_taint, policies, earlier)| Beginning {
            site,
            pool,
            objects,
            advertises,
            foreign_taint,
            policies,
            earlier,
        });
    (beginning, prop::collection::vec(a_step(), 1..40)).prop_map(|(beginning, steps)| Order { beginning, steps })
}

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} has to be a number: {text:?}")))
}

/// Runs a share of the orders, and tells the shortest one that breaks a promise. Each of these situations has to come up.
fn orders(
    name: &str,
    share: u64,
    earlier: &'static [Option<Option<&'static str>>],
    test: impl Fn(&Order, &mut World) -> Check,
    situations: &[&str],
) {
    let cases = env("MOORLINE_ORDERS").or_else(|| env("PROPTEST_CASES")).unwrap_or(10_000).div_ceil(share);
    let seed = env("MOORLINE_SEED").unwrap_or(1);
    let config = Config {
        cases: u32::try_from(cases).unwrap(),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    // Other orders in every test.
    bytes[8..].iter_mut().zip(name.bytes()).for_each(|(byte, letter)| *byte = letter);
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let visited = RefCell::new(BTreeMap::new());
    let outcome = runner.run(&order(earlier), |order| {
        let mut world = begin(&order.beginning).map_err(TestCaseError::fail)?;
        let outcome = test(&order, &mut world);
        for situation in world.visited {
            *visited.borrow_mut().entry(situation).or_insert(0_u32) += 1;
        }
        outcome.map_err(TestCaseError::fail)
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, order)) => {
            let mut world = begin(&order.beginning).unwrap();
            world.story = Some(Vec::new());
            let _ = test(&order, &mut world);
            let story = world.story.unwrap_or_default().join("\n");
            panic!(
                "A promise is broken.\n{why}\n\nThe shortest order found:{order:?}\n\nWhat happens in it:\n{story}\n"
            );
        }
        Err(TestError::Abort(why)) => panic!("The test could not run: {why}"),
    }
    let visited = visited.into_inner();
    println!("{cases} orders {name}; so many of them saw: {visited:#?}");
    if cases >= 1000 {
        let never: Vec<_> = situations.iter().filter(|situation| !visited.contains_key(**situation)).collect();
        assert!(never.is_empty(), "no order has come to: {never:?}");
    }
}

const EVERYWHERE: [&str; 8] = [
    "settled",
    "drift",
    "drift with an acknowledgment in flight",
    "settled after a lost answer",
    "SIGTERM",
    "SIGTERM when settled",
    "an absence is confirmed",
    "the bucket is empty",
];

#[test]
fn every_promise_holds_on_a_fresh_machine() {
    let situations = ["a removal is denied", "a removal meets a race", "a restart guard ignores a policy"];
    orders("on a fresh machine", 4, &[None], run, &[&EVERYWHERE[..], &situations[..]].concat());
}

#[test]
fn every_promise_holds_where_a_worker_has_settled() {
    let situations = ["a handoff undoes", "a forced cleanup undoes", "SIGTERM while handing off", "settled on routes"];
    orders("after a worker", 4, &[Some(None)], run, &[&EVERYWHERE[..], &situations[..]].concat());
}

#[test]
fn every_promise_holds_where_a_gateway_has_settled() {
    let situations = ["a handoff undoes", "a forced cleanup undoes", "a withdrawal is owed", "a removal is denied"];
    orders("after a gateway", 4, &[Some(Some("edge"))], run, &[&EVERYWHERE[..], &situations[..]].concat());
}

#[test]
fn every_promise_holds_in_lives_of_any_beginning() {
    orders("of any beginning", 4, &[None, Some(None), Some(Some("edge"))], run, &EVERYWHERE);
}
