#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

use std::time::Duration;

use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::metrics::{Metrics, PolicyLabels, RequestLabels};
use super::*;

fn missing(what: &str, reason: &str) -> Missing {
    Missing { what: what.to_owned(), reason: reason.to_owned() }
}

async fn ask(pages: Pages, method: Method, path: &str, health: &Health) -> (u16, String, String) {
    let response = respond(pages, &method, path, health, &Registry::default(), Instant::now());
    let kind = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, kind, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn alive_means_that_the_driver_moved_within_its_time_and_nothing_else() {
    let mut health = Health { missing: vec![missing("api-server", "no answer")], ..Health::default() };
    assert_eq!(ask(Pages::All, Method::GET, "/healthz", &health).await.0, 200, "before the first turn");
    health.alive_until = Some(Instant::now() + Duration::from_secs(30));
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(ask(Pages::All, Method::GET, "/healthz", &health).await.0, 200);
    tokio::time::advance(Duration::from_secs(12)).await;
    let (status, _, body) = ask(Pages::All, Method::GET, "/healthz", &health).await;
    assert_eq!((status, body.as_str()), (503, "The driver has stood still for 12 seconds longer than it may.\n"));
}

#[tokio::test]
async fn ready_lists_what_is_missing_also_when_the_agent_is_ready() {
    let missing = vec![missing("assignment", "The Node has no Site label."), missing("x", "y")];
    let mut health = Health { ready: true, missing, ..Health::default() };
    let (status, _, body) = ask(Pages::All, Method::GET, "/readyz", &health).await;
    assert_eq!((status, body.as_str()), (200, "ready\n- assignment: The Node has no Site label.\n- x: y\n"));
    health.ready = false;
    let (status, _, body) = ask(Pages::All, Method::GET, "/readyz", &health).await;
    assert_eq!((status, body.lines().next().unwrap()), (503, "not ready"));
    assert_eq!(ask(Pages::All, Method::GET, "/readyz", &Health::default()).await.0, 503, "before the first turn");
}

#[tokio::test]
async fn status_is_json_and_metrics_are_openmetrics() {
    let health = Health { status: Arc::new(json!({ "state": "settled" })), ..Health::default() };
    let (status, kind, body) = ask(Pages::All, Method::GET, "/status", &health).await;
    assert_eq!((status, kind.as_str()), (200, "application/json"));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&body).unwrap(), *health.status);
    let (status, kind, body) = ask(Pages::All, Method::HEAD, "/metrics", &health).await;
    assert_eq!(status, 200);
    assert!(kind.starts_with("application/openmetrics-text; version=1.0.0") && body.ends_with("# EOF\n"), "{kind}");
}

#[tokio::test]
async fn only_reading_is_answered_and_a_metrics_address_serves_nothing_else() {
    let health = Health::default();
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
        let response = respond(Pages::All, &method, "/status", &health, &Registry::default(), Instant::now());
        assert_eq!(response.status(), 405);
        assert_eq!(response.headers()[header::ALLOW], "GET, HEAD");
    }
    assert_eq!(ask(Pages::All, Method::GET, "/", &health).await.0, 404);
    for path in ["/healthz", "/readyz", "/status", "/"] {
        assert_eq!(ask(Pages::Metrics, Method::GET, path, &health).await.0, 404, "{path}");
    }
    assert_eq!(ask(Pages::Metrics, Method::GET, "/metrics", &health).await.0, 200);
}

#[test]
fn what_is_counted_shows_under_the_agents_name() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry, "0.1.0");
    metrics.requests.get_or_create(&RequestLabels { verb: "get", resource: "nodes", code: 200 }).inc();
    let labels = PolicyLabels { hook: "drift", binding: "default".to_owned(), outcome: "decided" };
    metrics.policy_calls.get_or_create(&labels).inc();
    metrics.policy_call_time.get_or_create(&metrics::HookLabels { hook: "drift" }).observe(0.000_06);
    metrics.enter("starting", None);
    metrics.enter("identifying", Some("starting"));
    let (_, _, page) = metrics_page(&registry);
    for line in [
        "moorline_build_info{version=\"0.1.0\"} 1",
        "moorline_requests_total{verb=\"get\",resource=\"nodes\",code=\"200\"} 1",
        "moorline_policy_calls_total{hook=\"drift\",binding=\"default\",outcome=\"decided\"} 1",
        "moorline_policy_call_seconds_bucket{le=\"0.0001\",hook=\"drift\"} 1",
        "moorline_state{state=\"starting\"} 0",
        "moorline_state{state=\"identifying\"} 1",
    ] {
        assert!(page.lines().any(|there| there == line), "{line} is not in\n{page}");
    }
}

/// A server on a port of its own, until it is dropped.
struct Serving {
    address: std::net::SocketAddr,
    health: watch::Sender<Health>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Serving {
    async fn start() -> Self {
        let server = HealthServer::bind("127.0.0.1:0".parse().unwrap(), Pages::All).await.unwrap();
        let address = server.local_address().unwrap();
        let (health, seen) = watch::channel(Health::default());
        let stop = CancellationToken::new();
        let task = tokio::spawn(server.serve(seen, Arc::new(Registry::default()), stop.clone()));
        Self { address, health, stop, task }
    }

    async fn send(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    async fn get(&self, path: &str) -> String {
        let stream = self.send(&format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await;
        to_end(stream).await
    }
}

/// Everything until the other side closes; a reset is a close too.
async fn to_end(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn what_the_snapshot_says_is_served_at_once() {
    let serving = Serving::start().await;
    assert!(serving.get("/readyz").await.starts_with("HTTP/1.1 503"));
    serving.health.send_modify(|health| health.ready = true);
    let answer = serving.get("/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nready\n"), "{answer}");
}

#[tokio::test]
async fn a_taken_port_is_told_apart_and_is_free_once_the_other_server_stops() {
    let serving = Serving::start().await;
    let error = HealthServer::bind(serving.address, Pages::All).await.unwrap_err();
    assert!(matches!(error, BindError::Taken { address } if address == serving.address), "{error}");
    assert!(error.to_string().contains("another agent seems to run on this Node"), "{error}");
    serving.stop.cancel();
    serving.task.await.unwrap();
    HealthServer::bind(serving.address, Pages::All).await.unwrap();
    let foreign = HealthServer::bind("192.0.2.1:9998".parse().unwrap(), Pages::All).await.unwrap_err();
    assert!(matches!(foreign, BindError::Refused { .. }), "{foreign}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_its_request_too_slowly_is_cut_off() {
    let serving = Serving::start().await;
    let began = Instant::now();
    let stream = serving.send("GET /healthz HTTP/1.1\r\nhost:").await;
    to_end(stream).await;
    assert!(began.elapsed() <= Duration::from_secs(6), "{:?}", began.elapsed());
}

#[tokio::test]
async fn idle_clients_never_keep_a_probe_from_its_answer() {
    let serving = Serving::start().await;
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(serving.send("GET /healthz HTTP/1.1\r\n").await);
    }
    assert!(serving.get("/healthz").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let serving = Serving::start().await;
    let stream = serving.send(&format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(64 << 10))).await;
    let answer = to_end(stream).await;
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(serving.get("/healthz").await.starts_with("HTTP/1.1 200"));
}
