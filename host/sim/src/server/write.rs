//! What a write makes of an object: the rules of the API server between "someone sent this" and "this is stored", as
//! pure functions from the old object to the new one.

use serde_json::{Map, Value};

use super::{
    resource::Resource,
    schema,
    status::{self, FieldError, Refusal},
    validate::{self, Change},
};

/// Which part of an object a write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The object itself: its status stays.
    Main,
    /// The status subresource.
    Status,
    /// Both at once, as only the scenario's own hand can.
    Whole,
}

/// The object that an update (PUT or PATCH) of a part leads to. Everything is checked except admission.
pub(crate) fn update(resource: &Resource, part: Part, old: &Value, mut new: Value) -> Result<Value, Refusal> {
    let name = old["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    typed(resource, &mut new)?;
    same_version(resource, &name, old, &new)?;
    let generation = old["metadata"].get("generation").cloned();
    match part {
        Part::Status => keep_all_but_status(resource, old, &mut new),
        Part::Main if resource.has_status() => keep(old, &mut new, "status"),
        Part::Main | Part::Whole => {}
    }
    keep_system_fields(old, &mut new);
    tidy(resource, &mut new)?;
    let errors = validate::object(resource, part, &Change { old: Some(old), new: &new });
    refuse(resource, &name, &errors)?;
    if let Some(mut generation) = generation {
        let changed = without_metadata_and_status(old) != without_metadata_and_status(&new);
        if resource.generation && changed {
            generation = Value::from(generation.as_u64().unwrap_or_default() + 1);
        }
        new["metadata"]["generation"] = generation;
    }
    Ok(new)
}

/// The object that a creation leads to. `kept` says that a status and system fields that were given stay, as when an
/// object is restored from a dump.
pub(crate) fn create(
    resource: &Resource,
    namespace: &str,
    mut new: Value,
    uid: String,
    now: &str,
    kept: bool,
) -> Result<Value, Refusal> {
    typed(resource, &mut new)?;
    let meta = metadata_of(&mut new)?;
    if resource.namespaced {
        let given = meta.entry("namespace").or_insert_with(|| namespace.into());
        if given != namespace {
            return Err(status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    } else {
        meta.remove("namespace");
    }
    if !kept {
        for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
            meta.remove(field);
        }
    }
    meta.remove("resourceVersion");
    meta.entry("uid").or_insert_with(|| uid.into());
    let created = meta.get("creationTimestamp").is_some_and(Value::is_string);
    if !created {
        meta.insert("creationTimestamp".to_owned(), now.into());
    }
    if resource.generation {
        meta.entry("generation").or_insert_with(|| 1.into());
    }
    let name = meta.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !kept && resource.has_status() && resource.is_custom() {
        without(&mut new, "status");
    }
    if !kept && resource.plural == "pods" {
        new["status"] = serde_json::json!({"phase": "Pending"});
    }
    tidy(resource, &mut new)?;
    let errors = validate::object(resource, Part::Whole, &Change { old: None, new: &new });
    refuse(resource, &name, &errors)?;
    Ok(new)
}

/// What DELETE leaves of an object that a finalizer holds; `None` when it is gone at once.
pub(crate) fn delete(old: &Value, now: &str) -> Option<Value> {
    if finalizers(old) == 0 {
        return None;
    }
    let mut new = old.clone();
    if old["metadata"]["deletionTimestamp"].is_string() {
        return Some(new);
    }
    new["metadata"]["deletionTimestamp"] = now.into();
    new["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    if let Some(generation) = old["metadata"]["generation"].as_u64() {
        new["metadata"]["generation"] = (generation + 1).into();
    }
    Some(new)
}

/// Whether an update has taken the last finalizer from an object that waits for its deletion.
pub(crate) fn is_released(new: &Value) -> bool {
    new["metadata"]["deletionTimestamp"].is_string() && finalizers(new) == 0
}

fn finalizers(object: &Value) -> usize {
    object["metadata"]["finalizers"].as_array().map_or(0, Vec::len)
}

/// An object says what it is, or is taken for what the path says.
fn typed(resource: &Resource, object: &mut Value) -> Result<(), Refusal> {
    let Some(fields) = object.as_object_mut() else {
        return Err(status::bad_request("the object in the body is no JSON object"));
    };
    for (field, expected, word) in
        [("apiVersion", resource.api_version(), "API version"), ("kind", resource.kind.to_owned(), "kind")]
    {
        match fields.get(field).and_then(Value::as_str) {
            Some(found) if found != expected => {
                return Err(status::bad_request(format!(
                    "the {word} in the data ({found}) does not match the expected {word} ({expected})"
                )));
            }
            _ => {
                fields.insert(field.to_owned(), expected.into());
            }
        }
    }
    Ok(())
}

fn metadata_of(object: &mut Value) -> Result<&mut Map<String, Value>, Refusal> {
    let fields = object.as_object_mut().ok_or_else(|| status::bad_request("the object is no JSON object"))?;
    let meta = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    meta.as_object_mut().ok_or_else(|| status::bad_request("`metadata` is no JSON object"))
}

/// The version that was sent has to be the one that is stored; a built-in object may be sent without one.
fn same_version(resource: &Resource, name: &str, old: &Value, new: &Value) -> Result<(), Refusal> {
    let sent = match &new["metadata"]["resourceVersion"] {
        Value::String(sent) if sent.is_empty() => 0,
        Value::String(sent) => sent
            .parse::<u64>()
            .map_err(|_| status::unknown(format!("strconv.ParseUint: parsing {sent:?}: invalid syntax")))?,
        Value::Null => 0,
        _ => return Err(status::bad_request("`metadata.resourceVersion` is no string")),
    };
    if sent == 0 {
        if resource.is_custom() {
            let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
            return Err(status::invalid(resource.group, resource.plural, name, &[error]));
        }
        return Ok(());
    }
    let stored = old["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
    if stored != Some(sent) {
        return Err(status::conflict(resource, name));
    }
    Ok(())
}

/// The status subresource of a custom resource takes nothing but the status; that of a built-in type leaves the spec alone.
fn keep_all_but_status(resource: &Resource, old: &Value, new: &mut Value) {
    if resource.is_custom() {
        let status = new.get_mut("status").map(Value::take);
        *new = old.clone();
        without(new, "status");
        if let Some(status) = status {
            new["status"] = status;
        }
    } else {
        keep(old, new, "spec");
    }
}

fn keep(old: &Value, new: &mut Value, field: &str) {
    match old.get(field) {
        Some(value) => new[field] = value.clone(),
        None => without(new, field),
    }
}

fn without(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

/// What no update can change, or is filled in when it was left out.
fn keep_system_fields(old: &Value, new: &mut Value) {
    let (Some(old), Some(new)) = (old["metadata"].as_object(), new["metadata"].as_object_mut()) else { return };
    let mut keep = |field: &str, always: bool| {
        let absent = new.get(field).is_none_or(|value| value.is_null() || value == "");
        if let Some(value) = old.get(field)
            && (always || absent)
        {
            new.insert(field.to_owned(), value.clone());
        }
    };
    keep("uid", false);
    keep("namespace", false);
    keep("creationTimestamp", true);
    keep("deletionTimestamp", true);
    keep("deletionGracePeriodSeconds", false);
    keep("resourceVersion", true);
    keep("generation", true);
}

/// Brings an object into the form in which it is stored: no nulls, no empty collections where the types leave them out,
/// no fields that the schema doesn't know, and strings where metadata has strings.
fn tidy(resource: &Resource, object: &mut Value) -> Result<(), Refusal> {
    drop_nulls(object);
    let meta = metadata_of(object)?;
    for field in ["labels", "annotations"] {
        if let Some(map) = meta.get(field) {
            let strings = map.as_object().is_some_and(|map| map.values().all(Value::is_string));
            if !strings {
                return Err(status::bad_request(format!("metadata.{field} is no map of strings")));
            }
        }
    }
    for field in ["labels", "annotations", "finalizers", "ownerReferences", "managedFields"] {
        drop_empty(meta, field);
    }
    match resource.schema {
        Some(schema) => prune(schema(), object),
        None => {
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                drop_empty(spec, "taints");
                drop_empty(spec, "podCIDRs");
            }
        }
    }
    Ok(())
}

fn drop_empty(fields: &mut Map<String, Value>, field: &str) {
    let empty = match fields.get(field) {
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        _ => false,
    };
    if empty {
        fields.remove(field);
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn prune(schema: &Value, object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        let known = &schema["properties"];
        fields
            .retain(|name, _| matches!(name.as_str(), "apiVersion" | "kind" | "metadata") || known.get(name).is_some());
        for (name, field) in fields {
            if name != "metadata" {
                schema::prune(&known[name.as_str()], field);
            }
        }
    }
}

fn without_metadata_and_status(object: &Value) -> Map<String, Value> {
    let mut fields = object.as_object().cloned().unwrap_or_default();
    fields.remove("metadata");
    fields.remove("status");
    fields
}

fn refuse(resource: &Resource, name: &str, errors: &[FieldError]) -> Result<(), Refusal> {
    if errors.is_empty() { Ok(()) } else { Err(status::invalid(resource.group, resource.kind, name, errors)) }
}
