//! Faults: what can go wrong between a client and a healthy API server, decided when a request arrives.

use std::{borrow::Cow, time::Duration};

use bytes::Bytes;

use super::{Attributes, Matching, Verb, status};

/// A fault for the next requests that match.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Which requests are hit.
    pub matching: Matching,
    /// How many matching requests pass unharmed first.
    pub skip: u32,
    /// How many are then hit; `None` means all.
    pub times: Option<u32>,
    /// How long the request is held before it takes effect.
    pub before: Duration,
    /// How long the answer is held after it took effect.
    pub after: Duration,
    /// What happens.
    pub effect: Effect,
}

impl Fault {
    /// Hits the next matching request.
    pub fn once(matching: Matching, effect: Effect) -> Self {
        Self { times: Some(1), ..Self::always(matching, effect) }
    }

    /// Hits every matching request until it is cleared.
    pub fn always(matching: Matching, effect: Effect) -> Self {
        Self { matching, skip: 0, times: None, before: Duration::ZERO, after: Duration::ZERO, effect }
    }

    /// Delays the next matching request before it takes effect.
    pub fn delay(matching: Matching, before: Duration) -> Self {
        Self { before, ..Self::once(matching, Effect::None) }
    }

    /// The same fault for this many requests.
    #[must_use]
    pub fn times(self, times: u32) -> Self {
        Self { times: Some(times), ..self }
    }

    /// The same fault after this many matching requests have passed.
    #[must_use]
    pub fn skip(self, skip: u32) -> Self {
        Self { skip, ..self }
    }
}

/// What a fault does to a request.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Nothing beyond the delays.
    None,
    /// This answer instead of the real one, and the request has no effect.
    Answer(Answer),
    /// This answer instead of the real one, though the request took effect: a timeout after the fact.
    AnswerAfterEffect(Answer),
    /// The connection breaks before the request takes effect.
    LostRequest,
    /// The request takes effect, then the connection breaks.
    LostAnswer,
    /// The answer is the real one, cut in half by a broken connection. A watch breaks in the middle of its first event.
    HalfBody,
    /// A watch opens, and after this time it is interrupted. Other requests are not hit.
    Stream {
        /// Counted from the opening of the stream.
        after: Duration,
        /// How it is interrupted.
        interruption: Interruption,
    },
}

/// What can happen to an open watch.
#[derive(Clone, Debug)]
pub enum Interruption {
    /// It ends as the API server ends it: cleanly, between events.
    Close,
    /// The connection is reset.
    Break,
    /// It stays open and nothing comes any more: no event, no bookmark, no end.
    Silence,
    /// This Status comes as an event of type ERROR, then the stream ends.
    Error(Answer),
    /// This line comes instead of an event; the stream goes on.
    Garbage(String),
}

/// An HTTP answer of one's own.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status code.
    pub code: u16,
    /// `application/json`, unless the body is something else.
    pub content_type: Cow<'static, str>,
    /// The value of the header `Retry-After`, in seconds.
    pub retry_after: Option<u32>,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// A Status with this code, reason and message.
    pub fn status(code: u16, reason: &str, message: &str) -> Self {
        Self {
            code,
            content_type: "application/json".into(),
            retry_after: None,
            body: status::json(&status::other(code, reason, message, None)),
        }
    }

    /// A Status as given, for one with details and causes.
    pub fn of(status: &kube::core::Status) -> Self {
        Self {
            code: status.code,
            content_type: "application/json".into(),
            retry_after: None,
            body: status::json(status),
        }
    }

    /// A plain-text body, as proxies and the API server's own limits give.
    pub fn text(code: u16, body: impl Into<String>) -> Self {
        Self { code, content_type: "text/plain; charset=utf-8".into(), retry_after: None, body: body.into().into() }
    }

    /// What an API server that is too busy answers: 429, plain text, `Retry-After`.
    pub fn too_many_requests(retry_after: u32) -> Self {
        Self::text(429, "Too many requests, please try again later.\n").retry_after(retry_after)
    }

    /// The same with the header `Retry-After`.
    #[must_use]
    pub fn retry_after(self, seconds: u32) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }
}

/// Names a fault or an admission rule, so that it can be taken away again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub(crate) u64);

/// The faults that are waiting for their requests.
#[derive(Default)]
pub(crate) struct Faults {
    waiting: Vec<(RuleId, Fault)>,
    next: u64,
}

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) -> RuleId {
        self.next += 1;
        self.waiting.push((RuleId(self.next), fault));
        RuleId(self.next)
    }

    pub(crate) fn remove(&mut self, id: RuleId) {
        self.waiting.retain(|(known, _)| *known != id);
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// The fault that hits this request: the first that matches and has nothing to skip. Each that matches is counted.
    pub(crate) fn hit(&mut self, request: &Attributes) -> Option<Fault> {
        let watches = request.verb == Some(Verb::Watch);
        let at = self.waiting.iter_mut().position(|(_, fault)| {
            let meant = fault.matching.matches(request)
                && fault.times != Some(0)
                && (watches || !matches!(fault.effect, Effect::Stream { .. }));
            if meant && fault.skip > 0 {
                fault.skip -= 1;
                return false;
            }
            meant
        })?;
        let fault = &mut self.waiting[at].1;
        let hit = fault.clone();
        if let Some(times) = &mut fault.times {
            *times -= 1;
            if *times == 0 {
                self.waiting.remove(at);
            }
        }
        Some(hit)
    }
}

impl Fault {
    /// How audit records name it.
    pub(crate) fn describe(&self) -> String {
        let effect = match &self.effect {
            Effect::None => "delayed".to_owned(),
            Effect::Answer(answer) => format!("answered {}", answer.code),
            Effect::AnswerAfterEffect(answer) => format!("took effect, answered {}", answer.code),
            Effect::LostRequest => "lost request".to_owned(),
            Effect::LostAnswer => "lost answer".to_owned(),
            Effect::HalfBody => "half body".to_owned(),
            Effect::Stream { interruption, .. } => interruption.describe().to_owned(),
        };
        let held = self.before + self.after;
        if held.is_zero() { effect } else { format!("{effect}, held {held:?}") }
    }
}

impl Interruption {
    pub(crate) fn describe(&self) -> &'static str {
        match self {
            Self::Close => "stream closed",
            Self::Break => "stream broken",
            Self::Silence => "stream silent",
            Self::Error(_) => "error event",
            Self::Garbage(_) => "garbage in the stream",
        }
    }
}
