//! The body of a watch: events as they come, bookmarks, an end. It has one timer and no task of its own, so that ten
//! thousand open watches cost what their queues hold.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::Frame;
use tokio::time::{Instant, Sleep};

use super::{Answer, Interruption, Server, resource::Resource, service::Call, store::event_line};

/// How long before its end a watch sends a last bookmark.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// An open watch, as the client reads it.
pub(crate) struct WatchBody {
    server: Server,
    watcher: u64,
    call: Option<Call>,
    bookmarks: Option<Bookmarks>,
    end: Instant,
    interruption: Option<(Instant, Interruption)>,
    timer: Option<Pin<Box<Sleep>>>,
    /// The first event is cut in half, then the connection breaks.
    half: bool,
    silent: bool,
}

struct Bookmarks {
    resource: &'static Resource,
    every: Duration,
    next: Instant,
}

/// How a watch is to be served.
pub(crate) struct WatchPlan {
    pub(crate) resource: &'static Resource,
    pub(crate) watcher: u64,
    pub(crate) bookmarks: bool,
    pub(crate) lasts: Duration,
    /// The stream is this ERROR event and nothing else.
    pub(crate) error: Option<Answer>,
}

/// What a fault does to a stream.
pub(crate) enum StreamFault {
    None,
    Half,
    After(Duration, Interruption),
}

impl WatchBody {
    pub(crate) fn new(server: Server, call: Call, plan: WatchPlan, fault: StreamFault) -> Self {
        let now = Instant::now();
        let every = server.options().bookmarks;
        let end = now + plan.lasts;
        let bookmarks =
            plan.bookmarks.then(|| Bookmarks { resource: plan.resource, every, next: next_bookmark(now, every, end) });
        let (half, interruption) = match fault {
            StreamFault::None => (false, None),
            StreamFault::Half => (true, None),
            StreamFault::After(after, interruption) => (false, Some((now + after, interruption))),
        };
        let interruption = plan.error.map(|error| (now, Interruption::Error(error))).or(interruption);
        Self {
            server,
            watcher: plan.watcher,
            call: Some(call),
            bookmarks,
            end,
            interruption,
            timer: None,
            half,
            silent: false,
        }
    }

    fn finish(&mut self) {
        if let Some(call) = self.call.take() {
            self.server.close_watch(self.watcher);
            drop(call);
        }
    }

    /// What an interruption makes of the next poll: `None` means to go on.
    fn interrupt(&mut self, interruption: Interruption) -> Option<Option<io::Result<Bytes>>> {
        match interruption {
            Interruption::Close => {
                self.finish();
                Some(None)
            }
            Interruption::Break => {
                self.finish();
                Some(Some(Err(io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by peer"))))
            }
            Interruption::Silence => {
                self.silent = true;
                self.timer = None;
                None
            }
            Interruption::Error(answer) => {
                // The line is the last of the stream: the next poll ends it.
                self.finish();
                Some(Some(Ok(event_line("ERROR", &answer.body))))
            }
            Interruption::Garbage(mut text) => {
                text.push('\n');
                Some(Some(Ok(text.into())))
            }
        }
    }

    fn bookmark(&mut self, now: Instant) -> Option<Bytes> {
        let end = self.end;
        let version = self.server.version();
        let bookmarks = self.bookmarks.as_mut()?;
        bookmarks.next = next_bookmark(now, bookmarks.every, end);
        Some(bookmark_line(bookmarks.resource, version, false))
    }

    /// The next moment at which this stream has something to do of itself.
    fn due(&self) -> Instant {
        let moments = [self.bookmarks.as_ref().map(|b| b.next), self.interruption.as_ref().map(|(at, _)| *at)];
        moments.into_iter().flatten().fold(self.end, Instant::min)
    }
}

/// Regular, with one more shortly before the end.
fn next_bookmark(now: Instant, every: Duration, end: Instant) -> Instant {
    let last = end.checked_sub(LAST_BOOKMARK).filter(|last| *last > now);
    let next = now + every;
    last.map_or(next, |last| next.min(last))
}

/// A bookmark; `initial` marks the end of the initial events.
pub(crate) fn bookmark_line(resource: &Resource, version: u64, initial: bool) -> Bytes {
    let mut metadata = serde_json::json!({"resourceVersion": version.to_string()});
    if initial {
        metadata["annotations"] = serde_json::json!({"k8s.io/initial-events-end": "true"});
    }
    let object = serde_json::json!({"kind": resource.kind, "apiVersion": resource.api_version(), "metadata": metadata});
    event_line("BOOKMARK", object.to_string().as_bytes())
}

impl http_body::Body for WatchBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        loop {
            if this.call.is_none() {
                return Poll::Ready(None);
            }
            let now = Instant::now();
            let due = this.interruption.take_if(|(at, _)| *at <= now).map(|(_, interruption)| interruption);
            let (interruption, line) = this.server.next_event(this.watcher, cx.waker(), due.is_none() && !this.silent);
            if let Some(interruption) = due.or(interruption) {
                match this.interrupt(interruption) {
                    Some(end) => return Poll::Ready(end.map(|line| line.map(Frame::data))),
                    None => continue,
                }
            }
            if let Some(line) = line {
                if this.half {
                    this.interruption = Some((now, Interruption::Break));
                    return Poll::Ready(Some(Ok(Frame::data(line.slice(..line.len() / 2)))));
                }
                return Poll::Ready(Some(Ok(Frame::data(line))));
            }
            if this.silent {
                return Poll::Pending;
            }
            if this.end <= now {
                this.finish();
                continue;
            }
            if this.bookmarks.as_ref().is_some_and(|b| b.next <= now)
                && let Some(line) = this.bookmark(now)
            {
                return Poll::Ready(Some(Ok(Frame::data(line))));
            }
            let due = this.due();
            let timer = this.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
            if timer.deadline() != due {
                timer.as_mut().reset(due);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for WatchBody {
    fn drop(&mut self) {
        self.finish();
    }
}
