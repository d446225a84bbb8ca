//! The promises of the life, each as a function of its own that says what was broken and why that matters. Promises about
//! an action are asked before the world does it; promises about a moment are asked after every step.

use std::collections::BTreeSet;
use std::time::Duration;

use moorline_lifecycle::{
    ACKNOWLEDGMENT_KEY, Action, ExitCode, Ledger, Note, Operation, Outcome, Question, Routes, State, Verdict,
};

use super::World;
use super::api::{CAME_WITH_THE_POD, GATEWAY_TAINT};
use super::facts::{Facts, Wanted, floor, is_acknowledgment, is_request};
use super::machine::{Machine, foreign};

pub type Check = Result<(), String>;

macro_rules! hold {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            return Err(format!($($why)+));
        }
    };
}

pub(super) use hold;

type OnAction = fn(&World, usize, &Action) -> Check;
type OnMoment = fn(&World) -> Check;

const ON_ACTION: [(&str, OnAction); 14] = [
    ("P1 acknowledged is true", p1_acknowledged_is_true),
    ("P1 nothing acknowledged is undone", p1_nothing_acknowledged_is_undone),
    ("P2 one adoption", p2_one_adoption),
    ("P3 the watch closes next", p3_the_watch_closes_next),
    ("P4 no acknowledgment after drift", p4_no_acknowledgment_after_drift),
    ("P5 cleanup is late enough", p5_cleanup_is_late_enough),
    ("P6 waits keep to the floors", p6_waits_keep_to_the_floors),
    ("P7 a denial parks", p7_a_denial_parks),
    ("P8 CNI only for a Site that was read", p8_cni_only_for_a_read_site),
    ("P9 SIGTERM changes nothing", p9_sigterm_changes_nothing),
    ("P10 only a confirmed absence forces", p10_only_a_confirmed_absence_forces),
    ("calls are fresh", calls_are_fresh),
    ("foreign taints are kept", foreign_taints_are_kept),
    ("routes are listed before they are written", routes_are_listed_before_they_are_written),
];

const ON_MOMENT: [(&str, OnMoment); 7] = [
    ("P3 no Node watch once settled", p3_no_node_watch_once_settled),
    ("P4 drift ends the process", p4_drift_ends_the_process),
    ("P6 the token bucket", p6_the_token_bucket),
    ("P9 SIGTERM ends the process", p9_sigterm_ends_the_process),
    ("P10 a confirmed absence forces", p10_a_confirmed_absence_forces),
    ("the deadline lies ahead", the_deadline_lies_ahead),
    ("the ledger lists what there is", the_ledger_lists_what_there_is),
];

pub fn before(world: &World, index: usize, action: &Action) -> Check {
    for (name, promise) in ON_ACTION {
        promise(world, index, action).map_err(|why| format!("{name}: {why} (action {action:?})"))?;
    }
    Ok(())
}

pub fn after(world: &World) -> Check {
    for (name, promise) in ON_MOMENT {
        promise(world).map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}

/// Promises about what an effect leaves behind, asked when it has taken place and nobody knows yet.
pub fn served(world: &World) -> Check {
    the_ledger_lists_what_there_is(world).map_err(|why| format!("the ledger lists what there is: {why}"))
}

/// Whether the agent is still leaving something: what its ledger lists is not what it adopted.
fn leaving(facts: &Facts, durable: Option<&Ledger>) -> bool {
    durable.and_then(|ledger| ledger.assignment.as_ref()) != facts.assignment()
}

fn p1_acknowledged_is_true(world: &World, _: usize, action: &Action) -> Check {
    let Action::PatchPod(_, patch) = action else { return Ok(()) };
    if !is_acknowledgment(patch) {
        return Ok(());
    }
    let facts = &world.facts;
    let Some((adopted, _)) = &facts.adopted else { return Err("nothing was adopted".into()) };
    hold!(facts.validated, "no GET vouches for the Node since the last disconnect");
    let Some(node) = &facts.node else { return Err("the Node is not known".into()) };
    hold!(node.uid == adopted.node_uid, "the Node has UID {}, another than {}", node.uid, adopted.node_uid);
    match facts.assessed() {
        Some((Outcome::NoBinding | Outcome::Decided(Verdict::Same(_), _), false)) => {}
        Some((Outcome::Decided(Verdict::Same(_), binding), true)) if binding.may_tolerate => {}
        other => return Err(format!("drift is not excluded by the last word on it: {other:?}")),
    }
    let record: serde_json::Value =
        serde_json::from_str(patch[ACKNOWLEDGMENT_KEY].as_deref().unwrap()).map_err(|error| error.to_string())?;
    hold!(
        record["nodeUID"] == adopted.node_uid.as_str()
            && record["site"] == adopted.site.as_str()
            && record["pool"].as_str() == adopted.pool.as_deref()
            && record["podUID"] == facts.own_pod.as_str(),
        "the record is about something else: {record}"
    );

    let durable = world.machine.durable();
    hold!(!leaving(facts, durable), "what an earlier assignment set up was not left yet");
    let listed = durable.and_then(|ledger| ledger.acknowledgment.as_ref()).filter(|ack| ack.pod_uid == facts.own_pod);
    hold!(
        listed.is_some_and(|ack| patch.keys().all(|key| ack.keys.contains(key)) && !ack.owed),
        "the durable ledger does not list every key of it"
    );

    let Some((desired, routes)) = &facts.applied else { return Err("no data plane was set up".into()) };
    hold!(desired.assignment == *adopted, "the data plane was set up for {}", desired.assignment);
    hold!(Some(&desired.site) == facts.site.as_ref(), "the Site is not as it was for the data plane");
    hold!(desired.pool == facts.pool.clone().filter(|_| adopted.pool.is_some()), "the pool is not as it was");
    hold!(
        Machine::items(&Machine::plan(desired)).is_subset(&world.machine.items),
        "the data plane is not what was planned: {:?}",
        world.machine.items
    );
    if let Routes::Map(routes) = routes {
        hold!(facts.shown_routes.as_ref() == Some(routes), "the last answer shows routes {:?}", facts.shown_routes);
    }

    let here = world.machine.cni.as_ref();
    match facts.wanted_cni() {
        Some(Wanted::File(content)) => hold!(here == Some(&content), "{here:?} is on disk, {content:?} is wanted"),
        Some(Wanted::None) => hold!(here.is_none_or(|file| foreign(file)), "{here:?} is on disk, none is wanted"),
        None => return Err("no CNI verdict stands".into()),
    }
    let busy = world.flight.iter().find(|flight| {
        matches!(flight.action, Action::WriteCni(..) | Action::DisableCni(..) | Action::ApplyDataPlane(..))
    });
    hold!(busy.is_none(), "work on this machine is still under way: {busy:?}");

    if adopted.pool.is_none() {
        hold!(node.taints.iter().all(|taint| taint.key != GATEWAY_TAINT), "a worker has the gateway taint");
    }
    let Some(unwanted) = facts.unwanted_taints() else { return Err("no taints verdict stands".into()) };
    let left = unwanted.iter().find(|taint| may_go(world, &taint.key));
    hold!(left.is_none(), "an unwanted taint is still there: {left:?}");
    Ok(())
}

fn p1_nothing_acknowledged_is_undone(world: &World, _: usize, action: &Action) -> Check {
    let facts = &world.facts;
    let durable = world.machine.durable();
    let undoes = match action {
        Action::TearDownDataPlane(..) => true,
        Action::DisableCni(..) | Action::PatchRoutes(..) => leaving(facts, durable),
        _ => false,
    };
    if !undoes || facts.is_over(durable, &world.settings.node_name) {
        return Ok(());
    }
    let stands = world.api.pod.uid == facts.own_pod && world.api.pod.annotations.contains_key(ACKNOWLEDGMENT_KEY);
    // A forced cleanup may have begun while the Node was absent; then it goes on.
    hold!(!stands || world.forced, "the acknowledgment still stands on the Pod");
    hold!(!facts.may_stand || world.forced, "no answer has confirmed the withdrawal of the acknowledgment");
    Ok(())
}

fn p2_one_adoption(world: &World, _: usize, action: &Action) -> Check {
    let facts = &world.facts;
    let told = match action {
        Action::Note(Note::Adopted { .. }) => {
            hold!(facts.adoptions == 0, "an assignment was adopted already");
            return Ok(());
        }
        Action::PlanDataPlane(_, desired) | Action::ApplyDataPlane(_, desired) => &desired.assignment,
        Action::Ask(_, Question::Assess(observation)) => &observation.adopted,
        Action::Ask(_, Question::Unwanted(subject) | Question::Annotate(subject)) => &subject.adopted,
        Action::Ask(_, Question::Render(subject)) => &subject.adopted,
        Action::WatchSite(_, name, ..) => {
            hold!(facts.assignment().is_some_and(|a| a.site == *name), "the Site was not adopted");
            return Ok(());
        }
        Action::WatchPool(_, name, ..) => {
            hold!(facts.assignment().is_some_and(|a| a.pool.as_ref() == Some(name)), "the pool was not adopted");
            return Ok(());
        }
        _ => return Ok(()),
    };
    hold!(facts.assignment() == Some(told), "{told:?} is not what was adopted, {:?}", facts.assignment());
    Ok(())
}

fn p3_the_watch_closes_next(world: &World, index: usize, action: &Action) -> Check {
    if let (0, Some(Some(open))) = (index, world.facts.just_saved) {
        hold!(*action == Action::CloseWatch(open), "the startup watch {open:?} is open after the acknowledgment");
    }
    if world.facts.saved {
        hold!(!matches!(action, Action::ReadNode(_) | Action::WatchNode(..)), "a settled agent looks at its Node");
    }
    Ok(())
}

fn p3_no_node_watch_once_settled(world: &World) -> Check {
    hold!(!world.facts.saved || world.node.is_none(), "a watch on the Node is open once the acknowledgment is saved");
    let settled = world.facts.state == Some(State::Settled);
    hold!(!settled || world.facts.saved, "settled, and no answer says that the acknowledgment is saved");
    Ok(())
}

fn p4_no_acknowledgment_after_drift(world: &World, _: usize, action: &Action) -> Check {
    let Some((_, drift)) = &world.facts.drifted else { return Ok(()) };
    match action {
        Action::PatchPod(_, patch) => hold!(!is_acknowledgment(patch), "drift is known: {drift}"),
        Action::Exit(exit) if exit.code != ExitCode::Asked => {
            let stands = world.api.pod.uid == world.facts.own_pod
                && world.api.pod.annotations.contains_key(ACKNOWLEDGMENT_KEY)
                && world.wrote_acknowledgment;
            let owed =
                world.machine.durable().and_then(|ledger| ledger.acknowledgment.as_ref()).is_some_and(|ack| ack.owed);
            hold!(
                !stands || owed || world.facts.ledger_trouble || world.saving,
                "an acknowledgment of this process stands, and is not owed: {drift}"
            );
        }
        _ => {}
    }
    Ok(())
}

/// What is drift by the facts alone.
fn drift(world: &World) -> Option<String> {
    let facts = &world.facts;
    let adopted = facts.assignment()?;
    if facts.deleted || facts.absences >= 2 {
        return Some("the Node is gone".into());
    }
    if facts.node.as_ref()?.uid != adopted.node_uid {
        return Some("the Node is another".into());
    }
    match facts.assessed()? {
        (Outcome::NoBinding, true) | (Outcome::Decided(Verdict::Drifted(_), _), true) => Some("it changed".into()),
        (Outcome::Held(binding, _) | Outcome::Decided(Verdict::Same(_), binding), true) if !binding.may_tolerate => {
            Some("it changed, and no grant stands against that".into())
        }
        (Outcome::Decided(Verdict::Drifted(_), binding), false) if !world.is_guarded(binding) => {
            Some("a policy says so".into())
        }
        _ => None,
    }
}

fn p4_drift_ends_the_process(world: &World) -> Check {
    let facts = &world.facts;
    if let Some(since) = facts.ending {
        // What was asked to end is the matter of P9.
        let late = facts.terminated.is_none() && facts.now >= since + world.settings.end_deadline;
        hold!(!late || facts.exit.is_some(), "the process has not ended within its deadline");
        return Ok(());
    }
    if !facts.saved
        && let Some(why) = drift(world)
    {
        return Err(format!("the life goes on although it has drifted: {why}"));
    }
    Ok(())
}

fn p5_cleanup_is_late_enough(world: &World, _: usize, action: &Action) -> Check {
    let facts = &world.facts;
    let durable = world.machine.durable();
    match action {
        Action::TearDownDataPlane(..) => {}
        Action::DisableCni(..) if leaving(facts, durable) => {}
        _ => return Ok(()),
    }
    hold!(facts.joined, "not every worker has been joined");
    let over = world.forced || facts.is_over(durable, &world.settings.node_name);
    hold!(
        over || facts.undoing || facts.wanted_cni().is_some(),
        "the successor is not known: Site {:?}, pool {:?}, CNI {:?}",
        facts.site,
        facts.pool,
        facts.wanted_cni()
    );
    Ok(())
}

fn p6_waits_keep_to_the_floors(world: &World, _: usize, action: &Action) -> Check {
    let facts = &world.facts;
    let operation = facts.operation(action, world.machine.durable());
    let also = matches!(action, Action::ReadNode(_)).then_some(Operation::NodeWatch);
    for operation in operation.into_iter().chain(also.filter(|_| !facts.validated)) {
        if let Some(tried) = facts.tried.get(&operation) {
            hold!(
                facts.now >= tried.not_before,
                "{} is tried at {:?} after {} failures, and not before {:?} by the floor or Retry-After",
                operation.as_str(),
                facts.now,
                tried.failures,
                tried.not_before
            );
        }
    }
    Ok(())
}

fn p6_the_token_bucket(world: &World) -> Check {
    let mut tokens = Duration::from_secs(2) * 20;
    let mut last = Duration::ZERO;
    for at in &world.facts.requests {
        tokens = (tokens + (*at - last)).min(Duration::from_secs(2) * 20);
        last = *at;
        let Some(left) = tokens.checked_sub(Duration::from_secs(2)) else {
            return Err(format!("{} requests are more than 20 and one per 2 s", world.facts.requests.len()));
        };
        tokens = left;
    }
    Ok(())
}

fn p7_a_denial_parks(world: &World, _: usize, action: &Action) -> Check {
    let facts = &world.facts;
    let removal = facts.operation(action, None) == Some(Operation::TaintRemoval);
    let (true, Some(denial)) = (removal, &facts.denial) else { return Ok(()) };
    let waited = facts.now.saturating_sub(denial.at);
    hold!(
        denial.changed || waited >= world.settings.denial_interval,
        "a removal that was denied is tried again after {waited:?}, on a Node that has not changed"
    );
    hold!(waited >= floor(1), "a removal that was denied is tried again after {waited:?}");
    Ok(())
}

fn p8_cni_only_for_a_read_site(world: &World, _: usize, action: &Action) -> Check {
    let Action::WriteCni(_, content, own) = action else { return Ok(()) };
    let facts = &world.facts;
    let Some(adopted) = facts.assignment() else { return Err("nothing was adopted".into()) };
    let read = facts.site.as_ref().is_some_and(|site| site.name == adopted.site);
    hold!(read || facts.saved, "the Site {} was not read, or is gone", adopted.site);
    hold!(!content.contains("evil"), "what the floor refuses is written: {content}");
    let verdict = facts.rendered.outcomes().any(|outcome| match outcome {
        Outcome::Decided(Verdict::Managed(text, _), _) => format!("{text}\n") == *content,
        _ => false,
    });
    hold!(verdict, "no verdict asks for this content");
    hold!(!leaving(facts, world.machine.durable()), "what an earlier assignment set up was not left yet");
    if let Some(here) = world.machine.cni.as_ref().filter(|here| !foreign(here)) {
        hold!(own.contains(here), "the own file would be taken as foreign");
    }
    Ok(())
}

fn p9_sigterm_changes_nothing(world: &World, _: usize, action: &Action) -> Check {
    let Some(at) = world.facts.terminated else { return Ok(()) };
    hold!(
        !matches!(
            action,
            Action::DisableCni(..)
                | Action::TearDownDataPlane(..)
                | Action::WriteCni(..)
                | Action::PlanDataPlane(..)
                | Action::ApplyDataPlane(..)
                | Action::PatchTaints { .. }
                | Action::PatchRoutes(..)
                | Action::PatchPod(..)
        ),
        "SIGTERM came at {at:?}"
    );
    if let Action::Exit(exit) = action {
        hold!(exit.code == ExitCode::Asked || world.facts.ending < Some(at), "it was asked to end: {exit:?}");
    }
    Ok(())
}

fn p9_sigterm_ends_the_process(world: &World) -> Check {
    let facts = &world.facts;
    let Some(at) = facts.terminated else { return Ok(()) };
    let late = facts.now >= at + world.settings.end_deadline;
    hold!(!late || facts.exit.is_some(), "SIGTERM at {at:?}, and no end at {:?}", facts.now);
    // Workers are joined and the ledger is saved: no other wait may hold the process.
    let waits = world.flight.iter().any(|f| matches!(f.action, Action::JoinWorkers(_) | Action::SaveLedger(..)));
    hold!(waits || facts.ledger_trouble || facts.exit.is_some(), "a wait holds the process that was cancelled");
    Ok(())
}

fn p10_only_a_confirmed_absence_forces(world: &World, _: usize, action: &Action) -> Check {
    let facts = &world.facts;
    if !matches!(action, Action::JoinWorkers(_)) || facts.ending.is_some() || world.forced {
        return Ok(());
    }
    let over = facts.is_over(world.machine.durable(), &world.settings.node_name);
    hold!(over || facts.wanted_cni().is_some(), "cleanup begins: {} reads found no Node", facts.absences);
    Ok(())
}

fn p10_a_confirmed_absence_forces(world: &World) -> Check {
    let facts = &world.facts;
    let absent = facts.just_missing && facts.absences >= 2 && facts.adopted.is_none() && facts.ending.is_none();
    let listed = world
        .machine
        .durable()
        .is_some_and(|ledger| ledger.assignment.is_some() && ledger.node_name == world.settings.node_name);
    hold!(!(absent && listed) || facts.joining, "the Node is confirmed absent, and nothing is cleaned up");
    Ok(())
}

fn calls_are_fresh(world: &World, _: usize, action: &Action) -> Check {
    hold!(world.facts.exit.is_none(), "the process has ended");
    if let Some(call) = super::call(action) {
        hold!(!world.facts.calls.contains(&call), "{call:?} was used before");
    }
    if is_request(action) {
        let own = match action {
            Action::WatchNode(..) => world.node.is_some(),
            Action::WatchSite(..) => world.site.is_some(),
            Action::WatchPool(..) => world.pool.is_some(),
            _ => false,
        };
        hold!(!own, "a second watch of the same kind");
    }
    Ok(())
}

/// Whether a verdict may have a taint with this key removed.
fn may_go(world: &World, key: &str) -> bool {
    let gateway = world.facts.assignment().is_some_and(|assignment| assignment.pool.is_some());
    world.settings.allowed_taints.contains(key) && !(gateway && key == GATEWAY_TAINT)
}

fn foreign_taints_are_kept(world: &World, _: usize, action: &Action) -> Check {
    let Action::PatchTaints { uid, resource_version, taints, .. } = action else { return Ok(()) };
    let version = world.api.nodes.log.iter().find(|(version, ..)| version.to_string() == *resource_version);
    let Some((_, _, Some(node))) = version else { return Err("the patch is made from no version of the Node".into()) };
    hold!(node.uid == *uid, "the guard names another UID than the version");
    let kept: Vec<_> = node.taints.iter().filter(|taint| taints.contains(taint)).cloned().collect();
    hold!(kept == *taints, "taints are added, changed or moved: {:?}", node.taints);
    let gone = node.taints.iter().find(|taint| !taints.contains(taint) && !may_go(world, &taint.key));
    hold!(gone.is_none(), "someone else's taint would be lost: {gone:?}");
    hold!(kept.len() < node.taints.len(), "nothing is removed");
    Ok(())
}

/// Crash safety: the next process clears what it finds listed.
fn routes_are_listed_before_they_are_written(world: &World, _: usize, action: &Action) -> Check {
    let Action::PatchRoutes(_, _, patch) = action else { return Ok(()) };
    let writes = patch.values().any(Option::is_some);
    let listed = world.machine.durable().is_some_and(|ledger| ledger.advertised);
    hold!(!writes || listed, "the durable ledger does not say that routes are advertised");
    Ok(())
}

fn the_deadline_lies_ahead(world: &World) -> Check {
    let deadline = world.life.deadline();
    hold!(
        deadline.is_none_or(|at| at > world.facts.now),
        "the life wants to be ticked at {deadline:?}, and it is {:?}",
        world.facts.now
    );
    Ok(())
}

/// Crash safety: a process that is killed now leaves nothing that the next one does not find in the ledger.
fn the_ledger_lists_what_there_is(world: &World) -> Check {
    let machine = &world.machine;
    let ledger = machine.durable();
    if let Some(here) = machine.cni.as_ref().filter(|here| !foreign(here) && !machine.forgotten.contains(*here)) {
        hold!(
            ledger.is_some_and(|ledger| ledger.cni.contains(here)),
            "a CNI file is there that it doesn't list: {here}"
        );
    }
    let listed: BTreeSet<_> =
        ledger.into_iter().flat_map(|ledger| &ledger.data_plane).flat_map(Machine::items).collect();
    let unlisted = machine.items.iter().find(|item| !listed.contains(*item) && !machine.forgotten.contains(*item));
    hold!(unlisted.is_none(), "the data plane has put {unlisted:?} there, and it lists {listed:?}");
    if world.wrote_acknowledgment && world.api.pod.uid == world.facts.own_pod {
        let keys = ledger.and_then(|ledger| ledger.acknowledgment.as_ref()).map(|ack| ack.keys.clone());
        let keys = keys.unwrap_or_default();
        let own = |key: &String| world.settings.annotation_prefixes.iter().any(|prefix| key.starts_with(prefix));
        let mut written = world.api.pod.annotations.keys().filter(|key| own(key) && *key != CAME_WITH_THE_POD);
        let unlisted = written.find(|key| !keys.contains(*key));
        hold!(unlisted.is_none(), "the Pod has the annotation {unlisted:?}, and it lists {keys:?}");
    }
    Ok(())
}
