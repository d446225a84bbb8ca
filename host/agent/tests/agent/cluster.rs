//! Each request and each watch of the agent, against what a real API server would answer.

use std::collections::BTreeMap;
use std::time::Duration;

use moorline::cluster::{Cluster, GroupVersion, Names, Timeouts};
use moorline_lifecycle::{Failure, FailureKind, Site, Stream, Trouble, TroubleReason};
use moorline_sim::server::{
    Admission, Answer, Denial, Effect, Fault, Identity, Interruption, Matching, ObjectName, Server, Verb,
};
use serde_json::json;
use tokio::sync::mpsc;

use super::stage;

const LIFETIME: Duration = Duration::from_secs(1800);

pub(crate) fn cluster(client: kube::Client) -> Cluster {
    let api = |text: &str| text.parse::<GroupVersion>().unwrap();
    let names = Names {
        node: "n1".into(),
        pod: "agent".into(),
        namespace: "kube-system".into(),
        site_api: api("unbounded-cloud.io/v1alpha3"),
        gateway_api: api("net.unbounded-cloud.io/v1alpha1"),
    };
    Cluster::new(client, names, Timeouts { request: Duration::from_secs(15), idle: Duration::from_secs(300) })
}

fn connected(server: &Server) -> Cluster {
    cluster(stage::client(server))
}

#[tokio::test(start_paused = true)]
async fn taints_are_replaced_and_the_timeadded_of_others_survives() {
    let server = stage::server();
    let mut node = stage::node();
    let other = json!({"key": "other", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"});
    node["spec"]["taints"].as_array_mut().unwrap().push(other.clone());
    server.apply(node).unwrap();
    let cluster = connected(&server);
    let read = cluster.read_node().await.unwrap();
    assert_eq!(read.taints.len(), 2);

    let kept = vec![read.taints[1].clone()];
    let after = cluster.patch_taints(&read.uid, &read.resource_version, kept.clone()).await.unwrap();
    assert_eq!(after.taints, kept);
    let stored = server.get(&ObjectName::new("nodes", "n1")).unwrap();
    assert_eq!(stored["spec"]["taints"], json!([other]));
    let after = cluster.patch_taints(&after.uid, &after.resource_version, Vec::new()).await.unwrap();
    assert!(after.taints.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_race_on_the_taints_is_a_conflict_and_another_node_is_not_touched() {
    let server = stage::server();
    let cluster = connected(&server);
    let read = cluster.read_node().await.unwrap();
    server.label(&ObjectName::new("nodes", "n1"), "x", Some("y")).unwrap();
    let stale = cluster.patch_taints(&read.uid, &read.resource_version, Vec::new()).await.unwrap_err();
    assert_eq!((stale.kind, stale.denied, stale.effect_unknown), (FailureKind::Conflict, false, false), "{stale:?}");

    let fresh = cluster.read_node().await.unwrap();
    let foreign = cluster.patch_taints("another-uid", &fresh.resource_version, Vec::new()).await.unwrap_err();
    assert_eq!((foreign.kind, foreign.denied), (FailureKind::Invalid, false), "{foreign:?}");
    assert_eq!(cluster.read_node().await.unwrap().taints.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_a_denial_whatever_its_code_and_missing_rights_are_none() {
    let server = stage::server();
    let cluster = connected(&server);
    let read = cluster.read_node().await.unwrap();
    let denials = [
        Denial::policy("no-taints", "agents don't edit taints"),
        Denial::Webhook { name: "w.example.com".into(), message: "no".into(), code: 409, reason: "Conflict".into() },
    ];
    for denial in denials {
        let rule = server.admit(Admission::deny(Matching::new(Verb::Patch, "nodes"), denial).changing("/spec/taints"));
        let denied = cluster.patch_taints(&read.uid, &read.resource_version, Vec::new()).await.unwrap_err();
        assert!(denied.denied && !denied.effect_unknown, "{denied:?}");
        server.remove_admission(rule);
    }

    let reader = self::cluster(server.client(Identity::new("reader", |asked| asked.verb == Some(Verb::Get))));
    let forbidden = reader.patch_taints(&read.uid, &read.resource_version, Vec::new()).await.unwrap_err();
    assert_eq!((forbidden.kind, forbidden.denied), (FailureKind::Forbidden, false), "{forbidden:?}");
    let nobody = self::cluster(server.client(Identity::unauthenticated("nobody")));
    assert_eq!(nobody.read_node().await.unwrap_err().kind, FailureKind::Unauthorized);
}

#[tokio::test(start_paused = true)]
async fn only_the_absence_of_this_node_is_not_found() {
    let server = stage::server();
    server.delete(&ObjectName::new("nodes", "n1")).unwrap();
    let cluster = connected(&server);
    let absent = cluster.read_node().await.unwrap_err();
    assert_eq!(absent.kind, FailureKind::NotFound, "{absent:?}");

    server.fault(Fault::once(Matching::any(), Effect::Answer(Answer::text(404, "404 page not found\n"))));
    let elsewhere = cluster.read_node().await.unwrap_err();
    assert_eq!(elsewhere.kind, FailureKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn annotations_are_set_and_removed_on_the_own_pod_alone() {
    let server = stage::server();
    let cluster = connected(&server);
    let set = BTreeMap::from([("moorline.dev/a".to_owned(), Some("1".to_owned()))]);
    assert_eq!(cluster.patch_pod("uid-agent", set.clone()).await.unwrap().annotations["moorline.dev/a"], "1");
    let foreign = cluster.patch_pod("another-pod", set).await.unwrap_err();
    assert_eq!(foreign.kind, FailureKind::Invalid, "{foreign:?}");
    let unset = BTreeMap::from([("moorline.dev/a".to_owned(), None)]);
    assert!(cluster.patch_pod("uid-agent", unset).await.unwrap().annotations.is_empty());
    assert!(cluster.read_pod().await.unwrap().annotations.is_empty());
}

#[tokio::test(start_paused = true)]
async fn routes_that_have_to_go_are_gone_and_the_others_stay() {
    let server = stage::server();
    let cluster = connected(&server);
    assert_eq!(cluster.read_routes().await.unwrap(), None);
    assert_eq!(cluster.patch_routes("1", BTreeMap::new()).await.unwrap(), None);

    server.apply(stage::gateway_pool_node()).unwrap();
    let read = cluster.read_routes().await.unwrap().unwrap();
    let changes = BTreeMap::from([
        ("10.1.0.0/16".to_owned(), None),
        ("10.3.0.0/16".to_owned(), Some(json!({"type": "RoutedCidr"}))),
    ]);
    let after = cluster.patch_routes(&read.resource_version, changes.clone()).await.unwrap().unwrap();
    assert_eq!(after.routes.keys().collect::<Vec<_>>(), ["10.2.0.0/16", "10.3.0.0/16"]);
    let stale = cluster.patch_routes(&read.resource_version, changes).await.unwrap_err();
    assert_eq!(stale.kind, FailureKind::Conflict);
}

#[tokio::test(start_paused = true)]
async fn an_event_stands_in_the_namespace_default_about_the_node() {
    let server = stage::server();
    let trouble = Trouble {
        reason: TroubleReason::CniBlocked,
        message: "A file is in the way.".into(),
        node_uid: "uid-n1".into(),
    };
    connected(&server).write_event(trouble, server.now().as_millisecond()).await.unwrap();
    let audit = server.audit();
    assert_eq!((audit[0].verb(), audit[0].request.namespace.as_str()), ("create", "default"));
    assert_eq!(audit[0].code, Some(201));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_leaves_the_effect_unknown_and_a_refused_request_does_not() {
    let server = stage::server();
    let cluster = connected(&server);
    let set = BTreeMap::from([("moorline.dev/a".to_owned(), Some("1".to_owned()))]);
    let patch = || Matching::new(Verb::Patch, "pods");
    let timeout = || Answer::status(504, "Timeout", "the server was too slow");
    for effect in [Effect::LostAnswer, Effect::HalfBody, Effect::AnswerAfterEffect(timeout())] {
        server.fault(Fault::once(patch(), effect.clone()));
        let failure = cluster.patch_pod("uid-agent", set.clone()).await.unwrap_err();
        assert!(failure.effect_unknown, "{effect:?}: {failure:?}");
        assert_eq!(cluster.read_pod().await.unwrap().annotations.len(), 1, "{effect:?}");
    }
    server.fault(Fault::once(patch(), Effect::Answer(Answer::too_many_requests(7))));
    let throttled = cluster.patch_pod("uid-agent", set).await.unwrap_err();
    assert_eq!(throttled.kind, FailureKind::Throttled);
    assert!(!throttled.effect_unknown);
    assert_eq!(throttled.retry_after, Some(Duration::from_secs(7)));
}

/// Watches in a task of its own, and what it says.
fn watch_site(server: &Server, from: Option<String>) -> mpsc::UnboundedReceiver<Stream<Site>> {
    let (said, hears) = mpsc::unbounded_channel();
    let cluster = connected(server);
    tokio::spawn(async move {
        cluster.watch_site("east", from, LIFETIME, |stream| said.send(stream).unwrap_or_default()).await;
    });
    hears
}

fn failed<T: std::fmt::Debug>(said: Stream<T>) -> Failure {
    match said {
        Stream::Failed(failure) => failure,
        other => panic!("not a failure: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn one_watch_tells_state_absence_and_changes() {
    let server = stage::server();
    let site = ObjectName::new("sites", "east");
    server.delete(&site).unwrap();
    let mut hears = watch_site(&server, None);
    let Some(Stream::Bookmark { initial: true, .. }) = hears.recv().await else { panic!("no end of the beginning") };
    server.apply(stage::site()).unwrap();
    let Some(Stream::Changed(created)) = hears.recv().await else { panic!("not created") };
    assert_eq!((created.name.as_str(), created.manage_cni), ("east", Some(true)));
    assert_eq!(
        created.spec,
        r#"{"manageCniPlugin":true,"nodeCidrs":["192.168.0.0/16"],"podCidrAssignments":[{"cidrBlocks":["10.0.0.0/8"]}]}"#
    );
    server.merge_patch(&site, &json!({"spec": {"manageCniPlugin": false}})).unwrap();
    let Some(Stream::Changed(changed)) = hears.recv().await else { panic!("not changed") };
    assert!(changed.generation > created.generation && changed.uid == created.uid);
    server.delete(&site).unwrap();
    assert_eq!(hears.recv().await, Some(Stream::Deleted));
    // Bookmarks come by themselves, so a quiet watch lives to its end.
    let mut last = None;
    while let Some(said) = hears.recv().await {
        last = Some(said);
    }
    assert_eq!(last, Some(Stream::Closed));
    assert_eq!(server.audit().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_from_the_version_of_its_last_bookmark() {
    let server = stage::server();
    let mut hears = watch_site(&server, None);
    let Some(Stream::Changed(_)) = hears.recv().await else { panic!("no Site") };
    let Some(Stream::Bookmark { resource_version, .. }) = hears.recv().await else { panic!("no bookmark") };
    server.interrupt(&Matching::any(), &Interruption::Close);
    assert_eq!(hears.recv().await, Some(Stream::Closed));
    server.merge_patch(&ObjectName::new("sites", "east"), &json!({"metadata": {"labels": {"a": "b"}}})).unwrap();
    let mut hears = watch_site(&server, Some(resource_version));
    let Some(Stream::Changed(missed)) = hears.recv().await else { panic!("the change was missed") };
    assert_eq!(missed.labels["a"], "b");
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_version_that_is_too_old_is_expired() {
    let server = stage::server();
    for round in 0..3 {
        server.label(&ObjectName::new("sites", "east"), "round", Some(&round.to_string())).unwrap();
    }
    server.compact();
    let expired = failed(watch_site(&server, Some("1".into())).recv().await.unwrap());
    assert_eq!(expired.kind, FailureKind::Expired, "{expired:?}");
}

#[tokio::test(start_paused = true)]
async fn every_way_in_which_a_stream_goes_wrong_is_told_once() {
    let ways = [
        (Interruption::Break, FailureKind::Unavailable),
        (Interruption::Silence, FailureKind::Timeout),
        (Interruption::Error(Answer::status(410, "Expired", "too old resource version")), FailureKind::Expired),
        (Interruption::Garbage("{\"type\":".into()), FailureKind::Unavailable),
    ];
    for (interruption, kind) in ways {
        let server = stage::server();
        let mut hears = watch_site(&server, None);
        for _ in 0..2 {
            hears.recv().await.unwrap();
        }
        server.interrupt(&Matching::any(), &interruption);
        let failure = failed(hears.recv().await.unwrap());
        assert_eq!(failure.kind, kind, "{interruption:?}: {failure:?}");
        assert_eq!(hears.recv().await, None, "{interruption:?}");
        assert_eq!(server.audit().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_says_why() {
    let server = stage::server();
    let nobody = cluster(server.client(Identity::unauthenticated("nobody")));
    let mut said = Vec::new();
    nobody.watch_node("1".into(), LIFETIME, |stream| said.push(stream)).await;
    assert_eq!(said.len(), 1);
    assert_eq!(failed(said.remove(0)).kind, FailureKind::Unauthorized);
}
