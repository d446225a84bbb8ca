//! Kinds of faults about the start.

use std::time::Duration;

use moorline_sim::server::{Answer, Effect, Fault, Identity, Matching, Verb};
use serde_json::Value;

use crate::kinds::Running;
use crate::stage::{self, Machine};
use crate::world;

#[tokio::test(start_paused = true)]
async fn probes_are_answered_whatever_the_start_waits_for() {
    // For the lock that another agent holds; and for an API server that says nothing.
    let (server, machine) = (stage::server(), Machine::new());
    let lock = stage::lock(&machine.path("state"));
    let mut running = Running::start(server, machine);
    running.live(30).await;
    let (ready, text) = running.probe("/readyz").await;
    assert!(!ready && text.contains("lock"), "{text}");
    assert!(running.machine.told.has("HealthUp"));
    drop(lock);

    let server = stage::server();
    server.fault(Fault { before: Duration::from_secs(3600), ..Fault::always(Matching::any(), Effect::None) });
    let mut running = Running::start(server, Machine::new());
    running.live(30).await;
    assert!(running.probe("/healthz").await.0);
    let (ready, text) = running.probe("/readyz").await;
    assert!(!ready && text.contains("Node n1"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn it_is_not_ready_before_it_is() {
    let server = stage::server();
    server.fault(Fault::delay(Matching::new(Verb::Patch, "pods"), Duration::from_secs(10)));
    let mut running = Running::start(server, Machine::new());
    running.live(9).await;
    assert!(running.machine.path(world::CNI).exists());
    let (ready, text) = running.probe("/readyz").await;
    assert!(!ready && text.contains("acknowledgment"), "{text}");
    running.live(10).await;
    assert!(running.probe("/readyz").await.0);
    running.assert_settled();
}

#[tokio::test(start_paused = true)]
async fn liveness_does_not_fail_when_the_api_server_is_away() {
    let server = stage::server();
    let away = server.fault(Fault::always(Matching::any(), Effect::LostRequest));
    let mut running = Running::start(server, Machine::new());
    for _ in 0..60 {
        running.live(60).await;
        let (alive, text) = running.probe("/healthz").await;
        assert!(alive, "{text}");
    }
    let (ready, text) = running.probe("/readyz").await;
    assert!(!ready && text.contains("got no answer"), "{text}");
    running.server.clear_fault(away);
    running.live(600).await;
    running.assert_settled();
}

fn manifest(name: &str) -> Vec<Value> {
    let path = format!("{}/../../deploy/base/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    text.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

#[test]
fn the_daemonset_tolerates_every_taint_and_has_the_priority_of_what_a_node_needs() {
    let pod = &manifest("daemonset.yaml")[0]["spec"]["template"]["spec"];
    assert_eq!(pod["tolerations"], serde_json::json!([{"operator": "Exists"}]), "not-ready Nodes and gateways alike");
    assert_eq!(pod["priorityClassName"], "system-node-critical");
    assert_eq!(pod["hostNetwork"], true, "it starts before there is a Pod network");
}

#[tokio::test(start_paused = true)]
async fn the_manifests_grant_all_that_an_agent_asks_for() {
    let server = stage::server();
    server.apply(stage::gateway_pool_node()).unwrap();
    server.fault(Fault::once(Matching::new(Verb::Patch, "nodes"), Effect::Answer(denial())));
    let mut running = Running::start(server, Machine::new());
    running.live(600).await;
    running.assert_settled();
    let rules: Vec<Value> = manifest("rbac.yaml")
        .iter()
        .filter(|object| object["rules"].is_array())
        .flat_map(|object| object["rules"].as_array().unwrap().clone())
        .collect();
    for record in running.server.audit() {
        let request = &record.request;
        let mut resource = request.resource.clone();
        if !request.subresource.is_empty() {
            resource = format!("{resource}/{}", request.subresource);
        }
        let has = |list: &Value, word: &str| list.as_array().unwrap().iter().any(|each| each == word);
        let granted = rules.iter().any(|rule| {
            has(&rule["apiGroups"], &request.group)
                && has(&rule["resources"], &resource)
                && has(&rule["verbs"], record.verb())
        });
        assert!(granted, "nothing in rbac.yaml grants {} on {resource} of {:?}", record.verb(), request.group);
    }
}

fn denial() -> Answer {
    Answer::status(422, "Invalid", "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no")
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_named_with_the_way_to_grant_it() {
    for (verb, resource) in
        [(Verb::Get, "nodes"), (Verb::Watch, "sites"), (Verb::Patch, "nodes"), (Verb::Patch, "pods")]
    {
        let (server, machine) = (stage::server(), Machine::new());
        let whole = Identity::agent("system:serviceaccount:kube-system:moorline", "kube-system");
        let short = Identity::new("system:serviceaccount:kube-system:moorline", move |request| {
            whole.may(request) && !(request.verb == Some(verb) && request.resource == resource)
        });
        let client = server.client(short);
        let mut running = Running::start_as(server, machine, |mut agent| {
            agent.client = client;
            agent
        });
        running.live(120).await;
        let (ready, text) = running.probe("/readyz").await;
        let grant = format!("Grant `{}` on `{resource}`", verb.as_str());
        assert!(!ready && text.contains(&grant) && text.contains("rbac.yaml"), "{text}");
    }
}
