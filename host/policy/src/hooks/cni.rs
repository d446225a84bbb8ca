//! CNI: which network configuration does this Site want on this Node?

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lift, Lower};

use super::{Assignment, Entry, Node, Pool, Site};
use crate::Hook;

/// The hook itself.
#[derive(Clone, Copy, Debug)]
pub struct Cni;

/// What is asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CniSubject {
    /// The assignment that this process has adopted.
    pub adopted: Assignment,
    /// The Node as last observed.
    pub node: Node,
    /// The Site of the assignment, as read from the cluster.
    pub site: Site,
    /// The pool of the assignment, on a gateway.
    #[serde(default)]
    pub pool: Option<Pool>,
    /// Room for what later hosts have to say.
    #[serde(default)]
    pub extra: Vec<Entry>,
}

/// A configuration to write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ManagedConfiguration {
    /// A CNI network configuration list, as JSON, not yet validated.
    pub conflist: String,
    /// Why, for people.
    pub reason: String,
}

/// What the cni hook says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(variant)]
#[serde(rename_all = "kebab-case")]
pub enum CniVerdict {
    /// Write this.
    #[component(name = "managed")]
    Managed(ManagedConfiguration),
    /// Someone else looks after CNI here, and why that is known.
    #[component(name = "unmanaged")]
    Unmanaged(String),
    /// Not yet, and why.
    #[component(name = "wait")]
    Wait(String),
}

impl Hook for Cni {
    const NAME: &'static str = "cni";
    const INTERFACE: &'static str = "moorline:policy/cni@0.1.0";
    const FUNCTION: &'static str = "render";
    type Input = CniSubject;
    type Verdict = CniVerdict;

    fn reason(verdict: &CniVerdict) -> &str {
        match verdict {
            CniVerdict::Managed(managed) => &managed.reason,
            CniVerdict::Unmanaged(reason) | CniVerdict::Wait(reason) => reason,
        }
    }

    fn sample() -> CniSubject {
        CniSubject {
            adopted: super::types::sample_assignment(),
            node: super::types::sample_node(),
            site: Site {
                name: "site-a".into(),
                manage_cni: Some(true),
                spec: r#"{"manageCniPlugin":true}"#.into(),
                ..Site::default()
            },
            pool: None,
            extra: Vec::new(),
        }
    }

    fn fits(subject: &CniSubject, longest: usize) -> bool {
        subject.node.fits(longest)
            && subject.site.spec.len() <= longest
            && subject.pool.as_ref().is_none_or(|pool| pool.spec.len() <= longest)
    }

    // A spec that was cut is no JSON any more: a policy that reads it says so, and one that doesn't goes on.
    fn cut(subject: &mut CniSubject, longest: usize) {
        subject.node.cut(longest);
        super::types::cut(&mut subject.site.spec, longest);
        if let Some(pool) = &mut subject.pool {
            super::types::cut(&mut pool.spec, longest);
        }
    }
}
