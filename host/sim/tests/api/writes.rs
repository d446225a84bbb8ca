//! Writes that are accepted: what they change and what they leave alone.

use k8s_openapi::api::core::v1::Event;
use kube::{
    Api,
    api::{DeleteParams, PatchParams, PostParams},
};
use moorline_sim::server::ObjectName;
use serde_json::{Value, json};

use crate::common::*;

fn routes(object: &Value) -> Vec<&str> {
    object["status"]["routes"].as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_changes_nothing_keeps_the_version() {
    let server = server();
    let before = nodes(&server).get("n1").await.unwrap().metadata.resource_version;
    let version = server.version();
    for noop in [json!({}), json!({"metadata": {"labels": {"absent": null}}}), json!({"metadata": {"annotations": {}}})]
    {
        let after = nodes(&server).patch("n1", &plain(), &merge(noop)).await.unwrap();
        assert_eq!(after.metadata.resource_version, before);
    }
    assert_eq!(server.version(), version);
}

#[tokio::test(start_paused = true)]
async fn a_merge_patch_replaces_the_whole_list_of_taints_and_keeps_time_added_as_it_came() {
    let server = server();
    let other = json!({"key": "a", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"});
    let gateway = json!({"key": "net.unbounded-cloud.io/gateway-node", "value": "true", "effect": "NoSchedule"});
    let both = json!({"spec": {"taints": [gateway, other.clone()]}});
    nodes(&server).patch("n1", &plain(), &merge(both)).await.unwrap();
    let one = json!({"metadata": {"uid": "uid-n1"}, "spec": {"taints": [other.clone()]}});
    nodes(&server).patch("n1", &plain(), &merge(one)).await.unwrap();
    assert_eq!(server.get(&ObjectName::new("nodes", "n1")).unwrap()["spec"]["taints"], json!([other]));
    nodes(&server).patch("n1", &plain(), &merge(json!({"spec": {"taints": []}}))).await.unwrap();
    assert_eq!(server.get(&ObjectName::new("nodes", "n1")).unwrap()["spec"].get("taints"), None);
}

#[tokio::test(start_paused = true)]
async fn taints_are_checked_for_identity_effect_and_syntax() {
    let server = server();
    let taint = |key: &str, value: &str, effect: &str| json!({"key": key, "value": value, "effect": effect});
    for (taints, field, message) in [
        (
            json!([taint("a", "1", "NoSchedule"), taint("a", "2", "NoSchedule")]),
            "spec.taints[1]",
            "Duplicate value: {\"Key\":\"a\",\"Value\":\"2\",\"Effect\":\"NoSchedule\",\"TimeAdded\":null}: taints must \
             be unique by key and effect pair",
        ),
        (
            json!([taint("a", "", "Never")]),
            "spec.taints[0].effect",
            "Unsupported value: \"Never\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
        ),
        (json!([taint("a", "", "")]), "spec.taints[0].effect", "Required value"),
        (
            json!([taint("a", "-", "NoSchedule")]),
            "spec.taints[0].value",
            "Invalid value: \"-\": a valid label must be an empty string or consist of alphanumeric characters, '-', \
             '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or \
             '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
    ] {
        let patch = json!({"spec": {"taints": taints}});
        let status = refusal(nodes(&server).patch("n1", &plain(), &merge(patch)).await);
        assert_eq!(status.code, 422);
        assert_eq!(status.message, format!("Node \"n1\" is invalid: {field}: {message}"));
        assert_eq!(fields(&status), [field]);
    }
    let same_key = json!({"spec": {"taints": [taint("a", "", "NoSchedule"), taint("a", "", "NoExecute")]}});
    nodes(&server).patch("n1", &plain(), &merge(same_key)).await.expect("the effect belongs to a taint's identity");
}

#[tokio::test(start_paused = true)]
async fn labels_are_checked_for_syntax() {
    let server = server();
    for (key, value) in [("a b", "v"), ("", "v"), ("/a", "v"), ("A_/a", "v"), ("a", "-"), ("a", &"x".repeat(64))] {
        let patch = json!({"metadata": {"labels": {key: value}}});
        let status = refusal(nodes(&server).patch("n1", &plain(), &merge(patch)).await);
        assert_eq!(fields(&status).first(), Some(&"metadata.labels"), "{key:?}={value:?}");
    }
    for (key, value) in [("example.com/My_name.1", ""), ("a", &"x".repeat(63))] {
        nodes(&server).patch("n1", &plain(), &merge(json!({"metadata": {"labels": {key: value}}}))).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn pod_cidrs_are_set_once() {
    let server = server();
    let status =
        refusal(nodes(&server).patch("n1", &plain(), &merge(json!({"spec": {"podCIDRs": ["10.9.0.0/24"]}}))).await);
    assert_eq!(
        status.message,
        "Node \"n1\" is invalid: spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid"
    );
    server.apply(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}, "spec": {}})).unwrap();
    nodes(&server).patch("n2", &plain(), &merge(json!({"spec": {"podCIDRs": ["10.9.0.0/24"]}}))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn routes_are_cleared_by_null_alone() {
    let server = server();
    let gateway = ObjectName::new("gatewaypoolnodes", "n1");
    let patch = async |patch: Value| gateways(&server).patch_status("n1", &plain(), &merge(patch)).await.unwrap();
    let version = server.version();
    patch(json!({"status": {"routes": {}}})).await;
    assert_eq!(server.version(), version, "an empty map removes nothing");
    patch(json!({"status": {"routes": {"10.1.0.0/16": null}}})).await;
    assert_eq!(routes(&server.get(&gateway).unwrap()), ["10.2.0.0/16"]);
    patch(json!({"status": {"routes": null}})).await;
    assert_eq!(server.get(&gateway).unwrap()["status"].get("routes"), None);
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_custom_resource_ignores_a_wrong_uid_and_everything_but_the_status() {
    let server = server();
    let before = server.get(&ObjectName::new("gpn", "n1")).unwrap();
    let patch = json!({
        "metadata": {"uid": "other", "labels": {"a": "b"}},
        "spec": {"gatewayPool": "other"},
        "status": {"routes": {"10.3.0.0/16": {"type": "PodCidr", "unknown": 1}}},
    });
    gateways(&server).patch_status("n1", &plain(), &merge(patch)).await.expect("applied as if the uid were right");
    let after = server.get(&ObjectName::new("gpn", "n1")).unwrap();
    assert_eq!(after["spec"], before["spec"]);
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["metadata"].get("labels"), None);
    assert_eq!(after["metadata"]["generation"], before["metadata"]["generation"]);
    assert_eq!(routes(&after), ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"]);
    assert_eq!(after["status"]["routes"]["10.3.0.0/16"], json!({"type": "PodCidr"}), "unknown fields are pruned");
}

#[tokio::test(start_paused = true)]
async fn a_write_of_the_object_itself_leaves_its_status_alone() {
    let server = server();
    let patch = json!({"spec": {"site": "s1"}, "status": {"routes": null}});
    gateways(&server).patch("n1", &plain(), &merge(patch)).await.unwrap();
    let after = server.get(&ObjectName::new("gpn", "n1")).unwrap();
    assert_eq!(after["spec"]["site"], "s1");
    assert_eq!(routes(&after).len(), 2);
    let wrong = json!({"metadata": {"uid": "other"}});
    assert_eq!(refusal(gateways(&server).patch("n1", &plain(), &merge(wrong)).await).code, 422);
    nodes(&server)
        .patch("n1", &plain(), &merge(json!({"status": {"nodeInfo": null}, "spec": {"unschedulable": true}})))
        .await
        .unwrap();
    let through_status = json!({"spec": {"unschedulable": null}, "metadata": {"labels": {"through": "status"}}});
    nodes(&server).patch_status("n1", &plain(), &merge(through_status)).await.unwrap();
    let node = server.get(&ObjectName::new("node", "n1")).unwrap();
    assert_eq!(node["spec"]["unschedulable"], true);
    assert_eq!(node["metadata"]["labels"]["through"], "status", "a Node's status write takes metadata too");
}

#[tokio::test(start_paused = true)]
async fn a_gateway_advertises_at_most_a_thousand_routes() {
    let server = server();
    server.merge_patch(&ObjectName::new("gpn", "n1"), &json!({"status": null})).unwrap();
    let routes = |range: std::ops::Range<usize>| {
        let map: serde_json::Map<String, Value> =
            range.map(|i| (format!("10.{}.{}.0/24", i / 256, i % 256), json!({"type": "PodCidr"}))).collect();
        merge(json!({"status": {"routes": map}}))
    };
    gateways(&server).patch_status("n1", &plain(), &routes(0..1000)).await.unwrap();
    let status = refusal(gateways(&server).patch_status("n1", &plain(), &routes(1000..1001)).await);
    assert_eq!(
        status.message,
        "GatewayPoolNode.net.unbounded-cloud.io \"n1\" is invalid: status.routes: Too many: 1001: must have at most \
         1000 items"
    );
}

#[tokio::test(start_paused = true)]
async fn a_site_is_checked_against_its_schema() {
    let server = server();
    for (patch, message) in [
        (
            json!({"spec": {"manageCniPlugin": "no"}}),
            "spec.manageCniPlugin: Invalid value: \"string\": spec.manageCniPlugin in body must be of type boolean: \
             \"string\"",
        ),
        (
            json!({"spec": {"tunnelMTU": 100}}),
            "spec.tunnelMTU: Invalid value: 100: spec.tunnelMTU in body should be greater than or equal to 576",
        ),
        (json!({"spec": {"nodeCidrs": null}}), "spec.nodeCidrs: Required value"),
        (
            json!({"spec": {"tunnelProtocol": "Pigeon"}}),
            "spec.tunnelProtocol: Unsupported value: \"Pigeon\": supported values: \"WireGuard\", \"IPIP\", \"GENEVE\", \
             \"VXLAN\", \"None\", \"Auto\"",
        ),
        (json!({"spec": {"podCidrAssignments": [{}]}}), "spec.podCidrAssignments[0].cidrBlocks: Required value"),
    ] {
        let status = refusal(sites(admin(&server)).patch("s1", &plain(), &merge(patch)).await);
        assert_eq!(status.message, format!("Site.unbounded-cloud.io \"s1\" is invalid: {message}"));
    }
}

#[tokio::test(start_paused = true)]
async fn generation_counts_changes_of_the_spec_of_a_custom_resource_alone() {
    let server = server();
    let patch = async |patch: Value| {
        sites(admin(&server)).patch("s1", &plain(), &merge(patch)).await.unwrap().metadata.generation
    };
    assert_eq!(patch(json!({"metadata": {"labels": {"a": "b"}}})).await, Some(1));
    assert_eq!(patch(json!({"spec": {"manageCniPlugin": false}})).await, Some(2));
    assert_eq!(patch(json!({"spec": {"unknown": 1}})).await, Some(2), "a pruned field is no change");
    assert_eq!(patch(json!({"metadata": {"generation": 9}})).await, Some(2));
    assert_eq!(nodes(&server).get("n1").await.unwrap().metadata.generation, None);
}

#[tokio::test(start_paused = true)]
async fn what_the_server_sets_is_not_the_clients_to_change() {
    let server = server();
    let before = server.get(&ObjectName::new("nodes", "n1")).unwrap();
    let patch =
        json!({"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z", "uid": null, "resourceVersion": null}});
    nodes(&server).patch("n1", &plain(), &merge(patch)).await.unwrap();
    assert_eq!(server.get(&ObjectName::new("nodes", "n1")).unwrap(), before);
    let status = refusal(nodes(&server).patch("n1", &plain(), &merge(json!({"metadata": {"name": "n2"}}))).await);
    assert_eq!(fields(&status), ["metadata.name"]);
    let kind = json!({"kind": "Pod"});
    assert_eq!(refusal(nodes(&server).patch("n1", &plain(), &merge(kind)).await).reason, "BadRequest");
}

#[tokio::test(start_paused = true)]
async fn versions_grow_over_all_resources() {
    let server = server();
    let mut last = 0;
    for object in [node("n5"), site("s5"), pod("p5"), gateway("n5"), pool("p5")] {
        let version =
            server.apply(object).unwrap()["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
        assert!(version > last);
        last = version;
    }
}

#[tokio::test(start_paused = true)]
async fn a_creation_gets_a_uid_a_time_and_a_name_and_is_refused_where_it_exists() {
    let server = server();
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    let events: Api<Event> = Api::namespaced(admin(&server), "default");
    let event = |name: Value| -> Event {
        let mut event = json!({"involvedObject": {"kind": "Node", "name": "n1"}, "reason": "R"});
        event["metadata"] = name;
        serde_json::from_value(event).unwrap()
    };
    let made = events.create(&PostParams::default(), &event(json!({"generateName": "n1."}))).await.unwrap();
    let name = made.metadata.name.unwrap();
    assert_eq!((name.len(), &name[..3]), (8, "n1."));
    assert_eq!(made.metadata.uid.unwrap().len(), 36);
    assert_eq!(made.metadata.namespace.as_deref(), Some("default"));
    assert_eq!(made.metadata.creation_timestamp.unwrap().0.to_string(), "2026-01-01T00:00:02Z");
    let status = refusal(events.create(&PostParams::default(), &event(json!({"name": name}))).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "AlreadyExists"));
    assert_eq!(status.message, format!("events {name:?} already exists"));
    let elsewhere: Api<Event> = Api::namespaced(admin(&server), "kube-system");
    let status = refusal(elsewhere.create(&PostParams::default(), &event(json!({"name": "e"}))).await);
    assert_eq!(fields(&status), ["involvedObject.namespace"]);
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_uids() {
    let uids = |seed| {
        let options = moorline_sim::server::Options { seed, ..Default::default() };
        let server = moorline_sim::server::Server::new(options);
        ["a", "b"].map(|name| server.apply(site(name)).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned())
    };
    assert_eq!(uids(1), uids(1));
    assert_ne!(uids(1), uids(2));
    let [a, b] = uids(1);
    assert_ne!(a, b);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_holds_a_deleted_object_until_it_goes() {
    let server = server();
    let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    nodes(&server).patch("n1", &plain(), &merge(held)).await.unwrap();
    let marked = nodes(&server).delete("n1", &DeleteParams::default()).await.unwrap().left().expect("the object stays");
    assert!(marked.metadata.deletion_timestamp.is_some());
    let version = server.version();
    nodes(&server).delete("n1", &DeleteParams::default()).await.unwrap();
    assert_eq!(server.version(), version, "a second deletion changes nothing");
    nodes(&server).patch("n1", &plain(), &merge(json!({"metadata": {"finalizers": null}}))).await.unwrap();
    assert_eq!(refusal(nodes(&server).get("n1").await).code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_without_finalizers_says_what_is_gone() {
    let server = server();
    let status = nodes(&server).delete("n1", &DeleteParams::default()).await.unwrap().right().expect("a Status");
    assert!(status.is_success());
    let details = status.details.unwrap();
    assert_eq!((details.name.as_str(), details.kind.as_str(), details.uid.as_str()), ("n1", "nodes", "uid-n1"));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_answers_and_stores_nothing() {
    let server = server();
    let version = server.version();
    let params = PatchParams { dry_run: true, ..plain() };
    let node = nodes(&server).patch("n1", &params, &merge(json!({"metadata": {"labels": {"a": "b"}}}))).await.unwrap();
    assert_eq!(node.metadata.labels.unwrap()["a"], "b");
    assert_eq!(server.version(), version);
}

#[tokio::test(start_paused = true)]
async fn a_put_replaces_and_needs_a_version_on_custom_resources() {
    let server = server();
    let mut node = nodes(&server).get("n1").await.unwrap();
    node.metadata.labels = None;
    node.metadata.resource_version = None;
    nodes(&server).replace("n1", &PostParams::default(), &node).await.unwrap();
    assert_eq!(nodes(&server).get("n1").await.unwrap().metadata.labels, None);
    let mut site = sites(admin(&server)).get("s1").await.unwrap();
    site.metadata.resource_version = None;
    let status = refusal(sites(admin(&server)).replace("s1", &PostParams::default(), &site).await);
    assert_eq!(
        status.message,
        "sites.unbounded-cloud.io \"s1\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for \
         an update"
    );
}
