//! The driver: the one loop that hands events to the life and its actions to the effectors. Here is what an agent is made
//! of ([`Agent`]) and the loop; what comes before the loop is in `boot`, what actions do in `effects`.

mod boot;
mod effects;
mod questions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use moorline_lifecycle::{Action, Event, Exit, Life, Status};
use moorline_policy::{Loader, Policy};
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::config::Config;
use crate::dataplane::DataPlane;
use crate::health::{Health, metrics::Metrics};
use crate::journal::{Entry, Journal, PolicyCall};
use effects::{Effects, Told};

/// CNI plugin types beyond the known ones, by the binding to which the operator granted them.
type PluginTypes = BTreeMap<String, BTreeSet<String>>;

/// The driver is called dead when it has slept this much longer than it meant to.
const OVERSLEPT: Duration = Duration::from_secs(30);

/// One process of the agent, ready to run.
pub struct Agent {
    /// The whole configuration, checked; it has to name Node and Pod.
    pub config: Config,
    /// The API server, by a client that makes each request once: [`crate::cluster::connect`] makes one.
    pub client: kube::Client,
    /// Loads the policy volume that the configuration names.
    pub loader: Loader,
    /// The policy that is asked after all others.
    pub default_policy: Policy,
    /// A data plane of an embedder's own; without it the configuration names a built-in one.
    pub data_plane: Option<Arc<dyn DataPlane>>,
    /// Hears the story of the process.
    pub journal: Option<Arc<dyn Journal>>,
    /// Where health is to be seen from inside the program, beside the server.
    pub health: watch::Sender<Health>,
    /// Cancelled on SIGTERM.
    pub terminate: CancellationToken,
    /// The wall clock at the start.
    pub wall: Timestamp,
    /// Seeds the jitter.
    pub seed: u64,
}

impl Agent {
    /// Lives one life, to its end. Dropping the future ends everything at once, as SIGKILL would.
    ///
    /// Needs a tokio runtime with I/O and time. Everything that blocks runs on its blocking threads.
    pub async fn run(self) -> Exit {
        let started = Instant::now();
        let journal = self.journal.clone();
        let exit = match boot::boot(self, started).await {
            Ok(driver) => driver.drive().await,
            Err(exit) => exit,
        };
        if let Some(journal) = journal {
            journal.tell(started.elapsed(), &Entry::Exit(&exit));
        }
        tracing::info!(code = exit.code.number(), "{}", exit.reason);
        exit
    }
}

/// The loop and what it owns.
struct Driver {
    started: Instant,
    life: Life,
    effects: Effects,
    told: UnboundedReceiver<Told>,
    terminate: CancellationToken,
    journal: Option<Arc<dyn Journal>>,
    metrics: Metrics,
    health: watch::Sender<Health>,
    /// The last status that was told.
    status: Status,
    /// The last verdict of each hook.
    verdicts: BTreeMap<&'static str, PolicyCall>,
    /// Serves health until the driver ends.
    _health_servers: Vec<AbortOnDropHandle<()>>,
    _lock: crate::machine::lock::StateLock,
}

impl Driver {
    async fn drive(mut self) -> Exit {
        let mut event = Event::Started;
        let mut terminated = false;
        loop {
            if let Some(exit) = self.step(event) {
                return exit;
            }
            event = loop {
                let deadline = self.life.deadline();
                let wake = sleep_until(self.started + deadline.unwrap_or_default());
                let told = tokio::select! {
                    biased;
                    () = self.terminate.cancelled(), if !terminated => {
                        terminated = true;
                        Told::Event(Event::Terminate)
                    }
                    Some(told) = self.told.recv() => told,
                    () = wake, if deadline.is_some() => Told::Event(Event::Tick),
                };
                match told {
                    Told::Event(event) => break event,
                    Told::Policy(call) => self.policy_called(call),
                }
            };
        }
    }

    fn step(&mut self, event: Event) -> Option<Exit> {
        let now = self.started.elapsed();
        self.tell(now, &Entry::Event(&event));
        let mut exit = None;
        for action in self.life.step(now, event) {
            self.tell(now, &Entry::Action(&action));
            log(&action);
            match action {
                Action::Exit(asked) => exit = Some(asked),
                action => self.effects.perform(now, action),
            }
        }
        self.show(now);
        exit
    }

    fn tell(&self, at: Duration, entry: &Entry<'_>) {
        if let Some(journal) = &self.journal {
            journal.tell(at, entry);
        }
    }

    fn policy_called(&mut self, call: PolicyCall) {
        let outcome = call.verdict;
        let binding = call.binding.clone().unwrap_or_default();
        self.metrics.policy_called(call.hook, binding, outcome, call.took);
        self.tell(self.started.elapsed(), &Entry::Policy(&call));
        self.verdicts.insert(call.hook, call);
    }

    /// Publishes the life as seen from outside, where it has changed.
    fn show(&mut self, now: Duration) {
        let status = self.life.status();
        let alive_until = self.life.deadline().map(|deadline| self.started + deadline + OVERSLEPT);
        if status == self.status {
            self.health.send_modify(|health| health.alive_until = alive_until);
            return;
        }
        if status.state != self.status.state {
            self.metrics.enter(status.state.as_str(), Some(self.status.state.as_str()));
        }
        self.metrics.ready.set(status.ready.into());
        self.tell(now, &Entry::Status(&status));
        let page = self.page(&status, now);
        self.health.send_replace(Health {
            alive_until,
            ready: status.ready,
            missing: status.missing.clone(),
            status: Arc::new(page),
        });
        self.status = status;
    }

    /// What /status says.
    fn page(&self, status: &Status, now: Duration) -> serde_json::Value {
        let verdicts: serde_json::Map<_, _> = self
            .verdicts
            .iter()
            .map(|(hook, call)| {
                let said = json!({
                    "binding": call.binding, "digest": call.digest, "verdict": call.verdict, "reason": call.reason,
                });
                ((*hook).to_owned(), said)
            })
            .collect();
        let bindings: Vec<_> = self.effects.policies.bindings().map(|binding| binding.status(now)).collect();
        json!({
            "version": boot::VERSION,
            "state": status.state,
            "sinceSeconds": status.since.as_secs_f64(),
            "ready": status.ready,
            "missing": status.missing,
            "assignment": status.assignment,
            "adoptionReason": status.adoption_reason,
            "nodeWatched": status.node_watched,
            "lastVerdicts": verdicts,
            "bindings": bindings,
            "policySet": self.effects.policies.digest().to_string(),
        })
    }
}

/// One line per turn of the story; `warn` and `error` are for what a person may have to look at.
fn log(action: &Action) {
    use moorline_lifecycle::Note;
    let Action::Note(note) = action else { return };
    match note {
        Note::PolicyTrouble { .. } | Note::Parked { .. } => tracing::error!(note = ?note, "{note}"),
        Note::Waiting { .. } | Note::GaveUp { .. } | Note::Overridden { .. } | Note::Drifted { .. } => {
            tracing::warn!(note = ?note, "{note}");
        }
        _ => tracing::info!("{note}"),
    }
}
