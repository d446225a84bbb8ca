//! What goes out and what comes back, over a real kube client whose innermost service is a script.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::mpsc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use http::StatusCode;
use http_body_util::{Full, StreamBody};

use super::*;

type Answer = http_body_util::combinators::UnsyncBoxBody<Bytes, std::io::Error>;

/// The names that every test of this module goes by.
pub(super) fn names() -> Names {
    Names {
        node: "n1".into(),
        pod: "agent".into(),
        namespace: "kube-system".into(),
        site_api: "unbounded-cloud.io/v1alpha3".parse().unwrap(),
        gateway_api: "net.unbounded-cloud.io/v1alpha1".parse().unwrap(),
    }
}

const TIMEOUTS: Timeouts = Timeouts { request: Duration::from_secs(15), idle: Duration::from_secs(300) };

/// A cluster whose server answers with what `script` makes of each request, and a receiver of the requests.
fn cluster<F, E>(script: F) -> (Cluster, mpsc::Receiver<(String, Value)>)
where
    F: Fn() -> Result<Response<Answer>, E> + Clone + Send + 'static,
    E: Into<tower::BoxError> + Send + 'static,
{
    let (heard, requests) = mpsc::channel();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (heard, script) = (heard.clone(), script.clone());
        async move {
            let line = format!("{} {}", request.method(), request.uri());
            let body = request.into_body().collect().await.unwrap().to_bytes();
            heard.send((line, serde_json::from_slice(&body).unwrap_or_default())).unwrap();
            script().map_err(Into::into)
        }
    });
    (Cluster::new(kube::Client::new(service, "default"), names(), TIMEOUTS), requests)
}

fn full(body: impl Into<Bytes>) -> Answer {
    Full::new(body.into()).map_err(|never| match never {}).boxed_unsync()
}

fn ok(body: Value) -> Result<Response<Answer>, Infallible> {
    Ok(Response::new(full(body.to_string())))
}

fn node(version: &str) -> Value {
    json!({"kind": "Node", "metadata": {"name": "n1", "uid": "u1", "resourceVersion": version}})
}

/// A stream of these lines, which then ends, or breaks, or goes silent.
fn lines(lines: Vec<Value>, end: End) -> Response<Answer> {
    let mut text: Vec<Result<Bytes, std::io::Error>> = Vec::new();
    for line in lines {
        // Cut in two, so that lines and chunks are not the same.
        let line = format!("{line}\n");
        let (head, tail) = line.split_at(7);
        text.push(Ok(Bytes::from(head.to_owned())));
        text.push(Ok(Bytes::from(tail.to_owned())));
    }
    let tail = match end {
        End::Closed => stream::empty().boxed(),
        End::Broken => stream::iter([Err(std::io::Error::other("connection reset"))]).boxed(),
        End::Silent => stream::pending().boxed(),
    };
    let frames = stream::iter(text).chain(tail).map(|part| part.map(http_body::Frame::data));
    Response::new(StreamBody::new(frames).boxed_unsync())
}

#[derive(Clone, Copy)]
enum End {
    Closed,
    Broken,
    Silent,
}

/// Everything that a watch on the own Node says when the server sends these lines.
async fn heard(events: Vec<Value>, end: End) -> Vec<Stream<Node>> {
    let response = Mutex::new(Some(lines(events, end)));
    let response = Arc::new(response);
    let (cluster, _requests) = cluster(move || Ok::<_, Infallible>(response.lock().unwrap().take().unwrap()));
    let mut heard = Vec::new();
    cluster.watch_node("17".into(), Duration::from_secs(1800), |said| heard.push(said)).await;
    heard
}

fn failure(said: &Stream<Node>) -> &Failure {
    match said {
        Stream::Failed(failure) => failure,
        other => panic!("not a failure: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_taint_patch_carries_its_guards_and_the_whole_list() {
    let (cluster, requests) = cluster(|| ok(node("18")));
    let kept = Taint {
        key: "k".into(),
        value: String::new(),
        effect: "NoSchedule".into(),
        time_added: Some("2026-01-02T03:04:05Z".into()),
    };
    let after = cluster.patch_taints("u1", "17", vec![kept]).await.unwrap();
    assert_eq!(after.resource_version, "18");
    let (line, body) = requests.recv().unwrap();
    assert_eq!(line, "PATCH /api/v1/nodes/n1");
    assert_eq!(
        body,
        json!({"metadata": {"uid": "u1", "resourceVersion": "17"},
               "spec": {"taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-02T03:04:05Z"}]}})
    );
}

#[tokio::test(start_paused = true)]
async fn a_route_that_has_to_go_is_a_null_on_the_status() {
    let (cluster, requests) = cluster(|| {
        ok(
            json!({"kind": "GatewayPoolNode", "metadata": {"name": "n1", "uid": "u", "resourceVersion": "6"}, "status": {"routes": {}}}),
        )
    });
    let routes = BTreeMap::from([("10.0.0.0/24".to_owned(), None)]);
    let after = cluster.patch_routes("5", routes).await.unwrap().unwrap();
    assert!(after.routes.is_empty());
    let (line, body) = requests.recv().unwrap();
    assert_eq!(line, "PATCH /apis/net.unbounded-cloud.io/v1alpha1/gatewaypoolnodes/n1/status");
    assert_eq!(body, json!({"metadata": {"resourceVersion": "5"}, "status": {"routes": {"10.0.0.0/24": null}}}));
}

#[tokio::test(start_paused = true)]
async fn an_absent_gateway_pool_node_has_no_routes() {
    let (cluster, _requests) = cluster(|| {
        let details = json!({"name": "n1", "group": "net.unbounded-cloud.io", "kind": "gatewaypoolnodes"});
        let mut response = ok(json!({"kind": "Status", "code": 404, "reason": "NotFound", "details": details}))?;
        *response.status_mut() = StatusCode::NOT_FOUND;
        Ok::<_, Infallible>(response)
    });
    assert_eq!(cluster.read_routes().await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn an_event_is_about_the_node_and_lives_in_default() {
    let (cluster, requests) = cluster(|| ok(json!({})));
    let trouble = Trouble { reason: TroubleReason::CniBlocked, message: "é".repeat(1000), node_uid: "u1".into() };
    cluster.write_event(trouble, 1_767_323_045_678).await.unwrap();
    let (line, body) = requests.recv().unwrap();
    assert_eq!(line, "POST /api/v1/namespaces/default/events");
    assert_eq!(body["metadata"], json!({"name": "n1.19b7ca98f2e", "namespace": "default"}));
    assert_eq!(body["involvedObject"], json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}));
    assert_eq!(body["lastTimestamp"], "2026-01-02T03:04:05Z");
    assert_eq!(body["message"].as_str().unwrap().len(), EVENT_MESSAGE_CAP);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_made_once_whatever_comes_of_it() {
    for code in [429_u16, 503, 504] {
        let (cluster, requests) = cluster(move || {
            let mut response = Response::new(full("later"));
            *response.status_mut() = StatusCode::from_u16(code).unwrap();
            response.headers_mut().insert(header::RETRY_AFTER, "4".parse().unwrap());
            Ok::<_, Infallible>(response)
        });
        let failure = cluster.read_node().await.unwrap_err();
        assert_eq!(failure.retry_after, Some(Duration::from_secs(4)), "{code}");
        assert_eq!(requests.try_iter().count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_write_leaves_its_effect_unknown() {
    let (cluster, _requests) = cluster(|| Err(std::io::Error::other("connection reset by peer")));
    let failure = cluster.patch_pod("p1", BTreeMap::new()).await.unwrap_err();
    assert!(failure.effect_unknown);
    assert_eq!(failure.kind, FailureKind::Unavailable);
    assert!(failure.message.starts_with("The PATCH of Pod kube-system/agent got no answer: "), "{}", failure.message);
    assert!(failure.message.contains("connection reset by peer"), "{}", failure.message);
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_given_up_at_the_limit_of_time() {
    let (cluster, _requests) = cluster(|| Ok::<_, Infallible>(lines(Vec::new(), End::Silent)));
    let start = tokio::time::Instant::now();
    let failure = cluster.read_node().await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Timeout);
    assert_eq!(start.elapsed(), TIMEOUTS.request);
}

#[tokio::test(start_paused = true)]
async fn an_endless_answer_is_cut_off() {
    let (cluster, _requests) = cluster(|| Ok::<_, Infallible>(Response::new(full(vec![b' '; ANSWER_CAP + 1]))));
    let failure = cluster.read_node().await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Unavailable);
    assert!(failure.message.contains("length limit exceeded"), "{}", failure.message);
}

#[tokio::test(start_paused = true)]
async fn an_answer_about_another_node_is_no_answer() {
    let (cluster, _requests) =
        cluster(|| ok(json!({"kind": "Node", "metadata": {"name": "n2", "uid": "u", "resourceVersion": "1"}})));
    let failure = cluster.read_node().await.unwrap_err();
    assert_eq!(failure.message, "The GET of Node n1 gave an answer that makes no sense: it is about \"n2\".");
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_what_it_hears_and_then_its_end() {
    let bookmark = json!({"type": "BOOKMARK", "object": {"kind": "Node", "metadata": {"resourceVersion": "20", "annotations": {"k8s.io/initial-events-end": "true"}}}});
    let events = vec![
        json!({"type": "ADDED", "object": node("18")}),
        bookmark,
        json!({"type": "MODIFIED", "object": node("21")}),
        json!({"type": "BOOKMARK", "object": {"kind": "Node", "metadata": {"resourceVersion": "25"}}}),
        json!({"type": "DELETED", "object": node("26")}),
    ];
    let heard = heard(events, End::Closed).await;
    let short: Vec<String> = heard
        .iter()
        .map(|said| match said {
            Stream::Changed(node) => format!("changed {}", node.resource_version),
            Stream::Deleted => "deleted".into(),
            Stream::Bookmark { resource_version, initial } => format!("bookmark {resource_version} {initial}"),
            Stream::Closed => "closed".into(),
            Stream::Failed(failure) => failure.message.clone(),
        })
        .collect();
    assert_eq!(short, ["changed 18", "bookmark 20 true", "changed 21", "bookmark 25 false", "deleted", "closed"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_or_goes_silent_says_which() {
    let broken = heard(vec![json!({"type": "ADDED", "object": node("18")})], End::Broken).await;
    assert_eq!(broken.len(), 2);
    assert_eq!(failure(&broken[1]).kind, FailureKind::Unavailable);
    let message = &failure(&broken[1]).message;
    assert!(message.starts_with("The WATCH of Node n1 ended early: "), "{message}");
    assert!(message.ends_with("connection reset."), "{message}");

    let start = tokio::time::Instant::now();
    let silent = heard(Vec::new(), End::Silent).await;
    assert_eq!(start.elapsed(), TIMEOUTS.idle);
    assert_eq!(failure(&silent[0]).kind, FailureKind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn gone_under_http_200_is_expired() {
    let status =
        json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 17 (90)"});
    let heard = heard(vec![json!({"type": "ERROR", "object": status})], End::Silent).await;
    assert_eq!(heard.len(), 1);
    assert_eq!(failure(&heard[0]).kind, FailureKind::Expired);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_makes_no_sense_ends_the_watch() {
    for event in [
        json!({"type": "ADDED", "object": {"kind": "Pod"}}),
        json!({"type": "SHRUG", "object": {}}),
        json!({"type": "BOOKMARK", "object": {}}),
        json!("half"),
    ] {
        let heard = heard(vec![event.clone()], End::Silent).await;
        assert_eq!(heard.len(), 1, "{event}");
        assert_eq!(failure(&heard[0]).kind, FailureKind::Unavailable, "{event}");
    }
}

#[test]
fn a_retry_after_may_be_a_date() {
    let mut headers = http::HeaderMap::new();
    headers.insert(header::RETRY_AFTER, "Fri, 02 Jan 2026 03:04:35 GMT".parse().unwrap());
    assert_eq!(retry_after(&headers), None);
    headers.insert(header::DATE, "Fri, 02 Jan 2026 03:04:05 GMT".parse().unwrap());
    assert_eq!(retry_after(&headers), Some(Duration::from_secs(30)));
    headers.insert(header::RETRY_AFTER, "soon".parse().unwrap());
    assert_eq!(retry_after(&headers), None);
}
