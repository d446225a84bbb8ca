//! The nouns that the hooks share: Node, Taint, Site, pool, assignment.
//! Plain data in the words of the contract; nothing here reads a cluster.

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lift, Lower};

/// A key and its value. Lists of entries are passed sorted by key, each key once.
pub type Entry = (String, String);

/// A Kubernetes taint. Its identity is key and effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Taint {
    /// The taint's key.
    pub key: String,
    /// The taint's value, empty where there is none.
    #[serde(default)]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// RFC 3339, as the API server gave it.
    #[component(name = "time-added")]
    #[serde(default)]
    pub time_added: Option<String>,
}

/// The agent's own Node, as last observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Node {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.labels`.
    #[serde(default)]
    pub labels: Vec<Entry>,
    /// `metadata.annotations`; long values are cut with a mark before a policy sees them.
    #[serde(default)]
    pub annotations: Vec<Entry>,
    /// `spec.taints`, in order.
    #[serde(default)]
    pub taints: Vec<Taint>,
    /// `spec.podCIDRs`, in order; empty until the cluster has allocated them.
    #[component(name = "pod-cidrs")]
    #[serde(default)]
    pub pod_cidrs: Vec<String>,
    /// A deletion timestamp is set; the Node still exists, possibly for hours.
    #[serde(default)]
    pub deleting: bool,
    /// Room for what later hosts have to say.
    #[serde(default)]
    pub extra: Vec<Entry>,
}

impl Node {
    /// The value of a label, if the Node has it.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        find(&self.labels, key)
    }

    /// The value of an annotation, if the Node has it.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        find(&self.annotations, key)
    }

    /// Whether no annotation value is longer than `longest` bytes. Labels and names are short by Kubernetes' own rules, and
    /// an assignment hangs on them: they are never touched.
    pub(crate) fn fits(&self, longest: usize) -> bool {
        self.annotations.iter().all(|(_, value)| value.len() <= longest)
    }

    pub(crate) fn cut(&mut self, longest: usize) {
        for (_, value) in &mut self.annotations {
            cut(value, longest);
        }
    }
}

/// What a process has adopted, for all of its life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Assignment {
    /// UID of the Node.
    #[component(name = "node-uid")]
    pub node_uid: String,
    /// Name of the Site.
    pub site: String,
    /// Name of the GatewayPool: present on a gateway, absent on a worker.
    #[serde(default)]
    pub pool: Option<String>,
    /// Room for what later hosts have to say.
    #[serde(default)]
    pub extra: Vec<Entry>,
}

/// A Site, as read from the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Site {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.labels`.
    #[serde(default)]
    pub labels: Vec<Entry>,
    /// `spec.manageCniPlugin`; absent means that the Site doesn't say.
    #[component(name = "manage-cni")]
    #[serde(default)]
    pub manage_cni: Option<bool>,
    /// The whole `spec` as canonical JSON (keys sorted, no spaces).
    pub spec: String,
    /// Room for what later hosts have to say.
    #[serde(default)]
    pub extra: Vec<Entry>,
}

/// A GatewayPool, as read from the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Pool {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.labels`.
    #[serde(default)]
    pub labels: Vec<Entry>,
    /// The whole `spec` as canonical JSON (keys sorted, no spaces).
    pub spec: String,
    /// Room for what later hosts have to say.
    #[serde(default)]
    pub extra: Vec<Entry>,
}

fn find<'a>(entries: &'a [Entry], key: &str) -> Option<&'a str> {
    entries.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_str())
}

/// Shortens `text` to at most `longest` bytes of itself, at a character boundary, followed by a mark that tells what is missing.
pub(crate) fn cut(text: &mut String, longest: usize) {
    if text.len() > longest {
        let whole = text.len();
        text.truncate(text.floor_char_boundary(longest));
        text.push_str(&format!("…[cut, {whole} bytes in all]"));
    }
}

/// A Node that is assigned to `site-a` by either of the two usual labels, with a pod CIDR and nothing special.
pub(crate) fn sample_node() -> Node {
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    Node {
        name: "node-1".into(),
        uid: "0a0a0a0a-0000-4000-8000-000000000001".into(),
        labels: vec![
            label("kubernetes.io/hostname", "node-1"),
            label("net.unbounded-cloud.io/site", "site-a"),
            label("unbounded-cloud.io/site", "site-a"),
        ],
        pod_cidrs: vec!["10.244.1.0/24".into()],
        ..Node::default()
    }
}

/// The assignment of [`sample_node`].
pub(crate) fn sample_assignment() -> Assignment {
    Assignment {
        node_uid: "0a0a0a0a-0000-4000-8000-000000000001".into(),
        site: "site-a".into(),
        ..Assignment::default()
    }
}
