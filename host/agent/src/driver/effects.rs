//! Does what the life wants: each action becomes a task that answers with one event. Nothing here decides, waits for a
//! retry or keeps anything from one action for the next, beside the handles by which tasks are cancelled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use moorline_lifecycle::{Action, Answer, Call, Event, MachineFailure};
use moorline_policy::PolicySet;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::{PluginTypes, questions};
use crate::cluster::Cluster;
use crate::config::Takeover;
use crate::dataplane::{DataPlane, DataPlaneError};
use crate::journal::PolicyCall;
use crate::machine::cni::{CniError, CniFile, Ownership};
use crate::machine::ledger::LedgerStore;

/// What a task has to tell the driver.
#[derive(Debug)]
pub(super) enum Told {
    /// Something happened to the life.
    Event(Event),
    /// A policy was asked.
    Policy(PolicyCall),
}

/// Everything that an action may need.
pub(super) struct Effects {
    pub(super) cluster: Cluster,
    /// Guards every write on the own Pod.
    pub(super) pod_uid: String,
    pub(super) policies: Arc<PolicySet>,
    pub(super) plugin_types: Arc<PluginTypes>,
    pub(super) data_plane: Arc<dyn DataPlane>,
    pub(super) cni: CniFile,
    pub(super) takeover: Takeover,
    /// No ledger says what is the agent's own: its CNI file is then recognised by content.
    pub(super) ledger_lost: bool,
    pub(super) ledger: LedgerStore,
    /// How long workers may take to end.
    pub(super) join_deadline: Duration,
    pub(super) wall_ms: i64,
    pub(super) told: UnboundedSender<Told>,
    pub(super) tasks: JoinSet<()>,
    pub(super) handles: BTreeMap<Call, AbortHandle>,
    /// Cancels the data plane's workers.
    pub(super) workers: CancellationToken,
}

impl Effects {
    /// Begins an action. `now` is the time since the start of the process.
    pub(super) fn perform(&mut self, now: Duration, action: Action) {
        // Finished tasks are let go of, so that a long life holds no list of what it once did.
        while self.tasks.try_join_next().is_some() {}
        self.handles.retain(|_, handle| !handle.is_finished());
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
                self.request(call, async move { Answer::Routes(cluster.patch_routes(&version, routes).await) })
            }
            Action::WriteEvent(call, trouble) => {
                let wall_ms = self.wall_ms.saturating_add(i64::try_from(now.as_millis()).unwrap_or(i64::MAX));
                self.request(call, async move { Answer::EventWritten(cluster.write_event(trouble, wall_ms).await) });
            }
            Action::WatchNode(call, from, lifetime) => {
                let told = self.told.clone();
                self.task(call, async move {
                    cluster.watch_node(from, lifetime, |said| tell(&told, Event::NodeStream(call, said))).await;
                });
            }
            Action::WatchSite(call, name, from, lifetime) => {
                let told = self.told.clone();
                self.task(call, async move {
                    cluster.watch_site(&name, from, lifetime, |said| tell(&told, Event::SiteStream(call, said))).await;
                });
            }
            Action::WatchPool(call, name, from, lifetime) => {
                let told = self.told.clone();
                self.task(call, async move {
                    cluster.watch_pool(&name, from, lifetime, |said| tell(&told, Event::PoolStream(call, said))).await;
                });
            }
            Action::CloseWatch(call) | Action::Cancel(call) => {
                if let Some(handle) = self.handles.remove(&call) {
                    handle.abort();
                }
            }
            Action::Ask(call, question) => {
                let (policies, plugin_types, told) =
                    (self.policies.clone(), self.plugin_types.clone(), self.told.clone());
                self.blocking(call, move || {
                    let (answer, record) = questions::ask(&policies, &plugin_types, &question, now);
                    // A driver that is gone has nobody to tell.
                    let _ = told.send(Told::Policy(record));
                    Answer::Policy(answer)
                });
            }
            Action::SaveLedger(call, ledger) => {
                let store = self.ledger.clone();
                self.blocking(call, move || Answer::Done(store.save(&*ledger).map_err(|error| failed(&error, false))));
            }
            Action::WriteCni(call, content, own) => {
                let (cni, ownership) = (self.cni.clone(), self.ownership(&own));
                self.blocking(call, move || {
                    Answer::Done(cni.write(&content, &ownership).map(drop).map_err(cni_failed))
                });
            }
            Action::DisableCni(call, own) => {
                let (cni, ownership) = (self.cni.clone(), self.ownership(&own));
                self.blocking(call, move || Answer::Done(cni.disable(&ownership).map(drop).map_err(cni_failed)));
            }
            Action::PlanDataPlane(call, desired) => self.data_plane(call, |data_plane, cancel| {
                Box::pin(
                    async move { Answer::Plan(data_plane.plan(&desired, cancel).await.map_err(data_plane_failed)) },
                )
            }),
            Action::ApplyDataPlane(call, desired) => self.data_plane(call, |data_plane, cancel| {
                Box::pin(
                    async move { Answer::Applied(data_plane.apply(&desired, cancel).await.map_err(data_plane_failed)) },
                )
            }),
            Action::TearDownDataPlane(call, plan) => self.data_plane(call, |data_plane, cancel| {
                Box::pin(
                    async move { Answer::Done(data_plane.teardown(&plan, cancel).await.map_err(data_plane_failed)) },
                )
            }),
            Action::JoinWorkers(call) => self.join_workers(call),
            Action::Note(_) | Action::Exit(_) => {}
        }
    }

    fn ownership(&self, own: &BTreeSet<String>) -> Ownership {
        Ownership::of(own.iter().map(String::as_str), self.ledger_lost, self.takeover)
    }

    /// A task that may be cancelled at any of its awaits.
    fn task(&mut self, call: Call, work: impl Future<Output = ()> + Send + 'static) {
        let handle = self.tasks.spawn(work);
        self.handles.insert(call, handle);
    }

    fn request(&mut self, call: Call, work: impl Future<Output = Answer> + Send + 'static) {
        let told = self.told.clone();
        self.task(call, async move { tell(&told, Event::Answer(call, work.await)) });
    }

    /// Work that blocks its thread. It goes on to its end when nobody waits for it any more.
    fn blocking(&mut self, call: Call, work: impl FnOnce() -> Answer + Send + 'static) {
        let told = self.told.clone();
        self.tasks.spawn_blocking(move || tell(&told, Event::Answer(call, work())));
    }

    /// A worker: cancelled by its token, never cut off, so that what it has begun is known when it has been joined.
    fn data_plane(
        &mut self,
        call: Call,
        work: impl FnOnce(Arc<dyn DataPlane>, CancellationToken) -> BoxFuture<'static, Answer>,
    ) {
        let (told, work) = (self.told.clone(), work(self.data_plane.clone(), self.workers.clone()));
        self.tasks.spawn(async move { tell(&told, Event::Answer(call, work.await)) });
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
    // A driver that is gone has nobody to tell.
    let _ = told.send(Told::Event(event));
}

/// The error with its whole chain of causes, as one sentence after another.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn failed(error: &dyn std::error::Error, blocked: bool) -> MachineFailure {
    MachineFailure { blocked, message: chain(error) }
}

fn cni_failed(error: CniError) -> MachineFailure {
    failed(&error, error.is_blocked())
}

fn data_plane_failed(error: DataPlaneError) -> MachineFailure {
    failed(&error, false)
}
