//! The scenario's own hand: objects put, changed and taken away without a request.

use moorline_sim::server::{ObjectName, Options, Server};
use serde_json::json;

use crate::common::*;

const PRINTED: &str = r#"
apiVersion: v1
kind: Node
metadata:
  annotations:
    node.alpha.kubernetes.io/ttl: "0"
  creationTimestamp: "2025-11-03T09:12:44Z"
  labels:
    kubernetes.io/hostname: worker-7
    unbounded-cloud.io/site: s1
  managedFields:
  - apiVersion: v1
    fieldsType: FieldsV1
    fieldsV1: {"f:metadata": {"f:labels": {".": {}}}}
    manager: kubelet
    operation: Update
    time: "2025-11-03T09:12:44Z"
  name: worker-7
  resourceVersion: "48151623"
  uid: 9d8c7a52-9c2f-4a0f-8c43-4f3f2e1f6a11
spec:
  podCIDR: 10.0.7.0/24
  podCIDRs: [10.0.7.0/24]
status:
  nodeInfo: {kubeletVersion: v1.35.4}
"#;

#[tokio::test(start_paused = true)]
async fn an_object_is_taken_as_kubectl_prints_it_but_for_its_version() {
    let server = Server::new(Options::default());
    let printed: serde_json::Value = serde_saphyr::from_str(PRINTED).unwrap();
    let mut stored = server.apply(printed.clone()).unwrap();
    assert_ne!(stored["metadata"]["resourceVersion"], printed["metadata"]["resourceVersion"]);
    stored["metadata"]["resourceVersion"] = printed["metadata"]["resourceVersion"].clone();
    assert_eq!(stored, printed);
    let version = server.version();
    server.apply(printed).unwrap();
    assert_eq!(server.version(), version, "the same object again changes nothing");
}

#[tokio::test(start_paused = true)]
async fn applying_makes_an_object_equal_to_what_is_given_its_status_too_where_one_is_given() {
    let server = server();
    let mut gateway = gateway("n1");
    gateway["status"] = json!({"lastUpdated": "2026-01-01T00:00:00Z"});
    gateway["metadata"]["labels"] = json!({"a": "b"});
    let stored = server.apply(gateway.clone()).unwrap();
    assert_eq!(
        (&stored["status"], &stored["metadata"]["labels"]),
        (&gateway["status"], &gateway["metadata"]["labels"])
    );
    assert_eq!(stored["metadata"]["generation"], 1);
    gateway.as_object_mut().unwrap().remove("status");
    gateway["spec"]["site"] = "s1".into();
    let stored = server.apply(gateway).unwrap();
    assert_eq!(stored["status"], json!({"lastUpdated": "2026-01-01T00:00:00Z"}));
    assert_eq!(stored["metadata"]["generation"], 2);
}

#[tokio::test(start_paused = true)]
async fn applying_another_uid_is_a_deletion_and_a_creation() {
    let server = server();
    let mut watch = watch(&server, on_n1(), &server.version().to_string()).await;
    let mut again = node("n1");
    again["metadata"]["uid"] = "uid-again".into();
    server.apply(again).unwrap();
    assert_eq!(within(&mut watch, SOON).await.0, ["DELETED n1 uid-n1", "ADDED n1 uid-again"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_real_server_would_refuse_is_refused_here_too() {
    let server = server();
    let other = json!({"spec": {"podCIDRs": ["10.9.0.0/24"]}});
    assert_eq!(server.merge_patch(&ObjectName::new("nodes", "n1"), &other).unwrap_err().code, 422);
    let error =
        server.apply(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}})).unwrap_err();
    assert!(error.message.contains("no resource of kind \"Deployment\" in \"apps/v1\"; it has v1 Node"), "{error}");
    let error = server.get(&ObjectName::new("widgets", "w")).unwrap_err();
    assert!(error.message.contains("it has nodes, pods"), "{error}");
    assert_eq!(server.get(&ObjectName::new("nodes", "n9")).unwrap_err().code, 404);
    assert_eq!(
        server.apply(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "A_B"}})).unwrap_err().code,
        422
    );
}

#[tokio::test(start_paused = true)]
async fn a_resource_is_found_under_every_word_for_it() {
    let server = server();
    for word in ["nodes", "node", "Node", "no"] {
        server.get(&ObjectName::new(word, "n1")).unwrap();
    }
    let both = |uid: &str| {
        json!({
            "apiVersion": "net.unbounded-cloud.io/v1alpha1", "kind": "Site", "metadata": {"name": "s1", "uid": uid},
            "spec": {"nodeCidrs": ["192.168.0.0/16"], "podCidrAssignments": [{"cidrBlocks": ["10.0.0.0/8"]}]},
        })
    };
    server.apply(both("old-group")).unwrap();
    assert_eq!(
        server.get(&ObjectName::new("sites.net.unbounded-cloud.io", "s1")).unwrap()["metadata"]["uid"],
        "old-group"
    );
    assert_ne!(server.get(&ObjectName::new("sites", "s1")).unwrap()["metadata"]["uid"], "old-group");
    assert_eq!(server.list("gpn").unwrap().len(), 1);
    server.delete(&ObjectName::new("po", "agent").namespace("default")).unwrap();
    assert!(server.list("pods").unwrap().is_empty());
}
