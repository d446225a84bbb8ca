//! The data plane that is an executable: it is given the desired state as one JSON document on standard input and answers
//! with one on standard output. It is run to its end for each question; nothing of it stays.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

use futures_util::future::BoxFuture;
use moorline_lifecycle::{Desired, Routes};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::process::{Ending, Happening, Job};
use super::{Answer, DataPlane, DataPlaneError, check_routes};
use crate::config::{DataPlaneConfig, NetworkConfig};
use crate::machine::network::Marks;

/// So many lines of standard error are logged, and so many stand in an error.
const LOGGED_LINES: usize = 200;
const QUOTED_LINES: usize = 5;
const LINE_BYTES: usize = 500;

/// An executable as data plane.
#[derive(Debug)]
pub struct Command {
    config: DataPlaneConfig,
    network: NetworkConfig,
    node_name: String,
    /// What runs at the moment.
    running: watch::Sender<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Planned {
    #[serde(default)]
    plan: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Applied {
    routes: Option<BTreeMap<String, Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TornDown {}

impl Command {
    /// The executable that a configuration names, for the Node of this name.
    pub fn new(config: DataPlaneConfig, network: NetworkConfig, node_name: &str) -> Self {
        Self { config, network, node_name: node_name.to_owned(), running: watch::Sender::new(Vec::new()) }
    }

    fn executable(&self) -> String {
        self.config.command.first().cloned().unwrap_or_default()
    }

    /// The question, without its action and plan.
    fn question(&self, desired: &Desired) -> Value {
        let Desired { assignment, site, pool, pod_cidrs } = desired;
        let object = |name: &str, uid: &str, generation: i64, labels: &BTreeMap<String, String>, spec: &str| {
            let spec: Value = serde_json::from_str(spec).unwrap_or_default();
            json!({ "name": name, "uid": uid, "generation": generation, "labels": labels, "spec": spec })
        };
        json!({
            "assignment": assignment,
            "marks": Marks::new(&self.network, assignment),
            "node": { "name": self.node_name, "uid": assignment.node_uid, "podCIDRs": pod_cidrs },
            "site": object(&site.name, &site.uid, site.generation, &site.labels, &site.spec),
            "pool": pool.as_ref().map(|pool| object(&pool.name, &pool.uid, pool.generation, &pool.labels, &pool.spec)),
        })
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        action: &'static str,
        mut question: Value,
        cancel: CancellationToken,
    ) -> Result<T, DataPlaneError> {
        question["action"] = action.into();
        let job = Job {
            argv: self.config.command.clone(),
            environment: self.config.environment.clone(),
            input: question.to_string().into_bytes(),
            time_limit: self.config.time_limit.get(),
            output_limit: self.config.output_limit.as_usize(),
        };
        let command = self.executable();
        let (events, happenings) = std::sync::mpsc::channel();
        // Ends the process group when this future is dropped, too.
        let canceller = Canceller(events.clone());
        let worker = Worker::new(&self.running, format!("{command} {action}"));
        let task = tokio::task::spawn_blocking(move || {
            let _worker = worker;
            job.run(events, &happenings)
        });
        tokio::pin!(task);
        let finished = tokio::select! {
            biased;
            finished = &mut task => finished,
            () = cancel.cancelled() => {
                canceller.cancel();
                task.await
            }
        };
        // Only a runtime that shuts down ends a blocking task without a result.
        let finished = finished.map_err(|_| DataPlaneError::Cancelled { action })?;
        let finished = finished.map_err(|source| DataPlaneError::Start { command: command.clone(), source })?;
        let stderr = String::from_utf8_lossy(&finished.stderr).into_owned();
        for line in stderr.lines().take(LOGGED_LINES) {
            tracing::info!(command, action, "the data plane says: {}", cut(line));
        }
        let stderr = quote(&stderr);
        let limit = self.config.output_limit.as_usize();
        match finished.ending {
            Ending::Exited(status) if status.success() => {
                parse(&finished.stdout).map_err(|problem| DataPlaneError::Answer { command, action, problem })
            }
            Ending::Exited(status) => Err(DataPlaneError::Failed { command, action, status, stderr }),
            Ending::Cancelled => Err(DataPlaneError::Cancelled { action }),
            Ending::TimedOut => {
                Err(DataPlaneError::TimedOut { command, action, limit: self.config.time_limit.get(), stderr })
            }
            Ending::TooMuchOutput => Err(DataPlaneError::TooMuchOutput { command, action, limit }),
            Ending::HeldOpen => Err(DataPlaneError::HeldOpen { command }),
        }
    }
}

impl DataPlane for Command {
    fn name(&self) -> &str {
        "command"
    }

    fn plan<'a>(&'a self, desired: &'a Desired, cancel: CancellationToken) -> Answer<'a, Value> {
        Box::pin(async move { Ok(self.ask::<Planned>("plan", self.question(desired), cancel).await?.plan) })
    }

    fn apply<'a>(&'a self, desired: &'a Desired, cancel: CancellationToken) -> Answer<'a, Routes> {
        Box::pin(async move {
            let applied: Applied = self.ask("apply", self.question(desired), cancel).await?;
            let Some(routes) = applied.routes else { return Ok(Routes::NotMine) };
            check_routes(&routes).map_err(|problem| DataPlaneError::Answer {
                command: self.executable(),
                action: "apply",
                problem,
            })?;
            Ok(Routes::Map(routes))
        })
    }

    fn teardown<'a>(&'a self, plan: &'a Value, cancel: CancellationToken) -> Answer<'a, ()> {
        Box::pin(async move {
            let question = json!({ "node": { "name": self.node_name }, "plan": plan });
            self.ask::<TornDown>("teardown", question, cancel).await?;
            Ok(())
        })
    }

    fn join(&self) -> BoxFuture<'_, ()> {
        let mut running = self.running.subscribe();
        Box::pin(async move {
            // The sender lives as long as this data plane does.
            let _ = running.wait_for(Vec::is_empty).await;
        })
    }

    fn workers(&self) -> Vec<String> {
        self.running.borrow().clone()
    }
}

/// Nothing but spaces is the answer of a command that has nothing to say.
fn parse<T: DeserializeOwned>(stdout: &[u8]) -> Result<T, String> {
    let text = std::str::from_utf8(stdout).map_err(|_| "it isn't UTF-8".to_owned())?;
    let text = if text.trim().is_empty() { "{}" } else { text };
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn quote(stderr: &str) -> String {
    stderr.lines().filter(|line| !line.trim().is_empty()).take(QUOTED_LINES).map(cut).collect::<Vec<_>>().join(" | ")
}

fn cut(line: &str) -> &str {
    &line[..line.floor_char_boundary(LINE_BYTES)]
}

/// Tells the job that nobody waits for it any more.
struct Canceller(Sender<Happening>);

impl Canceller {
    fn cancel(&self) {
        // A job that has ended already doesn't listen.
        let _ = self.0.send(Happening::Cancelled);
    }
}

impl Drop for Canceller {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// An entry in the list of what runs, for as long as it runs.
struct Worker {
    running: watch::Sender<Vec<String>>,
    name: String,
}

impl Worker {
    fn new(running: &watch::Sender<Vec<String>>, name: String) -> Self {
        running.send_modify(|names| names.push(name.clone()));
        Self { running: running.clone(), name }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.running.send_modify(|names| {
            if let Some(at) = names.iter().position(|name| *name == self.name) {
                names.remove(at);
            }
        });
    }
}
