//! What is watched in a run beside its expectations: the token bucket of each process at every moment, and that no task
//! and no watch outlives its process or piles up in it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use moorline::journal::{Entry, Journal};
use moorline_sim::scenario::Report;

/// As documented: so many requests at once, then one in so many seconds.
const BURST: f64 = 20.0;
const REFILL: f64 = 2.0;
/// A process has its lane, its health server, a watch or two, and requests under way.
const MOST_TASKS: usize = 24;

/// Tasks of the runtime, as counted whenever a process tells something.
#[derive(Default)]
pub(crate) struct Watched(Mutex<Tasks>);

#[derive(Default)]
struct Tasks {
    /// At the birth of each life, when the process before it is gone.
    at_birth: Vec<usize>,
    most: usize,
}

impl Journal for Watched {
    fn tell(&self, _at: Duration, entry: &Entry<'_>) {
        let alive = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let mut tasks = self.0.lock().unwrap();
        tasks.most = tasks.most.max(alive);
        if let Entry::Born(_) = entry {
            tasks.at_birth.push(alive);
        }
    }
}

impl Watched {
    /// What is wrong with a run, in a sentence each.
    pub(crate) fn wrong(&self, report: &Report) -> Vec<String> {
        let mut wrong = Vec::new();
        let tasks = self.0.lock().unwrap();
        let first = tasks.at_birth[0];
        if let Some(at) = tasks.at_birth.iter().position(|alive| *alive > first) {
            wrong.push(format!("process {} starts with {} tasks, the first with {first}", at + 1, tasks.at_birth[at]));
        }
        if tasks.most > MOST_TASKS {
            wrong.push(format!("there were {} tasks at once", tasks.most));
        }
        wrong.extend(bursts(report));
        wrong.extend(watches(report));
        wrong
    }
}

/// Processes that asked for more than their bucket gives.
fn bursts(report: &Report) -> Vec<String> {
    let mut buckets: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for entry in report.timeline.iter().filter(|entry| entry.kind == "request-received") {
        let Some(process) = entry.process else { continue };
        let now = entry.at.as_secs_f64();
        let (tokens, before) = buckets.entry(process).or_insert((BURST, now));
        // A request takes its token a moment before it is received.
        *tokens = (*tokens + (now - *before) / REFILL).min(BURST + 0.01);
        *before = now;
        *tokens -= 1.0;
        if *tokens < -0.01 {
            wrong.push(format!("process {process} is above its bucket at {now:.3} s: {}", entry.text));
        }
    }
    wrong
}

/// Watches that were never closed although their process has ended, or that pile up.
fn watches(report: &Report) -> Vec<String> {
    let mut open: BTreeMap<(u32, String), usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for entry in &report.timeline {
        let Some(process) = entry.process else { continue };
        let resource = || entry.fields["resource"].as_str().unwrap_or_default().to_owned();
        match entry.kind.as_str() {
            "watch-opened" => {
                let count = open.entry((process, resource())).or_default();
                *count += 1;
                if *count > 1 {
                    wrong.push(format!("process {process} has {count} watches on {} at {:?}", resource(), entry.at));
                }
            }
            "watch-closed" => {
                if let Some(count) = open.get_mut(&(process, resource())) {
                    *count -= 1;
                }
            }
            "exited" => {
                let left: Vec<_> = open.iter().filter(|((of, _), count)| *of == process && **count > 0).collect();
                if !left.is_empty() {
                    wrong.push(format!("process {process} leaves watches: {left:?}"));
                }
            }
            _ => {}
        }
    }
    wrong
}

/// What all runs came to.
#[derive(Default)]
pub(crate) struct Total {
    processes: usize,
    requests: usize,
    steps: usize,
    most_tasks: usize,
}

impl Total {
    pub(crate) fn add(&mut self, report: &Report, watched: &Watched) {
        let tasks = watched.0.lock().unwrap();
        self.processes += tasks.at_birth.len();
        self.most_tasks = self.most_tasks.max(tasks.most);
        self.requests += report.requests.iter().map(|row| row.count).sum::<usize>();
        self.steps += report.timeline.iter().filter(|entry| entry.kind == "step").count();
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} faults and changes, {} processes, {} requests, at most {} tasks at once",
            self.steps, self.processes, self.requests, self.most_tasks
        )
    }
}
