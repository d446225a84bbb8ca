//! Objects, their versions and who watches them. Objects are kept as the JSON that is sent, and parsed only for writes:
//! thousands of Nodes stay small, and a change is encoded once for all of its watchers.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{Arc, OnceLock},
    task::Waker,
};

use bytes::Bytes;
use serde_json::Value;

use super::{Attributes, Interruption, resource::RESOURCES};

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It came into being.
    Added,
    /// It became different.
    Modified,
    /// It is gone; the change holds its last state.
    Deleted,
}

impl ChangeKind {
    /// The word that watch events use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One change of one object.
#[derive(Debug)]
pub struct ObjectChange {
    pub(crate) table: usize,
    pub(crate) namespace: String,
    pub(crate) name: String,
    kind: ChangeKind,
    version: u64,
    json: Bytes,
    line: OnceLock<Bytes>,
}

impl ObjectChange {
    /// The plural of the resource, for example `nodes`.
    pub fn resource(&self) -> &'static str {
        RESOURCES[self.table].plural
    }

    /// The API group of the resource.
    pub fn group(&self) -> &'static str {
        RESOURCES[self.table].group
    }

    /// Empty for cluster-scoped resources.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What happened.
    pub fn kind(&self) -> ChangeKind {
        self.kind
    }

    /// The resourceVersion that the change gave the object.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The object as it is now, or as it last was.
    pub fn object(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or(Value::Null)
    }

    pub(crate) fn json(&self) -> &Bytes {
        &self.json
    }

    /// The watch event, encoded once.
    fn line(&self) -> Bytes {
        self.line.get_or_init(|| event_line(self.kind.as_str(), &self.json)).clone()
    }
}

/// One line of a watch stream.
pub(crate) fn event_line(kind: &str, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + 40);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(kind.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into()
}

/// Where an object lives within its resource.
pub(crate) type Key = (String, String);

#[derive(Default)]
struct Slot {
    current: Option<Arc<ObjectChange>>,
    /// Changes that a watch can still be started before, oldest first.
    changes: VecDeque<Arc<ObjectChange>>,
}

#[derive(Default)]
struct Table {
    slots: BTreeMap<Key, Slot>,
    /// The same changes as in the slots, in order over the whole resource.
    log: VecDeque<Arc<ObjectChange>>,
    /// The oldest version that a watch can start from.
    oldest: u64,
    by_key: HashMap<Key, BTreeSet<u64>>,
    wide: BTreeSet<u64>,
}

/// What a watch wants to see.
pub(crate) struct Watching {
    pub(crate) table: usize,
    /// Empty for all namespaces and for cluster-scoped resources.
    pub(crate) namespace: String,
    /// Empty for all objects.
    pub(crate) name: String,
    /// Only changes after this version.
    pub(crate) after: u64,
    pub(crate) request: Attributes,
}

/// An open watch.
pub(crate) struct Watcher {
    pub(crate) watching: Watching,
    pub(crate) queue: VecDeque<Bytes>,
    pub(crate) interruption: Option<Interruption>,
    pub(crate) waker: Option<Waker>,
}

pub(crate) struct Store {
    tables: Vec<Table>,
    version: u64,
    history: usize,
    watchers: HashMap<u64, Watcher>,
    next_watcher: u64,
}

impl Store {
    /// `history` is how many changes of each resource a watch can be started before.
    pub(crate) fn new(history: usize) -> Self {
        Self {
            tables: RESOURCES.iter().map(|_| Table::default()).collect(),
            version: 1,
            history,
            watchers: HashMap::new(),
            next_watcher: 0,
        }
    }

    /// The newest resourceVersion.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn get(&self, table: usize, key: &Key) -> Option<&Arc<ObjectChange>> {
        self.tables[table].slots.get(key)?.current.as_ref()
    }

    /// The objects of a resource, in order of namespace and name; empty words mean all.
    pub(crate) fn list<'a>(
        &'a self,
        table: usize,
        namespace: &'a str,
        name: &'a str,
    ) -> Box<dyn Iterator<Item = &'a Arc<ObjectChange>> + 'a> {
        let slots = &self.tables[table].slots;
        if !name.is_empty() && (!namespace.is_empty() || !RESOURCES[table].namespaced) {
            return Box::new(self.get(table, &(namespace.to_owned(), name.to_owned())).into_iter());
        }
        Box::new(
            slots
                .iter()
                .filter(move |((ns, n), _)| (namespace.is_empty() || ns == namespace) && (name.is_empty() || n == name))
                .filter_map(|(_, slot)| slot.current.as_ref()),
        )
    }

    /// Stores a change, under a new version that is written into the object. Gives back the change and whom to wake.
    pub(crate) fn put(
        &mut self,
        table: usize,
        key: Key,
        kind: ChangeKind,
        mut object: Value,
    ) -> (Arc<ObjectChange>, Vec<Waker>) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = Value::String(self.version.to_string());
        let (namespace, name) = key.clone();
        let change = Arc::new(ObjectChange {
            table,
            namespace,
            name,
            kind,
            version: self.version,
            json: object.to_string().into(),
            line: OnceLock::new(),
        });
        let rows = &mut self.tables[table];
        let slot = rows.slots.entry(key.clone()).or_default();
        slot.current = (kind != ChangeKind::Deleted).then(|| change.clone());
        slot.changes.push_back(change.clone());
        rows.log.push_back(change.clone());
        while rows.log.len() > self.history {
            forget_oldest(rows);
        }
        let mut wakers = Vec::new();
        for id in rows.by_key.get(&key).into_iter().flatten().chain(&rows.wide) {
            let Some(watcher) = self.watchers.get_mut(id) else { continue };
            let wanted = &watcher.watching;
            if change.version > wanted.after && (wanted.namespace.is_empty() || wanted.namespace == key.0) {
                watcher.queue.push_back(change.line());
                wakers.extend(watcher.waker.take());
            }
        }
        (change, wakers)
    }

    /// Forgets every change up to now: a watch from an older version is answered with `Expired`. Open watches go on.
    pub(crate) fn compact(&mut self) {
        for table in &mut self.tables {
            while !table.log.is_empty() {
                forget_oldest(table);
            }
            table.oldest = self.version;
        }
    }

    /// The oldest version that a watch of this resource can start from.
    pub(crate) fn oldest(&self, table: usize) -> u64 {
        self.tables[table].oldest
    }

    /// Opens a watch. With `replay` its queue starts with everything that happened after `watching.after`.
    pub(crate) fn watch(&mut self, watching: Watching, replay: bool) -> u64 {
        self.next_watcher += 1;
        let id = self.next_watcher;
        let rows = &mut self.tables[watching.table];
        let key = one_object(&watching);
        let mut queue = VecDeque::new();
        if replay {
            let after = |change: &&Arc<ObjectChange>| change.version > watching.after;
            match &key {
                Some(key) => {
                    let changes = rows.slots.get(key).map(|slot| &slot.changes);
                    queue.extend(changes.into_iter().flatten().filter(after).map(|change| change.line()));
                }
                None => {
                    let from = rows.log.partition_point(|change| change.version <= watching.after);
                    let wanted = |change: &&Arc<ObjectChange>| {
                        (watching.namespace.is_empty() || change.namespace == watching.namespace)
                            && (watching.name.is_empty() || change.name == watching.name)
                    };
                    queue.extend(rows.log.iter().skip(from).filter(wanted).map(|change| change.line()));
                }
            }
        }
        match key {
            Some(key) => rows.by_key.entry(key).or_default().insert(id),
            None => rows.wide.insert(id),
        };
        self.watchers.insert(id, Watcher { watching, queue, interruption: None, waker: None });
        id
    }

    pub(crate) fn watcher(&mut self, id: u64) -> Option<&mut Watcher> {
        self.watchers.get_mut(&id)
    }

    pub(crate) fn watchers(&mut self) -> impl Iterator<Item = &mut Watcher> {
        self.watchers.values_mut()
    }

    pub(crate) fn unwatch(&mut self, id: u64) {
        let Some(watcher) = self.watchers.remove(&id) else { return };
        let rows = &mut self.tables[watcher.watching.table];
        match one_object(&watcher.watching) {
            None => {
                rows.wide.remove(&id);
            }
            Some(key) => {
                if let Some(ids) = rows.by_key.get_mut(&key) {
                    ids.remove(&id);
                    if ids.is_empty() {
                        rows.by_key.remove(&key);
                    }
                }
            }
        }
    }
}

/// The one object that a watch is about, if it is about one.
fn one_object(watching: &Watching) -> Option<Key> {
    let one = !watching.name.is_empty() && (!watching.namespace.is_empty() || !RESOURCES[watching.table].namespaced);
    one.then(|| (watching.namespace.clone(), watching.name.clone()))
}

fn forget_oldest(rows: &mut Table) {
    let Some(change) = rows.log.pop_front() else { return };
    rows.oldest = change.version;
    let key = (change.namespace.clone(), change.name.clone());
    let Some(slot) = rows.slots.get_mut(&key) else { return };
    slot.changes.pop_front();
    if slot.changes.is_empty() && slot.current.is_none() {
        rows.slots.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_that_is_closed_leaves_nothing_behind() {
        let mut store = Store::new(10);
        let watching = |name: &str| Watching {
            table: 0,
            namespace: String::new(),
            name: name.to_owned(),
            after: 0,
            request: Attributes::default(),
        };
        for name in ["", "n1"] {
            let id = store.watch(watching(name), true);
            store.unwatch(id);
        }
        assert!(store.watchers.is_empty() && store.tables[0].wide.is_empty() && store.tables[0].by_key.is_empty());
    }

    #[test]
    fn an_object_that_is_gone_is_forgotten_with_its_last_change() {
        let mut store = Store::new(1);
        let object = serde_json::json!({"metadata": {}});
        for (name, kind) in [("a", ChangeKind::Added), ("a", ChangeKind::Deleted), ("b", ChangeKind::Added)] {
            store.put(0, (String::new(), name.to_owned()), kind, object.clone());
        }
        assert_eq!(store.tables[0].slots.keys().map(|key| key.1.as_str()).collect::<Vec<_>>(), ["b"]);
    }
}
