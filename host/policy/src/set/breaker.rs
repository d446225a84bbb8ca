//! The breaker of a binding: after five failures in a row it isn't called for a while, longer each time. Time is an argument.

use std::time::Duration;

use crate::CallError;

const FAILURES: u32 = 5;
const FIRST_REST: Duration = Duration::from_secs(30);
const LONGEST_REST: Duration = Duration::from_secs(300);

/// The memory of one binding.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: u32,
    rest: Option<Rest>,
}

/// The binding isn't called before `until`.
#[derive(Clone, Debug)]
pub(super) struct Rest {
    pub(super) until: Duration,
    length: Duration,
    pub(super) last: CallError,
}

impl Breaker {
    /// The rest that forbids a call now. Once it is over one call goes through, as a probe, and others wait for its outcome.
    pub(super) fn forbids(&mut self, now: Duration) -> Option<Rest> {
        let rest = self.rest.as_mut()?;
        if now < rest.until {
            return Some(rest.clone());
        }
        rest.until = now + rest.length;
        None
    }

    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Returns when the next call goes through, if calls are forbidden from now on.
    pub(super) fn failed(&mut self, now: Duration, error: &CallError) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= FAILURES {
            let length = self.rest.as_ref().map_or(FIRST_REST, |rest| LONGEST_REST.min(rest.length * 2));
            self.rest = Some(Rest { until: now + length, length, last: error.clone() });
        }
        self.resting_until()
    }

    pub(super) fn resting_until(&self) -> Option<Duration> {
        self.rest.as_ref().map(|rest| rest.until)
    }

    pub(super) fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CallFault, Digest};

    fn error() -> CallError {
        CallError {
            policy: "p".into(),
            digest: Digest::of(b""),
            function: "drift",
            fault: CallFault::Fuel(1),
            said: None,
        }
    }

    fn open(now: Duration) -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 0..FAILURES {
            breaker.failed(now, &error());
        }
        breaker
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn it_opens_after_five_failures_in_a_row_and_not_before() {
        let mut breaker = Breaker::default();
        for _ in 0..4 {
            assert_eq!(breaker.failed(seconds(1), &error()), None);
        }
        breaker.succeeded();
        for _ in 0..4 {
            assert_eq!(breaker.failed(seconds(2), &error()), None);
        }
        assert_eq!(breaker.failed(seconds(3), &error()), Some(seconds(33)));
        assert!(breaker.forbids(seconds(32)).is_some());
    }

    #[test]
    fn it_probes_after_thirty_seconds_and_doubles_to_five_minutes() {
        let mut now = seconds(0);
        let mut breaker = open(now);
        let mut rests = Vec::new();
        for _ in 0..6 {
            let until = breaker.resting_until().unwrap_or_default();
            rests.push((until - now).as_secs());
            now = until;
            assert!(breaker.forbids(now).is_none(), "the probe goes through");
            assert!(breaker.forbids(now).is_some(), "and no other call beside it");
            breaker.failed(now, &error());
        }
        assert_eq!(rests, [30, 60, 120, 240, 300, 300]);
    }

    #[test]
    fn a_good_probe_closes_it() {
        let mut breaker = open(seconds(0));
        assert!(breaker.forbids(seconds(30)).is_none());
        breaker.succeeded();
        assert!(breaker.forbids(seconds(30)).is_none());
        assert_eq!(breaker.failed(seconds(31), &error()), None);
    }
}
