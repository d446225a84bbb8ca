//! What the API server's audit records mean on the timeline: requests, and the spans of watches. Requests that the
//! scenario itself makes don't go over HTTP and leave no record.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::time::Time;
use super::timeline::{Source, TimelineEntry};
use crate::server::{AuditRecord, Notice, Verb};

/// The entry that a notice makes, if it makes one.
pub(crate) fn entry(notice: &Notice, base: Timestamp, process: Option<u32>) -> Option<TimelineEntry> {
    let (record, at, kind) = match notice {
        Notice::Received(record) => (record, record.received, "request-received"),
        Notice::Opened(record) => (record, record.received, "watch-opened"),
        Notice::Completed(record) => {
            let kind = if is_open_watch(record) { "watch-closed" } else { "request" };
            (record, record.completed?, kind)
        }
        Notice::Changed(_) => return None,
    };
    let at = Duration::try_from(at.duration_since(base)).unwrap_or_default();
    let what = object(record);
    let verb = record.verb().to_uppercase();
    let text = match kind {
        "request-received" => format!("{verb} {what} arrives"),
        "watch-opened" => match from(record) {
            Some(version) => format!("watch on {what} opened, from version {version} on"),
            None => format!("watch on {what} opened, with what there is"),
        },
        "watch-closed" => format!("watch on {what} closed after {}", Time(length(record))),
        _ => {
            let code = record.code.map_or_else(|| "no answer".to_owned(), |code| code.to_string());
            let why = [&record.reason, &record.admission, &record.fault];
            let why: Vec<&str> = why.into_iter().flatten().map(String::as_str).collect();
            let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join(", ")) };
            format!("{verb} {what} → {code}{why}")
        }
    };
    Some(TimelineEntry { at, source: Source::Server, process, kind: kind.to_owned(), text, fields: fields(record) })
}

/// How long a watch was open.
fn length(record: &AuditRecord) -> Duration {
    let ended = record.completed.unwrap_or(record.received);
    Duration::try_from(ended.duration_since(record.received)).unwrap_or_default()
}

/// The resourceVersion that a watch goes on from; none when it begins with what there is.
fn from(record: &AuditRecord) -> Option<&str> {
    let (_, query) = record.uri.split_once('?')?;
    query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion=")).filter(|version| !version.is_empty())
}

/// Whether it is a watch that was opened, and not one that was refused.
fn is_open_watch(record: &AuditRecord) -> bool {
    record.request.verb == Some(Verb::Watch) && record.code == Some(200)
}

/// The resource and the name, as kubectl writes them.
fn object(record: &AuditRecord) -> String {
    let request = &record.request;
    let mut text = request.resource.clone();
    if text.is_empty() {
        return record.uri.clone();
    }
    for part in [&request.name, &request.subresource] {
        if !part.is_empty() {
            text = format!("{text}/{part}");
        }
    }
    text
}

fn fields(record: &AuditRecord) -> Map<String, Value> {
    let request = &record.request;
    let all = [
        ("audit", json!(record.id)),
        ("verb", json!(record.verb())),
        ("group", json!(request.group)),
        ("resource", json!(request.resource)),
        ("subresource", json!(request.subresource)),
        ("namespace", json!(request.namespace)),
        ("name", json!(request.name)),
        ("resourceVersion", json!(from(record))),
        ("code", json!(record.code)),
        ("reason", json!(record.reason)),
        ("admission", json!(record.admission)),
        ("fault", json!(record.fault)),
    ];
    all.into_iter()
        .filter(|(_, value)| !value.is_null() && value.as_str() != Some(""))
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
