//! The server's wall clock: a fixed base plus what tokio's clock has measured since, so that stamps are the same in
//! every run under a paused clock. It never reads the machine's date.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Clock {
    base: Timestamp,
    started: Instant,
    last: Timestamp,
}

impl Clock {
    pub(crate) fn new(base: Timestamp) -> Self {
        Self { base, started: Instant::now(), last: base }
    }

    /// The present moment, to the microsecond.
    pub(crate) fn now(&self) -> Timestamp {
        let micros = i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX);
        self.base.checked_add(SignedDuration::from_micros(micros)).unwrap_or(Timestamp::MAX)
    }

    /// A stamp that is later than every earlier one: what happens at one virtual instant keeps its order.
    pub(crate) fn stamp(&mut self) -> Timestamp {
        let next = self.last.checked_add(SignedDuration::from_micros(1)).unwrap_or(Timestamp::MAX);
        self.last = self.now().max(next);
        self.last
    }

    /// What `creationTimestamp` and its kin hold: whole seconds.
    pub(crate) fn seconds(&self) -> String {
        Timestamp::from_second(self.now().as_second()).unwrap_or(self.base).to_string()
    }
}
