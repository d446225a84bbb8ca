//! Days of virtual time with random faults: the real agent, restarted by a kubelet, while somebody changes its Node, Site
//! and pool, while requests and streams fail, and while it is killed. When the faults have ended it settles; at every
//! moment each process keeps to its token bucket; and nothing is left of a process that has ended.
//!
//! Each seed is a scenario, which is written to a file when it fails, so that `moorline simulate FILE` shows it again.
//! `MOORLINE_SEEDS=200 cargo test --workspace --test soak -- --nocapture` runs as many as it says (6 otherwise), from
//! `MOORLINE_FIRST_SEED` on (0 otherwise).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

mod days;
#[path = "../scenarios/launcher.rs"]
mod launcher;
mod watched;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use launcher::LAUNCHER;
use moorline::simulate::Launcher;
use moorline_sim::scenario::{self, Report};
use serde_json::Value;
use watched::Watched;

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |number| number.parse().unwrap())
}

/// Where a scenario is kept that failed.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.yaml"))
}

/// Runs a scenario, and gives its report and what was watched meanwhile.
fn run(scenario: &Value) -> (Report, Arc<Watched>) {
    let path = file(scenario["name"].as_str().unwrap());
    std::fs::write(&path, format!("{scenario:#}")).unwrap();
    let loaded = scenario::load(&path).unwrap_or_else(|error| panic!("{error}"));
    let watched = Arc::new(Watched::default());
    let launcher = Launcher { journal: Some(watched.clone()), ..LAUNCHER.clone() };
    launcher.check(&loaded).unwrap_or_else(|problems| panic!("{problems:#?}"));
    let report = scenario::run(&loaded, &launcher).unwrap_or_else(|error| panic!("{error}"));
    (report, watched)
}

#[test]
fn days_of_random_faults_leave_nothing_behind_and_end_settled() {
    let (first, seeds) = (number("MOORLINE_FIRST_SEED", 0), number("MOORLINE_SEEDS", 6));
    let began = Instant::now();
    let mut failed = Vec::new();
    let mut total = watched::Total::default();
    for seed in first..first + seeds {
        let scenario = days::scenario(seed);
        let (report, watched) = run(&scenario);
        let mut wrong = watched.wrong(&report);
        let failed_expectations = report.expectations.iter().filter(|result| !result.passed);
        wrong.extend(failed_expectations.map(|result| format!("{}: {:?}", result.name, result.found)));
        total.add(&report, &watched);
        if wrong.is_empty() {
            std::fs::remove_file(file(&report.name)).unwrap();
        } else {
            println!(
                "seed {seed}:\n  {}\n  The scenario is kept as {}",
                wrong.join("\n  "),
                file(&report.name).display()
            );
            failed.push(seed);
        }
    }
    println!("{seeds} days in {:.0} s of real time: {total}", began.elapsed().as_secs_f64());
    assert!(failed.is_empty(), "these seeds failed: {failed:?}");
}
