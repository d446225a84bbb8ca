//! Inputs for the hooks, built from what a test is about; the rest is a worker `node-1` in `site-a` with nothing special.

use moorline_policy::hooks::{
    AcknowledgmentSubject, Adoption, AdoptionVerdict, Assignment, Attempt, CniSubject, Entry, Node, Observation, Pool,
    Site, Taint, TaintsSubject,
};

use crate::Tested;

/// The label that assigns a Node to a Site.
pub const SITE_LABEL: &str = "net.unbounded-cloud.io/site";
/// The label that makes a Node a gateway of a pool.
pub const POOL_LABEL: &str = "net.unbounded-cloud.io/gateway-pool";
/// The key of the taint that keeps other work off a gateway.
pub const GATEWAY_TAINT: &str = "net.unbounded-cloud.io/gateway-node";

/// A Node: `node-1` with a UID, a pod CIDR and no labels.
#[must_use]
pub fn node() -> NodeBuilder {
    NodeBuilder(Node {
        name: "node-1".into(),
        uid: "uid-of-node-1".into(),
        pod_cidrs: vec!["10.244.1.0/24".into()],
        ..Node::default()
    })
}

/// An observation after the adoption of a worker in `site-a`, in which nothing has changed.
#[must_use]
pub fn observation() -> ObservationBuilder {
    let node = node().label(SITE_LABEL, "site-a").build();
    let adopted = assignment(&node, "site-a", None);
    ObservationBuilder(Observation {
        adopted: adopted.clone(),
        adopted_node: node.clone(),
        observed: node,
        projected: Some(adopted),
        extra: Vec::new(),
    })
}

/// What the hooks taints and acknowledgment are asked about, for a worker in `site-a`.
#[must_use]
pub fn subject() -> SubjectBuilder {
    let node = node().label(SITE_LABEL, "site-a").build();
    SubjectBuilder { adopted: assignment(&node, "site-a", None), node }
}

/// What the hook cni is asked about, for a worker in `site-a` whose Site says nothing.
#[must_use]
pub fn cni_subject() -> CniSubjectBuilder {
    let SubjectBuilder { adopted, node } = subject();
    let site = Site { name: "site-a".into(), spec: "{}".into(), ..Site::default() };
    CniSubjectBuilder(CniSubject { adopted, node, site, pool: None, extra: Vec::new() })
}

/// The first failure of this operation: `unavailable`, with a jitter in the middle.
#[must_use]
pub fn attempt(operation: &str) -> AttemptBuilder {
    AttemptBuilder(Attempt {
        operation: operation.into(),
        failure: "unavailable".into(),
        number: 1,
        jitter: 1 << 31,
        ..Attempt::default()
    })
}

fn assignment(node: &Node, site: &str, pool: Option<&str>) -> Assignment {
    Assignment { node_uid: node.uid.clone(), site: site.into(), pool: pool.map(Into::into), extra: Vec::new() }
}

/// Sets a key, or removes it, and keeps the entries sorted.
fn set(entries: &mut Vec<Entry>, key: &str, value: Option<&str>) {
    entries.retain(|(found, _)| found != key);
    entries.extend(value.map(|value| (key.to_owned(), value.to_owned())));
    entries.sort();
}

/// Builds a [`Node`].
#[derive(Clone, Debug)]
pub struct NodeBuilder(Node);

impl NodeBuilder {
    /// With this UID.
    #[must_use]
    pub fn uid(mut self, uid: &str) -> Self {
        self.0.uid = uid.into();
        self
    }

    /// With this label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        set(&mut self.0.labels, key, Some(value));
        self
    }

    /// With this annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        set(&mut self.0.annotations, key, Some(value));
        self
    }

    /// With this taint.
    #[must_use]
    pub fn taint(mut self, key: &str, effect: &str) -> Self {
        self.0.taints.push(Taint { key: key.into(), effect: effect.into(), ..Taint::default() });
        self
    }

    /// With these pod CIDRs instead of the usual one.
    #[must_use]
    pub fn pod_cidrs(mut self, cidrs: &[&str]) -> Self {
        self.0.pod_cidrs = cidrs.iter().map(|cidr| (*cidr).to_owned()).collect();
        self
    }

    /// With a deletion timestamp.
    #[must_use]
    pub fn deleting(mut self) -> Self {
        self.0.deleting = true;
        self
    }

    /// The Node.
    #[must_use]
    pub fn build(self) -> Node {
        self.0
    }
}

/// Builds an [`Observation`].
#[derive(Clone, Debug)]
pub struct ObservationBuilder(Observation);

impl ObservationBuilder {
    /// The adopted assignment has this pool, and the Node had its label.
    #[must_use]
    pub fn adopted_pool(mut self, pool: &str) -> Self {
        self.0.adopted.pool = Some(pool.into());
        self.0.projected = Some(self.0.adopted.clone());
        set(&mut self.0.adopted_node.labels, POOL_LABEL, Some(pool));
        set(&mut self.0.observed.labels, POOL_LABEL, Some(pool));
        self
    }

    /// The observed Node has another value for this label. The projection stays: see [`projected_by`](Self::projected_by).
    #[must_use]
    pub fn relabel(mut self, key: &str, value: &str) -> Self {
        set(&mut self.0.observed.labels, key, Some(value));
        self
    }

    /// The observed Node has this label no more.
    #[must_use]
    pub fn unlabel(mut self, key: &str) -> Self {
        set(&mut self.0.observed.labels, key, None);
        self
    }

    /// The observed Node is another one of the same name.
    #[must_use]
    pub fn recreated(mut self, uid: &str) -> Self {
        self.0.observed.uid = uid.into();
        self
    }

    /// Changes the observed Node in any other way.
    #[must_use]
    pub fn observed(mut self, change: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Self {
        self.0.observed = change(NodeBuilder(self.0.observed)).build();
        self
    }

    /// The adoption hook would now give this Site and pool.
    #[must_use]
    pub fn projected(mut self, site: &str, pool: Option<&str>) -> Self {
        self.0.projected = Some(assignment(&self.0.observed, site, pool));
        self
    }

    /// The adoption hook would now wait.
    #[must_use]
    pub fn unprojected(mut self) -> Self {
        self.0.projected = None;
        self
    }

    /// The projection is what this policy's adoption hook says to the observed Node, as it is in an agent.
    #[track_caller]
    #[must_use]
    pub fn projected_by(self, policy: &Tested) -> Self {
        match policy.ask::<Adoption>(self.0.observed.clone()) {
            AdoptionVerdict::Assigned(assigned) => self.projected(&assigned.site, assigned.pool.as_deref()),
            AdoptionVerdict::Wait(_) => self.unprojected(),
        }
    }

    /// The observation.
    #[must_use]
    pub fn build(self) -> Observation {
        self.0
    }
}

/// Builds a [`TaintsSubject`] or an [`AcknowledgmentSubject`].
#[derive(Clone, Debug)]
pub struct SubjectBuilder {
    adopted: Assignment,
    node: Node,
}

impl SubjectBuilder {
    /// The adopted assignment has this pool.
    #[must_use]
    pub fn pool(mut self, pool: &str) -> Self {
        self.adopted.pool = Some(pool.into());
        self
    }

    /// Changes the Node.
    #[must_use]
    pub fn node(mut self, change: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Self {
        self.node = change(NodeBuilder(self.node)).build();
        self
    }
}

/// Builds a [`CniSubject`].
#[derive(Clone, Debug)]
pub struct CniSubjectBuilder(CniSubject);

impl CniSubjectBuilder {
    /// The Site's `spec`, from which `manageCniPlugin` is taken too.
    #[must_use]
    pub fn site_spec(mut self, spec: &serde_json::Value) -> Self {
        self.0.site.manage_cni = spec.get("manageCniPlugin").and_then(serde_json::Value::as_bool);
        self.0.site.spec = spec.to_string();
        self
    }

    /// The assignment has this pool, and its `spec` is this.
    #[must_use]
    pub fn pool(mut self, name: &str, spec: &serde_json::Value) -> Self {
        self.0.adopted.pool = Some(name.into());
        self.0.pool = Some(Pool { name: name.into(), spec: spec.to_string(), ..Pool::default() });
        self
    }

    /// Changes the Node.
    #[must_use]
    pub fn node(mut self, change: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Self {
        self.0.node = change(NodeBuilder(self.0.node)).build();
        self
    }

    /// The subject.
    #[must_use]
    pub fn build(self) -> CniSubject {
        self.0
    }
}

/// Builds an [`Attempt`].
#[derive(Clone, Debug)]
pub struct AttemptBuilder(Attempt);

impl AttemptBuilder {
    /// It failed like this.
    #[must_use]
    pub fn failure(mut self, failure: &str) -> Self {
        self.0.failure = failure.into();
        self
    }

    /// It is this failure in the row, counted from 1.
    #[must_use]
    pub fn number(mut self, number: u32) -> Self {
        self.0.number = number;
        self
    }

    /// This many milliseconds after the first.
    #[must_use]
    pub fn elapsed_ms(mut self, elapsed: u64) -> Self {
        self.0.elapsed_ms = elapsed;
        self
    }

    /// The server asked for this many milliseconds.
    #[must_use]
    pub fn retry_after_ms(mut self, wanted: u64) -> Self {
        self.0.retry_after_ms = Some(wanted);
        self
    }

    /// With this jitter, of 2^32.
    #[must_use]
    pub fn jitter(mut self, jitter: u32) -> Self {
        self.0.jitter = jitter;
        self
    }

    /// The attempt.
    #[must_use]
    pub fn build(self) -> Attempt {
        self.0
    }
}

impl From<NodeBuilder> for Node {
    fn from(builder: NodeBuilder) -> Self {
        builder.build()
    }
}

impl From<ObservationBuilder> for Observation {
    fn from(builder: ObservationBuilder) -> Self {
        builder.build()
    }
}

impl From<SubjectBuilder> for TaintsSubject {
    fn from(SubjectBuilder { adopted, node }: SubjectBuilder) -> Self {
        Self { adopted, node, extra: Vec::new() }
    }
}

impl From<SubjectBuilder> for AcknowledgmentSubject {
    fn from(SubjectBuilder { adopted, node }: SubjectBuilder) -> Self {
        Self { adopted, node, extra: Vec::new() }
    }
}

impl From<CniSubjectBuilder> for CniSubject {
    fn from(builder: CniSubjectBuilder) -> Self {
        builder.build()
    }
}

impl From<AttemptBuilder> for Attempt {
    fn from(builder: AttemptBuilder) -> Self {
        builder.build()
    }
}
