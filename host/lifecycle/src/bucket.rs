//! The token bucket over all API requests of a process.

use std::time::Duration;

/// Requests that may follow each other at once.
pub const BURST: u32 = 20;
/// The time after which one more request is allowed.
pub const REFILL: Duration = Duration::from_secs(2);

/// A bucket that is full at time zero. Kept as the time at which it would be full again, so that it has no remainder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Bucket {
    full_at: Duration,
}

impl Bucket {
    /// Takes a token, or says when there is one.
    pub(crate) fn take(&mut self, now: Duration) -> Result<(), Duration> {
        let ready_at = self.full_at.saturating_sub(REFILL * (BURST - 1));
        if ready_at > now {
            return Err(ready_at);
        }
        self.full_at = self.full_at.max(now) + REFILL;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_one_per_refill() {
        let mut bucket = Bucket::default();
        for _ in 0..BURST {
            assert_eq!(bucket.take(Duration::ZERO), Ok(()));
        }
        assert_eq!(bucket.take(Duration::ZERO), Err(REFILL));
        assert_eq!(bucket.take(REFILL), Ok(()));
        assert_eq!(bucket.take(REFILL), Err(REFILL * 2));
        let later = Duration::from_secs(3600);
        for _ in 0..BURST {
            assert_eq!(bucket.take(later), Ok(()));
        }
        assert!(bucket.take(later).is_err());
    }
}
