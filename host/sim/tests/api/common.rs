//! Objects, clients and small helpers that the tests share.

use std::time::Duration;

use futures_util::{StreamExt, stream::BoxStream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, Error,
    api::{ApiResource, DynamicObject, Patch, PatchParams, WatchEvent, WatchParams},
    core::{GroupVersionKind, Status},
};
use moorline_sim::server::{Identity, Options, Server};
use serde_json::{Value, json};

/// A server with the Node `n1`, the Pod `default/agent`, a Site, a pool and a gateway's object.
pub(crate) fn server() -> Server {
    let server = Server::new(Options::default());
    for object in [node("n1"), pod("agent"), site("s1"), pool("p1"), gateway("n1")] {
        server.apply(object).unwrap();
    }
    server
}

pub(crate) fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": {"unbounded-cloud.io/site": "s1"}},
        "spec": {
            "podCIDRs": ["10.0.0.0/24"],
            "taints": [{"key": "net.unbounded-cloud.io/gateway-node", "value": "true", "effect": "NoSchedule"}],
        },
    })
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running"},
    })
}

pub(crate) fn site(name: &str) -> Value {
    json!({
        "apiVersion": "unbounded-cloud.io/v1alpha3", "kind": "Site", "metadata": {"name": name},
        "spec": {"nodeCidrs": ["192.168.0.0/16"], "podCidrAssignments": [{"cidrBlocks": ["10.0.0.0/8"]}]},
    })
}

pub(crate) fn pool(name: &str) -> Value {
    json!({
        "apiVersion": "net.unbounded-cloud.io/v1alpha1", "kind": "GatewayPool", "metadata": {"name": name},
        "spec": {"type": "External", "nodeSelector": {"gateway": "yes"}},
    })
}

pub(crate) fn gateway(name: &str) -> Value {
    json!({
        "apiVersion": "net.unbounded-cloud.io/v1alpha1", "kind": "GatewayPoolNode", "metadata": {"name": name},
        "spec": {"nodeName": name, "gatewayPool": "p1"},
        "status": {"routes": {"10.1.0.0/16": {"type": "PodCidr"}, "10.2.0.0/16": {"type": "PodCidr"}}},
    })
}

pub(crate) fn admin(server: &Server) -> Client {
    server.client(Identity::admin("admin"))
}

pub(crate) fn nodes(server: &Server) -> Api<Node> {
    Api::all(admin(server))
}

pub(crate) fn pods(server: &Server) -> Api<Pod> {
    Api::namespaced(admin(server), "default")
}

pub(crate) fn sites(client: Client) -> Api<DynamicObject> {
    custom(client, "unbounded-cloud.io", "v1alpha3", "Site")
}

pub(crate) fn gateways(server: &Server) -> Api<DynamicObject> {
    custom(admin(server), "net.unbounded-cloud.io", "v1alpha1", "GatewayPoolNode")
}

fn custom(client: Client, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    Api::all_with(client, &ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)))
}

pub(crate) fn merge(patch: Value) -> Patch<Value> {
    Patch::Merge(patch)
}

pub(crate) fn plain() -> PatchParams {
    PatchParams::default()
}

/// A JSON patch, which the client has no type for here.
pub(crate) async fn json_patch(server: &Server, uri: &str, operations: Value) -> Result<Value, Error> {
    let request = http::Request::patch(uri).header("content-type", "application/json-patch+json");
    admin(server).request(request.body(operations.to_string().into_bytes()).unwrap()).await
}

/// The Status that a request was refused with.
pub(crate) fn refusal<T>(result: Result<T, Error>) -> Status {
    match result {
        Err(Error::Api(status)) => *status,
        Err(other) => panic!("refused without a Status: {other:?}"),
        Ok(_) => panic!("not refused"),
    }
}

/// The fields of the causes of a Status.
pub(crate) fn fields(status: &Status) -> Vec<&str> {
    status.details.iter().flat_map(|details| &details.causes).map(|cause| cause.field.as_str()).collect()
}

/// One event in short: its type and what is telling about it.
pub(crate) fn short(event: &Result<WatchEvent<DynamicObject>, Error>) -> String {
    let object = |kind: &str, object: &DynamicObject| {
        let meta = &object.metadata;
        format!("{kind} {} {}", meta.name.as_deref().unwrap_or_default(), meta.uid.as_deref().unwrap_or_default())
    };
    match event {
        Ok(WatchEvent::Added(it)) => object("ADDED", it),
        Ok(WatchEvent::Modified(it)) => object("MODIFIED", it),
        Ok(WatchEvent::Deleted(it)) => object("DELETED", it),
        Ok(WatchEvent::Bookmark(it)) => {
            let initial = it.metadata.annotations.get("k8s.io/initial-events-end").map_or("", |_| " initial");
            format!("BOOKMARK{initial}")
        }
        Ok(WatchEvent::Error(status)) => format!("ERROR {} {}", status.code, status.reason),
        Err(error) => format!("broken: {error}"),
    }
}

/// A watch on Nodes, as a stream of short events that ends when the watch ends.
pub(crate) async fn watch(server: &Server, params: WatchParams, version: &str) -> BoxStream<'static, String> {
    let gvk = GroupVersionKind::gvk("", "v1", "Node");
    let api: Api<DynamicObject> = Api::all_with(admin(server), &ApiResource::from_gvk(&gvk));
    let stream = api.watch(&params, version).await.unwrap();
    stream.map(|event| short(&event)).boxed()
}

/// What comes within this time, and whether the stream then ended.
pub(crate) async fn within(stream: &mut BoxStream<'static, String>, time: Duration) -> (Vec<String>, bool) {
    let end = tokio::time::Instant::now() + time;
    let mut seen = Vec::new();
    loop {
        match tokio::time::timeout_at(end, stream.next()).await {
            Ok(Some(event)) => seen.push(event),
            Ok(None) => return (seen, true),
            Err(_) => return (seen, false),
        }
    }
}

pub(crate) const SOON: Duration = Duration::from_secs(1);

pub(crate) fn on_n1() -> WatchParams {
    WatchParams::default().fields("metadata.name=n1")
}
