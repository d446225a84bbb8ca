//! Who may do what, and how a refusal reads.

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::{Api, api::PostParams};
use moorline_sim::server::Identity;
use serde_json::{Value, json};

use crate::common::*;

const USER: &str = "system:serviceaccount:moorline:agent";

#[tokio::test(start_paused = true)]
async fn a_token_that_is_not_accepted_is_unauthorized() {
    let server = server();
    let api: Api<Node> = Api::all(server.client(Identity::unauthenticated("expired")));
    let status = refusal(api.get("n1").await);
    assert_eq!((status.code, status.reason.as_str(), status.message.as_str()), (401, "Unauthorized", "Unauthorized"));
    assert!(status.details.is_none());
}

#[tokio::test(start_paused = true)]
async fn rbac_refuses_without_causes_and_without_saying_whether_the_object_is_there() {
    let server = server();
    let api: Api<Node> = Api::all(server.client(Identity::anonymous()));
    for name in ["n1", "absent"] {
        let status = refusal(api.patch(name, &plain(), &merge(json!({}))).await);
        assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"));
        assert_eq!(
            status.message,
            format!(
                "nodes {name:?} is forbidden: User \"system:anonymous\" cannot patch resource \"nodes\" in API group \
                 \"\" at the cluster scope"
            )
        );
        let details = status.details.unwrap();
        assert_eq!((details.name.as_str(), details.kind.as_str()), (name, "nodes"));
        assert!(details.causes.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn rbac_names_subresource_group_and_namespace() {
    let server = server();
    let client = server.client(Identity::anonymous());
    for (uri, message) in [
        (
            "/apis/net.unbounded-cloud.io/v1alpha1/gatewaypoolnodes/n1/status",
            "gatewaypoolnodes.net.unbounded-cloud.io \"n1\" is forbidden: User \"system:anonymous\" cannot get resource \
             \"gatewaypoolnodes/status\" in API group \"net.unbounded-cloud.io\" at the cluster scope",
        ),
        (
            "/api/v1/namespaces/default/pods",
            "pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API group \"\" in the \
             namespace \"default\"",
        ),
        (
            "/api/v1/nodes?watch=true&fieldSelector=metadata.name%3Dn1",
            "nodes \"n1\" is forbidden: User \"system:anonymous\" cannot watch resource \"nodes\" in API group \"\" at \
             the cluster scope",
        ),
        (
            "/apis/wrong.example.com/v1/sites/s1",
            "sites.wrong.example.com \"s1\" is forbidden: User \"system:anonymous\" cannot get resource \"sites\" in \
             API group \"wrong.example.com\" at the cluster scope",
        ),
    ] {
        let status = refusal(client.request::<Value>(http::Request::get(uri).body(vec![]).unwrap()).await);
        assert_eq!((status.code, status.message.as_str()), (403, message));
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_has_the_rights_that_it_is_deployed_with_and_no_others() {
    let server = server();
    let client = server.client(Identity::agent(USER, "default"));
    let allowed = [
        ("GET", "/api/v1/nodes/n1"),
        ("GET", "/api/v1/nodes?watch=true&fieldSelector=metadata.name%3Dn1"),
        ("PATCH", "/api/v1/nodes/n1"),
        ("GET", "/api/v1/namespaces/default/pods/agent"),
        ("PATCH", "/api/v1/namespaces/default/pods/agent"),
        ("GET", "/apis/unbounded-cloud.io/v1alpha3/sites/s1"),
        ("GET", "/apis/unbounded-cloud.io/v1alpha3/sites?watch=1"),
        ("GET", "/apis/net.unbounded-cloud.io/v1alpha1/gatewaypools/p1"),
        ("GET", "/apis/net.unbounded-cloud.io/v1alpha1/gatewaypools?watch=1"),
        ("GET", "/apis/net.unbounded-cloud.io/v1alpha1/gatewaypoolnodes/n1"),
        ("GET", "/apis/net.unbounded-cloud.io/v1alpha1/gatewaypoolnodes/n1/status"),
        ("PATCH", "/apis/net.unbounded-cloud.io/v1alpha1/gatewaypoolnodes/n1/status"),
    ];
    let denied = [
        ("GET", "/api/v1/nodes"),
        ("DELETE", "/api/v1/nodes/n1"),
        ("PATCH", "/api/v1/nodes/n1/status"),
        ("GET", "/api/v1/namespaces/default/pods"),
        ("GET", "/api/v1/namespaces/default/pods?watch=true&fieldSelector=metadata.name%3Dagent"),
        ("PATCH", "/api/v1/namespaces/other/pods/agent"),
        ("PATCH", "/apis/unbounded-cloud.io/v1alpha3/sites/s1"),
        ("PATCH", "/apis/net.unbounded-cloud.io/v1alpha1/gatewaypoolnodes/n1"),
        ("GET", "/apis/net.unbounded-cloud.io/v1alpha1/gatewaypoolnodes?watch=true"),
        ("POST", "/api/v1/namespaces/kube-system/events"),
    ];
    for ((method, uri), expected) in allowed.iter().map(|it| (it, true)).chain(denied.iter().map(|it| (it, false))) {
        let request = http::Request::builder()
            .method(*method)
            .uri(*uri)
            .header("content-type", "application/merge-patch+json")
            .body(kube::client::Body::from(b"{}".to_vec()))
            .unwrap();
        let code = client.send(request).await.unwrap().status().as_u16();
        assert_eq!(code != 403, expected, "{method} {uri} gave {code}");
        assert!(code == 200 || code == 403, "{method} {uri} gave {code}");
    }
    let event: Event = serde_json::from_value(json!({
        "metadata": {"generateName": "n1-"}, "involvedObject": {"kind": "Node", "name": "n1"}, "reason": "R",
    }))
    .unwrap();
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let created = events.create(&PostParams::default(), &event).await.unwrap();
    assert!(created.metadata.name.unwrap().starts_with("n1-"));
    let pods: Api<Pod> = Api::namespaced(client, "default");
    assert_eq!(pods.get("agent").await.unwrap().metadata.uid.as_deref(), Some("uid-agent"));
}
