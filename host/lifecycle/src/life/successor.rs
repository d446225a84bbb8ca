//! What follows from the adopted assignment and has to be known before anything is set up for it, or torn down for it:
//! the Site, the GatewayPool of a gateway, and a validated CNI verdict. One watch per object reads it, learns of its
//! absence, and goes on as the watch of the settled agent.

use std::time::Duration;

use crate::event::{Action, Call, CniSubject, Desired, Failure, FailureKind, Outcome, Question, Stream, Verdict};
use crate::floors;
use crate::life::Life;
use crate::objects::{Node, Pool, Site, Versioned};
use crate::row::Operation;

/// A stream that lived this long ends its row of failures.
const HEALTHY_STREAM: Duration = Duration::from_secs(60);

/// What a watch of one object knows of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Track<T> {
    /// The open watch and when it was opened.
    stream: Option<(Call, Duration)>,
    /// Where a renewal goes on.
    resource_version: Option<String>,
    /// Said by the stream since it began with initial events.
    seen: bool,
    /// The initial events have been said at least once: an object that is not known is absent.
    pub(super) synced: bool,
    /// The object that decisions are made by. A settled agent keeps it when the object is deleted.
    pub(super) object: Option<T>,
    /// A later version, not to be used before this time.
    pending: Option<(T, Duration)>,
    /// The object was deleted after it had been read.
    pub(super) deleted: bool,
}

impl<T> Default for Track<T> {
    fn default() -> Self {
        Self {
            stream: None,
            resource_version: None,
            seen: false,
            synced: false,
            object: None,
            pending: None,
            deleted: false,
        }
    }
}

impl<T: Versioned> Track<T> {
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.pending.as_ref().map(|(_, at)| *at)
    }

    /// Whether the stream has still to say what there is.
    pub(super) fn is_reading(&self) -> bool {
        self.stream.is_some() && !self.synced
    }

    /// A later version is used at once, or, where a delay is given, after it.
    fn changed(&mut self, object: T, use_at: Option<Duration>) {
        self.seen = true;
        self.deleted = false;
        let latest = self.pending.as_ref().map(|(pending, _)| pending).or(self.object.as_ref());
        if latest.is_some_and(|latest| object.is_older_than(latest)) {
            // A renewed watch repeats what came after the last bookmark.
            return;
        }
        if self.object.as_ref().is_some_and(|known| known.version() == object.version()) {
            self.pending = None;
            return;
        }
        match (use_at, &self.pending) {
            (Some(_), Some((pending, at))) => {
                // The first change sets the time; later ones only replace what is used then.
                let at = *at;
                if pending.version() != object.version() {
                    self.pending = Some((object, at));
                }
            }
            (Some(at), None) => self.pending = Some((object, at)),
            (None, _) => self.object = Some(object),
        }
    }

    fn gone(&mut self, keep: bool) {
        self.pending = None;
        self.deleted = self.object.is_some();
        if !keep {
            self.object = None;
        }
    }

    fn take_pending(&mut self, now: Duration) {
        if self.pending.as_ref().is_some_and(|(_, at)| *at <= now)
            && let Some((object, _)) = self.pending.take()
        {
            self.object = Some(object);
        }
    }

    /// Takes what the stream says; a failure is returned for the row.
    fn said(&mut self, stream: Stream<T>, keep: bool, use_at: Option<Duration>, name: &str) -> Option<Failure> {
        match stream {
            Stream::Changed(object) => {
                self.changed(object, use_at);
                None
            }
            Stream::Deleted => {
                self.seen = false;
                self.gone(keep);
                None
            }
            Stream::Bookmark { resource_version, initial } => {
                self.resource_version = Some(resource_version);
                if initial {
                    self.synced = true;
                    if !self.seen {
                        self.gone(keep);
                    }
                }
                None
            }
            Stream::Closed => {
                self.stream = None;
                Some(Failure::new(FailureKind::Closed, format!("The watch on {name} was closed.")))
            }
            Stream::Failed(failure) => {
                self.stream = None;
                if failure.kind == FailureKind::Expired {
                    self.resource_version = None;
                }
                Some(failure)
            }
        }
    }
}

/// The validated CNI verdict.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum CniWanted {
    /// This configuration.
    Managed(String),
    /// None of ours.
    Unmanaged,
}

impl Life {
    pub(super) fn drive_successor(&mut self) {
        let Some(adopted) = self.adopted.as_ref().map(|adopted| adopted.assignment.clone()) else { return };
        self.site.take_pending(self.now);
        self.pool.take_pending(self.now);
        if self.site.stream.is_none() {
            let from = self.site.resource_version.clone();
            let lifetime = self.watch_lifetime();
            self.site.seen &= from.is_some();
            let call = self.request(Operation::SiteWatch, |call| Action::WatchSite(call, adopted.site, from, lifetime));
            self.site.stream = call.map(|call| (call, self.now));
        }
        if let Some(pool) = adopted.pool
            && self.pool.stream.is_none()
        {
            let from = self.pool.resource_version.clone();
            let lifetime = self.watch_lifetime();
            self.pool.seen &= from.is_some();
            let call = self.request(Operation::PoolWatch, |call| Action::WatchPool(call, pool, from, lifetime));
            self.pool.stream = call.map(|call| (call, self.now));
        }
        if let Some(subject) = self.cni_subject() {
            self.ask(|life| &mut life.cni, &subject, Question::Render);
        }
    }

    pub(super) fn site_stream(&mut self, call: Call, stream: Stream<Site>) {
        let Some((_, opened_at)) = self.site.stream.filter(|(open, _)| *open == call) else { return };
        let (keep, use_at) = self.after_settling();
        if let Some(failure) = self.site.said(stream, keep, use_at, "the Site") {
            self.stream_failed(Operation::SiteWatch, opened_at, failure);
        }
    }

    pub(super) fn pool_stream(&mut self, call: Call, stream: Stream<Pool>) {
        let Some((_, opened_at)) = self.pool.stream.filter(|(open, _)| *open == call) else { return };
        let (keep, use_at) = self.after_settling();
        if let Some(failure) = self.pool.said(stream, keep, use_at, "the GatewayPool") {
            self.stream_failed(Operation::PoolWatch, opened_at, failure);
        }
    }

    /// A settled agent keeps a deleted object, and uses a changed one only after a random delay, so that a fleet that
    /// shares a Site does not render as one.
    fn after_settling(&mut self) -> (bool, Option<Duration>) {
        let settled = self.settled();
        let splay = self.settings.render_splay;
        (settled, settled.then(|| self.now + self.rng.up_to(splay)))
    }

    pub(super) fn stream_failed(&mut self, operation: Operation, opened_at: Duration, failure: Failure) {
        if self.now.saturating_sub(opened_at) >= HEALTHY_STREAM {
            self.succeed(operation);
        } else {
            self.ready(operation);
        }
        self.fail(operation, failure);
    }

    pub(super) fn close_successor_watches(&mut self) {
        for (stream, operation) in
            [(self.site.stream.take(), Operation::SiteWatch), (self.pool.stream.take(), Operation::PoolWatch)]
        {
            if let Some((call, _)) = stream {
                self.rows.remove(&operation);
                self.actions.push(Action::CloseWatch(call));
            }
        }
    }

    fn cni_subject(&self) -> Option<CniSubject> {
        let Desired { assignment, site, pool, .. } = self.desired()?;
        Some(CniSubject { adopted: assignment, node: self.node_view()?, site, pool })
    }

    /// The Node as last observed; a settled agent has an old picture.
    pub(super) fn node_view(&self) -> Option<Node> {
        self.node.observed.as_ref().map(Node::view)
    }

    /// The CNI verdict with the floors applied, or why there is none.
    pub(super) fn cni_wanted(&self) -> Result<CniWanted, String> {
        let subject = self.cni_subject().ok_or("Site, GatewayPool or Node are not known.")?;
        match self.cni.outcome(&subject) {
            None => Err("The cni policy has not answered yet.".into()),
            Some(Outcome::NoBinding) => Err("No binding answers the cni hook; what is on disk stays.".into()),
            Some(Outcome::Held(_, error)) => Err(error.clone()),
            Some(Outcome::Decided(Verdict::Managed(conflist, _), binding)) => {
                floors::conflist(conflist, &subject.node.pod_cidrs, &self.settings.cni, &binding.plugin_types)
                    .map(CniWanted::Managed)
                    .map_err(|problem| {
                        format!("The conflist of the cni binding {} was refused: {problem}", binding.name)
                    })
            }
            Some(Outcome::Decided(Verdict::Unmanaged(_), _)) => Ok(CniWanted::Unmanaged),
            Some(Outcome::Decided(Verdict::Wait(reason), _)) => Err(reason.clone()),
            Some(Outcome::Decided(..)) => Err("The cni hook gave a verdict of another hook.".into()),
        }
    }
}
