//! The Kubernetes objects of the life, as far as a decision may depend on them. Plain data: nothing here reads or writes
//! anything, and nothing here knows how the API server spells it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A taint of a Node. Its identity is key and effect.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Default)]
pub struct Taint {
    /// The taint's key.
    pub key: String,
    /// The taint's value; empty when it has none.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// RFC 3339, exactly as the API server gave it, because it has to be sent back as it came.
    pub time_added: Option<String>,
}

/// The agent's own Node as observed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
pub struct Node {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion` of this observation.
    pub resource_version: String,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`, cut to a cap by the effector.
    pub annotations: BTreeMap<String, String>,
    /// `spec.taints`, in order.
    pub taints: Vec<Taint>,
    /// `spec.podCIDRs`, in order.
    pub pod_cidrs: Vec<String>,
    /// A deletion timestamp is set.
    pub deleting: bool,
}

impl Node {
    /// What a policy sees of this observation: everything but the resourceVersion, so that an observation that changes
    /// nothing (a kubelet's heartbeat) asks nothing.
    pub(crate) fn view(&self) -> Self {
        Self { resource_version: String::new(), ..self.clone() }
    }

    /// Whether this observation is older than `other`. resourceVersions of one resource compare as integers (documented
    /// since Kubernetes 1.35 and true of etcd's revisions before); where one is not a number, nothing is called older.
    pub(crate) fn is_older_than(&self, other: &Self) -> bool {
        match (self.resource_version.parse::<u64>(), other.resource_version.parse::<u64>()) {
            (Ok(mine), Ok(others)) => self.uid == other.uid && mine < others,
            _ => false,
        }
    }
}

/// A Site as read from the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Site {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.generation`: grows with the spec only.
    pub generation: i64,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `spec.manageCniPlugin`.
    pub manage_cni: Option<bool>,
    /// The whole `spec` as canonical JSON (keys sorted, no spaces).
    pub spec: String,
}

/// A GatewayPool as read from the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pool {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.generation`: grows with the spec only.
    pub generation: i64,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// The whole `spec` as canonical JSON (keys sorted, no spaces).
    pub spec: String,
}

/// The identity of a version of an object that is watched for its spec: another uid or generation is another version.
pub(crate) trait Versioned {
    fn version(&self) -> (&str, i64);

    /// Whether this is an earlier version of the same object.
    fn is_older_than(&self, other: &Self) -> bool {
        let ((uid, generation), (others, later)) = (self.version(), other.version());
        uid == others && generation < later
    }
}

impl Versioned for Site {
    fn version(&self) -> (&str, i64) {
        (&self.uid, self.generation)
    }
}

impl Versioned for Pool {
    fn version(&self) -> (&str, i64) {
        (&self.uid, self.generation)
    }
}

/// The agent's own Pod as read from the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pod {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
}

/// The status of the own GatewayPoolNode as read from the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GatewayPoolNode {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `status.routes`: from CIDR to the route as JSON.
    pub routes: BTreeMap<String, serde_json::Value>,
}

/// What a data plane wants advertised on the own GatewayPoolNode.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Routes {
    /// The data plane does not advertise: the object is not touched.
    NotMine,
    /// Exactly these routes; an empty map clears.
    Map(BTreeMap<String, serde_json::Value>),
}

/// Node UID, Site and optional GatewayPool: what a process adopts, at most once.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    /// The Node's UID.
    pub node_uid: String,
    /// The Site's name.
    pub site: String,
    /// The GatewayPool's name: present on a gateway, absent on a worker.
    pub pool: Option<String>,
}

impl Assignment {
    /// Whether the Node is a gateway: one with a GatewayPool.
    pub fn is_gateway(&self) -> bool {
        self.pool.is_some()
    }
}

impl std::fmt::Display for Assignment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.pool {
            Some(pool) => write!(f, "gateway in Site {} and GatewayPool {pool}", self.site),
            None => write!(f, "worker in Site {}", self.site),
        }
    }
}
