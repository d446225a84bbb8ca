//! Watches: where they start, what they show, how they end.

use std::time::Duration;

use futures_util::StreamExt;
use kube::{
    Api,
    api::{DeleteParams, WatchEvent, WatchParams},
};
use moorline_sim::server::{Matching, ObjectName, Options, Server, Verb};
use serde_json::json;
use tokio::time::Instant;

use crate::common::*;

fn n1() -> ObjectName {
    ObjectName::new("nodes", "n1")
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_version_shows_what_came_after_it_and_nothing_else() {
    let server = server();
    let version = server.version().to_string();
    server.label(&n1(), "a", Some("1")).unwrap();
    let mut watch = watch(&server, on_n1(), &version).await;
    server.label(&n1(), "a", Some("2")).unwrap();
    server.apply(node("n2")).unwrap();
    server.label(&ObjectName::new("sites", "s1"), "a", Some("1")).unwrap();
    assert_eq!(within(&mut watch, SOON).await.0, ["MODIFIED n1 uid-n1", "MODIFIED n1 uid-n1"]);
}

#[tokio::test(start_paused = true)]
async fn deleted_and_created_again_shows_as_deleted_then_added_with_another_uid() {
    let server = server();
    let mut watch = watch(&server, on_n1(), &server.version().to_string()).await;
    nodes(&server).delete("n1", &DeleteParams::default()).await.unwrap();
    let mut again = node("n1");
    again["metadata"]["uid"] = "uid-again".into();
    server.apply(again).unwrap();
    assert_eq!(within(&mut watch, SOON).await.0, ["DELETED n1 uid-n1", "ADDED n1 uid-again"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_version_starts_with_what_is_there() {
    let server = server();
    server.apply(node("n2")).unwrap();
    for version in ["", "0"] {
        let mut one = watch(&server, on_n1(), version).await;
        assert_eq!(within(&mut one, SOON).await.0, ["ADDED n1 uid-n1"]);
        let mut all = watch(&server, WatchParams::default(), version).await;
        assert_eq!(within(&mut all, SOON).await.0, ["ADDED n1 uid-n1", "ADDED n2 uid-n2"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_old_is_an_error_event_under_http_200() {
    let server = server();
    let old = server.version().to_string();
    server.label(&n1(), "a", Some("1")).unwrap();
    let mut open = watch(&server, on_n1(), &old).await;
    server.compact();
    let mut late = watch(&server, on_n1(), &old).await;
    assert_eq!(within(&mut late, SOON).await, (vec!["ERROR 410 Expired".to_owned()], true));
    server.label(&n1(), "a", Some("2")).unwrap();
    let seen = within(&mut open, SOON).await;
    assert_eq!(seen, (vec!["MODIFIED n1 uid-n1".to_owned(); 2], false), "an open watch outlives a compaction");
    let mut present = watch(&server, on_n1(), &(server.version() - 1).to_string()).await;
    assert_eq!(within(&mut present, SOON).await.0, ["MODIFIED n1 uid-n1"]);
}

#[tokio::test(start_paused = true)]
async fn the_expired_status_says_from_where_a_watch_could_start() {
    let server = server();
    server.compact();
    let params = WatchParams::default();
    let stream = nodes(&server).watch(&params, "2").await.unwrap();
    let events: Vec<_> = stream.collect().await;
    let [Ok(WatchEvent::Error(status))] = &events[..] else { panic!("{events:?}") };
    assert_eq!(status.message, format!("too old resource version: 2 ({})", server.version()));
}

#[tokio::test(start_paused = true)]
async fn only_as_many_changes_are_remembered_as_was_asked_for() {
    let server = Server::new(Options { history: 2, ..Options::default() });
    server.apply(node("n1")).unwrap();
    let versions: Vec<String> = (0..3)
        .map(|i| {
            server.label(&n1(), "a", Some(&i.to_string())).unwrap()["metadata"]["resourceVersion"]
                .as_str()
                .unwrap()
                .into()
        })
        .collect();
    let mut kept = watch(&server, on_n1(), &versions[0]).await;
    assert_eq!(within(&mut kept, SOON).await.0.len(), 2);
    let before: u64 = versions[0].parse().unwrap();
    let mut forgotten = watch(&server, on_n1(), &(before - 1).to_string()).await;
    assert_eq!(within(&mut forgotten, SOON).await.0, ["ERROR 410 Expired"]);
}

#[tokio::test(start_paused = true)]
async fn a_version_from_the_future_is_silence_until_it_is_passed() {
    let server = server();
    let mut watch = watch(&server, on_n1(), &(server.version() + 1).to_string()).await;
    server.label(&n1(), "a", Some("1")).unwrap();
    assert_eq!(within(&mut watch, SOON).await, (vec![], false));
    server.label(&n1(), "a", Some("2")).unwrap();
    assert_eq!(within(&mut watch, SOON).await.0, ["MODIFIED n1 uid-n1"]);
}

#[tokio::test(start_paused = true)]
async fn initial_events_show_presence_or_absence_then_their_end_then_changes() {
    let server = server();
    for version in ["", "0", "2"] {
        let params = on_n1().initial_events();
        let mut there = watch(&server, params, version).await;
        assert_eq!(within(&mut there, SOON).await.0, ["ADDED n1 uid-n1", "BOOKMARK initial"], "from {version:?}");
        server.label(&n1(), "a", Some(version).filter(|v| !v.is_empty())).unwrap();
        server.label(&n1(), "b", Some("c")).ok();
        assert!(within(&mut there, SOON).await.0.iter().all(|event| event == "MODIFIED n1 uid-n1"));
    }
    let params = WatchParams::default().fields("metadata.name=absent").initial_events();
    let mut absent = watch(&server, params, "").await;
    assert_eq!(within(&mut absent, SOON).await.0, ["BOOKMARK initial"]);
    server.apply(node("absent")).unwrap();
    assert_eq!(within(&mut absent, SOON).await.0, ["ADDED absent uid-absent"]);
}

#[tokio::test(start_paused = true)]
async fn initial_events_work_on_custom_resources_too() {
    let server = server();
    let params = WatchParams::default().fields("metadata.name=s1").initial_events();
    let events: Vec<String> =
        sites(admin(&server)).watch(&params, "").await.unwrap().take(2).map(|e| short(&e)).collect().await;
    assert!(events[0].starts_with("ADDED s1 ") && events[1] == "BOOKMARK initial", "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_refused_where_its_options_do_not_fit_together() {
    let server = server();
    for query in
        ["sendInitialEvents=true", "resourceVersionMatch=NotOlderThan&resourceVersion=1", "labelSelector=a%3Db"]
    {
        let uri = format!("/api/v1/nodes?watch=true&{query}");
        let request = http::Request::get(uri).body(vec![]).unwrap();
        let code = refusal(admin(&server).request_text(request).await).code;
        assert!(code == 422 || code == 400, "{query}: {code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_cleanly_after_its_timeout() {
    let server = server();
    let started = Instant::now();
    let mut watch = watch(&server, on_n1().timeout(100).disable_bookmarks(), &server.version().to_string()).await;
    let hour = Duration::from_secs(3600);
    assert_eq!(within(&mut watch, hour).await, (vec![], true));
    assert_eq!(started.elapsed(), Duration::from_secs(100));
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_every_minute_and_once_more_before_the_end() {
    let server = server();
    let gvk = kube::core::GroupVersionKind::gvk("", "v1", "Node");
    let api: Api<kube::api::DynamicObject> = Api::all_with(admin(&server), &kube::api::ApiResource::from_gvk(&gvk));
    let started = Instant::now();
    let mut stream = api.watch(&on_n1().timeout(150), &server.version().to_string()).await.unwrap().boxed();
    server.label(&ObjectName::new("sites", "s1"), "a", Some("b")).unwrap();
    let mut seen = Vec::new();
    while let Some(event) = stream.next().await {
        let Ok(WatchEvent::Bookmark(bookmark)) = event else { panic!("{event:?}") };
        seen.push((started.elapsed().as_secs(), bookmark.metadata.resource_version));
    }
    let version = server.version().to_string();
    assert_eq!(seen, [60, 120, 148].map(|at| (at, version.clone())), "with the version of the whole server");
    assert_eq!(started.elapsed().as_secs(), 150);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_does_not_say_lasts_half_an_hour_to_an_hour() {
    let server = server();
    let uri = format!("/api/v1/nodes?watch=true&resourceVersion={}", server.version());
    let started = Instant::now();
    let request = http::Request::get(uri).body(vec![]).unwrap();
    admin(&server).request_text(request).await.unwrap();
    let lasted = started.elapsed().as_secs();
    assert!((1800..3600).contains(&lasted), "{lasted}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_one_namespace_shows_that_namespace() {
    let server = server();
    let mut stream = pods(&server).watch(&WatchParams::default(), &server.version().to_string()).await.unwrap().boxed();
    let mut elsewhere = pod("other");
    elsewhere["metadata"]["namespace"] = "elsewhere".into();
    server.apply(elsewhere).unwrap();
    server.label(&ObjectName::new("pods", "agent"), "a", Some("b")).unwrap();
    let Some(Ok(WatchEvent::Modified(pod))) = stream.next().await else { panic!("no change of the own namespace") };
    assert_eq!(pod.metadata.name.as_deref(), Some("agent"));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_watch_sees_a_change_and_an_interruption_at_once() {
    let server = server();
    let mut watch = watch(&server, on_n1().disable_bookmarks(), &server.version().to_string()).await;
    let started = Instant::now();
    let pause = Duration::from_secs(5);
    let (event, ()) = tokio::join!(watch.next(), async {
        tokio::time::sleep(pause).await;
        server.label(&n1(), "a", Some("b")).unwrap();
    });
    assert_eq!((event.as_deref(), started.elapsed()), (Some("MODIFIED n1 uid-n1"), pause));
    let (event, ()) = tokio::join!(watch.next(), async {
        tokio::time::sleep(pause).await;
        server.interrupt(&Matching::any(), &moorline_sim::server::Interruption::Close);
    });
    assert_eq!((event, started.elapsed()), (None, 2 * pause));
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_is_forgotten() {
    let server = server();
    let all = Matching::new(Verb::Watch, "nodes");
    let one = watch(&server, on_n1(), "").await;
    let two = watch(&server, WatchParams::default(), "").await;
    let close = moorline_sim::server::Interruption::Garbage("x".into());
    assert_eq!(server.interrupt(&all, &close), 2);
    drop(one);
    assert_eq!(server.interrupt(&all, &close), 1);
    drop(two);
    assert_eq!(server.interrupt(&all, &close), 0);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_watches_each_see_their_own_node_and_one_change_wakes_one() {
    let server = Server::new(Options::default());
    let mut streams = Vec::new();
    for i in 0..10_000 {
        server.apply(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{i}")}})).unwrap();
    }
    let client = admin(&server);
    let api: Api<k8s_openapi::api::core::v1::Node> = Api::all(client);
    let version = server.version().to_string();
    for i in 0..10_000 {
        let params = WatchParams::default().fields(&format!("metadata.name=n{i}")).timeout(3600).disable_bookmarks();
        streams.push(api.watch(&params, &version).await.unwrap().boxed());
    }
    server.label(&ObjectName::new("nodes", "n7"), "a", Some("b")).unwrap();
    let first = futures_util::future::select_all(streams.iter_mut().map(StreamExt::next)).await;
    assert_eq!(first.1, 7);
}
