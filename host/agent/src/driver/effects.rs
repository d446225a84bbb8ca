//! Does what the life wants: each action becomes work that answers with one event. Nothing here decides, waits for a retry
//! or keeps anything from one action for the next, beside the handles by which work is cancelled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use moorline_lifecycle::{Action, Answer, Call, CniSeen, Event, MachineFailure, Question, Verdict};
use moorline_policy::Binding;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::lane::Lane;
use super::observe::{Instead, Observer, Then};
use super::questions::Policies;
use super::reload::Reloaded;
use crate::chain;
use crate::cluster::Cluster;
use crate::config::Takeover;
use crate::dataplane::{DataPlane, DataPlaneError};
use crate::health::metrics::{DataPlaneLabels, Metrics, OutcomeLabels, ReasonLabels};
use crate::journal::PolicyCall;
use crate::machine::cni::{CniError, CniFile, Ownership};
use crate::machine::files::Files;
use crate::machine::ledger::LedgerStore;
use crate::machine::lock::StateLock;

/// What work has to tell the driver.
#[derive(Debug)]
pub(super) enum Told {
    /// Something happened to the life.
    Event(Event),
    /// A policy was called, or should have been.
    Policy(PolicyCall),
    /// What was found in the CNI folder.
    Cni(CniSeen),
    /// What would be done by a process that doesn't only observe.
    Intent(String),
    /// The policy folder was looked at, and it held something new.
    Reloaded(Reloaded),
    /// This binding gave the assignment in the answer that comes next.
    Assigned(Arc<Binding>),
}

/// Everything that an action may need.
pub(super) struct Effects {
    pub(super) cluster: Cluster,
    /// Guards every write on the own Pod.
    pub(super) pod_uid: String,
    pub(super) policies: Policies,
    pub(super) data_plane: Arc<dyn DataPlane>,
    pub(super) cni: CniFile<Arc<dyn Files>>,
    pub(super) takeover: Takeover,
    pub(super) ledger: LedgerStore<Arc<dyn Files>>,
    /// How long workers may take to end.
    pub(super) join_deadline: Duration,
    /// The wall clock at time zero.
    pub(super) wall_ms: i64,
    pub(super) told: UnboundedSender<Told>,
    pub(super) metrics: Metrics,
    pub(super) lane: Lane,
    /// Held until the last work on this machine is done, however the driver ends; none where nothing is changed.
    pub(super) lock: Option<Arc<StateLock>>,
    /// Stands between the life and all that it would change, where the process only observes.
    pub(super) observer: Option<Observer>,
    /// Ends with the driver.
    pub(super) tasks: JoinSet<()>,
    pub(super) handles: BTreeMap<Call, AbortHandle>,
    /// Cancels the data plane's workers.
    pub(super) workers: CancellationToken,
}

impl Effects {
    /// Begins an action. `now` is the time since the start of the process.
    pub(super) fn perform(&mut self, now: Duration, action: Action) {
        let Some(observer) = &mut self.observer else {
            self.do_it(now, action);
            return;
        };
        let Instead { intent, then } = observer.instead(action);
        if let Some(intent) = intent {
            // A driver that is gone has nobody to tell.
            let _ = self.told.send(Told::Intent(intent));
        }
        match then {
            Then::Perform(action) => self.do_it(now, action),
            Then::Hear(event) => tell(&self.told, event),
        }
    }

    fn do_it(&mut self, now: Duration, action: Action) {
        let cluster = self.cluster.clone();
        match action {
            Action::ReadNode(call) => self.request(call, async move { Answer::Node(cluster.read_node().await) }),
            Action::PatchTaints { call, uid, resource_version, taints } => {
                self.request(
                    call,
                    async move { Answer::Node(cluster.patch_taints(&uid, &resource_version, taints).await) },
                )
            }
            Action::ReadPod(call) => self.request(call, async move { Answer::Pod(cluster.read_pod().await) }),
            Action::PatchPod(call, annotations) => {
                let uid = self.pod_uid.clone();
                self.request(call, async move { Answer::Pod(cluster.patch_pod(&uid, annotations).await) });
            }
            Action::ReadRoutes(call) => self.request(call, async move { Answer::Routes(cluster.read_routes().await) }),
            Action::PatchRoutes(call, version, routes) => {
                self.request(call, async move { Answer::Routes(cluster.patch_routes(&version, routes).await) });
            }
            Action::WriteEvent(call, trouble) => {
                self.metrics.events.get_or_create(&ReasonLabels { reason: trouble.reason.as_str() }).inc();
                let wall_ms = self.wall_ms.saturating_add(i64::try_from(now.as_millis()).unwrap_or(i64::MAX));
                self.request(call, async move { Answer::EventWritten(cluster.write_event(trouble, wall_ms).await) });
            }
            Action::WatchNode(call, from, lifetime) => self.task(call, |told| async move {
                cluster.watch_node(from, lifetime, |said| tell(&told, Event::NodeStream(call, said))).await;
            }),
            Action::WatchSite(call, name, from, lifetime) => self.task(call, |told| async move {
                cluster.watch_site(&name, from, lifetime, |said| tell(&told, Event::SiteStream(call, said))).await;
            }),
            Action::WatchPool(call, name, from, lifetime) => self.task(call, |told| async move {
                cluster.watch_pool(&name, from, lifetime, |said| tell(&told, Event::PoolStream(call, said))).await;
            }),
            Action::CloseWatch(call) | Action::Cancel(call) => {
                if let Some(handle) = self.handles.remove(&call) {
                    handle.abort();
                }
            }
            Action::Ask(call, question) => self.ask(call, now, question),
            Action::SaveLedger(call, ledger) => {
                let (store, metrics) = (self.ledger.clone(), self.metrics.clone());
                self.on_machine(call, move || {
                    let saved = store.save(&*ledger).map_err(|error| failed(&error, false));
                    metrics.ledger_writes.get_or_create(&OutcomeLabels { outcome: outcome(&saved) }).inc();
                    saved
                });
            }
            Action::WriteCni(call, content, own) => {
                self.on_cni(call, &own, move |cni, ownership| cni.write(&content, ownership).map(drop));
            }
            Action::DisableCni(call, own) => {
                self.on_cni(call, &own, |cni, ownership| cni.disable(ownership).map(drop));
            }
            Action::PlanDataPlane(call, desired) => self.run_data_plane(call, "plan", |plane, cancel| {
                Box::pin(async move { plane.plan(&desired, cancel).await.map(|plan| Answer::Plan(Ok(plan))) })
            }),
            Action::ApplyDataPlane(call, desired) => self.run_data_plane(call, "apply", |plane, cancel| {
                Box::pin(async move { plane.apply(&desired, cancel).await.map(|routes| Answer::Applied(Ok(routes))) })
            }),
            Action::TearDownDataPlane(call, plan) => self.run_data_plane(call, "teardown", |plane, cancel| {
                Box::pin(async move { plane.teardown(&plan, cancel).await.map(|()| Answer::Done(Ok(()))) })
            }),
            Action::JoinWorkers(call) => self.join_workers(call),
            Action::Note(_) | Action::Exit(_) => {}
        }
    }

    /// Lets go of the handles of finished work, so that a long life holds no list of what it once did.
    pub(super) fn tidy(&mut self) {
        self.handles.retain(|_, handle| !handle.is_finished());
    }

    /// A task that may be cancelled at any of its awaits.
    fn task<W: Future<Output = ()> + Send + 'static>(
        &mut self,
        call: Call,
        work: impl FnOnce(UnboundedSender<Told>) -> W,
    ) {
        let handle = self.tasks.spawn(work(self.told.clone()));
        self.handles.insert(call, handle);
    }

    fn request(&mut self, call: Call, work: impl Future<Output = Answer> + Send + 'static) {
        self.task(call, |told| async move { tell(&told, Event::Answer(call, work.await)) });
    }

    /// A policy is asked. An answer that nobody waits for any more changes nothing, so this isn't cancelled.
    fn ask(&self, call: Call, now: Duration, question: Question) {
        let (policies, told) = (self.policies.clone(), self.told.clone());
        self.lane.hand_in(move || {
            let asking = policies.ask(&question, now);
            if let Some(unanswered) = asking.unanswered {
                // A driver that is gone has nobody to tell, here and below.
                let _ = told.send(Told::Policy(unanswered));
            }
            if let (Some(by), moorline_lifecycle::Outcome::Decided(Verdict::Assigned { .. }, _)) =
                (asking.by, &asking.answer.outcome)
            {
                let _ = told.send(Told::Assigned(by));
            }
            tell(&told, Event::Answer(call, Answer::Policy(asking.answer)));
        });
    }

    /// Work on this machine's files, which comes to its end once it has begun.
    fn on_machine(&self, call: Call, work: impl FnOnce() -> Result<(), MachineFailure> + Send + 'static) {
        let (told, lock) = (self.told.clone(), self.lock.clone());
        self.lane.hand_in(move || {
            let done = work();
            drop(lock);
            tell(&told, Event::Answer(call, Answer::Done(done)));
        });
    }

    fn on_cni(
        &self,
        call: Call,
        own: &BTreeSet<String>,
        work: impl FnOnce(&CniFile<Arc<dyn Files>>, &Ownership) -> Result<(), CniError> + Send + 'static,
    ) {
        let ownership = Ownership::of(own.iter().map(String::as_str), false, self.takeover);
        let (cni, metrics) = (self.cni.clone(), self.metrics.clone());
        self.on_machine(call, move || {
            let done = work(&cni, &ownership).map_err(|error| failed(&error, error.is_blocked()));
            metrics.cni_writes.get_or_create(&OutcomeLabels { outcome: outcome(&done) }).inc();
            done
        });
    }

    /// Looks whether the CNI configuration is still in place.
    pub(super) fn look_at_cni(&self, conflist: String) {
        let (cni, told) = (self.cni.clone(), self.told.clone());
        self.lane.hand_in(move || {
            let _ = told.send(Told::Cni(cni.look(&conflist)));
        });
    }

    /// A worker: cancelled by its token, never cut off, so that what it has begun is known when it has been joined.
    fn run_data_plane(
        &mut self,
        call: Call,
        action: &'static str,
        work: impl FnOnce(Arc<dyn DataPlane>, CancellationToken) -> BoxFuture<'static, Result<Answer, DataPlaneError>>,
    ) {
        let work = work(self.data_plane.clone(), self.workers.clone());
        let (told, metrics) = (self.told.clone(), self.metrics.clone());
        self.tasks.spawn(async move {
            let answer = work.await.map_err(|error| failed(&error, false));
            let labels = DataPlaneLabels { action, outcome: outcome(&answer) };
            metrics.data_plane_runs.get_or_create(&labels).inc();
            let answer = answer.unwrap_or_else(|failure| match action {
                "plan" => Answer::Plan(Err(failure)),
                "apply" => Answer::Applied(Err(failure)),
                _ => Answer::Done(Err(failure)),
            });
            tell(&told, Event::Answer(call, answer));
        });
    }

    fn join_workers(&mut self, call: Call) {
        std::mem::take(&mut self.workers).cancel();
        let (data_plane, deadline) = (self.data_plane.clone(), self.join_deadline);
        self.request(call, async move {
            match tokio::time::timeout(deadline, data_plane.join()).await {
                Ok(()) => Answer::Joined(Vec::new()),
                Err(_) => {
                    let workers = data_plane.workers();
                    Answer::Joined(if workers.is_empty() { vec![data_plane.name().to_owned()] } else { workers })
                }
            }
        });
    }
}

fn tell(told: &UnboundedSender<Told>, event: Event) {
    let _ = told.send(Told::Event(event));
}

fn failed(error: &(dyn std::error::Error + 'static), blocked: bool) -> MachineFailure {
    MachineFailure { blocked, message: chain(error) }
}

fn outcome<T>(result: &Result<T, MachineFailure>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(failure) if failure.blocked => "blocked",
        Err(_) => "failed",
    }
}
