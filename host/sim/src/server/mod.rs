//! An embedded Kubernetes API server, over which an unchanged `kube::Client` runs: same answers, same words, same order
//! of checks, but in memory, on tokio's (virtual) clock, with faults at will. It never opens a port and never spawns a
//! task, unless it is told to serve a listener.
//!
//! ```
//! # use moorline_sim::server::*;
//! # use serde_json::json;
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
//! let server = Server::new(Options::default());
//! server.apply(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}))?;
//! server.fault(Fault::once(Matching::new(Verb::Get, "nodes"), Effect::Answer(Answer::too_many_requests(3))));
//!
//! let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(server.client(Identity::admin("me")));
//! assert!(nodes.get("n1").await.is_err());
//! assert_eq!(nodes.get("n1").await?.metadata.name.as_deref(), Some("n1"));
//! assert_eq!(server.audit().len(), 2);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    task::Waker,
    time::Duration,
};

use bytes::Bytes;
use http::Uri;
use jiff::Timestamp;
use kube::core::Status;
use serde_json::Value;
use tokio::sync::mpsc;

mod admission;
mod audit;
mod clock;
mod fault;
mod hand;
mod handle;
mod identity;
mod matching;
mod random;
mod request;
mod resource;
mod schema;
mod serve;
mod service;
mod status;
mod store;
mod validate;
mod watch;
mod write;

pub use admission::{Admission, Denial, PolicyReason};
pub use audit::AuditRecord;
pub use fault::{Answer, Effect, Fault, Interruption, RuleId};
pub use hand::ObjectName;
pub use identity::Identity;
pub use matching::{Attributes, Matching, UnknownVerb, Verb};
pub use service::{AnswerBody, Connection};
pub use store::{ChangeKind, ObjectChange};

use admission::AdmissionRules;
use audit::AuditLog;
use clock::Clock;
use fault::Faults;
use handle::{Refused, Reply};
use random::Random;
use request::Ask;
use store::{Key, Store};

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// What UIDs, generated names and watch limits are drawn from.
    pub seed: u64,
    /// The wall time at which the server starts; from then on it follows tokio's clock.
    pub started: Timestamp,
    /// How many changes of each resource a watch can be started before; an older version is answered with `Expired`.
    pub history: usize,
    /// How many audit records are kept. Without any, notices have none either.
    pub audit: usize,
    /// The time between two bookmarks of a watch that wants them.
    pub bookmarks: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 0,
            started: Timestamp::constant(1_767_225_600, 0),
            history: 10_000,
            audit: usize::MAX,
            bookmarks: Duration::from_secs(60),
        }
    }
}

/// The server: a handle, cheap to clone. Call [`Server::new`] within the runtime whose clock it is to follow.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

struct Inner {
    options: Options,
    /// `kube::Client` wants a service that can move between threads; on the one driver thread this is never contended,
    /// and it is never held across an await.
    state: Mutex<State>,
}

pub(crate) struct State {
    store: Store,
    faults: Faults,
    admission: AdmissionRules,
    audit: AuditLog,
    clock: Clock,
    random: Random,
    subscribers: Vec<mpsc::UnboundedSender<Notice>>,
    wakers: Vec<Waker>,
}

/// What happened, for those who wait for something to be seen.
#[derive(Clone, Debug)]
pub enum Notice {
    /// An object changed.
    Changed(Arc<ObjectChange>),
    /// A request arrived; its record isn't complete yet.
    Received(Arc<AuditRecord>),
    /// A watch was opened; its record is complete when its stream ends.
    Opened(Arc<AuditRecord>),
    /// A request is over, for a watch: its stream ended.
    Completed(Arc<AuditRecord>),
}

impl Server {
    /// An empty server.
    pub fn new(options: Options) -> Self {
        let state = State {
            store: Store::new(options.history),
            faults: Faults::default(),
            admission: AdmissionRules::default(),
            audit: AuditLog::new(options.audit),
            clock: Clock::new(options.started),
            random: Random::new(options.seed),
            subscribers: Vec::new(),
            wakers: Vec::new(),
        };
        Self { inner: Arc::new(Inner { options, state: Mutex::new(state) }) }
    }

    /// A client of this caller, with the default namespace `default`; to be made within a runtime. Unlike a client made from a configuration it has no
    /// layers of its own, so nothing is retried beneath it.
    pub fn client(&self, identity: Identity) -> kube::Client {
        kube::Client::new(self.connect(identity), "default")
    }

    /// The service of this caller, for a client with layers of its own.
    pub fn connect(&self, identity: Identity) -> Connection {
        Connection::new(self.clone(), identity)
    }

    /// Forgets every change up to now: a watch from an older version is then answered with `Expired`. Open watches go on.
    pub fn compact(&self) {
        self.with(|state| state.store.compact());
    }

    /// The newest resourceVersion.
    pub fn version(&self) -> u64 {
        self.with(|state| state.store.version())
    }

    /// The server's present wall time.
    pub fn now(&self) -> Timestamp {
        self.with(|state| state.clock.now())
    }

    /// Adds a fault. Where several match, the oldest hits.
    pub fn fault(&self, fault: Fault) -> RuleId {
        self.with(|state| state.faults.add(fault))
    }

    /// Takes a fault away.
    pub fn clear_fault(&self, id: RuleId) {
        self.with(|state| state.faults.remove(id));
    }

    /// Takes all faults away.
    pub fn clear_faults(&self) {
        self.with(|state| state.faults.clear());
    }

    /// Interrupts the open watches that match, and says how many.
    pub fn interrupt(&self, matching: &Matching, interruption: &Interruption) -> usize {
        self.with(|state| {
            let mut hit = 0;
            for watcher in state.store.watchers().filter(|watcher| matching.matches(&watcher.watching.request)) {
                watcher.interruption = Some(interruption.clone());
                state.wakers.extend(watcher.waker.take());
                hit += 1;
            }
            hit
        })
    }

    /// Adds an admission rule. Where several match, the oldest denies.
    pub fn admit(&self, rule: Admission) -> RuleId {
        self.with(|state| state.admission.add(rule))
    }

    /// Takes an admission rule away.
    pub fn remove_admission(&self, id: RuleId) {
        self.with(|state| state.admission.remove(id));
    }

    /// The audit records so far, in order of arrival; open requests have no `completed`.
    pub fn audit(&self) -> Vec<Arc<AuditRecord>> {
        self.with(|state| state.audit.snapshot())
    }

    /// Everything that happens from now on, in order.
    pub fn subscribe(&self) -> mpsc::UnboundedReceiver<Notice> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.with(|state| state.subscribers.push(sender));
        receiver
    }

    pub(crate) fn options(&self) -> &Options {
        &self.inner.options
    }

    /// Runs `work` on the state, and wakes those who wait for what it did once the state is free again.
    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let (result, wakers) = {
            let mut state = self.inner.state.lock().unwrap_or_else(PoisonError::into_inner);
            let result = work(&mut state);
            (result, std::mem::take(&mut state.wakers))
        };
        wakers.into_iter().for_each(Waker::wake);
        result
    }

    /// A request arrived: its record, and the fault that hits it (one without effect, when none does).
    fn received(&self, request: &Attributes, uri: &Uri) -> (u64, Fault) {
        self.with(|state| {
            let received = state.clock.stamp();
            let hit = state.faults.hit(request);
            let mut record = state.audit.open(request.clone(), uri.to_string(), received);
            let id = record.id;
            if let Some(hit) = &hit {
                record = state.audit.amend(id, |record| record.fault = Some(hit.describe())).unwrap_or(record);
            }
            state.notify(&Notice::Received(record));
            (id, hit.unwrap_or_else(|| Fault::always(Matching::any(), Effect::None)))
        })
    }

    fn handle(
        &self,
        record: u64,
        ask: &Ask,
        identity: &Identity,
        content_type: &str,
        body: Result<&[u8], Box<Status>>,
    ) -> Result<Reply, Refused> {
        self.with(|state| {
            let patch = body.as_ref().ok().filter(|_| ask.attributes.verb == Some(Verb::Patch));
            let patch = patch.and_then(|body| serde_json::from_slice(body).ok());
            let reply = state.serve(ask, identity, content_type, body);
            let amended = state.audit.amend(record, |record| {
                record.patch = patch;
                match &reply {
                    Ok(Reply::Json(code, _)) => record.code = Some(*code),
                    Ok(Reply::Watch(_)) => record.code = Some(200),
                    Ok(Reply::NoSuchPath) => record.code = Some(404),
                    Err(refused) => {
                        record.code = Some(refused.refusal.code);
                        record.reason = Some(refused.refusal.reason.clone()).filter(|reason| !reason.is_empty());
                        record.admission.clone_from(&refused.admission);
                    }
                }
            });
            if let (Ok(Reply::Watch(_)), Some(record)) = (&reply, amended) {
                state.notify(&Notice::Opened(record));
            }
            reply
        })
    }

    fn answered(&self, record: u64, code: u16) {
        self.with(|state| state.audit.amend(record, |record| record.code = Some(code)));
    }

    fn completed(&self, record: u64) {
        self.with(|state| {
            let completed = state.clock.stamp();
            if let Some(record) = state.audit.amend(record, |record| record.completed = Some(completed)) {
                state.notify(&Notice::Completed(record));
            }
        });
    }

    /// What a watch is to do next: be interrupted, or send a line (`wants_line` says whether it can).
    fn next_event(&self, watcher: u64, waker: &Waker, wants_line: bool) -> (Option<Interruption>, Option<Bytes>) {
        self.with(|state| {
            let Some(watcher) = state.store.watcher(watcher) else { return (Some(Interruption::Close), None) };
            if let Some(interruption) = watcher.interruption.take() {
                return (Some(interruption), None);
            }
            let line = if wants_line { watcher.queue.pop_front() } else { None };
            if line.is_none() && watcher.waker.as_ref().is_none_or(|known| !known.will_wake(waker)) {
                watcher.waker = Some(waker.clone());
            }
            (None, line)
        })
    }

    fn close_watch(&self, watcher: u64) {
        self.with(|state| state.store.unwatch(watcher));
    }
}

impl State {
    /// Stores a change and tells everyone who waits for it; gives back the object's JSON.
    fn put(&mut self, table: usize, key: Key, kind: ChangeKind, object: Value) -> Bytes {
        let (change, wakers) = self.store.put(table, key, kind, object);
        self.wakers.extend(wakers);
        let json = change.json().clone();
        self.notify(&Notice::Changed(change));
        json
    }

    fn notify(&mut self, notice: &Notice) {
        self.subscribers.retain(|subscriber| subscriber.send(notice.clone()).is_ok());
    }

    /// How long a watch lasts that doesn't say: 30 to 60 minutes.
    fn default_watch_time(&mut self) -> Duration {
        Duration::from_secs(1800 + self.random.next() % 1800)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("options", &self.inner.options).finish_non_exhaustive()
    }
}
