//! Drift: does what is observed oblige the process to end and start anew? Asked for every observation from adoption until
//! the acknowledgment is saved.

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lift, Lower};

use super::{Assignment, Entry, Node};
use crate::Hook;

/// The hook itself.
#[derive(Clone, Copy, Debug)]
pub struct Drift;

/// What was adopted, and what is seen now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Observation {
    /// The assignment that this process has adopted.
    pub adopted: Assignment,
    /// The Node as it was at adoption.
    #[component(name = "adopted-node")]
    pub adopted_node: Node,
    /// The Node as it is now.
    pub observed: Node,
    /// The assignment that the adoption hook would give the Node now; none when it would wait.
    #[serde(default)]
    pub projected: Option<Assignment>,
    /// Room for what later hosts have to say.
    #[serde(default)]
    pub extra: Vec<Entry>,
}

/// What the drift hook says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(variant)]
#[serde(rename_all = "kebab-case")]
pub enum DriftVerdict {
    /// Nothing that matters changed, and why.
    #[component(name = "same")]
    Same(String),
    /// The process ends and its container restarts, and why.
    #[component(name = "drifted")]
    Drifted(String),
}

impl Hook for Drift {
    const NAME: &'static str = "drift";
    const INTERFACE: &'static str = "moorline:policy/drift@0.1.0";
    const FUNCTION: &'static str = "assess";
    type Input = Observation;
    type Verdict = DriftVerdict;

    fn reason(verdict: &DriftVerdict) -> &str {
        match verdict {
            DriftVerdict::Same(reason) | DriftVerdict::Drifted(reason) => reason,
        }
    }

    fn sample() -> Observation {
        Observation {
            adopted: super::types::sample_assignment(),
            adopted_node: super::types::sample_node(),
            observed: super::types::sample_node(),
            projected: Some(super::types::sample_assignment()),
            extra: Vec::new(),
        }
    }

    fn fits(seen: &Observation, longest: usize) -> bool {
        seen.adopted_node.fits(longest) && seen.observed.fits(longest)
    }

    fn cut(seen: &mut Observation, longest: usize) {
        seen.adopted_node.cut(longest);
        seen.observed.cut(longest);
    }
}
