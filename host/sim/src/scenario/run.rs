//! Runs one scenario from its start to its end, in virtual time on a runtime of its own, and makes the report of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Map;
use tokio::sync::mpsc;
use tokio::time::{sleep, sleep_until};

use super::act::Stage;
use super::check::{self, World};
use super::describe::describe;
use super::expectation::Expectation;
use super::format::Scenario;
use super::kubelet::{Kubelet, Running};
use super::launcher::{Launcher, PodIdentity};
use super::load::Loaded;
use super::machine;
use super::report::{ExpectationResult, Report};
use super::step::{Condition, Step};
use super::timeline::{Log, Source};
use crate::server::{ObjectName, Options, Server};

/// Why a scenario could not be run, although nothing is wrong with it.
#[derive(Debug, thiserror::Error)]
#[error("The scenario {name} can't be run: {what}: {source}")]
pub struct RunError {
    name: String,
    what: &'static str,
    source: std::io::Error,
}

/// Runs a scenario.
///
/// # Errors
/// When the temporary folder that stands for the machine can't be made.
pub fn run(loaded: &Loaded, launcher: &dyn Launcher) -> Result<Report, RunError> {
    let began = Instant::now();
    let failed = |what| move |source| RunError { name: loaded.scenario.name.clone(), what, source };
    let folder = tempfile::tempdir().map_err(failed("there is no temporary folder"))?;
    // The real path: a machine has no symbolic links above its root.
    let root = folder.path().canonicalize().map_err(failed("there is no temporary folder"))?;
    let machine = root.join("machine");
    std::fs::create_dir(&machine).map_err(failed("the machine's folder can't be made"))?;
    for (path, content) in &loaded.scenario.machine.files {
        machine::write(&machine.join(path), content).map_err(failed("a file of the machine can't be written"))?;
    }
    let policies = loaded.policy_volume(&root).map_err(failed("the policy volume can't be made"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .map_err(failed("there is no runtime"))?;
    let mut report = runtime.block_on(play(loaded, launcher, machine, policies));
    // What still runs on other threads must not outlive the folder.
    drop(runtime);
    report.real_time = began.elapsed();
    Ok(report)
}

async fn play(loaded: &Loaded, launcher: &dyn Launcher, machine: PathBuf, policies: Option<PathBuf>) -> Report {
    let scenario = &loaded.scenario;
    let server = Server::new(Options { seed: scenario.seed, started: scenario.start, ..Options::default() });
    let log = Log::new(server.subscribe(), scenario.start);
    for object in &loaded.objects {
        if let Err(status) = server.apply(object.clone()) {
            trouble(&log, format!("an object is refused: {}", status.message));
        }
    }
    let pod = &scenario.agent.pod;
    let stored = server.get(&ObjectName::new("pods", &pod.name).namespace(&pod.namespace));
    let uid = stored.ok().and_then(|pod| pod["metadata"]["uid"].as_str().map(str::to_owned)).unwrap_or_default();
    let running = Running::new(PodIdentity { namespace: pod.namespace.clone(), name: pod.name.clone(), uid });
    let (kubelet_orders, orders) = mpsc::unbounded_channel();
    let stage = Stage {
        server: server.clone(),
        log: log.clone(),
        node: scenario.agent.node.clone(),
        machine: machine.clone(),
        kubelet: kubelet_orders,
        snapshots: RefCell::default(),
        admissions: RefCell::default(),
    };
    let kubelet = Kubelet {
        launcher,
        server: server.clone(),
        log: log.clone(),
        spec: scenario.kubelet,
        agent: &scenario.agent,
        machine,
        policies,
        seed: scenario.seed,
        latency: scenario.latency.0,
        running: &running,
    };
    let world = World { stage: &stage, running: &running };
    let results = RefCell::new(BTreeMap::new());
    let steps = take_all(&stage, scenario, &results);
    let checks = check_in_time(&world, scenario, &results);
    tokio::select! {
        // The steps first: what they do when something is seen is done before the agent goes on.
        biased;
        () = async { tokio::join!(steps, checks); std::future::pending().await } => {}
        () = kubelet.run(orders) => {}
        () = sleep_until(log.moment(scenario.end.0)) => {}
    }
    let mut results = results.into_inner();
    for (index, expectation) in scenario.expect.iter().enumerate() {
        // What was judged in time stays judged; the rest is judged now.
        results
            .entry(Judged::Expectation(index))
            .or_insert_with(|| judge(&world, &expectation.value, expectation.defined.line()));
    }
    for (index, step) in scenario.steps.iter().enumerate() {
        let untaken = "it was not taken: what it waits for was not seen before the end of the run";
        results.entry(Judged::Step(index)).or_insert_with(|| not_taken(index, step.defined.line(), untaken));
    }
    let results = results.into_iter().filter(|(what, result)| match what {
        // A step that was taken is no news.
        Judged::Step(_) => !result.passed,
        Judged::Expectation(_) => true,
    });
    Report::new(loaded, &server, &log, results.map(|(_, result)| result).collect())
}

/// What is judged in a run, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Judged {
    Step(usize),
    Expectation(usize),
}

type Results = RefCell<BTreeMap<Judged, ExpectationResult>>;

fn trouble(log: &Log, text: String) {
    log.push(Source::Scenario, None, "trouble", text, Map::new());
}

fn judge(world: &World<'_>, expectation: &Expectation, line: u64) -> ExpectationResult {
    let name = expectation.name.clone().unwrap_or_else(|| describe(expectation));
    let found = check::fault(world, expectation);
    ExpectationResult { name, line, passed: found.is_none(), found }
}

fn not_taken(index: usize, line: u64, why: &str) -> ExpectationResult {
    ExpectationResult { name: format!("step {}", index + 1), line, passed: false, found: Some(why.to_owned()) }
}

/// Takes the steps one after the other.
async fn take_all(stage: &Stage, scenario: &Scenario, results: &Results) {
    let mut seen = 0;
    for (index, spanned) in scenario.steps.iter().enumerate() {
        seen = wait_for(stage, &spanned.value, seen).await;
        let line = spanned.defined.line();
        let result = match stage.take(&spanned.value) {
            Ok(()) => ExpectationResult { name: format!("step {}", index + 1), line, passed: true, found: None },
            Err(why) => {
                trouble(&stage.log, format!("step {} failed: {why}", index + 1));
                not_taken(index, line, &why)
            }
        };
        results.borrow_mut().insert(Judged::Step(index), result);
    }
}

/// Waits until a step is due. `seen` is how much of the timeline earlier steps have used up; gives back how much has been
/// used up with this one.
async fn wait_for(stage: &Stage, step: &Step, seen: usize) -> usize {
    let mut used = seen;
    if let Some(at) = step.at {
        sleep_until(stage.log.moment(at.0)).await;
        used = stage.log.lock().entries.len();
    }
    if let Some(condition) = &step.when {
        used = see(stage, condition, seen).await;
    }
    if let Some(after) = step.after {
        sleep(after.0).await;
    }
    used
}

/// Waits until a condition is seen in what comes after `seen`.
async fn see(stage: &Stage, condition: &Condition, seen: usize) -> usize {
    let mut length = seen;
    loop {
        let due = match &condition.object {
            Some(object) => {
                let found = stage.server.get(&(&object.object()).into()).ok();
                object.fault(found.as_ref()).is_none().then_some(length)
            }
            None => {
                let inner = stage.log.lock();
                let news = inner.entries.iter().enumerate().skip(seen);
                let mut hits = news.filter(|(_, entry)| condition.is_seen_in(entry));
                hits.nth(condition.count.unwrap_or(1) - 1).map(|(index, _)| index + 1)
            }
        };
        match due {
            Some(used) => return used,
            None => length = stage.log.longer_than(length).await,
        }
    }
}

/// Judges what has to be true at a time, or up to one.
async fn check_in_time(world: &World<'_>, scenario: &Scenario, results: &Results) {
    let judgements = scenario.expect.iter().enumerate().map(|(index, spanned)| async move {
        let (expectation, line) = (&spanned.value, spanned.defined.line());
        let limit: Duration = match (expectation.at, expectation.by) {
            (Some(at), _) => at.0,
            (_, Some(by)) => by.0,
            _ => return,
        };
        let deadline = world.stage.log.moment(limit);
        if expectation.by.is_some() {
            let mut seen = 0;
            let true_once = async {
                loop {
                    seen = world.stage.log.longer_than(seen).await;
                    if check::fault(world, expectation).is_none() {
                        return;
                    }
                }
            };
            let _ = tokio::time::timeout_at(deadline, true_once).await;
        } else {
            sleep_until(deadline).await;
        }
        results.borrow_mut().insert(Judged::Expectation(index), judge(world, expectation, line));
    });
    futures_util::future::join_all(judgements).await;
}
