//! Retry: how long to wait before the next try of an operation that failed?

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lift, Lower};

use super::Entry;
use crate::{Hook, Rules};

/// The hook itself.
#[derive(Clone, Copy, Debug)]
pub struct Retry;

/// A failed try.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Attempt {
    /// What was tried, in the words of the contract, such as `node-read` or `taint-removal`.
    pub operation: String,
    /// How it failed, in the words of the contract, such as `conflict` or `throttled`.
    pub failure: String,
    /// 1 for the first failure in a row.
    pub number: u32,
    /// Milliseconds since the first failure in this row.
    #[component(name = "elapsed-ms")]
    pub elapsed_ms: u64,
    /// A server's Retry-After in milliseconds, if it gave one.
    #[component(name = "retry-after-ms")]
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
    /// Uniform in [0, 2^32): the only randomness a policy has.
    pub jitter: u32,
    /// Room for what later hosts have to say.
    #[serde(default)]
    pub extra: Vec<Entry>,
}

/// A wait, and why it is as long as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Pause {
    /// Milliseconds.
    #[component(name = "after-ms")]
    pub after_ms: u64,
    /// Why, for people.
    pub reason: String,
}

/// What the retry hook says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(variant)]
#[serde(rename_all = "kebab-case")]
pub enum RetryVerdict {
    /// Try again after this pause.
    #[component(name = "wait")]
    Wait(Pause),
    /// Give this row up, and why.
    #[component(name = "give-up")]
    GiveUp(String),
}

impl Hook for Retry {
    const NAME: &'static str = "retry";
    const INTERFACE: &'static str = "moorline:policy/retry@0.1.0";
    const FUNCTION: &'static str = "next";
    // A retry that waits for its own policy to recover would never come.
    const RULES: Rules = Rules::FALL_THROUGH;
    type Input = Attempt;
    type Verdict = RetryVerdict;

    fn reason(verdict: &RetryVerdict) -> &str {
        match verdict {
            RetryVerdict::Wait(pause) => &pause.reason,
            RetryVerdict::GiveUp(reason) => reason,
        }
    }

    fn sample() -> Attempt {
        Attempt {
            operation: "node-read".into(),
            failure: "unavailable".into(),
            number: 1,
            jitter: 1 << 31,
            ..Attempt::default()
        }
    }
}
