//! What happened, in the order in which it happened: the one list from which triggers, expectations and the report are
//! made. Nothing is ever taken out of it.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use super::requests;
use crate::server::Notice;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimelineEntry {
    /// Virtual time since the start of the run, in seconds.
    #[serde(serialize_with = "super::report::seconds")]
    #[schemars(with = "f64")]
    pub at: Duration,
    /// Who tells it.
    pub source: Source,
    /// The process that ran at this time: 1 for the first. Absent before the first.
    pub process: Option<u32>,
    /// What kind of thing happened, in one word: `adopted`, `waiting`, `request`, `watch-opened`, …
    pub kind: String,
    /// For people.
    pub text: String,
    /// The details, by name.
    pub fields: Map<String, Value>,
}

/// Who tells of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The agent's journal.
    Agent,
    /// The API server's audit records.
    Server,
    /// The scenario's steps.
    Scenario,
    /// What starts and ends the agent.
    Kubelet,
}

/// One answer of a policy, or one failure to answer.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyCall {
    /// The hook that was asked.
    pub hook: String,
    /// The name of the policy that was asked; none when no binding answered.
    pub policy: Option<String>,
    /// The policy's digest.
    pub digest: Option<String>,
    /// The verdict in a word, such as `assigned`, `wait`, `same`; or `failed`, `held`, `no-binding`.
    pub verdict: String,
    /// The verdict's reason, or why there is none.
    pub reason: String,
    /// The real time that the call took.
    pub took: Duration,
}

/// Where one process tells its story. Cheap to clone; every entry is stamped with the virtual time at which it is told.
#[derive(Debug, Clone)]
pub struct Journal {
    log: Log,
    process: u32,
}

impl Journal {
    /// Tells a turn of the story.
    pub fn entry(&self, kind: impl Into<String>, text: impl Into<String>, fields: Map<String, Value>) {
        self.log.push(Source::Agent, Some(self.process), kind, text, fields);
    }

    /// Tells of a policy's answer. It goes into the verdict table, not into the timeline.
    pub fn policy_call(&self, call: PolicyCall) {
        self.log.lock().calls.push((self.process, call));
    }
}

/// The list itself. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    inner: Arc<Mutex<Inner>>,
    started: Instant,
}

/// What the list holds.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) entries: Vec<TimelineEntry>,
    pub(crate) calls: Vec<(u32, PolicyCall)>,
    /// What the server has said and is not in the list yet. It is taken over before anything else is added, so that the
    /// order is the true one.
    notices: UnboundedReceiver<Notice>,
    /// The server's wall clock at virtual time zero.
    base: Timestamp,
    /// The process that ran last.
    process: Option<u32>,
    wakers: Vec<Waker>,
}

impl Log {
    /// A list that is empty at virtual time zero, which is now; `base` is what the server's clock shows now.
    pub(crate) fn new(notices: UnboundedReceiver<Notice>, base: Timestamp) -> Self {
        let inner = Inner { entries: Vec::new(), calls: Vec::new(), notices, base, process: None, wakers: Vec::new() };
        Self { inner: Arc::new(Mutex::new(inner)), started: Instant::now() }
    }

    /// The journal of a process that starts now: requests are its own from here on.
    pub(crate) fn journal(&self, process: u32) -> Journal {
        self.lock().process = Some(process);
        Journal { log: self.clone(), process }
    }

    /// Virtual time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// The moment of tokio's clock at which so much virtual time has passed.
    pub(crate) fn moment(&self, at: Duration) -> Instant {
        self.started + at
    }

    /// Adds an entry, after everything that the server has said up to now.
    pub(crate) fn push(
        &self,
        source: Source,
        process: Option<u32>,
        kind: impl Into<String>,
        text: impl Into<String>,
        fields: Map<String, Value>,
    ) {
        let at = self.now();
        let mut inner = self.lock();
        let process = process.or(inner.process);
        inner.add(TimelineEntry { at, source, process, kind: kind.into(), text: text.into(), fields });
    }

    /// The list, with everything that the server has said up to now.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok(notice) = inner.notices.try_recv() {
            inner.take(&notice);
        }
        inner
    }

    /// Resolves when the list is longer than `seen`, with its length.
    pub(crate) async fn longer_than(&self, seen: usize) -> usize {
        poll_fn(|cx| {
            let mut inner = self.lock();
            while let Poll::Ready(Some(notice)) = inner.notices.poll_recv(cx) {
                inner.take(&notice);
            }
            if inner.entries.len() > seen {
                return Poll::Ready(inner.entries.len());
            }
            inner.wakers.push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Inner {
    fn take(&mut self, notice: &Notice) {
        if let Some(entry) = requests::entry(notice, self.base, self.process) {
            self.add(entry);
        }
    }

    fn add(&mut self, mut entry: TimelineEntry) {
        // The server's stamps are finer than tokio's clock: what is told later is not shown as earlier.
        if let Some(last) = self.entries.last() {
            entry.at = entry.at.max(last.at);
        }
        self.entries.push(entry);
        self.wakers.drain(..).for_each(Waker::wake);
    }
}
