#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn a_second_agent_is_told_who_has_the_lock_and_gets_it_when_that_one_ends() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let held = StateLock::try_acquire(&state, at(100)).unwrap();
    assert_eq!(held.previous_start, None);
    let error = StateLock::try_acquire(&state, at(200)).unwrap_err();
    let LockError::Held { holder, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*holder, Some(Holder { pid: std::process::id(), started: at(100) }));
    let said = error.to_string();
    assert!(said.contains(&format!("(process {}, started 1970-01-01T00:01:40Z)", std::process::id())), "{said}");
    assert!(said.contains("waits until that one has ended"), "{said}");
    drop(held);
    // The one that was refused never counts as a start.
    assert_eq!(StateLock::try_acquire(&state, at(300)).unwrap().previous_start, Some(at(100)));
}

#[test]
fn a_lock_file_with_nonsense_in_it_locks_as_well_and_tells_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for content in ["", "{", "{\"pid\":1,\"started\":\"yesterday\"}"] {
        std::fs::write(folder.path().join(NAME), content).unwrap();
        let lock = StateLock::try_acquire(folder.path(), at(1)).unwrap();
        assert_eq!(lock.previous_start, None);
        assert!(matches!(StateLock::try_acquire(folder.path(), at(2)), Err(LockError::Held { .. })));
    }
}

#[test]
fn a_longer_record_leaves_nothing_behind_a_shorter_one() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(NAME), "x".repeat(1000)).unwrap();
    drop(StateLock::try_acquire(folder.path(), at(5)).unwrap());
    assert_eq!(StateLock::try_acquire(folder.path(), at(6)).unwrap().previous_start, Some(at(5)));
}

#[test]
fn a_lock_file_that_was_removed_and_made_again_is_locked_anew() {
    let folder = tempfile::tempdir().unwrap();
    let _old = StateLock::try_acquire(folder.path(), at(1)).unwrap();
    std::fs::remove_file(folder.path().join(NAME)).unwrap();
    let _new = StateLock::try_acquire(folder.path(), at(2)).unwrap();
    assert!(matches!(StateLock::try_acquire(folder.path(), at(3)), Err(LockError::Held { .. })));
}

#[test]
fn a_state_folder_that_is_a_file_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = StateLock::try_acquire(&file, at(1)).unwrap_err();
    assert!(error.to_string().contains("could not be locked"), "{error}");
}
