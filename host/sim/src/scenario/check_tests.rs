#![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

use std::time::Duration;

use serde_json::{Map, json};

use super::*;

fn entry(at: u64, source: Source, process: u32, kind: &str, fields: Value) -> TimelineEntry {
    let fields: Map<String, Value> = fields.as_object().cloned().unwrap_or_default();
    TimelineEntry {
        at: Duration::from_secs(at),
        source,
        process: Some(process),
        kind: kind.into(),
        text: format!("{kind} {}", Value::Object(fields.clone())),
        fields,
    }
}

fn node_watch(at: u64, process: u32, kind: &str, id: u64) -> TimelineEntry {
    entry(at, Source::Server, process, kind, json!({"verb": "watch", "resource": "nodes", "audit": id}))
}

fn saved(at: u64) -> TimelineEntry {
    entry(at, Source::Agent, 1, "acknowledgment-saved", json!({}))
}

#[test]
fn a_startup_watch_that_outlives_the_acknowledgment_is_found() {
    let right = [node_watch(1, 1, "watch-opened", 7), saved(2), node_watch(2, 1, "watch-closed", 7)];
    assert_eq!(startup_watch(&right), None);
    assert!(startup_watch(&right[..2]).unwrap().contains("outlives"));
    let late = [node_watch(1, 1, "watch-opened", 7), saved(2), node_watch(3, 1, "watch-closed", 7)];
    assert!(startup_watch(&late).unwrap().contains("outlives"));
    let again = [saved(2), node_watch(3, 1, "watch-opened", 8), node_watch(3, 1, "watch-closed", 8)];
    assert!(startup_watch(&again).unwrap().contains("after the acknowledgment"));
    let cancelled = [node_watch(1, 1, "request-received", 8), saved(2), node_watch(2, 1, "request", 8)];
    assert_eq!(startup_watch(&cancelled), None, "it was on its way, and was never opened");
    assert!(startup_watch(&cancelled[1..]).unwrap().contains("after the acknowledgment"));
    assert!(startup_watch(&right[..1]).is_some(), "no acknowledgment shows nothing");
    let of_the_next = [saved(2), node_watch(9, 2, "watch-opened", 9)];
    assert_eq!(startup_watch(&of_the_next), None);
}

#[test]
fn requests_of_the_startup_are_those_before_that_process_settled() {
    let get = |at, process| {
        entry(at, Source::Server, process, "request", json!({"verb": "get", "resource": "nodes", "code": 200}))
    };
    let settled = |at, process| entry(at, Source::Agent, process, "entered", json!({"state": "settled"}));
    let entries = [get(1, 1), settled(2, 1), get(3, 1), get(4, 2), get(4, 2), settled(5, 2)];
    let check = |process, during, exactly| RequestsCheck {
        of: RequestPattern { process: Some(process), ..RequestPattern::default() },
        during,
        min: None,
        max: None,
        exactly: Some(exactly),
    };
    assert_eq!(requests(&entries, &check(1, Phase::Startup, 1)), None);
    assert_eq!(requests(&entries, &check(1, Phase::Settled, 1)), None);
    assert_eq!(requests(&entries, &check(1, Phase::Life, 2)), None);
    assert_eq!(requests(&entries, &check(2, Phase::Startup, 2)), None);
    assert!(requests(&entries, &check(2, Phase::Startup, 1)).unwrap().contains("2 requests"));
}

#[test]
fn turns_are_found_in_order_and_the_first_missing_one_is_named() {
    let entries = [entry(1, Source::Agent, 1, "a", json!({})), entry(2, Source::Agent, 1, "b", json!({}))];
    let turn = |text: &str| Turn(EntryPattern { text: Some(text.into()), ..EntryPattern::default() });
    assert_eq!(in_order(&entries, &[turn("a {"), turn("b {")]), None);
    assert!(in_order(&entries, &[turn("b {"), turn("a {")]).unwrap().contains("turn 2 of 2"));
}

#[test]
fn any_write_that_is_not_allowed_is_named() {
    let write = |resource: &str| {
        entry(1, Source::Server, 1, "request", json!({"verb": "patch", "resource": resource, "code": 200}))
    };
    let allowed = [RequestPattern { resource: Some("events".into()), ..RequestPattern::default() }];
    assert_eq!(writes(&[write("events")], &allowed), None);
    assert!(writes(&[write("events"), write("nodes")], &allowed).unwrap().contains("nodes"));
}

#[test]
fn a_path_pattern_is_about_the_whole_path() {
    assert!(matches_whole("cache/abc/x", "cache/*"));
    assert!(matches_whole("a", "*"));
    assert!(!matches_whole("cache", "cache/*"));
    assert!(!matches_whole("lock2", "lock"));
}
