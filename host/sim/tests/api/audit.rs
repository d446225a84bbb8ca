//! Audit records and notices: what a runner sees of the agent's requests.

use std::time::Duration;

use kube::api::WatchParams;
use moorline_sim::server::{
    Admission, Answer, ChangeKind, Denial, Effect, Fault, Identity, Matching, Notice, ObjectName, Verb,
};
use serde_json::json;

use crate::common::*;

#[tokio::test(start_paused = true)]
async fn every_request_has_a_record_with_who_what_and_how_it_ended() {
    let server = server();
    server.fault(Fault::once(
        Matching::new(Verb::Get, "pods"),
        Effect::Answer(Answer::status(503, "ServiceUnavailable", "")),
    ));
    server.admit(Admission::deny(Matching::new(Verb::Patch, "nodes"), Denial::policy("no-taints", "no")));
    let _ = pods(&server).get("agent").await;
    let _ = nodes(&server).patch("n1", &plain(), &merge(json!({"spec": {"taints": null}}))).await;
    let anonymous: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(server.client(Identity::anonymous()));
    let _ = anonymous.get("n1").await;
    let _ = gateways(&server).patch_status("n1", &plain(), &merge(json!({"status": {"routes": null}}))).await;
    let records = server.audit();
    let lines: Vec<String> = records
        .iter()
        .map(|r| {
            let it = &r.request;
            let verdict = r.fault.as_ref().or(r.admission.as_ref()).or(r.reason.as_ref());
            format!(
                "{} {} {} {}/{} {}/{} {} {}",
                r.id,
                it.identity,
                r.verb(),
                it.resource,
                it.subresource,
                it.namespace,
                it.name,
                r.code.unwrap(),
                verdict.map_or("", |v| v)
            )
        })
        .collect();
    assert_eq!(
        lines,
        [
            "1 admin get pods/ default/agent 503 answered 503",
            "2 admin patch nodes/ /n1 422 denied by policy no-taints",
            "3 system:anonymous get nodes/ /n1 403 Forbidden",
            "4 admin patch gatewaypoolnodes/status /n1 200 ",
        ]
    );
    assert_eq!(records[3].patch, Some(json!({"status": {"routes": null}})));
    assert_eq!(records[3].uri, "/apis/net.unbounded-cloud.io/v1alpha1/gatewaypoolnodes/n1/status?");
}

#[tokio::test(start_paused = true)]
async fn stamps_follow_virtual_time_and_never_repeat() {
    let server = server();
    let started = server.now();
    for _ in 0..3 {
        nodes(&server).get("n1").await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(600)).await;
    nodes(&server).get("n1").await.unwrap();
    let records = server.audit();
    let stamps: Vec<_> = records.iter().flat_map(|r| [r.received, r.completed.unwrap()]).collect();
    assert!(stamps.is_sorted_by(|a, b| a < b), "{stamps:?}");
    let micros = |stamp: jiff::Timestamp| (stamp.as_microsecond() - started.as_microsecond()) as u64;
    assert!(micros(stamps[5]) < 1000);
    assert!((600_000_000..600_001_000).contains(&micros(stamps[6])));
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_complete_when_its_stream_ends_on_either_side() {
    let server = server();
    let opened = server.now();
    let seconds = |stamp: Option<jiff::Timestamp>| stamp.map(|stamp| stamp.as_second() - opened.as_second());
    let mut ended = watch(&server, on_n1().timeout(30), "0").await;
    let dropped = watch(&server, on_n1(), "0").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(server.audit()[0].completed, None);
    assert_eq!(server.audit()[0].code, Some(200));
    drop(dropped);
    assert!(within(&mut ended, Duration::from_secs(100)).await.1);
    let records = server.audit();
    assert_eq!((seconds(records[0].completed), seconds(records[1].completed)), (Some(30), Some(10)));
    assert_eq!(records[0].request.name, "n1");
}

#[tokio::test(start_paused = true)]
async fn notices_come_in_order() {
    let server = server();
    let mut notices = server.subscribe();
    let version = server.version().to_string();
    let watch = watch(&server, WatchParams::default(), &version).await;
    nodes(&server).patch("n1", &plain(), &merge(json!({"metadata": {"labels": {"a": "b"}}}))).await.unwrap();
    drop(watch);
    server.delete(&ObjectName::new("nodes", "n1")).unwrap();
    let mut seen = Vec::new();
    while let Ok(notice) = notices.try_recv() {
        seen.push(match notice {
            Notice::Received(record) => format!("received {}", record.verb()),
            Notice::Opened(record) => format!("opened {}", record.verb()),
            Notice::Completed(record) => format!("completed {}", record.verb()),
            Notice::Changed(change) => {
                assert_eq!(change.object()["metadata"]["labels"]["a"], "b");
                assert_eq!(change.kind() == ChangeKind::Deleted, seen.len() == 6);
                format!("{} {} {}", change.kind().as_str(), change.resource(), change.name())
            }
        });
    }
    assert_eq!(
        seen,
        [
            "received watch",
            "opened watch",
            "received patch",
            "MODIFIED nodes n1",
            "completed patch",
            "completed watch",
            "DELETED nodes n1"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn only_as_many_records_are_kept_as_was_asked_for() {
    let server = moorline_sim::server::Server::new(moorline_sim::server::Options { audit: 2, ..Default::default() });
    for name in ["a", "b", "c"] {
        let _ = nodes(&server).get(name).await;
    }
    let names: Vec<String> = server.audit().iter().map(|record| record.request.name.clone()).collect();
    assert_eq!(names, ["b", "c"]);
    assert!(server.audit().iter().all(|record| record.completed.is_some()));
}
