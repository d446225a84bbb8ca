//! What the API server checks before it stores an object: metadata, and what the agent meets of Nodes and Events.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use super::{resource::Resource, schema, status::FieldError, write::Part};

/// All annotations of an object together, keys and values.
pub(crate) const ANNOTATION_BYTES: usize = 256 * 1024;

/// An object before and after a write.
pub(crate) struct Change<'a> {
    /// None when the object is created.
    pub(crate) old: Option<&'a Value>,
    pub(crate) new: &'a Value,
}

/// Checks a write of a part of an object.
pub(crate) fn object(resource: &Resource, part: Part, change: &Change<'_>) -> Vec<FieldError> {
    let mut errors = metadata(change);
    if let Some(schema) = resource.schema {
        let schema = schema();
        if part == Part::Status {
            if let Some(status) = change.new.get("status") {
                schema::check(&schema["properties"]["status"], status, "status", &mut errors);
            }
        } else {
            schema::check(schema, change.new, "", &mut errors);
        }
    }
    errors.extend((resource.check)(change));
    errors
}

/// For resources with nothing of their own to check.
pub(crate) fn nothing(_: &Change<'_>) -> Vec<FieldError> {
    Vec::new()
}

fn metadata(change: &Change<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let meta = &change.new["metadata"];
    match change.old {
        None => errors.extend(name(meta["name"].as_str().unwrap_or_default())),
        Some(old) => {
            for field in ["name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
                if meta[field] != old["metadata"][field] {
                    let path = format!("metadata.{field}");
                    errors.push(FieldError::invalid(path, &meta[field], "field is immutable"));
                }
            }
        }
    }
    for (key, value) in strings(&meta["labels"]) {
        for problem in label_key(key) {
            errors.push(FieldError::invalid("metadata.labels", key, problem));
        }
        for problem in label_value(value) {
            errors.push(FieldError::invalid("metadata.labels", value, problem));
        }
    }
    let mut size = 0;
    for (key, value) in strings(&meta["annotations"]) {
        for problem in label_key(&key.to_lowercase()) {
            errors.push(FieldError::invalid("metadata.annotations", key, problem));
        }
        size += key.len() + value.len();
    }
    if size > ANNOTATION_BYTES {
        errors.push(FieldError::too_long("metadata.annotations", ANNOTATION_BYTES as u64));
    }
    errors
}

fn strings(map: &Value) -> impl Iterator<Item = (&str, &str)> {
    map.as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

/// A taint as the API server prints it in a refusal: by the names of its fields in Go.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Taint<'a> {
    key: &'a str,
    value: &'a str,
    effect: &'a str,
    time_added: &'a Value,
}

/// Taints, and the fields of a Node that can be set only once.
pub(crate) fn node(change: &Change<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &change.new["spec"];
    let mut seen = BTreeSet::new();
    for (at, taint) in spec["taints"].as_array().into_iter().flatten().enumerate() {
        let part = |name: &str| taint[name].as_str().unwrap_or_default();
        let (key, value, effect) = (part("key"), part("value"), part("effect"));
        let path = format!("spec.taints[{at}]");
        errors.extend(label_key(key).map(|problem| FieldError::invalid(format!("{path}.key"), key, problem)));
        errors.extend(label_value(value).map(|problem| FieldError::invalid(format!("{path}.value"), value, problem)));
        if effect.is_empty() {
            errors.push(FieldError::required(format!("{path}.effect"), ""));
        } else if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
            let supported = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            errors.push(FieldError::not_supported(format!("{path}.effect"), effect, &supported));
        }
        if !seen.insert((key, effect)) {
            let value = Taint { key, value, effect, time_added: &taint["timeAdded"] };
            errors.push(FieldError::duplicate(path, value, "taints must be unique by key and effect pair"));
        }
    }
    let Some(old) = change.old.map(|old| &old["spec"]) else { return errors };
    if old["podCIDRs"].as_array().is_some_and(|cidrs| !cidrs.is_empty()) && old["podCIDRs"] != spec["podCIDRs"] {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.podCIDRs", detail));
    }
    if old["providerID"].as_str().is_some_and(|id| !id.is_empty()) && old["providerID"] != spec["providerID"] {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.providerID", detail));
    }
    errors
}

/// The namespace of an Event is that of what it is about, or `default`; the newer fields come together.
pub(crate) fn event(change: &Change<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let event = change.new;
    let part = |field: &str| event[field].as_str().unwrap_or_default();
    let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default();
    let about = event["involvedObject"]["namespace"].as_str().unwrap_or_default();
    if namespace != about && !(about.is_empty() && namespace == "default") {
        let path = "involvedObject.namespace";
        errors.push(FieldError::invalid(path, about, "does not match event.namespace"));
    }
    if !part("eventTime").is_empty() {
        let wanted = [("reportingComponent", "reportingController"), ("reportingInstance", "reportingInstance")];
        for (field, path) in wanted.into_iter().chain([("action", "action"), ("reason", "reason")]) {
            if part(field).is_empty() {
                errors.push(FieldError::required(path, ""));
            }
        }
    }
    errors
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_KEY: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
    an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
    and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
    validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn name(name: &str) -> Vec<FieldError> {
    if name.is_empty() {
        return vec![FieldError::required("metadata.name", "name or generateName is required")];
    }
    let mut errors = Vec::new();
    if name.len() > 253 {
        errors.push(FieldError::invalid("metadata.name", name, "must be no more than 253 characters"));
    }
    if !is_subdomain(name) {
        errors.push(FieldError::invalid("metadata.name", name, SUBDOMAIN));
    }
    errors
}

fn label_key(key: &str) -> impl Iterator<Item = String> {
    let mut problems = Vec::new();
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    match prefix {
        Some("") => problems.push("prefix part must be non-empty".to_owned()),
        Some(prefix) if prefix.len() > 253 => {
            problems.push("prefix part must be no more than 253 characters".to_owned())
        }
        Some(prefix) if !is_subdomain(prefix) => problems.push(format!("prefix part {SUBDOMAIN}")),
        _ => {}
    }
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 characters".to_owned());
    }
    if !is_label(name) {
        problems.push(LABEL_KEY.to_owned());
    }
    problems.into_iter()
}

fn label_value(value: &str) -> impl Iterator<Item = String> {
    let mut problems = Vec::new();
    if value.len() > 63 {
        problems.push("must be no more than 63 characters".to_owned());
    }
    if !value.is_empty() && !is_label(value) {
        problems.push(LABEL_VALUE.to_owned());
    }
    problems.into_iter()
}

fn is_label(word: &str) -> bool {
    let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let ends = |c: Option<&u8>| c.is_some_and(u8::is_ascii_alphanumeric);
    let word = word.as_bytes();
    ends(word.first()) && ends(word.last()) && word.iter().copied().all(inner)
}

fn is_subdomain(word: &str) -> bool {
    word.split('.').all(|part| {
        let plain = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        let part = part.as_bytes();
        part.first().is_some_and(plain) && part.last().is_some_and(plain) && part.iter().all(|c| plain(c) || *c == b'-')
    })
}
