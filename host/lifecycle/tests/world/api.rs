//! The model of an API server: one Node, Sites, GatewayPools, the own Pod and the own GatewayPoolNode, with every version
//! that ever was, so that a watch can begin anywhere. It never fails by itself: faults are the caller's.

use std::collections::BTreeMap;

use moorline_lifecycle::{Action, Answer, Failure, FailureKind, GatewayPoolNode, Node, Pod, Pool, Site, Stream, Taint};
use serde_json::Value;

pub const NODE: &str = "node-1";
pub const SITE_LABEL: &str = "unbounded-cloud.io/site";
pub const POOL_LABEL: &str = "net.unbounded-cloud.io/gateway-pool";
/// An annotation under the operator's prefix that the Pod was created with.
pub const CAME_WITH_THE_POD: &str = "moorline.dev/config-hash";
pub const GATEWAY_TAINT: &str = "net.unbounded-cloud.io/gateway-node";

/// All versions of the objects of one kind.
#[derive(Debug, Clone, Hash)]
pub struct Versions<T> {
    pub log: Vec<(u64, String, Option<T>)>,
}

impl<T: Clone> Versions<T> {
    fn new() -> Self {
        Self { log: Vec::new() }
    }

    pub fn current(&self, name: &str) -> Option<&T> {
        self.log.iter().rev().find(|(_, named, _)| named == name).and_then(|(_, _, object)| object.as_ref())
    }

    /// The place in the log from which a watch that begins after `version` goes on.
    pub fn after(&self, version: u64) -> usize {
        self.log.iter().position(|(at, ..)| *at > version).unwrap_or(self.log.len())
    }

    /// What a stream at this place says next.
    pub fn next(&self, place: &mut usize, name: &str) -> Option<Stream<T>> {
        while let Some((_, named, object)) = self.log.get(*place) {
            *place += 1;
            if named == name {
                return Some(object.clone().map_or(Stream::Deleted, Stream::Changed));
            }
        }
        None
    }
}

#[derive(Debug, Clone, Hash)]
pub struct Api {
    version: u64,
    uids: u32,
    pub nodes: Versions<Node>,
    pub sites: Versions<Site>,
    pub pools: Versions<Pool>,
    pub pod: Pod,
    pub routes: Option<GatewayPoolNode>,
}

pub fn taint(key: &str, value: &str) -> Taint {
    Taint {
        key: key.into(),
        value: value.into(),
        effect: "NoSchedule".into(),
        time_added: Some("2024-01-01T00:00:00Z".into()),
    }
}

pub fn gateway_taint() -> Taint {
    Taint { time_added: None, ..taint(GATEWAY_TAINT, "true") }
}

impl Api {
    pub fn new() -> Self {
        let pod = Pod { uid: "pod-1".into(), annotations: BTreeMap::new() };
        let (nodes, sites, pools) = (Versions::new(), Versions::new(), Versions::new());
        Self { version: 100, uids: 0, nodes, sites, pools, pod, routes: None }
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    fn uid(&mut self, kind: &str) -> String {
        self.uids += 1;
        format!("{kind}-{}", self.uids)
    }

    pub fn node(&self) -> Option<&Node> {
        self.nodes.current(NODE)
    }

    fn put_node(&mut self, node: Option<Node>) {
        self.version += 1;
        let version = self.version;
        let node = node.map(|node| Node { resource_version: version.to_string(), ..node });
        self.nodes.log.push((version, NODE.into(), node));
    }

    pub fn create_node(&mut self, site: Option<&str>, pool: Option<&str>, taints: Vec<Taint>) {
        let uid = self.uid("node");
        let labels = [(SITE_LABEL, site), (POOL_LABEL, pool)];
        let labels = labels.into_iter().filter_map(|(key, value)| Some((key.into(), value?.into()))).collect();
        self.put_node(Some(Node {
            name: NODE.into(),
            uid,
            resource_version: String::new(),
            labels,
            annotations: BTreeMap::new(),
            taints,
            pod_cidrs: vec!["10.1.2.0/24".into()],
            deleting: false,
        }));
    }

    pub fn delete_node(&mut self) {
        if self.node().is_some() {
            self.put_node(None);
        }
    }

    /// Changes the Node, if there is one and it becomes another.
    pub fn change_node(&mut self, change: impl FnOnce(&mut Node)) {
        let Some(before) = self.node().cloned() else { return };
        let mut node = before.clone();
        change(&mut node);
        if node != before {
            self.put_node(Some(node));
        }
    }

    pub fn label(&mut self, key: &str, value: Option<&str>) {
        self.change_node(|node| {
            match value {
                Some(value) => node.labels.insert(key.into(), value.into()),
                None => node.labels.remove(key),
            };
        });
    }

    /// Creates the Site, or gives it another generation.
    pub fn put_site(&mut self, name: &str, manage_cni: Option<bool>) {
        let (uid, generation) = match self.sites.current(name) {
            Some(site) => (site.uid.clone(), site.generation + 1),
            None => (self.uid("site"), 1),
        };
        self.version += 1;
        let spec = format!("{{\"generation\":{generation}}}");
        let site = Site { name: name.into(), uid, generation, labels: BTreeMap::new(), manage_cni, spec };
        self.sites.log.push((self.version, name.into(), Some(site)));
    }

    pub fn delete_site(&mut self, name: &str) {
        if self.sites.current(name).is_some() {
            self.version += 1;
            self.sites.log.push((self.version, name.into(), None));
        }
    }

    /// Creates the GatewayPool, or gives it another generation.
    pub fn put_pool(&mut self, name: &str) {
        let (uid, generation) = match self.pools.current(name) {
            Some(pool) => (pool.uid.clone(), pool.generation + 1),
            None => (self.uid("pool"), 1),
        };
        self.version += 1;
        let pool = Pool { name: name.into(), uid, generation, labels: BTreeMap::new(), spec: "{}".into() };
        self.pools.log.push((self.version, name.into(), Some(pool)));
    }

    pub fn delete_pool(&mut self, name: &str) {
        if self.pools.current(name).is_some() {
            self.version += 1;
            self.pools.log.push((self.version, name.into(), None));
        }
    }

    pub fn put_routes(&mut self, routes: &[&str]) {
        self.version += 1;
        let uid = self.routes.as_ref().map_or_else(|| "gpn-1".into(), |object| object.uid.clone());
        let routes = routes.iter().map(|key| ((*key).into(), Value::from("someone's"))).collect();
        self.routes = Some(GatewayPoolNode { uid, resource_version: self.version.to_string(), routes });
    }

    pub fn replace_pod(&mut self) {
        let uid = self.uid("pod-r");
        self.pod = Pod { uid, annotations: BTreeMap::new() };
    }

    /// Serves a request as a server without faults does; none for what is no request.
    pub fn serve(&mut self, action: &Action, own_pod_uid: &str) -> Option<Answer> {
        Some(match action {
            Action::ReadNode(_) => Answer::Node(
                self.node()
                    .cloned()
                    .ok_or_else(|| Failure::new(FailureKind::NotFound, format!("nodes {NODE:?} not found"))),
            ),
            Action::PatchTaints { uid, resource_version, taints, .. } => {
                Answer::Node(self.patch_taints(uid, resource_version, taints))
            }
            Action::ReadPod(_) => Answer::Pod(Ok(self.pod.clone())),
            Action::PatchPod(_, _) if self.pod.uid != own_pod_uid => {
                Answer::Pod(Err(Failure::new(FailureKind::Invalid, "metadata.uid: field is immutable")))
            }
            Action::PatchPod(_, annotations) => {
                merge(&mut self.pod.annotations, annotations);
                Answer::Pod(Ok(self.pod.clone()))
            }
            Action::ReadRoutes(_) => Answer::Routes(Ok(self.routes.clone())),
            Action::PatchRoutes(_, resource_version, patch) => Answer::Routes(match &mut self.routes {
                None => Ok(None),
                Some(object) if object.resource_version != *resource_version => Err(conflict()),
                Some(object) => {
                    self.version += 1;
                    object.resource_version = self.version.to_string();
                    merge(&mut object.routes, patch);
                    Ok(Some(object.clone()))
                }
            }),
            Action::WriteEvent(..) => Answer::EventWritten(Ok(())),
            _ => return None,
        })
    }

    fn patch_taints(&mut self, uid: &str, resource_version: &str, taints: &[Taint]) -> Result<Node, Failure> {
        let Some(node) = self.node() else {
            return Err(Failure::new(FailureKind::NotFound, format!("nodes {NODE:?} not found")));
        };
        if node.resource_version != resource_version {
            return Err(conflict());
        }
        if node.uid != uid {
            return Err(Failure::new(FailureKind::Invalid, "metadata.uid: field is immutable"));
        }
        self.change_node(|node| node.taints = taints.to_vec());
        self.node().cloned().ok_or_else(conflict)
    }
}

fn conflict() -> Failure {
    Failure::new(FailureKind::Conflict, "the object has been modified")
}

fn merge<T: Clone>(into: &mut BTreeMap<String, T>, patch: &BTreeMap<String, Option<T>>) {
    for (key, value) in patch {
        match value {
            Some(value) => into.insert(key.clone(), value.clone()),
            None => into.remove(key),
        };
    }
}
