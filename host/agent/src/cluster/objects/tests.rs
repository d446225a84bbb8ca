//! Objects as `kubectl get -o json` prints them, and hostile ones.
#![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

use serde_json::json;

use super::*;
use crate::cluster::tests::names;

fn node_json() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "uid": "u1", "resourceVersion": "17", "labels": {"a": "b"}, "managedFields": [{}]},
        "spec": {
            "podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24", "fd00::/64"],
            "taints": [
                {"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-02T03:04:05Z"},
                {"key": "l", "value": "v", "effect": "NoExecute"}
            ]
        },
        "status": {"images": [{"names": ["x"]}]}
    })
}

#[test]
fn a_node_is_read_as_far_as_the_life_looks_at_it() {
    let node: Node = read(&Target::node(&names()), node_json()).unwrap();
    assert_eq!((node.name.as_str(), node.uid.as_str(), node.resource_version.as_str()), ("n1", "u1", "17"));
    assert_eq!(node.labels["a"], "b");
    assert_eq!(node.pod_cidrs, ["10.0.0.0/24", "fd00::/64"]);
    assert!(!node.deleting);

    let mut bare = node_json();
    bare["spec"] = json!({});
    bare["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    let node: Node = read(&Target::node(&names()), bare).unwrap();
    assert!(node.taints.is_empty() && node.pod_cidrs.is_empty() && node.deleting);
}

#[test]
fn taints_go_back_as_they_came() {
    let node: Node = read(&Target::node(&names()), node_json()).unwrap();
    let back: Vec<WireTaint> = node.taints.into_iter().map(WireTaint::from).collect();
    assert_eq!(serde_json::to_value(back).unwrap(), node_json()["spec"]["taints"]);
}

#[test]
fn what_is_wrong_with_an_object_is_said() {
    let broken = |pointer: &str, value: Value| {
        let mut json = node_json();
        *json.pointer_mut(pointer).unwrap() = value;
        read::<Node>(&Target::node(&names()), json).unwrap_err()
    };
    assert_eq!(broken("/metadata/name", json!("n2")), "it is about \"n2\"");
    assert_eq!(broken("/metadata/uid", json!("")), "its metadata.uid is missing");
    assert_eq!(
        broken("/metadata/resourceVersion", Value::Null),
        "its metadata.resourceVersion is not as expected: invalid type: null, expected a string"
    );
    assert_eq!(broken("/kind", json!("Pod")), "its kind is \"Pod\", not Node");
    assert_eq!(
        broken("/spec/taints/1/effect", json!(7)),
        "its spec.taints[1].effect is not as expected: invalid type: integer `7`, expected a string"
    );
    assert_eq!(read::<Node>(&Target::node(&names()), json!([])).unwrap_err(), "its kind is null, not Node");
}

#[test]
fn a_long_annotation_is_cut_with_a_mark_and_never_failed() {
    let mut json = node_json();
    json["metadata"]["annotations"] = json!({"big": "é".repeat(100_000), "small": "x"});
    let node: Node = read(&Target::node(&names()), json).unwrap();
    assert!(node.annotations["big"].len() < ANNOTATION_CAP + 40);
    assert!(node.annotations["big"].ends_with("…[cut: 200000 bytes]"));
    assert_eq!(node.annotations["small"], "x");
}

#[test]
fn a_spec_is_canonical_and_whole() {
    let names = names();
    let site = |spec: Value| {
        let json = json!({"kind": "Site", "metadata": {"name": "east", "uid": "u", "resourceVersion": "1", "generation": 3}, "spec": spec});
        read::<Site>(&Target::site(&names, "east"), json)
    };
    let read =
        site(serde_json::from_str(r#"{"z": {"b": 1, "a": [2, 1]}, "manageCniPlugin": false}"#).unwrap()).unwrap();
    assert_eq!(read.spec, r#"{"manageCniPlugin":false,"z":{"a":[2,1],"b":1}}"#);
    assert_eq!((read.generation, read.manage_cni), (3, Some(false)));
    assert_eq!(site(Value::Null).unwrap().spec, "{}");
    assert_eq!(site(json!({})).unwrap().manage_cni, None);
    assert_eq!(
        site(json!({"manageCniPlugin": "no"})).unwrap_err(),
        "its spec.manageCniPlugin is \"no\", neither true nor false"
    );
}

#[test]
fn routes_are_those_of_the_status() {
    let json = json!({"kind": "GatewayPoolNode", "metadata": {"name": "n1", "uid": "u", "resourceVersion": "5"},
                      "spec": {"site": "east"}, "status": {"routes": {"10.0.0.0/24": {"type": "PodCidr"}}}});
    let read_back: GatewayPoolNode = read(&Target::routes(&names()), json).unwrap();
    assert_eq!(read_back.resource_version, "5");
    assert_eq!(read_back.routes["10.0.0.0/24"], json!({"type": "PodCidr"}));
}
