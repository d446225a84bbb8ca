//! Probes, metrics and status over HTTP. It answers from a snapshot and a registry that it is given; it asks nobody, so
//! that it answers when the API server, a policy or the driver doesn't.

pub mod metrics;
mod server;

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;
pub use moorline_lifecycle::Missing;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

pub use server::{BindError, HealthServer};

/// The agent as the outside may see it at one moment.
#[derive(Debug, Clone, Default)]
pub struct Health {
    /// Until when the driver counts as alive: it moves this on with every turn. None before its first one.
    pub alive_until: Option<Instant>,
    /// Whether `/readyz` says so.
    pub ready: bool,
    /// What is missing, the first cause first. A ready agent may miss something too: an assignment, for example.
    pub missing: Vec<Missing>,
    /// What `/status` shows.
    pub status: Arc<serde_json::Value>,
}

/// Which pages an address serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// `/healthz`, `/readyz`, `/metrics` and `/status`.
    All,
    /// `/metrics`.
    Metrics,
}

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The answer to one request.
pub fn respond(
    pages: Pages,
    method: &Method,
    path: &str,
    health: &Health,
    registry: &Registry,
    now: Instant,
) -> Response<Full<Bytes>> {
    let (status, kind, body) = match path {
        "/healthz" | "/readyz" | "/status" if pages == Pages::Metrics => not_found(pages),
        "/healthz" | "/readyz" | "/status" | "/metrics" if !matches!(*method, Method::GET | Method::HEAD) => {
            (StatusCode::METHOD_NOT_ALLOWED, TEXT, "Only GET and HEAD are answered here.\n".to_owned())
        }
        "/healthz" => alive(health, now),
        "/readyz" => ready(health),
        "/status" => (StatusCode::OK, JSON, format!("{:#}\n", health.status)),
        "/metrics" => metrics_page(registry),
        _ => not_found(pages),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

type Page = (StatusCode, &'static str, String);

fn alive(health: &Health, now: Instant) -> Page {
    match health.alive_until {
        Some(until) if until < now => {
            let silent = now.duration_since(until).as_secs();
            let body = format!("The driver has stood still for {silent} seconds longer than it may.\n");
            (StatusCode::SERVICE_UNAVAILABLE, TEXT, body)
        }
        _ => (StatusCode::OK, TEXT, "ok\n".to_owned()),
    }
}

fn ready(health: &Health) -> Page {
    let (status, head) = match health.ready {
        true => (StatusCode::OK, "ready\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
    };
    let body = health.missing.iter().fold(head.to_owned(), |mut body, missing| {
        let _ = writeln!(body, "- {}: {}", missing.what, missing.reason);
        body
    });
    (status, TEXT, body)
}

fn metrics_page(registry: &Registry) -> Page {
    let mut body = String::new();
    match prometheus_client::encoding::text::encode(&mut body, registry) {
        Ok(()) => (StatusCode::OK, METRICS, body),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, TEXT, "The metrics could not be written.\n".to_owned()),
    }
}

fn not_found(pages: Pages) -> Page {
    let there = match pages {
        Pages::All => "Here are /healthz, /readyz, /metrics and /status.\n",
        Pages::Metrics => "Here is /metrics.\n",
    };
    (StatusCode::NOT_FOUND, TEXT, there.to_owned())
}

#[cfg(test)]
mod tests;
