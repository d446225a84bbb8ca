//! What came of a run, as data: the document that `--format json` prints. Its JSON Schema is made from these types.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::load::Loaded;
use super::timeline::{Log, TimelineEntry};
use crate::server::Server;

/// The version of the document's form.
const FORM: &str = "moorline.dev/simulation/v1";

/// What came of one or more scenarios.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "Moorline simulation report")]
pub struct Document {
    /// `moorline.dev/simulation/v1`.
    pub form: String,
    /// Whether every expectation of every scenario holds.
    pub passed: bool,
    /// The scenarios, in the order in which they were run.
    pub scenarios: Vec<Report>,
}

impl Document {
    /// The document about these runs.
    pub fn new(scenarios: Vec<Report>) -> Self {
        Self { form: FORM.to_owned(), passed: scenarios.iter().all(|report| report.passed), scenarios }
    }

    /// Its JSON Schema.
    pub fn schema() -> schemars::Schema {
        schemars::schema_for!(Document)
    }
}

/// What came of one scenario.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The scenario's name.
    pub name: String,
    /// The scenario's file.
    pub file: PathBuf,
    /// What it shows.
    pub description: String,
    /// The seed of the run: the same one gives the same run.
    pub seed: u64,
    /// Whether every expectation holds.
    pub passed: bool,
    /// The virtual time that passed, in seconds.
    #[serde(serialize_with = "seconds")]
    #[schemars(with = "f64")]
    pub virtual_time: Duration,
    /// The real time that it took, in seconds.
    #[serde(serialize_with = "seconds")]
    #[schemars(with = "f64")]
    pub real_time: Duration,
    /// What happened, in order.
    pub timeline: Vec<TimelineEntry>,
    /// The requests to the API server, counted.
    pub requests: Vec<RequestRow>,
    /// The answers of policies, counted.
    pub verdicts: Vec<VerdictRow>,
    /// What had to be true, and whether it is.
    pub expectations: Vec<ExpectationResult>,
}

/// Requests of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestRow {
    /// The verb, in the words of RBAC.
    pub verb: String,
    /// The resource, with its subresource.
    pub resource: String,
    /// The status code; absent where no answer was given.
    pub code: Option<u16>,
    /// How many there were.
    pub count: usize,
}

/// Answers of a kind.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerdictRow {
    /// The hook.
    pub hook: String,
    /// The policy; absent where no binding answered.
    pub policy: Option<String>,
    /// The policy's digest.
    pub digest: Option<String>,
    /// The verdict in a word.
    pub verdict: String,
    /// Its reason.
    pub reason: String,
    /// How many such answers there were.
    pub calls: usize,
    /// The real time that they took together, in seconds.
    #[serde(serialize_with = "seconds")]
    #[schemars(with = "f64")]
    pub time: Duration,
}

/// What came of one expectation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExpectationResult {
    /// What it is about.
    pub name: String,
    /// Its line in the scenario's file.
    pub line: u64,
    /// Whether it holds.
    pub passed: bool,
    /// What was found instead, where it doesn't.
    pub found: Option<String>,
}

impl Report {
    /// The report of a run that has just ended.
    pub(super) fn new(loaded: &Loaded, server: &Server, log: &Log, expectations: Vec<ExpectationResult>) -> Self {
        let scenario = &loaded.scenario;
        let inner = log.lock();
        Self {
            name: scenario.name.clone(),
            file: loaded.path.clone(),
            description: scenario.description.trim().to_owned(),
            seed: scenario.seed,
            passed: expectations.iter().all(|result| result.passed),
            virtual_time: log.now(),
            real_time: Duration::ZERO,
            timeline: inner.entries.clone(),
            requests: requests(server),
            verdicts: verdicts(&inner.calls),
            expectations,
        }
    }
}

fn requests(server: &Server) -> Vec<RequestRow> {
    let mut counts: BTreeMap<(String, String, Option<u16>), usize> = BTreeMap::new();
    for record in server.audit() {
        let request = &record.request;
        let mut resource = request.resource.clone();
        if !request.subresource.is_empty() {
            resource = format!("{resource}/{}", request.subresource);
        }
        *counts.entry((resource, record.verb().to_owned(), record.code)).or_default() += 1;
    }
    let rows = counts.into_iter();
    rows.map(|((resource, verb, code), count)| RequestRow { verb, resource, code, count }).collect()
}

fn verdicts(calls: &[(u32, super::timeline::PolicyCall)]) -> Vec<VerdictRow> {
    let mut rows: Vec<VerdictRow> = Vec::new();
    for (_, call) in calls {
        let same = |row: &&mut VerdictRow| {
            row.hook == call.hook
                && row.policy == call.policy
                && row.digest == call.digest
                && row.verdict == call.verdict
                && row.reason == call.reason
        };
        match rows.iter_mut().find(same) {
            Some(row) => {
                row.calls += 1;
                row.time += call.took;
            }
            None => rows.push(VerdictRow {
                hook: call.hook.clone(),
                policy: call.policy.clone(),
                digest: call.digest.clone(),
                verdict: call.verdict.clone(),
                reason: call.reason.clone(),
                calls: 1,
                time: call.took,
            }),
        }
    }
    rows
}

/// A length of time as seconds, to the microsecond.
pub(super) fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((time.as_secs_f64() * 1e6).round() / 1e6)
}
