//! Nothing a policy does in a call hurts its host: each kind of misbehaviour ends in its own error, and the next call of a
//! good policy is right.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

mod guests;

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use guests::{CONTRACT, SAME, ask, component, drift, drift_core, load};
use moorline_policy::{
    Allocation, CallError, CallFault, CallOutcome, Engine, EngineConfig, Hook as _, Level, Limits, LoadFault, Loader,
    Pool, Reply,
    hooks::{Drift, DriftVerdict, Observation},
};

const LOG: &str = r#"
  (import "moorline:policy/host-log@0.1.0" "log" (func $log (param i32 i32 i32)))
  (import "moorline:policy/host-log@0.1.0" "enabled" (func $enabled (param i32) (result i32)))
"#;

/// The error of a call, after a check that it names policy, digest and hook, and that a good policy still answers.
fn error_of(component: &[u8], limits: Limits) -> CallError {
    let error = ask::<Drift>(component, limits).result.unwrap_err();
    let text = error.to_string();
    for part in ["`guest`", &error.digest.short(), "`drift`"] {
        assert!(text.contains(part), "{text} doesn't name {part}");
    }
    good();
    error
}

fn good() {
    let outcome = ask::<Drift>(&drift(SAME), Limits::default());
    assert_eq!(outcome.result, Ok(Reply::Verdict(DriftVerdict::Same("drift-guest".into()))));
}

#[test]
fn a_good_policy_answers() {
    good();
    let policy = load(&drift(SAME)).unwrap();
    assert_eq!((policy.describe().name.as_str(), policy.describe().version.as_str()), ("drift-guest", "0.1.0"));
    assert_eq!(policy.hooks().map(|hook| hook.name).collect::<Vec<_>>(), ["drift"]);
}

#[test]
fn an_endless_loop_runs_out_of_fuel() {
    let error = error_of(&drift("(loop $l (br $l)) unreachable"), Limits::default());
    assert_eq!(error.fault, CallFault::Fuel(Limits::default().fuel));
    assert!(error.to_string().contains("raise `limits.fuel`"), "{error}");
}

#[test]
fn a_timeout_is_reported_as_a_timeout_and_comes_not_before_its_time() {
    let limits = Limits { fuel: u64::MAX / 2, deadline: Duration::from_millis(20), ..Limits::default() };
    let started = Instant::now();
    let error = error_of(&drift("(loop $l (br $l)) unreachable"), limits);
    assert_eq!(error.fault, CallFault::Deadline(Duration::from_millis(20)));
    assert!(started.elapsed() >= Duration::from_millis(20), "it was killed before its time");
}

#[test]
fn the_same_call_uses_the_same_fuel() {
    let component = drift(SAME);
    let fuel = |()| ask::<Drift>(&component, Limits::default()).fuel;
    assert_eq!(fuel(()), fuel(()));
    assert!(fuel(()) > 0);
}

#[test]
fn what_the_host_does_is_not_billed_to_the_guest() {
    let core = drift_core(LOG, "", &format!("(call $log (i32.const 3) (i32.const 512) (local.get $i)) {SAME}"));
    let policy = load(&component(CONTRACT, "drift-only", &core)).unwrap();
    // The guest's part is the same, whatever the length of what it is given and of what it logs: the host copies both.
    let call = |length: usize| {
        let mut seen = Drift::sample();
        seen.observed.name = "n".repeat(length);
        policy.call::<Drift>(&seen, "{}")
    };
    let (short, long) = (call(1), call(2000));
    assert!(short.result.is_ok() && long.result.is_ok());
    assert_eq!(short.fuel, long.fuel);
}

#[test]
fn an_endless_loop_in_the_start_function_runs_out_of_fuel() {
    let core = drift_core("", "(func $start (loop $l (br $l))) (start $start)", SAME);
    let error = load(&component(CONTRACT, "drift-only", &core)).unwrap_err();
    let LoadFault::Unusable(error) = error.fault else { panic!("{error}") };
    assert_eq!((error.kind(), error.function), ("fuel", "describe"));
}

#[test]
fn an_endless_loop_in_realloc_runs_out_of_fuel() {
    let core = drift_core("", "", SAME).replace("(local $at i32)", "(local $at i32) (loop $l (br $l))");
    let error = error_of(&component(CONTRACT, "drift-only", &core), Limits::default());
    assert_eq!(error.kind(), "fuel");
}

#[test]
fn memory_that_grows_without_end_meets_its_limit() {
    let error =
        error_of(&drift("(loop $l (drop (memory.grow (i32.const 16))) (br $l)) unreachable"), Limits::default());
    assert_eq!(error.fault, CallFault::Memory { wanted: (16 << 20) + (1 << 16), limit: 16 << 20 });
}

#[test]
fn a_memory_that_starts_too_large_is_refused_at_load() {
    let core =
        drift_core("", "", SAME).replace(r#"(memory (export "memory") 1)"#, r#"(memory (export "memory") 4096)"#);
    let LoadFault::Unusable(error) = load(&component(CONTRACT, "drift-only", &core)).unwrap_err().fault else {
        panic!()
    };
    assert_eq!(error.fault, CallFault::Memory { wanted: 256 << 20, limit: 16 << 20 });
}

#[test]
fn a_table_that_grows_without_end_meets_its_limit() {
    let more = "(table $t 1 funcref)";
    let body = "(loop $l (drop (table.grow $t (ref.null func) (i32.const 1000))) (br $l)) unreachable";
    let error = error_of(&component(CONTRACT, "drift-only", &drift_core("", more, body)), Limits::default());
    assert_eq!(error.kind(), "table");
}

#[test]
fn deep_recursion_exhausts_the_guests_stack_and_not_the_hosts() {
    let core = drift_core(
        "",
        "(func $deep (param i64) (result i64) (i64.add (call $deep (local.get 0)) (i64.const 1)))",
        "(drop (call $deep (i64.const 0))) unreachable",
    );
    let error = error_of(&component(CONTRACT, "drift-only", &core), Limits::default());
    assert_eq!(error.fault, CallFault::Stack(Limits::default().stack_bytes));
}

#[test]
fn too_many_instances_are_refused() {
    let outcome = load(&drift(SAME));
    assert!(outcome.is_ok());
    let error = error_of(&drift(SAME), Limits { instances: 0, ..Limits::default() });
    assert_eq!(error.kind(), "instances");
}

#[test]
fn a_call_that_finds_the_pool_full_says_so_and_the_next_one_is_right() {
    let pool = Pool { calls: 1, ..Pool::default() };
    let loader = Loader::new(&Engine::new(&EngineConfig { allocation: Allocation::Pooled(pool) }).unwrap());
    let limits = Limits { fuel: 50_000_000, deadline: Duration::from_secs(60), ..Limits::default() };
    let busy = loader.load("busy", &drift("(loop $l (br $l)) unreachable")).unwrap().with_limits(limits);
    let good = loader.load("good", &drift(SAME)).unwrap();
    let seen = AtomicBool::new(false);
    thread::scope(|scope| {
        // It takes the one place again and again until the other has met it there.
        scope.spawn(|| {
            while !seen.load(Relaxed) {
                let kind = busy.call::<Drift>(&Drift::sample(), "{}").result.unwrap_err().kind();
                let expected = ["fuel", "pool-full"].contains(&kind);
                seen.fetch_or(!expected, Relaxed);
                assert!(expected, "{kind}");
            }
        });
        while !seen.load(Relaxed) {
            if let Err(error) = good.call::<Drift>(&Drift::sample(), "{}").result {
                seen.store(true, Relaxed);
                assert_eq!((&error.fault, error.kind()), (&CallFault::PoolFull, "pool-full"));
                assert!(error.to_string().contains("more `calls`"), "{error}");
            }
        }
    });
    assert!(good.call::<Drift>(&Drift::sample(), "{}").result.is_ok());
}

#[test]
fn a_trap_is_reported_as_a_trap() {
    let error = error_of(&drift("unreachable"), Limits::default());
    assert_eq!(error.fault, CallFault::Trap("wasm `unreachable` instruction executed".into()));
    let error = error_of(&drift("(i32.div_u (i32.const 1) (local.get $i))"), Limits::default());
    assert_eq!(error.fault, CallFault::Trap("integer divide by zero".into()));
}

#[test]
fn the_panic_text_of_a_guest_is_not_lost() {
    let more = r#"(data (i32.const 512) "panicked at src/lib.rs:7: boom")"#;
    let core = drift_core(LOG, more, "(call $log (i32.const 4) (i32.const 512) (i32.const 30)) unreachable");
    let component = component(CONTRACT, "drift-only", &core);
    let error = error_of(&component, Limits { log_lines: 0, ..Limits::default() });
    assert_eq!(error.said.as_deref(), Some("panicked at src/lib.rs:7: boom"));
    assert!(error.to_string().ends_with("It said: panicked at src/lib.rs:7: boom"), "{error}");
}

/// An answer whose reason is at `at` and `bytes` long.
fn answer(at: u32, bytes: u32) -> Vec<u8> {
    drift(&format!(
        "(drop (memory.grow (i32.const 200)))
         (i32.store (i32.const 72) (i32.const {at})) (i32.store (i32.const 76) (i32.const {bytes})) (i32.const 64)"
    ))
}

#[test]
fn a_huge_string_is_not_taken() {
    let error = error_of(&answer(0, 12_000_000), Limits::default());
    assert_eq!(error.kind(), "bad-output");
    assert!(error.to_string().contains("raise `limits.output`"), "{error}");
}

#[test]
fn a_reason_that_nobody_would_read_is_not_taken() {
    let error = error_of(&answer(0, 1025), Limits::default());
    assert!(error.to_string().contains("its reason has 1025 bytes"), "{error}");
    assert!(ask::<Drift>(&answer(0, 1024), Limits::default()).result.is_ok());
}

#[test]
fn a_string_outside_of_the_guests_memory_is_not_taken() {
    assert_eq!(error_of(&answer(u32::MAX - 8, 8), Limits::default()).kind(), "bad-output");
    assert_eq!(error_of(&answer(16, u32::MAX), Limits::default()).kind(), "bad-output");
}

#[test]
fn text_that_is_not_utf8_is_not_taken() {
    let more = r#"(data (i32.const 512) "\ff\fe\fd")"#;
    let body = "(i32.store (i32.const 72) (i32.const 512)) (i32.store (i32.const 76) (i32.const 3)) (i32.const 64)";
    let error = error_of(&component(CONTRACT, "drift-only", &drift_core("", more, body)), Limits::default());
    assert_eq!(error.kind(), "bad-output");
}

#[test]
fn an_answer_outside_of_the_variant_is_not_taken() {
    let error = error_of(&drift("(i32.store8 (i32.const 68) (i32.const 9)) (i32.const 64)"), Limits::default());
    assert_eq!(error.kind(), "bad-output");
    let error = error_of(&drift("(i32.store8 (i32.const 64) (i32.const 9)) (i32.const 64)"), Limits::default());
    assert_eq!(error.kind(), "bad-output");
}

#[test]
fn a_result_that_lies_nowhere_is_not_taken() {
    assert_eq!(error_of(&drift("(i32.const -4)"), Limits::default()).kind(), "bad-output");
    assert_eq!(error_of(&drift("(i32.const 65)"), Limits::default()).kind(), "bad-output");
}

/// An answer `err` with this case of `policy-error`.
fn policy_error(case: u8) -> CallOutcome<DriftVerdict> {
    let body = format!(
        "(i32.store8 (i32.const 64) (i32.const 1)) (i32.store8 (i32.const 68) (i32.const {case}))
         (i32.store (i32.const 72) (i32.const 16)) (i32.store (i32.const 76) (i32.const 11)) (i32.const 64)"
    );
    ask::<Drift>(&drift(&body), Limits::default())
}

#[test]
fn what_a_policy_says_about_itself_is_told_apart_from_what_the_host_finds() {
    assert_eq!(policy_error(0).result, Ok(Reply::NotApplicable));
    assert_eq!(policy_error(1).result.unwrap_err().fault, CallFault::InvalidInput("drift-guest".into()));
    assert_eq!(policy_error(2).result.unwrap_err().fault, CallFault::Internal("drift-guest".into()));
}

/// A policy that logs `lines` lines of this level and length, and then answers.
fn flood(level: u8, lines: u32, bytes: u32) -> CallOutcome<DriftVerdict> {
    let body = format!(
        "(loop $l
           (call $log (i32.const {level}) (i32.const 40000) (i32.const {bytes}))
           (local.set $i (i32.add (local.get $i) (i32.const 1)))
           (br_if $l (i32.lt_u (local.get $i) (i32.const {lines}))))
         {SAME}"
    );
    ask::<Drift>(&component(CONTRACT, "drift-only", &drift_core(LOG, "", &body)), Limits::default())
}

#[test]
fn a_flood_of_log_lines_is_capped_and_counted() {
    let limits = Limits::default();
    let outcome = flood(2, 100_000, 10);
    assert!(outcome.result.is_ok());
    assert_eq!(outcome.logs.lines.len(), limits.log_lines);
    assert_eq!(outcome.logs.dropped, 100_000 - limits.log_lines);
}

#[test]
fn long_log_lines_are_cut_to_what_is_left() {
    let limits = Limits::default();
    let outcome = flood(2, 10, 10_000);
    assert!(outcome.result.is_ok());
    assert_eq!(outcome.logs.lines.iter().map(|(_, line)| line.len()).sum::<usize>(), limits.log_bytes);
    assert_eq!((outcome.logs.lines.len(), outcome.logs.dropped), (2, 8));
}

#[test]
fn lines_below_the_level_cost_nothing_and_a_policy_can_ask() {
    let outcome = flood(1, 10, 10);
    assert_eq!((outcome.logs.lines.len(), outcome.logs.dropped), (0, 0));
    // Answers `drifted` when debug lines are wanted.
    let body = format!("{SAME} (i32.store8 (i32.const 68) (call $enabled (i32.const 1)))");
    let component = component(CONTRACT, "drift-only", &drift_core(LOG, "", &body));
    let verdict = |log_level| match ask::<Drift>(&component, Limits { log_level, ..Limits::default() }).result {
        Ok(Reply::Verdict(verdict)) => verdict,
        other => panic!("{other:?}"),
    };
    assert!(matches!(verdict(Level::Info), DriftVerdict::Same(_)));
    assert!(matches!(verdict(Level::Debug), DriftVerdict::Drifted(_)));
}

#[test]
fn a_log_line_outside_of_the_guests_memory_ends_the_call() {
    let body = "(call $log (i32.const 2) (i32.const -16) (i32.const 64)) unreachable";
    let error = error_of(&component(CONTRACT, "drift-only", &drift_core(LOG, "", body)), Limits::default());
    assert_eq!(error.kind(), "bad-output");
}

#[test]
fn nothing_is_left_of_one_call_in_the_next() {
    // Answers with the case that a global holds, and sets it: only the first answer of an instance is `same`.
    let more = "(global $calls (mut i32) (i32.const 0))";
    let body = format!("{SAME} (i32.store8 (i32.const 68) (global.get $calls)) (global.set $calls (i32.const 1))");
    let policy = load(&component(CONTRACT, "drift-only", &drift_core("", more, &body))).unwrap();
    for _ in 0..3 {
        let outcome = policy.call::<Drift>(&Drift::sample(), "{}");
        assert!(matches!(outcome.result, Ok(Reply::Verdict(DriftVerdict::Same(_)))));
    }
}

#[test]
fn a_huge_annotation_is_cut_with_a_mark_and_never_failed() {
    // Answers with the value of the first annotation of the observed Node. Their list is at offset 120 of the parameters.
    let offset = 120;
    let body = format!(
        "(local.set $i (i32.load (i32.add (local.get 0) (i32.const {offset}))))
         (i32.store8 (i32.const 64) (i32.const 0)) (i32.store8 (i32.const 68) (i32.const 0))
         (i32.store (i32.const 72) (i32.load (i32.add (local.get $i) (i32.const 8))))
         (i32.store (i32.const 76) (i32.load (i32.add (local.get $i) (i32.const 12))))
         (i32.const 64)"
    );
    let mut seen: Observation = Drift::sample();
    seen.observed.annotations = vec![("note".into(), "ä".repeat(128 << 10))];
    let limits = Limits { input_string_bytes: 101, ..Limits::default() };
    let policy = load(&drift(&body)).unwrap().with_limits(limits);
    let outcome = policy.call::<Drift>(&seen, "{}");
    let Ok(Reply::Verdict(DriftVerdict::Same(reason))) = outcome.result else { panic!("{:?}", outcome.result) };
    assert_eq!(reason, format!("{}…[cut, 262144 bytes in all]", "ä".repeat(50)));
}
