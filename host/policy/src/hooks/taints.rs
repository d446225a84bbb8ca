//! Taints: which taints must be gone before the assignment is acknowledged?

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lift, Lower};

use super::{Assignment, Entry, Node};
use crate::Hook;

/// The hook itself.
#[derive(Clone, Copy, Debug)]
pub struct Taints;

/// What is asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TaintsSubject {
    /// The assignment that this process has adopted.
    pub adopted: Assignment,
    /// The Node as last observed.
    pub node: Node,
    /// Room for what later hosts have to say.
    #[serde(default)]
    pub extra: Vec<Entry>,
}

/// A taint that has to go, by its identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Removal {
    /// The taint's key.
    pub key: String,
    /// The taint's effect.
    pub effect: String,
}

/// What the taints hook says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TaintsVerdict {
    /// The taints that have to go; none is a verdict too.
    pub unwanted: Vec<Removal>,
    /// Why, for people.
    pub reason: String,
}

impl Hook for Taints {
    const NAME: &'static str = "taints";
    const INTERFACE: &'static str = "moorline:policy/taints@0.1.0";
    const FUNCTION: &'static str = "unwanted";
    type Input = TaintsSubject;
    type Verdict = TaintsVerdict;

    fn reason(verdict: &TaintsVerdict) -> &str {
        &verdict.reason
    }

    fn sample() -> TaintsSubject {
        TaintsSubject {
            adopted: super::types::sample_assignment(),
            node: super::types::sample_node(),
            extra: Vec::new(),
        }
    }

    fn fits(subject: &TaintsSubject, longest: usize) -> bool {
        subject.node.fits(longest)
    }

    fn cut(subject: &mut TaintsSubject, longest: usize) {
        subject.node.cut(longest);
    }
}
