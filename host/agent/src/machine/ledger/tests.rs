#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde::Deserialize;

use super::super::testing::Failing;
use super::*;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Sample {
    version: u32,
    owes: Vec<String>,
}

fn sample(version: u32) -> Sample {
    Sample { version, owes: vec!["a route".to_owned()] }
}

fn damaged(loaded: Loaded<Sample>) -> Damaged {
    match loaded {
        Loaded::Damaged(damaged) => damaged,
        other => panic!("{other:?} is not damaged"),
    }
}

#[test]
fn what_was_saved_is_found_and_only_the_agents_user_can_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = LedgerStore::new(folder.path().join("moorline"));
    assert_eq!(store.load::<Sample>().unwrap(), Loaded::Missing);
    for version in [1, 2] {
        store.save(&sample(version)).unwrap();
        assert_eq!(store.load().unwrap(), Loaded::Found(sample(version)));
    }
    assert_eq!(fs::metadata(store.path()).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(fs::metadata(folder.path().join("moorline")).unwrap().permissions().mode() & 0o7777, 0o700);
}

#[test]
fn a_damaged_ledger_is_set_aside_with_a_clear_message_and_the_next_load_finds_none() {
    let folder = tempfile::tempdir().unwrap();
    let store = LedgerStore::new(folder.path());
    let bad: [&[u8]; 4] = [b"", b"{\"version\":1,\"ow", b"\0\0\0\0", b"{\"version\":\"one\",\"owes\":[]}"];
    for (index, content) in bad.into_iter().enumerate() {
        fs::write(store.path(), content).unwrap();
        let damaged = damaged(store.load().unwrap());
        let aside = folder.path().join(format!("ledger.json.damaged-{}", index + 1));
        assert_eq!(damaged.set_aside.as_ref(), Some(&aside));
        assert_eq!(fs::read(&aside).unwrap(), content);
        assert!(damaged.message.contains("can't be understood"), "{}", damaged.message);
        assert!(damaged.message.contains(aside.to_str().unwrap()), "{}", damaged.message);
        assert_eq!(store.load::<Sample>().unwrap(), Loaded::Missing);
    }
}

#[test]
fn a_ledger_that_is_too_large_a_folder_or_a_link_is_damaged_too() {
    let folder = tempfile::tempdir().unwrap();
    let store = LedgerStore::new(folder.path());
    fs::write(store.path(), vec![b' '; CAP + 1]).unwrap();
    assert!(damaged(store.load().unwrap()).message.contains("more than 1048576 bytes"));
    fs::create_dir(store.path()).unwrap();
    assert!(damaged(store.load().unwrap()).message.contains("is a folder"));
    std::os::unix::fs::symlink("/etc/passwd", store.path()).unwrap();
    assert!(damaged(store.load().unwrap()).message.contains("is a symbolic link"));
    store.save(&sample(1)).unwrap();
    assert_eq!(store.load().unwrap(), Loaded::Found(sample(1)));
}

#[test]
fn no_more_than_a_few_damaged_ledgers_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = LedgerStore::new(folder.path());
    for _ in 0..DAMAGED_KEPT + 3 {
        fs::write(store.path(), b"{").unwrap();
        assert!(damaged(store.load().unwrap()).set_aside.is_some());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count() as u32, DAMAGED_KEPT);
}

#[test]
fn a_damaged_ledger_on_a_read_only_disk_is_told_and_start_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(NAME), b"{").unwrap();
    let failing = Failing::failing_from(0, std::io::ErrorKind::ReadOnlyFilesystem);
    let damaged = damaged(LedgerStore::with_files(folder.path(), &failing).load().unwrap());
    assert_eq!(damaged.set_aside, None);
    assert!(damaged.message.contains("could not be set aside"), "{}", damaged.message);
    assert!(damaged.message.contains("read-only"), "{}", damaged.message);
}

#[test]
fn a_ledger_beyond_the_cap_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let store = LedgerStore::new(folder.path());
    store.save(&sample(1)).unwrap();
    let error = store.save(&Sample { version: 2, owes: vec!["x".repeat(CAP)] }).unwrap_err();
    assert!(matches!(error, LedgerError::TooLarge(_)), "{error}");
    assert_eq!(store.load().unwrap(), Loaded::Found(sample(1)));
}

#[test]
fn killed_at_every_change_the_ledger_is_the_old_or_the_new_one() {
    for at in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let store = LedgerStore::new(folder.path());
        store.save(&sample(1)).unwrap();
        let killed = Failing::killed_at(at);
        let ended = LedgerStore::with_files(folder.path(), &killed).save(&sample(2));
        let found = store.load().unwrap();
        assert!([Loaded::Found(sample(1)), Loaded::Found(sample(2))].contains(&found), "killed at {at}: {found:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "leftovers are removed by the load");
        if !killed.was_reached() {
            ended.unwrap();
            assert_eq!(found, Loaded::Found(sample(2)));
            assert!(at >= 5, "folder, create, sync, rename and sync of the folder were all passed");
            return;
        }
    }
}

#[test]
fn only_looking_leaves_a_damaged_ledger_and_a_leftover_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["ledger.json", ".moorline-1-0.tmp"];
    for name in names {
        fs::write(folder.path().join(name), "{torn").unwrap();
    }
    let damaged = damaged(LedgerStore::new(folder.path()).look().unwrap());
    assert_eq!(damaged.set_aside, None);
    assert!(
        damaged.message.contains("stays where it is") && !damaged.message.contains("kept as"),
        "{}",
        damaged.message
    );
    for name in names {
        assert_eq!(fs::read(folder.path().join(name)).unwrap(), b"{torn");
    }
}
