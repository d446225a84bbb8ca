//! What asking a set yields: a verdict and whose it is, or why there is none.

use std::{fmt, sync::Arc, time::Duration};

use crate::{Binding, CallError, LoadError};

/// The answer of a set to one question.
#[derive(Clone, Debug)]
pub struct Answer<V> {
    /// What came of it.
    pub decision: Decision<V>,
    /// Bindings that should have answered before and failed, in order. Each failed by falling through.
    pub passed_over: Vec<Trouble>,
}

/// What came of a question.
#[derive(Clone, Debug)]
pub enum Decision<V> {
    /// A binding decided.
    Decided {
        /// Its verdict.
        verdict: V,
        /// The binding: its name, policy, grants; it can be asked again, apart from the set.
        by: Arc<Binding>,
    },
    /// No binding matched, or none of those that did has an opinion.
    NoBinding,
    /// A binding failed that holds the operation when it does.
    Held(Trouble),
}

/// A binding that was asked and didn't answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("The binding `{binding}` of the hook `{hook}` doesn't answer: {cause}")]
pub struct Trouble {
    /// The hook.
    pub hook: &'static str,
    /// The binding.
    pub binding: String,
    /// Why.
    #[source]
    pub cause: TroubleCause,
    /// When its breaker lets the next call through, on the clock of the question; none while calls still go through.
    pub ask_again_at: Option<Duration>,
}

/// Why a binding didn't answer.
#[derive(Clone, Debug)]
pub enum TroubleCause {
    /// Its policy was refused at load.
    Refused(Arc<LoadError>),
    /// The call failed.
    Failed(CallError),
    /// It failed several times in a row and isn't called for a while; this is the last failure.
    Resting(CallError),
}

impl TroubleCause {
    /// A stable word for metrics: `refused`, `resting` or the call's [kind](CallError::kind).
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Failed(error) => error.kind(),
            Self::Resting(_) => "resting",
        }
    }
}

impl fmt::Display for TroubleCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::Failed(error) => error.fmt(f),
            Self::Resting(error) => {
                write!(f, "it failed several times in a row and is left alone for a while. {error}")
            }
        }
    }
}

impl std::error::Error for TroubleCause {}
