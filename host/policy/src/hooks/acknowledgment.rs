//! Acknowledgment: what does the record on the agent's own Pod say, beside the host's own fields?

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lift, Lower};

use super::{Assignment, Entry, Node};
use crate::{Hook, Rules};

/// The hook itself.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledgment;

/// What is asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AcknowledgmentSubject {
    /// The assignment that this process has adopted.
    pub adopted: Assignment,
    /// The Node as last observed before the acknowledgment.
    pub node: Node,
    /// Room for what later hosts have to say.
    #[serde(default)]
    pub extra: Vec<Entry>,
}

/// What the acknowledgment hook says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AcknowledgmentVerdict {
    /// Annotations for the Pod, not yet validated.
    pub annotations: Vec<Entry>,
    /// Why, for people.
    pub reason: String,
}

impl Hook for Acknowledgment {
    const NAME: &'static str = "acknowledgment";
    const INTERFACE: &'static str = "moorline:policy/acknowledgment@0.1.0";
    const FUNCTION: &'static str = "annotate";
    // The host's own record is the promise; what a policy adds to it must not hold it up.
    const RULES: Rules = Rules::FALL_THROUGH;
    type Input = AcknowledgmentSubject;
    type Verdict = AcknowledgmentVerdict;

    fn reason(verdict: &AcknowledgmentVerdict) -> &str {
        &verdict.reason
    }

    fn sample() -> AcknowledgmentSubject {
        AcknowledgmentSubject {
            adopted: super::types::sample_assignment(),
            node: super::types::sample_node(),
            extra: Vec::new(),
        }
    }

    fn fits(subject: &AcknowledgmentSubject, longest: usize) -> bool {
        subject.node.fits(longest)
    }

    fn cut(subject: &mut AcknowledgmentSubject, longest: usize) {
        subject.node.cut(longest);
    }
}
