//! Compiling in a child process: a component can cost that process its life, and nothing else.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

mod guests;

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use guests::{CONTRACT, SAME, component, drift, drift_core, engine};
use moorline_policy::{ChildProcess, CompileCache, Hook as _, Limits, LoadFault, Loader, Policy, hooks::Drift};

const PROGRAM: &str = env!("CARGO_BIN_EXE_moorline-compile");

fn loader(folder: &Path) -> Loader {
    Loader::new(&engine())
        .with_cache(CompileCache::open(folder.join("cache")).unwrap())
        .with_compiler(ChildProcess::new(PROGRAM, [""; 0]))
}

fn shell(folder: &Path, script: &str) -> Loader {
    loader(folder).with_compiler(ChildProcess::new("/bin/sh", ["-c", script]))
}

fn answers(policy: &Policy) {
    assert!(policy.call::<Drift>(&Drift::sample(), "{}").result.is_ok());
}

fn left(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder.join("cache"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// One function with so many branches that compiling it takes seconds and hundreds of mebibytes.
fn bomb() -> Vec<u8> {
    let mut body = String::from("(local $n i64)");
    for step in 0..60_000 {
        let _ = write!(
            body,
            "(if (i64.eqz (local.get $n)) (then (local.set $n (i64.add (local.get $n) (i64.const {step})))) \
             (else (local.set $n (i64.mul (local.get $n) (i64.const 3)))))"
        );
    }
    let more = format!("(func $bomb {body})");
    component(CONTRACT, "drift-only", &drift_core("", &more, SAME))
}

#[test]
fn what_a_child_compiled_is_kept_and_answers() {
    let folder = tempfile::tempdir().unwrap();
    answers(&loader(folder.path()).load("guest", &drift(SAME)).unwrap());
    assert_eq!(left(folder.path()).len(), 1, "one artefact, and nothing else");
    // The next start needs no compiler.
    answers(&shell(folder.path(), "exit 1").load("guest", &drift(SAME)).unwrap());
}

#[test]
fn without_a_folder_the_child_writes_into_memory() {
    let loader = Loader::new(&engine()).with_compiler(ChildProcess::new(PROGRAM, [""; 0]));
    answers(&loader.load("guest", &drift(SAME)).unwrap());
}

#[test]
fn a_component_that_takes_too_long_to_compile_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { compile_deadline: Duration::from_millis(100), ..Limits::default() };
    let error = loader(folder.path()).with_limits(limits).load("guest", &bomb()).unwrap_err();
    assert_eq!(error.fault.kind(), "compile-deadline");
    assert!(
        error.to_string().contains("within 100 ms") && error.to_string().contains("limits.compileDeadline"),
        "{error}"
    );
    answers(&loader(folder.path()).load("good", &drift(SAME)).unwrap());
}

#[test]
fn a_component_that_takes_too_much_memory_to_compile_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { compile_memory_bytes: 24 << 20, ..Limits::default() };
    let error = loader(folder.path()).with_limits(limits).load("guest", &bomb()).unwrap_err();
    assert_eq!(error.fault.kind(), "compile-memory", "{error}");
    assert!(error.to_string().contains("limits.compileMemory"), "{error}");
    answers(&loader(folder.path()).load("good", &drift(SAME)).unwrap());
}

#[test]
fn a_module_that_kills_the_compiler_is_refused_and_rests_after_the_second_time() {
    let folder = tempfile::tempdir().unwrap();
    let killer = shell(folder.path(), "cat >/dev/null; echo illegal >&2; kill -SEGV $$");
    let error = killer.load("guest", &drift(SAME)).unwrap_err();
    assert_eq!(error.fault.kind(), "compiler-died");
    assert!(error.to_string().contains("ended by signal 11. illegal"), "{error}");
    assert_eq!(killer.load("guest", &drift(SAME)).unwrap_err().fault.kind(), "compiler-died");
    assert!(matches!(
        loader(folder.path()).load("guest", &drift(SAME)).unwrap_err().fault,
        LoadFault::Quarantined { attempts: 2, .. }
    ));
    answers(&loader(folder.path()).load("good", &drift(&format!("(nop) {SAME}"))).unwrap());
}

#[test]
fn what_the_compiler_refuses_is_said_in_its_words_and_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    // A body that the checker passes over and the compiler's validation doesn't.
    let mut broken = drift(SAME);
    let code = broken.windows(4).rposition(|bytes| bytes == [0x41, 0xc0, 0x00, 0x0b]).unwrap();
    broken[code..code + 3].fill(0x01);
    for _ in 0..3 {
        let error = loader(folder.path()).load("guest", &broken).unwrap_err();
        assert_eq!(error.fault.kind(), "compile", "{error}");
        assert!(error.to_string().contains("type mismatch"), "{error}");
    }
    assert_eq!(left(folder.path()), [""; 0]);
}

#[test]
fn a_compiler_that_isnt_there_is_not_held_against_the_module() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = loader(folder.path()).with_compiler(ChildProcess::new("/nowhere/moorline", [""; 0]));
    for _ in 0..3 {
        let error = nowhere.load("guest", &drift(SAME)).unwrap_err();
        assert_eq!(error.fault.kind(), "no-compiler", "{error}");
    }
    answers(&loader(folder.path()).load("guest", &drift(SAME)).unwrap());
}

#[test]
fn what_a_wrong_program_writes_is_not_taken_for_native_code() {
    let folder = tempfile::tempdir().unwrap();
    for script in ["cat >/dev/null", "cat", "head -c 1 >/dev/null; exit 0"] {
        let error = shell(folder.path(), script).load("guest", &drift(SAME)).unwrap_err();
        assert_eq!(error.fault.kind(), "compile", "{script}: {error}");
    }
    answers(&loader(folder.path()).load("guest", &drift(SAME)).unwrap());
}

#[test]
fn started_by_a_person_it_says_who_it_is_for() {
    let ran = Command::new(PROGRAM).stdin(Stdio::null()).output().unwrap();
    assert_eq!(ran.status.code(), Some(69));
    assert!(String::from_utf8_lossy(&ran.stderr).contains("started by the program itself"), "{ran:?}");
}
