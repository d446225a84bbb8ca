//! Adoption: which Site and pool does this Node have? It is asked until the answer is an assignment, and again for every
//! observation until the acknowledgment, to compare.

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lift, Lower};

use super::Node;
use crate::{Hook, Rules};

/// The hook itself.
#[derive(Clone, Copy, Debug)]
pub struct Adoption;

/// An assignment found on a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Assigned {
    /// Name of the Site.
    pub site: String,
    /// Name of the GatewayPool, on a gateway.
    #[serde(default)]
    pub pool: Option<String>,
    /// Why, for people.
    pub reason: String,
}

/// What the adoption hook says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(variant)]
#[serde(rename_all = "kebab-case")]
pub enum AdoptionVerdict {
    /// The Node belongs here.
    #[component(name = "assigned")]
    Assigned(Assigned),
    /// Not yet, and why.
    #[component(name = "wait")]
    Wait(String),
}

impl Hook for Adoption {
    const NAME: &'static str = "adoption";
    const INTERFACE: &'static str = "moorline:policy/adoption@0.1.0";
    const FUNCTION: &'static str = "adopt";
    // Before adoption nobody knows the Site, so nothing could match.
    const RULES: Rules = Rules { may_name_sites: false, ..Rules::HOLD };
    type Input = Node;
    type Verdict = AdoptionVerdict;

    fn reason(verdict: &AdoptionVerdict) -> &str {
        match verdict {
            AdoptionVerdict::Assigned(assigned) => &assigned.reason,
            AdoptionVerdict::Wait(reason) => reason,
        }
    }

    fn sample() -> Node {
        super::types::sample_node()
    }

    fn fits(node: &Node, longest: usize) -> bool {
        node.fits(longest)
    }

    fn cut(node: &mut Node, longest: usize) {
        node.cut(longest);
    }
}
