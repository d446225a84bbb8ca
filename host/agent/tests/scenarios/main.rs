//! Every scenario in `examples/scenarios`, as one test each. Run with `--nocapture` to see the real time that each takes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

mod broken;
mod command;
mod launcher;
mod schema;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use launcher::LAUNCHER;
use moorline::simulate::Launcher;
use moorline::trace::{Recorder, Replayed, replay};
use moorline_sim::scenario::{self, Launch, Loaded, Process, Readiness, Shown};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn load(name: &str) -> Loaded {
    let path = root().join("examples/scenarios").join(format!("{name}.yaml"));
    scenario::load(&path).unwrap_or_else(|error| panic!("{error}"))
}

fn passes(name: &str) {
    let loaded = load(name);
    assert_eq!(loaded.scenario.name, name, "a scenario is called as its file is");
    LAUNCHER.check(&loaded).unwrap_or_else(|problems| panic!("{problems:#?}"));
    let trace = Arc::new(Recorder::new(Vec::new()));
    let launcher = Launcher { journal: Some(trace.clone()), ..LAUNCHER.clone() };
    let report = scenario::run(&loaded, &launcher).unwrap_or_else(|error| panic!("{error}"));
    println!("scenario {name}: {:.0} ms", report.real_time.as_secs_f64() * 1e3);
    assert!(report.passed, "{}", Shown { report: &report, colours: false });
    drop(launcher);
    let trace = Arc::into_inner(trace).unwrap().into_inner().unwrap();
    replays(name, &trace);
}

/// What the real agent was told leads to what it wanted, without it.
fn replays(name: &str, trace: &[u8]) {
    let (mut lives, mut steps) = (0, 0);
    let count = |told: Replayed<'_>| match told {
        Replayed::Born => lives += 1,
        Replayed::Step(..) => steps += 1,
    };
    replay(trace, count).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(lives > 0 && steps > 0, "{name}: {lives} lives, {steps} steps");
}

macro_rules! scenarios {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            passes($name);
        })*

        #[test]
        fn every_scenario_is_a_test() {
            let tested = BTreeSet::from([$($name.to_owned(),)*]);
            let files = scenario::find(&root().join("examples/scenarios")).unwrap();
            let found = files.iter().map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned());
            assert_eq!(found.collect::<BTreeSet<_>>(), tested);
        }

        #[test]
        fn every_expectation_of_every_scenario_can_fail() {
            for name in [$($name,)*] {
                let mut loaded = load(name);
                loaded.scenario.expect.iter_mut().for_each(|spanned| spanned.value = broken::broken(&spanned.value));
                let report = scenario::run(&loaded, &*LAUNCHER).unwrap();
                let holds = report.expectations.iter().filter(|result| result.passed);
                let holds: Vec<_> = holds.map(|result| (&result.name, result.line)).collect();
                assert!(holds.is_empty(), "{name}: {holds:?} can't fail");
            }
        }

        #[test]
        fn no_scenario_passes_without_an_agent() {
            for name in [$($name,)*] {
                let report = scenario::run(&load(name), &Idle).unwrap();
                assert!(!report.passed, "{name} passes although nothing was done");
            }
        }
    };
}

scenarios! {
    always_drifted: "always-drifted",
    broken_watches: "broken-watches",
    demotion: "demotion",
    drift_while_acknowledging: "drift-while-acknowledging",
    gateway_command: "gateway-command",
    gateway_deleted: "gateway-deleted",
    gateway_none: "gateway-none",
    handoff_to_unmanaged: "handoff-to-unmanaged",
    late_site_label: "late-site-label",
    lost_acknowledgment_answer: "lost-acknowledgment-answer",
    missing_pool: "missing-pool",
    missing_pool_settled: "missing-pool-settled",
    mistyped_pool_gateway: "mistyped-pool-gateway",
    node_deleted: "node-deleted",
    node_recreated: "node-recreated",
    not_this_node: "not-this-node",
    oom_killed_after_acknowledgment: "oom-killed-after-acknowledgment",
    pool_change_default: "pool-change-default",
    pool_change_not_granted: "pool-change-not-granted",
    pool_change_tolerated: "pool-change-tolerated",
    quiet_day: "quiet-day",
    quiet_worker: "quiet-worker",
    routes_emptied: "routes-emptied",
    sigterm_while_adopting: "sigterm-while-adopting",
    site_missing: "site-missing",
    taint_denied: "taint-denied",
    taint_fight: "taint-fight",
    trap_all_hooks: "trap-all-hooks",
    unassigned_reconnects: "unassigned-reconnects",
    worker_joined: "worker-joined",
}

/// A process that does nothing.
struct Idle;

impl scenario::Launcher for Idle {
    fn launch(&self, _: Launch) -> Process {
        Process { life: Box::pin(std::future::pending()), readiness: Box::new(Readiness::default) }
    }
}

#[test]
fn the_same_scenario_runs_the_same_way_every_time() {
    for name in ["demotion", "missing-pool", "not-this-node"] {
        let run = || scenario::run(&load(name), &*LAUNCHER).unwrap();
        let (first, second) = (run(), run());
        assert_eq!(first.timeline, second.timeline, "{name}");
        assert_eq!(first.requests, second.requests, "{name}");
    }
}
