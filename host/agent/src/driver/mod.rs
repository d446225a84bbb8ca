//! The driver: the one loop that hands events to the life and its actions to the effectors. Here is what an agent is made
//! of ([`Agent`]) and the loop; what comes before the loop is in `boot`, what actions do in `effects`.

mod boot;
mod effects;
mod lane;
mod observe;
mod questions;
mod reload;
mod settings;
mod view;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use moorline_lifecycle::{Action, Event, Exit, ExitCode, Life, Note};
use moorline_policy::{Binding, Loader, Policy};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::config::Config;
use crate::dataplane::DataPlane;
use crate::health::Health;
use crate::journal::{Entry, Journal};
use crate::machine::files::{Files, Untouched};
use crate::machine::network::NetworkAccess;
use effects::{Effects, Told};
use reload::Reloaded;
use view::{HEARTBEAT, View};

pub use settings::limits;

/// The agent's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The CNI folder is looked at this often.
const LOOK: Duration = Duration::from_secs(60);

/// One process of the agent, ready to run.
pub struct Agent {
    /// The whole configuration, checked; it has to name Node and Pod.
    pub config: Config,
    /// The API server, by a client that makes each request once: [`crate::cluster::connect`] makes one.
    pub client: kube::Client,
    /// Loads policies, under the limits of the configuration.
    pub loader: Loader,
    /// The policy that is asked after all others.
    pub default_policy: DefaultPolicy,
    /// A data plane of an embedder's own; without it the configuration names a built-in one.
    pub data_plane: Option<Arc<dyn DataPlane>>,
    /// Where changes to files go: `Arc::new(Disk)`, but for tests that look at each change.
    pub files: Arc<dyn Files>,
    /// Whether the machine's links, routes and rules are touched, where a plan or the configuration lists some.
    pub network: NetworkAccess,
    /// Hears the story of the process.
    pub journal: Option<Arc<dyn Journal>>,
    /// Where health is to be seen from inside the program, beside the server.
    pub health: watch::Sender<Health>,
    /// Notified on SIGHUP: the policy folder is loaded anew, in whichever mode.
    pub reload: Arc<Notify>,
    /// Cancelled on SIGTERM.
    pub terminate: CancellationToken,
    /// The wall clock at the start.
    pub wall: Timestamp,
    /// Seeds the jitter.
    pub seed: u64,
}

/// The policy that is asked after all others: under [`moorline_policy::DEFAULT`] as its name, like every binding.
#[derive(Debug, Clone)]
pub enum DefaultPolicy {
    /// A component, to be loaded like the others, once health is served.
    Component(Cow<'static, [u8]>),
    /// A policy that is loaded already.
    Loaded(Policy),
}

impl From<Policy> for DefaultPolicy {
    fn from(policy: Policy) -> Self {
        Self::Loaded(policy)
    }
}

impl Agent {
    /// Lives one life, to its end. Dropping the future ends everything at once, as SIGKILL would; only a file that is just
    /// being written is written whole.
    ///
    /// Needs a tokio runtime with I/O and time. Everything that blocks runs on its blocking threads.
    pub async fn run(self) -> Exit {
        self.live(Mode::Run).await
    }

    /// Lives one life and changes nothing, beside an agent in use: reads, watches, policies and the data plane's plan are
    /// real, every other effect is told ([`Entry::Intent`]) and taken as done. No lock is held, no file is changed.
    /// Otherwise as [`Agent::run`].
    pub async fn observe(mut self) -> Exit {
        self.files = Arc::new(Untouched);
        self.live(Mode::Observe).await
    }

    async fn live(self, mode: Mode) -> Exit {
        let started = Instant::now();
        let journal = self.journal.clone();
        let exit = match boot::boot(self, started, mode).await {
            Ok(driver) => driver.drive().await,
            Err(exit) => exit,
        };
        if let Some(journal) = journal {
            journal.tell(started.elapsed(), &Entry::Exit(&exit));
        }
        match exit.code {
            ExitCode::Asked | ExitCode::AssignmentChanged | ExitCode::NodeDeleted => {
                tracing::info!(code = exit.code.number(), "{}", exit.reason);
            }
            _ => tracing::error!(code = exit.code.number(), "{}", exit.reason),
        }
        exit
    }
}

/// Whether anything is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Run,
    Observe,
}

/// The loop and what it owns.
struct Driver {
    started: Instant,
    life: Life,
    effects: Effects,
    told: UnboundedReceiver<Told>,
    terminate: CancellationToken,
    journal: Option<Arc<dyn Journal>>,
    view: View,
    /// The binding behind the last assignment that was answered.
    assigned_by: Option<Arc<Binding>>,
    /// The CNI configuration that was last looked at, and when.
    looked_at: Option<(String, Duration)>,
    /// Serve health until the driver ends.
    _health_servers: Vec<AbortOnDropHandle<()>>,
}

impl Driver {
    async fn drive(mut self) -> Exit {
        let mut terminated = false;
        if let Some(exit) = self.step(Event::Started) {
            return exit;
        }
        loop {
            self.look_at_cni();
            let deadline = self.life.deadline().map(|deadline| self.started + deadline);
            let event = tokio::select! {
                biased;
                () = self.terminate.cancelled(), if !terminated => {
                    terminated = true;
                    Event::Terminate
                }
                Some(told) = self.told.recv() => match told {
                    Told::Event(event) => event,
                    Told::Cni(seen) if seen.in_place && seen.in_the_way.as_deref() == self.life.cni_in_the_way() => continue,
                    Told::Cni(seen) => Event::CniSeen(seen),
                    Told::Reloaded(reloaded) => match self.reloaded(reloaded) {
                        Some(event) => event,
                        None => continue,
                    },
                    other => {
                        self.heard(other);
                        continue;
                    }
                },
                Some(done) = self.effects.tasks.join_next() => {
                    // Cancelled is as good as done; what panicked has no answer, and the life would wait for ever.
                    if let Err(error) = done && error.is_panic() {
                        return Exit { code: ExitCode::Failed, reason: format!("An effector panicked: {error}.") };
                    }
                    self.effects.tidy();
                    continue;
                }
                () = until(deadline) => Event::Tick,
                () = sleep(HEARTBEAT) => {
                    self.view.beat();
                    self.show(self.started.elapsed());
                    continue;
                }
            };
            if let Some(exit) = self.step(event) {
                return exit;
            }
        }
    }

    /// Has the CNI configuration looked at when another one has been put in place, and from time to time: its folder may be
    /// made anew under the agent, and nobody else tells. What was not changed is not there to be looked at.
    fn look_at_cni(&mut self) {
        let Some(in_place) = self.life.cni_in_place().filter(|_| self.effects.observer.is_none()) else { return };
        let now = self.started.elapsed();
        if self.looked_at.as_ref().is_none_or(|(content, at)| content != in_place || now >= *at + LOOK) {
            self.looked_at = Some((in_place.to_owned(), now));
            self.effects.look_at_cni(in_place.to_owned());
        }
    }

    fn step(&mut self, mut event: Event) -> Option<Exit> {
        if let Some(observer) = &mut self.effects.observer {
            observer.overlay(&mut event);
        }
        let now = self.started.elapsed();
        self.tell(now, &Entry::Event(&event));
        let mut exit = None;
        for action in self.life.step(now, event) {
            self.tell(now, &Entry::Action(&action));
            match action {
                Action::Exit(asked) => exit = Some(asked),
                Action::Note(note) => self.noted(&note),
                action => self.effects.perform(now, action),
            }
        }
        self.show(now);
        exit
    }

    fn show(&mut self, now: Duration) {
        let status = self.life.status();
        if self.view.show(&status, &self.effects.policies.set, now) {
            self.tell(now, &Entry::Status(&status));
        }
    }

    /// Another set answers from the next question on, or it is said why not. A question that is being asked goes on with
    /// the set before; if its answer can still change, the life asks again.
    fn reloaded(&mut self, reloaded: Reloaded) -> Option<Event> {
        let now = self.started.elapsed();
        match reloaded {
            Ok(set) if Arc::ptr_eq(&set, &self.effects.policies.set) => {
                tracing::info!("The policy folder holds the set that is in use.");
                self.view.reloaded(now, "unchanged");
                None
            }
            Ok(set) => {
                let loaded = boot::loaded(&set);
                tracing::info!(policies = ?loaded, digest = %set.digest(), "Another policy set is in use.");
                set.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
                self.effects.policies.set = set;
                self.view.reloaded(now, "swapped");
                Some(Event::PoliciesChanged(loaded))
            }
            Err(reason) => {
                let reason = format!("Another policy set is refused, and the one before goes on. {reason}");
                tracing::error!("{reason}");
                self.view.refused(now, reason.clone());
                Some(Event::PoliciesRefused(reason))
            }
        }
    }

    fn tell(&self, at: Duration, entry: &Entry<'_>) {
        if let Some(journal) = &self.journal {
            journal.tell(at, entry);
        }
    }

    fn heard(&mut self, told: Told) {
        match told {
            Told::Policy(call) => {
                self.tell(self.started.elapsed(), &Entry::Policy(&call));
                if self.effects.observer.is_some() {
                    let by = call.binding.as_deref().unwrap_or("nobody");
                    tracing::info!("The hook {} is answered by {by} with {}: {}", call.hook, call.verdict, call.reason);
                }
                self.view.called(call);
            }
            Told::Intent(intent) => {
                tracing::info!("{intent}");
                self.tell(self.started.elapsed(), &Entry::Intent(&intent));
            }
            Told::Assigned(by) => self.assigned_by = Some(by),
            Told::Event(_) | Told::Cni(_) | Told::Reloaded(_) => {}
        }
    }

    /// One line per turn of the story; `warn` and `error` are for what a person may have to look at.
    fn noted(&mut self, note: &Note) {
        match note {
            Note::PolicyTrouble { .. } | Note::Parked { .. } => tracing::error!("{note}"),
            Note::CniTrouble { .. }
            | Note::Waiting { .. }
            | Note::GaveUp { .. }
            | Note::Overridden { .. }
            | Note::Drifted { .. } => {
                tracing::warn!("{note}");
            }
            _ => tracing::info!("{note}"),
        }
        if let Note::Adopted { .. } = note {
            self.effects.policies.adopter = self.assigned_by.take();
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
