//! Capped exponential backoff with full jitter, per operation, never shorter than a server's Retry-After.
//! Integers that saturate: no attempt number, however high, overflows.

use std::collections::BTreeMap;

use moorline_policy_sdk::{
    PolicyError, Problems, Settings, pointer_key,
    retry::{Attempt, Hook, Pause, Verdict},
};
use serde::Deserialize;

use crate::{DefaultPolicy, DefaultSettings};

/// How one row of failures is spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The ceiling of the first wait, in milliseconds.
    pub base_ms: u64,
    /// By how much the ceiling grows from one try to the next.
    pub factor: u64,
    /// What the ceiling never passes, in milliseconds.
    pub cap_ms: u64,
    /// After how many tries the row is given up; 0 means never.
    pub max_tries: u32,
}

/// What the operator sets differently for one operation.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Override {
    /// See [`Backoff::base_ms`].
    pub base_ms: Option<u64>,
    /// See [`Backoff::factor`].
    pub factor: Option<u64>,
    /// See [`Backoff::cap_ms`].
    pub cap_ms: Option<u64>,
    /// See [`Backoff::max_tries`].
    pub max_tries: Option<u32>,
}

/// How failures of every operation are spaced.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RetrySettings {
    /// For reconciliation as a whole, and for operations that this policy doesn't know.
    pub default: Override,
    /// By operation, or by operation and failure (`taint-removal/conflict`), which goes before the operation alone.
    pub operations: BTreeMap<String, Override>,
    /// Failures that a quick retry won't mend.
    pub slow_failures: Vec<String>,
    /// The least ceiling of the first wait after one of those, in milliseconds.
    pub slow_base_ms: u64,
    /// The least wait, in milliseconds.
    pub least_ms: u64,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            default: Override::default(),
            operations: BTreeMap::new(),
            slow_failures: ["unauthorized", "forbidden", "throttled"].map(str::to_owned).to_vec(),
            slow_base_ms: 5_000,
            least_ms: 10,
        }
    }
}

const CAUTIOUS: Backoff = Backoff { base_ms: 2_000, factor: 2, cap_ms: 120_000, max_tries: 0 };
const STEADY: Backoff = Backoff { base_ms: 1_000, factor: 2, cap_ms: 60_000, max_tries: 0 };
const NESTED: Backoff = Backoff { base_ms: 500, factor: 2, cap_ms: 5_000, max_tries: 3 };

/// Every operation of the contract, and of those some failures, with the spacing built in.
pub(crate) const BUILT_IN: [(&str, Backoff); 17] = [
    ("node-read", STEADY),
    ("node-watch", STEADY),
    ("pod-read", STEADY),
    ("site-watch", STEADY),
    ("pool-watch", STEADY),
    ("acknowledgment", STEADY),
    ("withdrawal", STEADY),
    ("cleanup", STEADY),
    ("reconciliation", CAUTIOUS),
    ("site-read", NESTED),
    ("pool-read", NESTED),
    ("data-plane", NESTED),
    ("cni-write", NESTED),
    ("advertisement", NESTED),
    // The object is its controller's to create: that is waited for, not given up.
    ("advertisement/not-found", Backoff { base_ms: 500, factor: 2, cap_ms: 30_000, max_tries: 0 }),
    // Only a patch race is worth another try at once; reconciliation as a whole tries again after anything else.
    ("taint-removal", Backoff { base_ms: 100, factor: 2, cap_ms: 5_000, max_tries: 1 }),
    ("taint-removal/conflict", Backoff { base_ms: 100, factor: 2, cap_ms: 5_000, max_tries: 6 }),
];

/// No wait is longer: what the host caps is shorter still.
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

impl Settings for RetrySettings {
    fn check(&self, problems: &mut Problems) {
        self.default.check(problems, "/default", CAUTIOUS);
        for (name, set) in &self.operations {
            let path = format!("/operations/{}", pointer_key(name));
            let (operation, failure) = match name.split_once('/') {
                Some((operation, failure)) => (operation, failure),
                None => (name.as_str(), ""),
            };
            match built_in(operation, failure) {
                Some(built_in) => set.check(problems, &path, built_in),
                None => problems.add(
                    path,
                    format!("there is no operation \"{operation}\"; an operation not known here takes \"default\""),
                ),
            }
        }
        if self.slow_base_ms > DAY_MS {
            problems.add("/slow-base-ms", "a wait is at most a day");
        }
        if self.least_ms == 0 || self.least_ms > 60_000 {
            problems.add("/least-ms", "the least wait is from 1 to 60000");
        }
    }
}

impl Override {
    fn check(&self, problems: &mut Problems, path: &str, built_in: Backoff) {
        let set = self.over(built_in);
        if set.base_ms == 0 {
            problems.add(format!("{path}/base-ms"), "a first wait of nothing would storm the server");
        }
        if set.factor == 0 || set.factor > 10 {
            problems.add(format!("{path}/factor"), "the factor is from 1 to 10");
        }
        if set.cap_ms < set.base_ms || set.cap_ms > DAY_MS {
            let message = format!("the cap is at least the base ({}) and at most a day ({DAY_MS})", set.base_ms);
            problems.add(format!("{path}/cap-ms"), message);
        }
    }

    fn over(&self, under: Backoff) -> Backoff {
        Backoff {
            base_ms: self.base_ms.unwrap_or(under.base_ms),
            factor: self.factor.unwrap_or(under.factor),
            cap_ms: self.cap_ms.unwrap_or(under.cap_ms),
            max_tries: self.max_tries.unwrap_or(under.max_tries),
        }
    }
}

fn built_in(operation: &str, failure: &str) -> Option<Backoff> {
    let named = |name: &str| BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, backoff)| *backoff);
    named(&format!("{operation}/{failure}")).or_else(|| named(operation))
}

impl RetrySettings {
    /// What applies to a failure of an operation: the settings over what is built in, the narrower name over the wider.
    fn backoff(&self, operation: &str, failure: &str) -> Backoff {
        let default = self.default.over(CAUTIOUS);
        let set = |name: &str| self.operations.get(name).copied().unwrap_or_default();
        let built_in = match built_in(operation, failure) {
            Some(built_in) if built_in != CAUTIOUS => built_in,
            _ => default,
        };
        let mut backoff = set(&format!("{operation}/{failure}")).over(set(operation).over(built_in));
        if self.slow_failures.iter().any(|slow| slow == failure) {
            backoff.base_ms = backoff.base_ms.max(self.slow_base_ms);
        }
        backoff
    }
}

impl Backoff {
    /// The longest that the wait after try `number` may be.
    fn ceiling_ms(&self, number: u32) -> u64 {
        let growth = self.factor.saturating_pow(number.saturating_sub(1));
        self.base_ms.saturating_mul(growth).min(self.cap_ms)
    }
}

/// Uniform in (0, ceiling]: `jitter` is uniform in [0, 2^32).
fn spread(ceiling_ms: u64, jitter: u32) -> u64 {
    let share = (u128::from(ceiling_ms) * (u128::from(jitter) + 1)).div_ceil(1 << 32);
    u64::try_from(share).unwrap_or(ceiling_ms)
}

impl Hook for DefaultPolicy {
    fn next(attempt: Attempt, settings: DefaultSettings) -> Result<Verdict, PolicyError> {
        let settings = settings.retry;
        let Attempt { operation, failure, number, .. } = &attempt;
        let backoff = settings.backoff(operation, failure);
        if backoff.max_tries != 0 && *number >= backoff.max_tries {
            return Ok(Verdict::GiveUp(if backoff.max_tries == 1 {
                format!("{operation} is not tried again after {failure}")
            } else {
                format!("{operation} failed {number} times in a row, last with {failure}")
            }));
        }
        let ceiling_ms = backoff.ceiling_ms(*number);
        let spread_ms = spread(ceiling_ms, attempt.jitter).max(settings.least_ms);
        let asked_ms = attempt.retry_after_ms.unwrap_or(0);
        let why = if asked_ms > spread_ms {
            format!("the server asked for {asked_ms} ms")
        } else {
            format!("a random part of {ceiling_ms} ms")
        };
        Ok(Verdict::Wait(Pause {
            after_ms: spread_ms.max(asked_ms),
            reason: format!("try {number} of {operation} failed with {failure}: {why}"),
        }))
    }
}
