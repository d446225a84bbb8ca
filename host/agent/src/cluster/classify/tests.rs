//! Every answer that kubernetes.md measured, and what it means.
#![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

use serde_json::{Value, json};

use super::*;
use crate::cluster::tests::names;

fn node() -> Target {
    Target::node(&names())
}

fn status(code: u16, reason: &str, message: &str, details: Value) -> Vec<u8> {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
           "code": code, "reason": reason, "message": message, "details": details})
    .to_string()
    .into_bytes()
}

const MODIFIED: &str = "Operation cannot be fulfilled on nodes \"n1\": the object has been modified; please apply your changes to the latest version and try again";
const BY_POLICY: &str =
    "nodes \"n1\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no taint edits";
const BY_WEBHOOK: &str = "admission webhook \"taints.example.com\" denied the request: no taint edits";
const BY_AUTHORIZER: &str = "nodes \"n1\" is forbidden: User \"system:serviceaccount:kube-system:moorline\" cannot patch resource \"nodes\" in API group \"\" at the cluster scope";
const BY_PLUGIN: &str = "nodes \"n1\" is forbidden: node \"n2\" is not allowed to modify node \"n1\"";

/// Answers to a PATCH of Node n1: (code, reason, message) and what they mean: (kind, denied, effect unknown).
#[test]
fn every_answer_to_a_write_has_its_class() {
    use FailureKind::{Conflict, Expired, Forbidden, Invalid, Other, Throttled, Timeout, Unauthorized, Unavailable};
    let table = [
        (409, "Conflict", MODIFIED, (Conflict, false, false)),
        (409, "AlreadyExists", "nodes \"n1\" already exists", (Other, false, false)),
        (500, "", "invalid resource version \"x\"", (Unavailable, false, true)),
        (422, "Invalid", "the server rejected our request due to an error in our request", (Invalid, false, false)),
        (
            422,
            "Invalid",
            "Node \"n1\" is invalid: metadata.uid: Invalid value: \"x\": field is immutable",
            (Invalid, false, false),
        ),
        (400, "BadRequest", "unable to parse", (Invalid, false, false)),
        (422, "Invalid", BY_POLICY, (Other, true, false)),
        (403, "Forbidden", BY_POLICY, (Other, true, false)),
        (413, "RequestEntityTooLarge", BY_POLICY, (Other, true, false)),
        (403, "Forbidden", BY_AUTHORIZER, (Forbidden, false, false)),
        (403, "Forbidden", BY_PLUGIN, (Other, true, false)),
        (403, "Forbidden", BY_WEBHOOK, (Other, true, false)),
        (409, "Conflict", BY_WEBHOOK, (Other, true, false)),
        (418, "", "admission webhook \"w\" denied the request without explanation", (Other, true, false)),
        (500, "InternalError", BY_WEBHOOK, (Other, true, false)),
        (
            500,
            "InternalError",
            "Internal error occurred: failed calling webhook \"w\": connection refused",
            (Unavailable, false, true),
        ),
        (401, "Unauthorized", "Unauthorized", (Unauthorized, false, false)),
        (413, "RequestEntityTooLarge", "limit is 3145728", (Other, false, false)),
        (415, "UnsupportedMediaType", "the body of the request was in an unknown format", (Other, false, false)),
        (410, "Expired", "too old resource version: 1 (20)", (Expired, false, false)),
        (429, "TooManyRequests", "slow down", (Throttled, false, false)),
        (503, "ServiceUnavailable", "apiserver not ready", (Unavailable, false, true)),
        (504, "Timeout", "request did not complete within the allotted timeout", (Timeout, false, true)),
        (302, "", "elsewhere", (Unavailable, false, true)),
    ];
    for (code, reason, message, expected) in table {
        let failure = answered(Verb::Patch, &node(), code, None, &status(code, reason, message, json!({})));
        assert_eq!((failure.kind, failure.denied, failure.effect_unknown), expected, "{code} {reason}: {message}");
        assert!(
            failure.message.starts_with(&format!("The PATCH of Node n1 was answered with {code}")),
            "{}",
            failure.message
        );
        assert!(failure.message.contains(message), "{}", failure.message);
    }
}

#[test]
fn a_read_has_no_effect_and_is_never_denied_by_admission() {
    for (code, message) in [(500, "boom"), (504, "late"), (403, BY_POLICY), (409, BY_WEBHOOK)] {
        let failure = answered(Verb::Get, &node(), code, None, &status(code, "", message, json!({})));
        assert!(!failure.effect_unknown && !failure.denied, "{code}");
    }
    for failure in [
        late(Verb::Get, &node(), Duration::from_secs(1)),
        unanswered(Verb::Watch, &node(), true, "reset"),
        nonsense(Verb::Get, &node(), "no uid"),
    ] {
        assert!(!failure.effect_unknown, "{}", failure.message);
    }
}

#[test]
fn only_a_not_found_about_this_very_object_is_not_found() {
    let message = "nodes \"n1\" not found";
    let is_not_found = |details: Value| {
        answered(Verb::Get, &node(), 404, None, &status(404, "NotFound", message, details)).kind
            == FailureKind::NotFound
    };
    assert!(is_not_found(json!({"name": "n1", "kind": "nodes"})));
    assert!(!is_not_found(json!({"name": "n2", "kind": "nodes"})));
    assert!(!is_not_found(json!({"name": "n1", "kind": "pods"})));
    assert!(!is_not_found(json!({"name": "n1", "kind": "nodes", "group": "metrics.k8s.io"})));
    assert!(!is_not_found(json!({})));
    assert!(!is_not_found(Value::Null));

    for body in [b"404 page not found\n".as_slice(), b"", b"{\"kind\":\"NotAStatus\",\"reason\":\"NotFound\"}"] {
        let failure = answered(Verb::Get, &node(), 404, None, body);
        assert_eq!(failure.kind, FailureKind::Unavailable);
        assert!(failure.message.contains("not about this object"), "{}", failure.message);
    }

    let site = Target::site(&names(), "east");
    let details = json!({"name": "east", "group": "unbounded-cloud.io", "kind": "sites"});
    let body = status(404, "NotFound", "sites.unbounded-cloud.io \"east\" not found", details);
    assert_eq!(answered(Verb::Get, &site, 404, None, &body).kind, FailureKind::NotFound);
}

#[test]
fn a_retry_after_is_kept_wherever_it_stands() {
    let header = Some(Duration::from_secs(7));
    let plain = answered(Verb::Get, &node(), 429, header, b"Too many requests, please try again later.");
    assert_eq!((plain.kind, plain.retry_after), (FailureKind::Throttled, header));
    assert_eq!(
        plain.message,
        "The GET of Node n1 was answered with 429 Too Many Requests: Too many requests, please try again later."
    );

    let body = status(429, "TooManyRequests", "slow", json!({"retryAfterSeconds": 9}));
    assert_eq!(answered(Verb::Get, &node(), 429, None, &body).retry_after, Some(Duration::from_secs(9)));
    assert_eq!(answered(Verb::Get, &node(), 429, header, &body).retry_after, Some(Duration::from_secs(9)));
}

#[test]
fn an_error_event_is_classified_by_its_own_code() {
    let object = status(410, "Expired", "too old resource version: 1 (20)", json!({}));
    let failure = error_event(&node(), &serde_json::from_slice(&object).unwrap());
    assert_eq!(failure.kind, FailureKind::Expired);
    assert_eq!(
        failure.message,
        "The stream gave an error event. The WATCH of Node n1 was answered with 410 Expired: too old resource version: 1 (20)."
    );
}

#[test]
fn a_lost_write_may_have_happened_unless_it_never_left() {
    assert!(unanswered(Verb::Patch, &node(), true, "connection reset").effect_unknown);
    assert!(!unanswered(Verb::Patch, &node(), false, "connection refused").effect_unknown);
    assert!(late(Verb::Patch, &node(), Duration::from_secs(15)).effect_unknown);
    assert!(nonsense(Verb::Patch, &node(), "no uid").effect_unknown);
}

#[test]
fn a_hostile_message_stays_one_short_line() {
    let failure = answered(Verb::Get, &node(), 500, None, format!("a\nb\u{1b}[31m{}", "é".repeat(5000)).as_bytes());
    assert!(failure.message.len() < 1200);
    assert!(!failure.message.contains(['\n', '\u{1b}']));
    assert!(failure.message.ends_with("… (cut from 10008 bytes)."), "{}", failure.message);
}
