//! What the API server does with a request that reached it: one function per verb, over the state and nothing else.
//! It never waits.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    Answer, Identity, State, Verb,
    admission::Denied,
    request::Ask,
    resource::{RESOURCES, Resource},
    status::{self, Refusal},
    store::{ChangeKind, Key, Watching, event_line},
    watch::{WatchPlan, bookmark_line},
    write::{self, Part},
};

const MERGE_PATCH: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

/// What a request leads to.
pub(crate) enum Reply {
    Json(u16, Bytes),
    /// A path that is no resource of this server.
    NoSuchPath,
    Watch(WatchPlan),
}

/// Why a request was refused, and the admission rule that did it.
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    pub(crate) admission: Option<String>,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, admission: None }
    }
}

impl From<Denied> for Refused {
    fn from(denied: Denied) -> Self {
        Self { refusal: denied.refusal, admission: Some(denied.verdict) }
    }
}

/// A write on its way to the store.
struct Write<'a> {
    ask: &'a Ask,
    resource: &'static Resource,
    table: usize,
    key: Key,
    part: Part,
}

impl State {
    /// Serves a request in the order in which the API server checks it: who, may they, is it there, then the rest.
    pub(crate) fn serve(
        &mut self,
        ask: &Ask,
        identity: &Identity,
        content_type: &str,
        body: Result<&[u8], Refusal>,
    ) -> Result<Reply, Refused> {
        if !identity.authenticated() {
            return Err(status::unauthorized().into());
        }
        if !ask.attributes.resource.is_empty() && !identity.may(&ask.attributes) {
            return Err(status::forbidden(&ask.attributes, ask.action).into());
        }
        let Some(table) = ask.table else { return Ok(Reply::NoSuchPath) };
        let resource = &RESOURCES[table];
        let Some(verb) = ask.attributes.verb else {
            return Err(status::method_not_allowed(resource, ask.action).into());
        };
        let key = (ask.attributes.namespace.clone(), ask.attributes.name.clone());
        let part = if ask.attributes.subresource == "status" { Part::Status } else { Part::Main };
        let write = Write { ask, resource, table, key, part };
        match verb {
            Verb::Get => Ok(self.read(&write)?),
            Verb::List => Ok(self.list(ask, table)?),
            Verb::Watch => Ok(Reply::Watch(self.watch(ask, table)?)),
            Verb::Create => self.create(write, body?),
            Verb::Update => self.replace(&write, body?),
            Verb::Patch => {
                let kind = content_type.split(';').next().unwrap_or_default().trim();
                check_patch_type(resource, kind)?;
                self.patch(&write, kind, body?)
            }
            Verb::Delete => self.delete(&write, body?),
        }
    }

    fn read(&self, write: &Write<'_>) -> Result<Reply, Refusal> {
        self.not_from_the_future(write.ask.version()?)?;
        let object =
            self.store.get(write.table, &write.key).ok_or_else(|| status::not_found(write.resource, &write.key.1))?;
        Ok(Reply::Json(200, object.json().clone()))
    }

    fn list(&self, ask: &Ask, table: usize) -> Result<Reply, Refusal> {
        ask.check_selection()?;
        let asked = ask.version()?;
        self.not_from_the_future(asked)?;
        if ask.query.resource_version_match == "Exact" && asked < self.store.version() {
            return Err(status::expired("The resourceVersion for the provided list is too old."));
        }
        let resource = &RESOURCES[table];
        let items: Vec<Value> = self
            .store
            .list(table, &ask.attributes.namespace, &ask.attributes.name)
            .map(|change| {
                let mut object = change.object();
                // The items of a typed list don't say again what they are.
                if let Some(fields) = object.as_object_mut().filter(|_| !resource.is_custom()) {
                    fields.remove("apiVersion");
                    fields.remove("kind");
                }
                object
            })
            .collect();
        let list = json!({
            "kind": format!("{}List", resource.kind),
            "apiVersion": resource.api_version(),
            "metadata": {"resourceVersion": self.store.version().to_string()},
            "items": items,
        });
        Ok(Reply::Json(200, list.to_string().into()))
    }

    fn not_from_the_future(&self, version: u64) -> Result<(), Refusal> {
        let current = self.store.version();
        if version > current { Err(status::version_too_large(version, current)) } else { Ok(()) }
    }

    fn watch(&mut self, ask: &Ask, table: usize) -> Result<WatchPlan, Refusal> {
        ask.check_selection()?;
        let asked = ask.version()?;
        let (attributes, query, resource) = (&ask.attributes, &ask.query, &RESOURCES[table]);
        let initial = query.send_initial_events || asked == 0;
        let current = self.store.version();
        let error = if initial {
            query.send_initial_events.then(|| self.not_from_the_future(asked)).and_then(Result::err)
        } else {
            let oldest = self.store.oldest(table);
            (asked < oldest).then(|| status::expired(format!("too old resource version: {asked} ({oldest})")))
        };
        let watching = Watching {
            table,
            namespace: attributes.namespace.clone(),
            name: attributes.name.clone(),
            after: if initial { current } else { asked },
            request: attributes.clone(),
        };
        let mut lines = Vec::new();
        if initial {
            let objects = self.store.list(table, &attributes.namespace, &attributes.name);
            lines.extend(objects.map(|object| event_line("ADDED", object.json())));
            if query.send_initial_events && query.bookmarks {
                lines.push(bookmark_line(resource, current, true));
            }
        }
        let watcher = self.store.watch(watching, !initial && error.is_none());
        if let Some(open) = self.store.watcher(watcher) {
            open.queue.extend(lines);
        }
        let lasts = query.timeout.unwrap_or_else(|| self.default_watch_time());
        Ok(WatchPlan {
            resource,
            watcher,
            bookmarks: query.bookmarks,
            lasts,
            error: error.map(|refusal| Answer::of(&refusal)),
        })
    }

    fn create(&mut self, mut write: Write<'_>, body: &[u8]) -> Result<Reply, Refused> {
        let mut object: Value =
            serde_json::from_slice(body).map_err(|e| status::bad_request(format!("error decoding the object: {e}")))?;
        let meta = &mut object["metadata"];
        if let (Some(prefix), None) = (meta["generateName"].as_str(), meta["name"].as_str().filter(|n| !n.is_empty())) {
            meta["name"] = format!("{prefix}{}", self.random.suffix()).into();
        }
        write.key.1 = meta["name"].as_str().unwrap_or_default().to_owned();
        let (uid, now) = (self.random.uid(), self.clock.seconds());
        let new = write::create(write.resource, &write.key.0, object, uid, &now, false)?;
        let mut request = write.ask.attributes.clone();
        request.name.clone_from(&write.key.1);
        self.admission.check(write.resource, &request, None, Some(&new))?;
        if self.store.get(write.table, &write.key).is_some() {
            return Err(status::already_exists(write.resource, &write.key.1).into());
        }
        if write.ask.query.dry_run {
            return Ok(Reply::Json(201, new.to_string().into()));
        }
        let stored = self.put(write.table, write.key, ChangeKind::Added, new);
        Ok(Reply::Json(201, stored))
    }

    fn replace(&mut self, write: &Write<'_>, body: &[u8]) -> Result<Reply, Refused> {
        let object: Value =
            serde_json::from_slice(body).map_err(|e| status::bad_request(format!("error decoding the object: {e}")))?;
        let name = &write.key.1;
        let found = object["metadata"]["name"].as_str().unwrap_or_default();
        if found != name {
            let text = format!("the name of the object ({found}) does not match the name on the URL ({name})");
            return Err(status::bad_request(text).into());
        }
        let old = self.stored(write)?;
        let (sent, kept) = (&object["metadata"]["uid"], &old["metadata"]["uid"]);
        if let (Some(sent), Some(kept)) = (sent.as_str().filter(|uid| !uid.is_empty() && sent != kept), kept.as_str()) {
            let folder = if write.resource.plural == "nodes" { "minions".to_owned() } else { write.resource.path() };
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: /registry/{folder}/{name}, ResourceVersion: 0, \
                 AdditionalErrorMsg: Precondition failed: UID in precondition: {sent}, UID in object meta: {kept}"
            );
            return Err(status::conflict_because(write.resource, write.resource.plural, name, &why).into());
        }
        self.update(write, &old, object)
    }

    fn patch(&mut self, write: &Write<'_>, kind: &str, body: &[u8]) -> Result<Reply, Refused> {
        let old = self.stored(write)?;
        let mut new = old.clone();
        let malformed = |e: serde_json::Error| status::bad_request(format!("error decoding patch: {e}"));
        if kind == JSON_PATCH {
            let patch: json_patch::Patch = serde_json::from_slice(body).map_err(malformed)?;
            json_patch::patch(&mut new, &patch).map_err(|_| status::patch_failed())?;
        } else {
            let patch: Value = serde_json::from_slice(body).map_err(malformed)?;
            if !patch.is_object() {
                return Err(status::bad_request("error decoding patch: a merge patch is a JSON object").into());
            }
            json_patch::merge(&mut new, &patch);
        }
        self.update(write, &old, new)
    }

    fn stored(&self, write: &Write<'_>) -> Result<Value, Refusal> {
        let object = self.store.get(write.table, &write.key);
        object.map(|object| object.object()).ok_or_else(|| status::not_found(write.resource, &write.key.1))
    }

    fn update(&mut self, write: &Write<'_>, old: &Value, new: Value) -> Result<Reply, Refused> {
        let new = write::update(write.resource, write.part, old, new)?;
        self.admission.check(write.resource, &write.ask.attributes, Some(old), Some(&new))?;
        if write.ask.query.dry_run {
            return Ok(Reply::Json(200, new.to_string().into()));
        }
        Ok(Reply::Json(200, self.settle(write.table, write.key.clone(), old, new)))
    }

    /// Stores what an update led to: nothing when nothing changed, a deletion when the last finalizer went.
    pub(crate) fn settle(&mut self, table: usize, key: Key, old: &Value, new: Value) -> Bytes {
        if new == *old {
            return new.to_string().into();
        }
        let kind = if write::is_released(&new) { ChangeKind::Deleted } else { ChangeKind::Modified };
        self.put(table, key, kind, new)
    }

    fn delete(&mut self, write: &Write<'_>, body: &[u8]) -> Result<Reply, Refused> {
        let options: Value = if body.is_empty() { Value::Null } else { decode_delete_options(body)? };
        let old = self.stored(write)?;
        let (name, meta) = (&write.key.1, &old["metadata"]);
        let conditions = [
            ("uid", "UID", "The object might have been deleted and then recreated"),
            ("resourceVersion", "ResourceVersion", "The object might have been modified"),
        ];
        for (field, word, hint) in conditions {
            let Some(wanted) = options["preconditions"][field].as_str() else { continue };
            let found = meta[field].as_str().unwrap_or_default();
            if wanted != found {
                let why = format!(
                    "the {word} in the precondition ({wanted}) does not match the {word} in record ({found}). {hint}"
                );
                return Err(status::conflict_because(write.resource, write.resource.kind, name, &why).into());
            }
        }
        self.admission.check(write.resource, &write.ask.attributes, Some(&old), None)?;
        let uid = meta["uid"].as_str().unwrap_or_default().to_owned();
        let held = write::delete(&old, &self.clock.seconds());
        let gone = held.is_none();
        if !write.ask.query.dry_run {
            self.remove(write.table, write.key.clone(), old, held.clone());
        }
        let deleted = status::json(&status::deleted(write.resource, name, &uid));
        let current = self.store.get(write.table, &write.key).map(|object| object.json().clone());
        Ok(Reply::Json(200, current.filter(|_| !gone).unwrap_or(deleted)))
    }

    /// Takes an object away, or marks it where a finalizer holds it.
    pub(crate) fn remove(&mut self, table: usize, key: Key, old: Value, held: Option<Value>) {
        match held {
            None => drop(self.put(table, key, ChangeKind::Deleted, old)),
            Some(held) if held != old => drop(self.put(table, key, ChangeKind::Modified, held)),
            Some(_) => {}
        }
    }
}

fn decode_delete_options(body: &[u8]) -> Result<Value, Refusal> {
    serde_json::from_slice(body).map_err(|e| status::bad_request(format!("error decoding the delete options: {e}")))
}

fn check_patch_type(resource: &Resource, kind: &str) -> Result<(), Refusal> {
    match kind {
        MERGE_PATCH | JSON_PATCH => Ok(()),
        // The real API server has these; this one says what it has instead.
        other if resource.patch_types().contains(&other) => {
            Err(status::unsupported_media_type(&[JSON_PATCH, MERGE_PATCH]))
        }
        _ => Err(status::unsupported_media_type(resource.patch_types())),
    }
}
