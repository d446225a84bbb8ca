//! The starts that write files: the first one, one that finds another configuration, one that hands off.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use moorline_sim::server::Server;

use crate::stage::{self, Machine};
use crate::world::{self, CNI, DISABLED, Objects};

/// A start that is about to happen.
pub(crate) struct Start {
    pub(crate) name: &'static str,
    /// The cluster before it.
    pub(crate) objects: Objects,
    /// The machine before it.
    pub(crate) files: BTreeMap<PathBuf, Vec<u8>>,
    /// The Site that the Node ends in.
    pub(crate) site: &'static str,
    /// The CNI file before it.
    pub(crate) old: Option<Vec<u8>>,
    /// The CNI file after it.
    pub(crate) new: Vec<u8>,
    /// The old file may be out of use before the new one is in place.
    pub(crate) hands_off: bool,
}

/// All of them.
pub(crate) async fn all() -> [Start; 3] {
    [
        start("first start", "east", false, |_| {}).await,
        start("another configuration", "east", true, |server| drop(server.apply(world::site("east", 9000)).unwrap()))
            .await,
        start("handoff", "west", true, |server| {
            server.apply(world::site("west", 9000)).unwrap();
            server.label(&world::node_name(), world::SITE_LABEL, Some("west")).unwrap();
        })
        .await,
    ]
}

async fn start(name: &'static str, site: &'static str, lived: bool, change: impl FnOnce(&Server)) -> Start {
    let (server, machine) = (stage::server(), Machine::new());
    server.apply(world::site("east", 1400)).unwrap();
    if lived {
        world::settle(&machine, &server).await;
        // Of the machine's files, the lock alone is no one's memory.
        std::fs::remove_file(machine.path("state/lock")).unwrap();
    }
    change(&server);
    let (objects, files) = (Objects::of(&server), world::files(machine.root.path()));
    let old = files.get(Path::new(CNI)).cloned();
    // Once undisturbed, to see where it leads.
    world::settle(&machine, &server).await;
    let new = std::fs::read(machine.path(CNI)).unwrap();
    assert_ne!(old.as_ref(), Some(&new), "{name}");
    world::assert_settled(&server, machine.root.path(), site, &new);
    Start { name, objects, files, site, old, new, hands_off: site != "east" }
}

impl Start {
    /// Asserts that a container runtime finds the old or the new configuration in this folder, each in whole.
    #[track_caller]
    pub(crate) fn assert_old_or_new(&self, files: &BTreeMap<PathBuf, Vec<u8>>, when: &str) {
        let found = files.get(Path::new(CNI));
        let is_between = self.hands_off && found.is_none() && files.get(Path::new(DISABLED)) == self.old.as_ref();
        assert!(
            found == self.old.as_ref() || found == Some(&self.new) || is_between,
            "{}, {when}: {:?}",
            self.name,
            found.map(|content| String::from_utf8_lossy(content))
        );
    }

    /// Asserts that everything is as this start leaves it.
    #[track_caller]
    pub(crate) fn assert_done(&self, server: &Server, root: &Path) {
        world::assert_settled(server, root, self.site, &self.new);
        let disabled = std::fs::read(root.join(DISABLED)).ok();
        assert_eq!(disabled, self.old.clone().filter(|_| self.hands_off), "{}", self.name);
    }
}
