//! A guest that was granted WASI finds nothing in it: nothing of the system, no time that passes, nothing to wait for.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

mod guests;

use std::time::Duration;

use guests::{CONTRACT, SAME, component, drift_core, engine};
use moorline_policy::{
    CallFault, CallOutcome, Hook as _, Limits, LoadError, LoadFault, Loader, Policy, Reply, Wasi,
    hooks::{Drift, DriftVerdict},
};

/// The parts of WASI 0.2 that these guests use.
const WASI: &str = "
package wasi:io@0.2.0 {
  interface poll {
    resource pollable { ready: func() -> bool; block: func(); }
    poll: func(in: list<borrow<pollable>>) -> list<u32>;
  }
  interface error { resource error; }
  interface streams {
    use error.{error};
    variant stream-error { last-operation-failed(error), closed }
    resource output-stream {
      blocking-write-and-flush: func(contents: list<u8>) -> result<_, stream-error>;
      write-zeroes: func(len: u64) -> result<_, stream-error>;
    }
  }
}
package wasi:clocks@0.2.0 {
  interface monotonic-clock {
    use wasi:io/poll@0.2.0.{pollable};
    now: func() -> u64;
    subscribe-duration: func(when: u64) -> pollable;
  }
}
package wasi:random@0.2.0 { interface random { get-random-bytes: func(len: u64) -> list<u8>; get-random-u64: func() -> u64; } }
package wasi:cli@0.2.0 {
  interface exit { exit: func(status: result); }
  interface environment { get-arguments: func() -> list<string>; }
  interface stderr { use wasi:io/streams@0.2.0.{output-stream}; get-stderr: func() -> output-stream; }
}
package wasi:sockets@0.2.0 { interface network { resource network; } interface instance-network {
  use network.{network}; instance-network: func() -> network; } }
package wasi:filesystem@0.2.0 {
  interface types { resource descriptor; }
  interface preopens { use types.{descriptor}; get-directories: func() -> list<tuple<descriptor, string>>; }
}
";

/// A component that imports these interfaces of WASI and answers drift with this body. The guest's imports come first.
fn wasi(interfaces: &[&str], imports: &str, assess: &str) -> Vec<u8> {
    wasi_with(interfaces, imports, "", assess)
}

fn wasi_with(interfaces: &[&str], imports: &str, more: &str, assess: &str) -> Vec<u8> {
    let imported: String = interfaces.iter().map(|interface| format!("import wasi:{interface}@0.2.0; ")).collect();
    let wit = format!("{CONTRACT}\nworld isolated {{ {imported} include drift-only; }}\n{WASI}");
    component(&wit, "isolated", &drift_core(imports, more, assess))
}

fn load(component: &[u8], wasi: Wasi) -> Result<Policy, LoadError> {
    Loader::new(&engine()).with_wasi(wasi).load("guest", component)
}

fn ask(component: &[u8]) -> CallOutcome<DriftVerdict> {
    load(component, Wasi::Isolated).unwrap().call::<Drift>(&Drift::sample(), "{}")
}

/// Asks under so little fuel that nothing else ends the call.
fn ask_for_little_fuel(component: &[u8]) -> CallOutcome<DriftVerdict> {
    let limits = Limits { fuel: 1_000_000, deadline: Duration::from_secs(60), ..Limits::default() };
    load(component, Wasi::Isolated).unwrap().with_limits(limits).call::<Drift>(&Drift::sample(), "{}")
}

fn same() -> Result<Reply<DriftVerdict>, moorline_policy::CallError> {
    Ok(Reply::Verdict(DriftVerdict::Same("drift-guest".into())))
}

const EXIT: &str = r#"(import "wasi:cli/exit@0.2.0" "exit" (func $exit (param i32)))"#;
const RANDOM: &str = r#"
  (import "wasi:random/random@0.2.0" "get-random-bytes" (func $bytes (param i64 i32)))
  (import "wasi:random/random@0.2.0" "get-random-u64" (func $number (result i64)))"#;
const WAIT: &str = r#"
  (import "wasi:clocks/monotonic-clock@0.2.0" "now" (func $now (result i64)))
  (import "wasi:clocks/monotonic-clock@0.2.0" "subscribe-duration" (func $after (param i64) (result i32)))
  (import "wasi:io/poll@0.2.0" "[method]pollable.block" (func $block (param i32)))
  (import "wasi:io/poll@0.2.0" "[method]pollable.ready" (func $ready (param i32) (result i32)))
  (import "wasi:io/poll@0.2.0" "[resource-drop]pollable" (func $forget (param i32)))"#;
const STDERR: &str = r#"
  (import "wasi:cli/stderr@0.2.0" "get-stderr" (func $stderr (result i32)))
  (import "wasi:io/streams@0.2.0" "[method]output-stream.blocking-write-and-flush" (func $write (param i32 i32 i32 i32)))
  (import "wasi:io/streams@0.2.0" "[method]output-stream.write-zeroes" (func $zeroes (param i32 i64 i32)))
  (import "wasi:io/streams@0.2.0" "[resource-drop]output-stream" (func $close (param i32)))"#;

#[test]
fn wasi_is_refused_unless_it_was_granted_and_the_error_says_how() {
    let guest = wasi(&["cli/exit"], EXIT, SAME);
    let error = load(&guest, Wasi::None).unwrap_err();
    assert!(matches!(error.fault, LoadFault::ForbiddenImport { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("wasi:cli/exit@0.2.0") && text.contains("`wasi: isolated`"), "{text}");
    assert_eq!(ask(&guest).result, same());
}

#[test]
fn a_guest_that_exits_ends_its_call_and_not_its_host() {
    for (status, said) in [(0, "status 0"), (1, "status 1")] {
        let guest = wasi(&["cli/exit"], EXIT, &format!("(call $exit (i32.const {status})) unreachable"));
        let error = ask(&guest).result.unwrap_err();
        let CallFault::Trap(text) = &error.fault else { panic!("{error}") };
        assert!(text.contains("ended itself") && text.contains(said), "{text}");
    }
}

#[test]
fn whoever_waits_for_an_hour_has_waited() {
    // 3600 s, and then a clock that shows what it showed before.
    let body = format!(
        "(local.set $i (call $after (i64.const 3600000000000)))
         (call $block (local.get $i))
         (if (i32.eqz (call $ready (local.get $i))) (then unreachable))
         (call $forget (local.get $i))
         (if (i64.ne (call $now) (i64.const 0)) (then unreachable))
         {SAME}"
    );
    let guest = wasi(&["clocks/monotonic-clock", "io/poll"], WAIT, &body);
    assert_eq!(ask(&guest).result, same());
}

#[test]
fn a_guest_may_wait_and_write_on_a_thread_that_drives_a_runtime() {
    let body = format!(
        "(local.set $i (call $stderr))
         (call $write (local.get $i) (i32.const 16) (i32.const 5) (i32.const 256))
         (call $close (local.get $i))
         (call $block (call $after (i64.const 1)))
         {SAME}"
    );
    let interfaces = ["clocks/monotonic-clock", "io/poll", "cli/stderr", "io/streams"];
    let guest = wasi(&interfaces, &format!("{WAIT}{STDERR}"), &body);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(runtime.block_on(async { ask(&guest).result }), same());
}

#[test]
fn handles_that_are_never_given_back_end_the_call() {
    let guest = wasi(
        &["clocks/monotonic-clock", "io/poll"],
        WAIT,
        "(loop $l (drop (call $after (i64.const 1))) (br $l)) unreachable",
    );
    let error = ask(&guest).result.unwrap_err();
    assert!(matches!(&error.fault, CallFault::Trap(text) if text.contains("1024 handles")), "{error}");
}

#[test]
fn randomness_is_the_same_in_every_call_and_on_every_engine() {
    // The low bit of the third number, as the case of the verdict.
    let body = format!(
        "(drop (call $number)) (drop (call $number))
         {SAME} (i32.store8 (i32.const 68) (i32.and (i32.wrap_i64 (call $number)) (i32.const 1)))"
    );
    let guest = wasi(&["random/random"], RANDOM, &body);
    let first = ask(&guest);
    for _ in 0..20 {
        let again = ask(&guest);
        assert_eq!((&again.result, again.fuel), (&first.result, first.fuel));
    }
}

#[test]
fn more_randomness_than_anyone_needs_ends_the_call() {
    for (bytes, fine) in [(65_536_u64, true), (65_537, false), (u64::MAX, false)] {
        let body = format!("(call $bytes (i64.const {bytes}) (i32.const 256)) {SAME}");
        let outcome = ask(&wasi(&["random/random"], RANDOM, &body));
        assert_eq!(outcome.result.is_ok(), fine, "{bytes}: {:?}", outcome.result);
    }
    // As often as it likes: what the host makes is paid for in fuel and in the guest's memory.
    let flood = "(loop $l (call $bytes (i64.const 65536) (i32.const 256)) (br $l)) unreachable";
    assert_eq!(ask(&wasi(&["random/random"], RANDOM, flood)).result.unwrap_err().kind(), "memory");
}

#[test]
fn what_a_guest_writes_to_standard_error_is_kept_as_its_last_words() {
    let body = "(call $write (call $stderr) (i32.const 512) (i32.const 20) (i32.const 256)) unreachable";
    let more = r#"(data (i32.const 512) "panic: out of coffee")"#;
    let guest = wasi_with(&["cli/stderr", "io/streams"], STDERR, more, body);
    let error = ask(&guest).result.unwrap_err();
    assert_eq!(error.said.as_deref(), Some("panic: out of coffee"));
    // A terabyte of zeroes is not made, let alone kept.
    let zeroes = format!("(call $zeroes (call $stderr) (i64.const 1099511627776) (i32.const 256)) {SAME}");
    assert_eq!(ask(&wasi(&["cli/stderr", "io/streams"], STDERR, &zeroes)).result, same());
}

#[test]
fn a_flood_on_standard_error_keeps_the_end() {
    let body = "(local.set $i (call $stderr))
        (loop $l (call $write (local.get $i) (i32.const 16) (i32.const 4000) (i32.const 8192)) (br $l)) unreachable";
    let outcome = ask_for_little_fuel(&wasi(&["cli/stderr", "io/streams"], STDERR, body));
    let error = outcome.result.unwrap_err();
    assert_eq!(error.kind(), "fuel");
    assert!(error.said.is_some_and(|said| said.len() <= 2048));
}

#[test]
fn there_are_no_arguments_no_folders_and_no_network() {
    let look = |interface: &str, function: &str| {
        let import = format!(r#"(import "wasi:{interface}@0.2.0" "{function}" (func $list (param i32)))"#);
        let body = format!(
            "(call $list (i32.const 256)) (if (i32.ne (i32.load (i32.const 260)) (i32.const 0)) (then unreachable)) {SAME}"
        );
        ask(&wasi(&[interface], &import, &body)).result
    };
    assert_eq!(look("cli/environment", "get-arguments"), same());
    assert_eq!(look("filesystem/preopens", "get-directories"), same());
    // Sockets are linked so that a guest loads that could use them, and end the call that does.
    let import = r#"(import "wasi:sockets/instance-network@0.2.0" "instance-network" (func $network (result i32)))"#;
    let interfaces = ["sockets/network", "sockets/instance-network"];
    assert_eq!(ask(&wasi(&interfaces, import, SAME)).result, same());
    let error = ask(&wasi(&interfaces, import, &format!("(drop (call $network)) {SAME}"))).result.unwrap_err();
    assert!(error.to_string().contains("wasi:sockets/instance-network"), "{error}");
}

#[test]
fn wasi_takes_no_more_than_the_limits_of_a_call() {
    let guest = wasi(&["random/random"], RANDOM, "(loop $l (drop (call $number)) (br $l)) unreachable");
    assert_eq!(ask_for_little_fuel(&guest).result.unwrap_err().fault, CallFault::Fuel(1_000_000));
}
