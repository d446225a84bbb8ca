//! Ten thousand orders of events, with every promise asked after every step: P1 to P10 while everything may fail, and L1
//! once it does not fail any more.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

mod world;

use std::fmt;
use std::time::Duration;

use moorline_lifecycle::{Event, FailureKind};
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

#[derive(Debug, Clone, Copy)]
enum Step {
    /// The calls that are under way are answered, oldest first, so many, and streams say what they have to say.
    Well(u8),
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

fn begin(beginning: &Beginning) -> World {
    let mut api = Api::new();
    let taints = [Some(api::gateway_taint()), beginning.foreign_taint.then(|| api::taint("example.com/disk", "slow"))];
    let earlier = beginning.earlier;
    api.create_node(
        if earlier.is_some() { Some("berlin") } else { beginning.site },
        earlier.unwrap_or(beginning.pool),
        taints.into_iter().flatten().collect(),
    );
    if beginning.objects || earlier.is_some() {
        api.put_site("berlin", None);
        api.put_site("paris", None);
        api.put_pool("edge");
        api.put_routes(&["10.200.0.0/16"]);
    }
    let mut world = World::new(api);
    world.machine.advertises = beginning.advertises;
    world
}

/// The first process starts; or, where an earlier one had settled, the one after that.
fn first_start(world: &mut World, beginning: &Beginning) -> Check {
    if beginning.earlier.is_some() {
        world.start()?;
        settle(world, Duration::from_secs(600))?;
        world.kill(false);
        world.api.label(SITE_LABEL, beginning.site);
        world.api.label(POOL_LABEL, beginning.pool);
        world.pass(Duration::from_secs(90));
    }
    world.policies = beginning.policies;
    world.start()
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

fn take(world: &mut World, step: Step) -> Check {
    restart_if_ended(world)?;
    match step {
        Step::Well(calls) => {
            for _ in 0..calls {
                if !well(world)? {
                    break;
                }
            }
        }
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
        Step::Kill { reached, new_pod, lose_ledger } => {
            world.kill(reached);
            if new_pod {
                world.api.replace_pod();
            }
            if lose_ledger {
                world.machine.lose_ledger();
            }
            world.pass(Duration::from_millis(1500));
            world.start()?;
        }
    }
    Ok(())
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
    first_start(world, &order.beginning)?;
    order.steps.iter().try_for_each(|step| take(world, *step))
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
        4 => Just(Fault::None),
        3 => prop::sample::select(&KINDS[..]).prop_map(Fault::Fails),
        1 => (0..400_u16).prop_map(Fault::Throttled),
        1 => Just(Fault::Denied),
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
        3 => any::<bool>().prop_map(Change::GatewayTaint),
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

fn a_step() -> impl Strategy<Value = Step> {
    let kind = prop::sample::select(&[Kind::Node, Kind::Node, Kind::Site, Kind::Pool][..]);
    let says = prop_oneof![
        4 => Just(Says::Next),
        1 => Just(Says::Bookmark),
        1 => Just(Says::Closed),
        1 => prop::sample::select(&[FailureKind::Expired, FailureKind::Unavailable, FailureKind::Other][..])
            .prop_map(Says::Fails),
    ];
    prop_oneof![
        20 => (1..8_u8).prop_map(Step::Well),
        12 => (any::<u8>(), fault()).prop_map(|(index, fault)| Step::Answer(index, fault)),
        5 => (any::<u8>(), fault()).prop_map(|(index, fault)| Step::Serve(index, fault)),
        6 => (kind, says).prop_map(|(kind, says)| Step::Stream(kind, says)),
        8 => a_change().prop_map(Step::World),
        2 => policies().prop_map(Step::Policies),
        12 => prop_oneof![3 => Just(0_u32), 1 => 0..20_000_u32].prop_map(Step::Tick),
        2 => prop_oneof![0..100_u32, 0..700_000_u32].prop_map(Step::Pass),
        1 => any::<u8>().prop_map(Step::LateAnswer),
        1 => Just(Step::Terminate),
        2 => (any::<bool>(), prop::bool::weighted(0.3), prop::bool::weighted(0.1))
            .prop_map(|(reached, new_pod, lose_ledger)| Step::Kill { reached, new_pod, lose_ledger }),
    ]
}

fn order() -> impl Strategy<Value = Order> {
    let site = prop::sample::select(&SITES[..]);
    let pool = || prop::sample::select(&POOLS[..]);
    let earlier = prop::option::of(prop::sample::select(&[None, Some("edge")][..]));
    let beginning = (site, pool(), prop::bool::weighted(0.8), any::<bool>(), any::<bool>(), policies(), earlier)
        .prop_map(|(site, pool, objects, advertises, foreign_taint, policies, earlier)| Beginning {
            site,
            pool,
            objects,
            advertises,
            foreign_taint,
            policies,
            earlier,
        });
    (beginning, prop::collection::vec(a_step(), 1..60)).prop_map(|(beginning, steps)| Order { beginning, steps })
}

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} has to be a number: {text:?}")))
}

/// Runs so many orders, and tells the shortest one that breaks a promise.
fn orders(share: u64, test: impl Fn(&Order, &mut World) -> Check) {
    let cases = env("MOORLINE_ORDERS").or_else(|| env("PROPTEST_CASES")).unwrap_or(10_000) / share;
    let seed = env("MOORLINE_SEED").unwrap_or(1);
    let config = Config {
        cases: u32::try_from(cases.max(1)).unwrap(),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&share.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    match runner.run(&order(), |order| test(&order, &mut begin(&order.beginning)).map_err(TestCaseError::fail)) {
        Ok(()) => {}
        Err(TestError::Fail(why, order)) => {
            let mut world = begin(&order.beginning);
            world.story = Some(Vec::new());
            let _ = test(&order, &mut world);
            let story = world.story.unwrap_or_default().join("\n");
            panic!(
                "A promise is broken.\n{why}\n\nThe shortest order found:{order:?}\n\nWhat happens in it:\n{story}\n"
            );
        }
        Err(TestError::Abort(why)) => panic!("The test could not run: {why}"),
    }
}

#[test]
fn every_promise_holds_after_every_step_of_every_order() {
    orders(1, run);
}
