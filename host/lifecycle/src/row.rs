//! A row of failures of one operation, the wait between two tries, and the floors below which no policy can push it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::{Call, Failure, FailureKind};
use crate::rng::Rng;

/// No wait is longer.
pub const LONGEST_WAIT: Duration = Duration::from_secs(300);
const FIRST_FLOOR: Duration = Duration::from_millis(50);
const LAST_FLOOR: Duration = Duration::from_secs(1);

/// What is tried, and tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// GET of the own Node.
    NodeRead,
    /// The watch on the own Node.
    NodeWatch,
    /// GET of the own Pod.
    PodRead,
    /// The watch on the Site.
    SiteWatch,
    /// The watch on the GatewayPool.
    PoolWatch,
    /// Reconciliation as a whole.
    Reconciliation,
    /// The write of the acknowledgment.
    Acknowledgment,
    /// The API's part of leaving an assignment: the acknowledgment withdrawn, advertised routes cleared.
    Withdrawal,
    /// The local part of transition cleanup.
    Cleanup,
    /// The write of the ledger.
    LedgerWrite,
    /// Planning and applying the data plane.
    DataPlane,
    /// Writing or disabling the CNI file.
    CniWrite,
    /// Removing taints from the own Node.
    TaintRemoval,
    /// Writing advertised routes.
    Advertisement,
}

impl Operation {
    /// The word in the contract with policies, in logs and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NodeRead => "node-read",
            Self::NodeWatch => "node-watch",
            Self::PodRead => "pod-read",
            Self::SiteWatch => "site-watch",
            Self::PoolWatch => "pool-watch",
            Self::Reconciliation => "reconciliation",
            Self::Acknowledgment => "acknowledgment",
            Self::Withdrawal => "withdrawal",
            Self::Cleanup => "cleanup",
            Self::LedgerWrite => "ledger-write",
            Self::DataPlane => "data-plane",
            Self::CniWrite => "cni-write",
            Self::TaintRemoval => "taint-removal",
            Self::Advertisement => "advertisement",
        }
    }

    /// Whether it is part of reconciliation: only such a one can be given up.
    pub fn is_nested(self) -> bool {
        matches!(self, Self::DataPlane | Self::CniWrite | Self::TaintRemoval | Self::Advertisement)
    }
}

/// Where a row stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) enum Standing {
    /// The operation may be tried.
    #[default]
    Ready,
    /// It is being tried.
    Trying(Call),
    /// It failed, and the retry hook is asked how long to wait.
    Asking(Call, Failure),
    /// It failed, and the next try is not before this time.
    Waiting(Duration),
}

/// The failures in a row of one operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Row {
    pub(crate) standing: Standing,
    /// Failures in a row.
    pub(crate) number: u32,
    /// The time of the first failure in the row.
    pub(crate) since: Duration,
    /// What the last failure said, for /readyz.
    pub(crate) message: String,
    /// The next try is not before this time, whatever else becomes of the row.
    floor_until: Duration,
}

impl Row {
    /// Takes one more failure, after which the other side wants to be left alone for so long.
    pub(crate) fn fail(&mut self, now: Duration, message: &str, left_alone: Duration) {
        if self.number == 0 {
            self.since = now;
        }
        self.number = self.number.saturating_add(1);
        message.clone_into(&mut self.message);
        self.floor_until = now + floor(self.number).max(left_alone.min(LONGEST_WAIT));
    }

    /// The row begins anew, but the wait after its last failure is kept to.
    pub(crate) fn reset(&mut self) {
        *self = Self { floor_until: self.floor_until, ..Self::default() };
    }

    /// The time before which nothing happens here by itself.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        match self.standing {
            Standing::Ready => Some(self.floor_until),
            Standing::Waiting(until) => Some(until.max(self.floor_until)),
            _ => None,
        }
    }

    pub(crate) fn is_ready(&self, now: Duration) -> bool {
        self.deadline().is_some_and(|until| until <= now)
    }
}

/// The shortest wait after so many failures in a row.
fn floor(number: u32) -> Duration {
    (FIRST_FLOOR * 2_u32.saturating_pow(number.saturating_sub(1).min(5))).min(LAST_FLOOR)
}

/// The wait that the host holds to: the largest of floor, verdict and Retry-After, at most [`LONGEST_WAIT`]; where floor or
/// Retry-After wins, up to 20 % more, so that a fleet that was told the same thing does not return as one.
pub(crate) fn wait(number: u32, verdict: Duration, retry_after: Option<Duration>, rng: &mut Rng) -> (Duration, bool) {
    let demanded = floor(number).max(retry_after.unwrap_or_default()).min(LONGEST_WAIT);
    if verdict >= demanded { (verdict.min(LONGEST_WAIT), false) } else { (demanded + rng.up_to(demanded / 5), true) }
}

/// The wait where no policy answers, or where none may be asked: capped exponential backoff with full jitter.
pub(crate) fn native_wait(operation: Operation, number: u32, rng: &mut Rng) -> Duration {
    let (first, last) = match operation {
        Operation::TaintRemoval => (Duration::from_millis(100), Duration::from_secs(5)),
        Operation::Reconciliation => (Duration::from_secs(2), Duration::from_secs(120)),
        _ => (Duration::from_secs(1), Duration::from_secs(60)),
    };
    let ceiling = first.saturating_mul(2_u32.saturating_pow(number.saturating_sub(1).min(16))).min(last);
    rng.up_to(ceiling)
}

/// How many patch races of a taint removal are borne where no policy answers.
pub(crate) const NATIVE_TAINT_TRIES: u32 = 6;

/// Whether the row ends where no policy answers: of the nested operations only a taint removal's patch races and the wait
/// for an object are retried, the rest goes to reconciliation.
pub(crate) fn native_gives_up(operation: Operation, failure: FailureKind, number: u32) -> bool {
    match (operation, failure) {
        (Operation::TaintRemoval, FailureKind::Conflict) => number >= NATIVE_TAINT_TRIES,
        (Operation::Advertisement, FailureKind::NotFound) => false,
        _ => operation.is_nested(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest of many waits.
    fn longest(operation: Operation, number: u32) -> Duration {
        let mut rng = Rng::new(1);
        (0..2000).map(|_| native_wait(operation, number, &mut rng)).max().unwrap_or_default()
    }

    #[test]
    fn the_hosts_own_backoff_doubles_from_its_first_to_its_last_with_full_jitter() {
        for (operation, first, last) in [
            (Operation::TaintRemoval, 0.1, 5.0),
            (Operation::Reconciliation, 2.0, 120.0),
            (Operation::NodeRead, 1.0, 60.0),
        ] {
            for (number, ceiling) in [(1, first), (2, 2.0 * first), (20, last), (u32::MAX, last)] {
                let ceiling = Duration::from_secs_f64(ceiling);
                let longest = longest(operation, number);
                assert!(longest <= ceiling && longest > ceiling.mul_f64(0.99), "{operation:?} {number}: {longest:?}");
            }
        }
    }

    #[test]
    fn where_no_policy_answers_patch_races_and_an_object_that_is_awaited_are_borne() {
        let gives_up = native_gives_up;
        assert!(!gives_up(Operation::TaintRemoval, FailureKind::Conflict, 5));
        assert!(gives_up(Operation::TaintRemoval, FailureKind::Conflict, 6));
        assert!(gives_up(Operation::TaintRemoval, FailureKind::NotFound, 1));
        assert!(!gives_up(Operation::Advertisement, FailureKind::NotFound, 100));
        assert!(gives_up(Operation::Advertisement, FailureKind::Unavailable, 1));
        assert!(!gives_up(Operation::NodeRead, FailureKind::Unavailable, 100), "only what is nested is given up");
    }
}
