//! L1: once the environment stops failing, the life comes to rest, and what is there then is what has to be there.

use std::time::Duration;

use moorline_lifecycle::{ACKNOWLEDGMENT_KEY, Assignment, CniSubject, Desired, State};

use super::World;
use super::api::{GATEWAY_TAINT, POOL_LABEL, SITE_LABEL};
use super::facts::view;
use super::machine::Machine;
use super::policies::{Policies, assigned, conflist};
use super::promises::{Check, hold};
use super::steps::{kill, restart_if_ended, well};

/// Everything goes well from now on, until the life does not change any more by itself.
pub fn settle(world: &mut World, within: Duration) -> Check {
    let until = world.clock + within;
    for _ in 0..20_000 {
        restart_if_ended(world)?;
        if well(world)? || world.ended() {
            continue;
        }
        if world.clock > until {
            break;
        }
        if at_rest(world) {
            return Ok(());
        }
        if world.life.deadline().is_none() {
            break;
        }
        world.tick()?;
    }
    let status = world.life.status();
    Err(format!("L1: after {within:?} without a fault the life is not at rest: {status:?}"))
}

/// Nothing is under way, nothing is waited for that time brings, and the state is one that may last.
fn at_rest(world: &World) -> bool {
    let quiet = world.flight.is_empty() && world.life.deadline().is_none();
    match (world.state(), world.api.node()) {
        // A settled agent does not notice what becomes of its Node.
        (State::Settled, _) => quiet,
        // The GET is repeated for ever; what was set up for a Node that is gone has to be gone too.
        (_, None) => world.machine.durable().is_none_or(|ledger| ledger.assignment.is_none()) || of_another_node(world),
        (state, Some(node)) => quiet && state == State::WaitingForAssignment && assigned(node).is_none(),
    }
}

/// The environment stops failing: default policies answer, and what the Node's labels name exists.
pub fn comes_to_rest(world: &mut World) -> Check {
    const WITHIN: Duration = Duration::from_secs(1800);
    restart_if_ended(world)?;
    if let Some((site, pool)) = world.api.node().and_then(assigned) {
        if world.api.sites.current(&site).is_none() {
            world.api.put_site(&site, None);
        }
        if let Some(pool) = pool.filter(|pool| world.api.pools.current(pool).is_none()) {
            world.api.put_pool(&pool);
        }
    }
    if world.api.routes.is_none() {
        world.api.put_routes(&[]);
    }
    world.api.change_node(|node| {
        if node.pod_cidrs.is_empty() {
            node.pod_cidrs.push("10.7.2.0/24".into());
        }
        if node.labels.get(SITE_LABEL).is_none_or(String::is_empty) {
            node.labels.remove(POOL_LABEL);
        }
    });
    world.policies_changed(Policies::default())?;
    if world.api.pod.uid != world.settings.pod_uid {
        // The process of a Pod that is gone goes with it.
        kill(world, false, false, false)?;
    }
    settle(world, WITHIN)?;
    if world.state() == State::Settled && adopted_otherwise(world) {
        // A settled agent does not notice a relabelled Node; something outside replaces it.
        kill(world, false, true, false)?;
        settle(world, WITHIN)?;
    }
    everything_is_as_it_has_to_be(world).map_err(|why| format!("L1: at rest, and {why}"))
}

fn assignment(world: &World) -> Option<Assignment> {
    let node = world.api.node()?;
    let (site, pool) = assigned(node)?;
    Some(Assignment { node_uid: node.uid.clone(), site, pool })
}

/// Whether something has happened to the Node that a settled agent does not look at: also a gateway taint that comes back
/// when the acknowledgment is already on its way.
fn adopted_otherwise(world: &World) -> bool {
    let (seen, node) = (world.facts.node.as_ref(), world.api.node());
    let taint = world.facts.assignment().is_some_and(|assignment| assignment.pool.is_none())
        && seen.is_some_and(|node| node.taints.iter().any(|taint| taint.key == GATEWAY_TAINT));
    world.facts.assignment() != assignment(world).as_ref()
        || seen.map(|node| &node.pod_cidrs) != node.map(|node| &node.pod_cidrs)
        || taint
}

/// Whether the ledger is about a Node of another name: that this one is absent says nothing about what it lists.
fn of_another_node(world: &World) -> bool {
    world.machine.durable().is_some_and(|ledger| ledger.node_name != world.settings.node_name)
}

fn everything_is_as_it_has_to_be(world: &World) -> Check {
    let ledger = world.machine.durable();
    let Some(node) = world.api.node() else {
        if of_another_node(world) {
            return Ok(());
        }
        let left = world.machine.items.iter().find(|item| !world.machine.forgotten.contains(*item));
        hold!(left.is_none(), "{left:?} is left of a Node that is gone");
        return Ok(());
    };
    let Some(assignment) = assignment(world) else {
        let over = ledger.and_then(|ledger| ledger.assignment.as_ref()).filter(|listed| listed.node_uid != node.uid);
        hold!(over.is_none(), "what was set up for {over:?} is still there");
        return Ok(());
    };
    let (site, pool) = (world.api.sites.current(&assignment.site), assignment.pool.as_ref());
    let pool = pool.and_then(|pool| world.api.pools.current(pool)).cloned();
    let Some(site) = site.cloned() else { return Err("its Site is missing".into()) };

    let record = world.api.pod.annotations.get(ACKNOWLEDGMENT_KEY);
    let record: serde_json::Value =
        record.map(|text| serde_json::from_str(text).unwrap()).ok_or("there is no acknowledgment")?;
    hold!(
        record["nodeUID"] == assignment.node_uid.as_str()
            && record["site"] == assignment.site.as_str()
            && record["pool"].as_str() == assignment.pool.as_deref(),
        "the acknowledgment is about something else than {assignment:?}: {record}"
    );
    hold!(ledger.and_then(|l| l.assignment.as_ref()) == Some(&assignment), "the ledger is about something else");
    hold!(ledger.is_some_and(|ledger| ledger.acknowledgment.is_some()), "the ledger knows of no acknowledgment");
    hold!(
        assignment.pool.is_some() || world.facts.node.iter().flat_map(|n| &n.taints).all(|t| t.key != GATEWAY_TAINT),
        "the worker has settled with the gateway taint"
    );

    let desired = Desired { assignment, site, pool, pod_cidrs: node.pod_cidrs.clone() };
    let wanted = Machine::items(&Machine::plan(&desired));
    let there: std::collections::BTreeSet<_> =
        world.machine.items.iter().filter(|item| !world.machine.forgotten.contains(*item)).cloned().collect();
    hold!(there.is_subset(&wanted), "the data plane has left something behind: {there:?}, {wanted:?} is wanted");
    hold!(wanted.is_subset(&world.machine.items), "the data plane is {there:?}, {wanted:?} is wanted");
    let Desired { assignment, site, pool, .. } = desired.clone();
    let subject = CniSubject { adopted: assignment, node: view(node), site, pool };
    let content = (subject.site.manage_cni != Some(false)).then(|| format!("{}\n", conflist(&subject)));
    let here = world.machine.cni.as_ref().filter(|here| content.is_some() || !world.machine.forgotten.contains(*here));
    hold!(here == content.as_ref(), "the CNI file is {here:?}, {content:?} is wanted");
    if let moorline_lifecycle::Routes::Map(routes) = world.machine.routes(&desired) {
        let shown = world.facts.shown_routes.as_ref();
        hold!(shown == Some(&routes), "an answer shows the routes {shown:?}, and {routes:?} are wanted");
    }
    Ok(())
}
