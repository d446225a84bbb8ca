//! The scenario's own hand: objects put, changed and taken away without a request, past RBAC and admission but never past
//! validation.

use kube::core::Status;
use serde_json::{Value, json};

use super::{
    Server, State,
    resource::{self, RESOURCES, Resource},
    status,
    store::{ChangeKind, Key},
    write::{self, Part},
};

/// Names one object, for the calls that don't go over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName {
    /// Any word for the resource: `nodes`, `Node`, `no`, or with its group `sites.net.unbounded-cloud.io`.
    pub resource: String,
    /// `default` where a namespaced resource is named without one.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
}

impl ObjectName {
    /// An object that is cluster-scoped or lives in the namespace `default`.
    pub fn new(resource: impl Into<String>, name: impl Into<String>) -> Self {
        Self { resource: resource.into(), namespace: None, name: name.into() }
    }

    /// The same in another namespace.
    #[must_use]
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }
}

impl Server {
    /// Stores an object as `kubectl get -o yaml` prints it: created when it is absent, otherwise made equal to what is
    /// given, its status too where one is given. A UID that is given is kept; another UID than the stored one means that the object was
    /// deleted and created again. The version that is given is ignored. Gives back what is stored.
    ///
    /// # Errors
    /// The Status that a real API server would refuse the object with.
    pub fn apply(&self, object: Value) -> Result<Value, Box<Status>> {
        self.with(|state| state.apply(object))
    }

    /// Changes an object, its status included, by a JSON merge patch.
    ///
    /// # Errors
    /// `NotFound`, or the Status that a real API server would refuse the result with.
    pub fn merge_patch(&self, name: &ObjectName, patch: &Value) -> Result<Value, Box<Status>> {
        self.with(|state| state.merge_patch(name, patch))
    }

    /// Sets a label, or takes it away.
    ///
    /// # Errors
    /// As [`Self::merge_patch`].
    pub fn label(&self, name: &ObjectName, key: &str, value: Option<&str>) -> Result<Value, Box<Status>> {
        self.merge_patch(name, &json!({"metadata": {"labels": {key: value}}}))
    }

    /// Deletes an object; one with finalizers is only marked.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn delete(&self, name: &ObjectName) -> Result<(), Box<Status>> {
        self.with(|state| {
            let (table, key) = locate(name)?;
            let old = state.object(table, &key)?;
            let held = write::delete(&old, &state.clock.seconds());
            state.remove(table, key, old, held);
            Ok(())
        })
    }

    /// Reads an object.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn get(&self, name: &ObjectName) -> Result<Value, Box<Status>> {
        self.with(|state| {
            let (table, key) = locate(name)?;
            state.object(table, &key)
        })
    }

    /// Reads all objects of a resource, in order of namespace and name.
    ///
    /// # Errors
    /// `BadRequest` for a word that is no resource.
    pub fn list(&self, resource: &str) -> Result<Vec<Value>, Box<Status>> {
        let table = table_called(resource)?;
        Ok(self.with(|state| state.store.list(table, "", "").map(|object| object.object()).collect()))
    }
}

impl State {
    fn apply(&mut self, mut object: Value) -> Result<Value, Box<Status>> {
        let word = |field: &str| object[field].as_str().unwrap_or_default();
        let (version, kind) = (word("apiVersion"), word("kind"));
        let table = resource::of_object(version, kind).ok_or_else(|| {
            let known: Vec<String> = RESOURCES.iter().map(|r| format!("{} {}", r.api_version(), r.kind)).collect();
            status::bad_request(format!(
                "this server has no resource of kind {kind:?} in {version:?}; it has {}",
                known.join(", ")
            ))
        })?;
        let resource = &RESOURCES[table];
        let Some(meta) = object["metadata"].as_object_mut() else {
            return Err(status::bad_request("the object has no metadata"));
        };
        meta.remove("resourceVersion");
        let name = meta.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let uid = meta.get("uid").and_then(Value::as_str).unwrap_or_default().to_owned();
        let namespace = match meta.get("namespace").and_then(Value::as_str) {
            _ if !resource.namespaced => String::new(),
            Some(namespace) => namespace.to_owned(),
            None => "default".to_owned(),
        };
        let key = (namespace, name);
        let old = self.store.get(table, &key).map(|object| object.object());
        let recreated = |old: &Value| !uid.is_empty() && old["metadata"]["uid"] != uid;
        match old {
            Some(old) if !recreated(&old) => {
                if let (None, Some(status)) = (object.get("status"), old.get("status")) {
                    object["status"] = status.clone();
                }
                self.rewrite(table, key, &old, object)
            }
            old => {
                let (fresh, now) = (self.random.uid(), self.clock.seconds());
                let new = write::create(resource, &key.0, object, fresh, &now, true)?;
                if let Some(old) = old {
                    self.put(table, key.clone(), ChangeKind::Deleted, old);
                }
                self.put(table, key.clone(), ChangeKind::Added, new);
                self.object(table, &key)
            }
        }
    }

    fn merge_patch(&mut self, name: &ObjectName, patch: &Value) -> Result<Value, Box<Status>> {
        let (table, key) = locate(name)?;
        let old = self.object(table, &key)?;
        let mut new = old.clone();
        json_patch::merge(&mut new, patch);
        self.rewrite(table, key, &old, new)
    }

    /// Stores another form of a whole object.
    fn rewrite(&mut self, table: usize, key: Key, old: &Value, mut new: Value) -> Result<Value, Box<Status>> {
        if new["metadata"]["resourceVersion"].is_null() {
            new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        }
        let new = write::update(&RESOURCES[table], Part::Whole, old, new)?;
        let stored = self.settle(table, key, old, new);
        Ok(serde_json::from_slice(&stored).unwrap_or(Value::Null))
    }

    fn object(&self, table: usize, key: &Key) -> Result<Value, Box<Status>> {
        let object = self.store.get(table, key).map(|object| object.object());
        object.ok_or_else(|| status::not_found(&RESOURCES[table], &key.1))
    }
}

fn table_called(word: &str) -> Result<usize, Box<Status>> {
    resource::called(word).ok_or_else(|| {
        let known: Vec<String> = RESOURCES.iter().map(Resource::qualified).collect();
        status::bad_request(format!("this server has no resource {word:?}; it has {}", known.join(", ")))
    })
}

fn locate(name: &ObjectName) -> Result<(usize, Key), Box<Status>> {
    let table = table_called(&name.resource)?;
    let namespace = if RESOURCES[table].namespaced { name.namespace.as_deref().unwrap_or("default") } else { "" };
    Ok((table, (namespace.to_owned(), name.name.clone())))
}
