//! CNI folder and ledger on file systems that are read-only, full, or out of inodes: real ones, mounted for the test alone.

use std::fs;
use std::path::{Path, PathBuf};

use moorline::machine::cni::{CniFile, Ownership};
use moorline::machine::ledger::{LedgerStore, Loaded};
use nix::mount::{MsFlags, mount};
use serde_json::{Value, json};

use crate::Test;

pub(crate) const TESTS: &[Test] = &[
    ("file_systems::read_only", || fails(read_only, "its file system is read-only")),
    ("file_systems::full", || fails(full, "no space, inodes or quota is left")),
    ("file_systems::out_of_inodes", || fails(out_of_inodes, "no space, inodes or quota is left")),
];

const NAME: &str = "10-unbounded.conflist";

/// A small file system of its own.
struct Small(PathBuf);

impl Small {
    fn new() -> Self {
        let folder = PathBuf::from("/run/small");
        fs::create_dir(&folder).unwrap();
        mount(Some("tmpfs"), &folder, Some("tmpfs"), MsFlags::empty(), Some("size=64k,nr_inodes=16")).unwrap();
        Self(folder)
    }

    fn remount(&self, flags: MsFlags) {
        let flags = flags | MsFlags::MS_REMOUNT;
        mount(None::<&str>, &self.0, None::<&str>, flags, Some("size=64k,nr_inodes=16")).unwrap();
    }
}

fn read_only(small: &Small) -> Box<dyn FnOnce() + '_> {
    small.remount(MsFlags::MS_RDONLY);
    Box::new(|| small.remount(MsFlags::empty()))
}

fn full(small: &Small) -> Box<dyn FnOnce() + '_> {
    let ballast = small.0.join("ballast");
    fs::write(&ballast, vec![0; 1 << 20]).unwrap_err();
    Box::new(move || fs::remove_file(ballast).unwrap())
}

fn out_of_inodes(small: &Small) -> Box<dyn FnOnce() + '_> {
    let ballast = small.0.join("ballast");
    fs::create_dir(&ballast).unwrap();
    while fs::File::create(ballast.join(fs::read_dir(&ballast).unwrap().count().to_string())).is_ok() {}
    Box::new(move || fs::remove_dir_all(ballast).unwrap())
}

/// What is there stays whole while the file system fails, the error says how, and writing goes on when it doesn't any more.
fn fails(break_it: for<'a> fn(&'a Small) -> Box<dyn FnOnce() + 'a>, said: &str) {
    let small = Small::new();
    let cni = CniFile::new(&small.0, NAME);
    let ledger = LedgerStore::new(small.0.join("state"));
    let conflist = |mtu: u32| {
        let bridge = json!({"type": "bridge", "bridge": "cbr0", "mtu": mtu});
        json!({"cniVersion": "1.0.0", "name": "unbounded-net", "plugins": [bridge]}).to_string()
    };
    let (old, new) = (conflist(1400), conflist(9000));
    let own = Ownership::of([old.as_str(), new.as_str()], false, Default::default());
    fs::create_dir(small.0.join("state")).unwrap();
    cni.write(&old, &own).unwrap();
    ledger.save(&json!({"version": 1, "nodeName": "old"})).unwrap();
    let before = names(&small.0);

    let mend = break_it(&small);
    for error in
        [cni.write(&new, &own).unwrap_err().to_string(), ledger.save(&json!({"version": 1})).unwrap_err().to_string()]
    {
        assert!(error.contains(said), "{error}");
    }
    assert_eq!(mtu(&cni), 1400);
    assert!(matches!(ledger.load::<Value>().unwrap(), Loaded::Found(found) if found["nodeName"] == "old"));
    mend();
    assert_eq!(names(&small.0), before, "nothing half written is left");

    cni.write(&new, &own).unwrap();
    ledger.save(&json!({"version": 1, "nodeName": "new"})).unwrap();
    assert_eq!(mtu(&cni), 9000);
}

fn mtu(cni: &CniFile) -> u64 {
    let value: Value = serde_json::from_slice(&fs::read(cni.path()).unwrap()).unwrap();
    value["plugins"][0]["mtu"].as_u64().unwrap()
}

fn names(folder: &Path) -> Vec<PathBuf> {
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names
}
