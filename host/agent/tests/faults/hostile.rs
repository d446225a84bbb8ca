//! Every kind of hostile guest on the real agent: it is bound to drift, and falls through. The agent settles all the same,
//! says what is wrong, answers its probes, and takes the verdict of the good policy behind it.

use std::fs;

use moorline::driver::Agent;
use moorline_policy::{ChildProcess, CompileCache, Digest, Loader};
use serde_json::Value;

use crate::guests::{CONTRACT, SAME, component, drift, drift_core, engine};
use crate::kinds::Running;
use crate::stage::{self, Machine};

const LOG: &str = r#"(import "moorline:policy/host-log@0.1.0" "log" (func $log (param i32 i32 i32)))"#;

/// A guest, and how it is bound.
struct Guest {
    bytes: Vec<u8>,
    settings: &'static str,
    pin: Option<Digest>,
    /// The operator's limits for its binding.
    limits: &'static str,
    compiler: Compiler,
}

enum Compiler {
    Usual,
    /// The agent's own child process.
    Child,
    /// A program that does this in its place.
    Shell(&'static str),
}

fn guest(bytes: Vec<u8>) -> Guest {
    Guest { bytes, settings: "{}", pin: None, limits: "{}", compiler: Compiler::Usual }
}

fn body(assess: &str) -> Guest {
    guest(drift(assess))
}

fn core(core: &str) -> Guest {
    guest(component(CONTRACT, "drift-only", core))
}

/// A policy whose answer has its reason at `at`, `bytes` long.
fn reason(at: u32, bytes: u32) -> Guest {
    body(&format!(
        "(drop (memory.grow (i32.const 200)))
         (i32.store (i32.const 72) (i32.const {at})) (i32.store (i32.const 76) (i32.const {bytes})) (i32.const 64)"
    ))
}

/// A policy that answers with this case of `policy-error`.
fn policy_error(case: u8) -> Guest {
    body(&format!(
        "(i32.store8 (i32.const 64) (i32.const 1)) (i32.store8 (i32.const 68) (i32.const {case}))
         (i32.store (i32.const 72) (i32.const 16)) (i32.store (i32.const 76) (i32.const 11)) (i32.const 64)"
    ))
}

/// The usual policy, but for this change of its core module.
fn altered(from: &str, to: &str) -> Guest {
    let usual = drift_core("", "", SAME);
    assert!(usual.contains(from), "{usual}");
    core(&usual.replacen(from, to, 1))
}

/// What became of the binding `hostile`: its last call, or that it was refused.
struct Seen {
    told: Vec<String>,
    page: Value,
}

async fn live_with(guest: &Guest) -> Seen {
    let (server, machine) = (stage::server(), Machine::new());
    let folder = machine.path("policies");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("hostile.wasm"), &guest.bytes).unwrap();
    let pin = guest.pin.map(|pin| format!(", sha256: {pin}")).unwrap_or_default();
    let text = format!(
        "modules:\n  hostile: {{file: hostile.wasm{pin}}}\nbindings:\n  drift:\n    - {{name: hostile, module: hostile, \
         settings: {}, on-failure: fall-through}}\n",
        guest.settings
    );
    fs::write(folder.join("policies.yaml"), text).unwrap();
    let grants = format!("{{hostile: {{limits: {}}}}}", guest.limits);
    let more = [("policies.directory", folder.to_str().unwrap()), ("policies.grants", &grants)];
    let config = machine.config(&more);
    let cache = machine.path("cache");
    let mut running = Running::start_as(server, machine, |agent| {
        let child = match &guest.compiler {
            Compiler::Usual => return Agent { config, ..agent },
            Compiler::Child => ChildProcess::new(env!("CARGO_BIN_EXE_moorline"), ["compile-child"]),
            Compiler::Shell(script) => ChildProcess::new("/bin/sh", ["-c", script]),
        };
        // A loader of its own: the default policy is loaded already.
        let loader = Loader::new(&engine()).with_compiler(child).with_cache(CompileCache::open(cache).unwrap());
        Agent { config, loader, ..agent }
    });
    running.live(60).await;
    running.assert_settled();
    assert!(running.probe("/healthz").await.0);
    assert!(running.probe("/readyz").await.0);
    Seen { told: running.machine.told.lines(), page: running.health.borrow().status.clone().as_ref().clone() }
}

/// The good policy behind it decides, and what was wrong with the hostile one is said: in the story, and with its binding
/// on `/status` where it was refused.
async fn falls_through(guest: Guest, outcome: &str, parts: &[&str]) {
    let Seen { told, page } = live_with(&guest).await;
    let last = &page["lastVerdicts"]["drift"];
    assert_eq!((last["binding"].as_str(), last["verdict"].as_str()), (Some("default"), Some("same")), "{page:#}");
    let outcome = format!("outcome: \"{outcome}\"");
    let call = told.iter().find(|line| line.contains("hook: \"drift\"") && line.contains("binding: Some(\"hostile\")"));
    let call = call.unwrap_or_else(|| panic!("{told:#?}"));
    assert!(call.contains(&outcome), "{outcome} is not in {call}");
    for part in parts {
        assert!(call.contains(part), "{part:?} is not in {call}");
    }
    let hostile = page["bindings"].as_array().unwrap().iter().find(|binding| binding["binding"] == "hostile").unwrap();
    assert_eq!(hostile.get("refused").is_some(), outcome.contains("refused"), "{hostile:#}");
}

/// A test for each kind: its name, the guest, the outcome in a word, and what has to be said of it.
macro_rules! kinds {
    ($($name:ident: $guest:expr, $outcome:literal, $parts:expr;)*) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                falls_through($guest, $outcome, &$parts).await;
            }
        )*
    };
}

kinds! {
    an_endless_loop: body("(loop $l (br $l)) unreachable"), "fuel", ["100000000 units", "raise `limits.fuel`"];
    an_endless_loop_with_fuel_for_long: Guest {
        limits: "{fuel: 100000000000, deadline: 20ms}", ..body("(loop $l (br $l)) unreachable")
    }, "deadline", ["within 20 ms", "raise `limits.deadline`"];
    an_endless_loop_in_the_start_function: core(
        &drift_core("", "(func $start (loop $l (br $l))) (start $start)", SAME)
    ), "refused", ["failed in `describe`", "raise `limits.fuel`"];
    an_endless_loop_in_realloc: altered("(local $at i32)", "(local $at i32) (loop $l (br $l))"), "refused",
        ["failed in `validate-settings`", "raise `limits.fuel`"];
    an_endless_loop_in_the_check_of_settings: altered(
        "(param i32 i32 i32 i32) (result i32)\n    (i32.store8", "(param i32 i32 i32 i32) (result i32)\n    (loop $l (br $l)) (i32.store8"
    ), "refused", ["failed in `validate-settings`", "raise `limits.fuel`"];
    memory_that_grows_without_end: body("(loop $l (drop (memory.grow (i32.const 16))) (br $l)) unreachable"), "memory",
        ["may have 16777216", "raise `limits.memory`"];
    a_memory_that_starts_too_large: altered(r#"(memory (export "memory") 1)"#, r#"(memory (export "memory") 4096)"#),
        "refused", ["raise `limits.memory`"];
    a_table_that_grows_without_end: core(&drift_core(
        "", "(table $t 1 funcref)", "(loop $l (drop (table.grow $t (ref.null func) (i32.const 1000))) (br $l)) unreachable"
    )), "table", ["may have 10000", "raise `limits.tableElements`"];
    more_instances_than_allowed: Guest { limits: "{instances: 1}", ..core(&drift_core(LOG, "", SAME)) }, "refused",
        ["more than 1 core instances", "raise `limits.instances`"];
    deep_recursion: core(&drift_core(
        "",
        "(func $deep (param i64) (result i64) (i64.add (call $deep (local.get 0)) (i64.const 1)))",
        "(drop (call $deep (i64.const 0))) unreachable",
    )), "stack", ["524288 bytes of stack", "raise `limits.stack`"];
    a_trap: body("unreachable"), "trap", ["wasm `unreachable` instruction executed"];
    a_division_by_zero: body("(i32.div_u (i32.const 1) (local.get $i))"), "trap", ["integer divide by zero"];
    a_load_from_outside_of_its_memory: body("(i32.load (i32.const -4))"), "trap", ["out of bounds memory access"];
    a_panic: core(&drift_core(
        LOG,
        r#"(data (i32.const 512) "panicked at src/lib.rs:7: boom")"#,
        "(call $log (i32.const 4) (i32.const 512) (i32.const 30)) unreachable",
    )), "trap", ["It said: panicked at src/lib.rs:7: boom"];
    a_flood_of_log_lines_before_a_trap: core(&drift_core(
        LOG,
        "",
        "(loop $l (call $log (i32.const 3) (i32.const 40000) (i32.const 10000))
           (local.set $i (i32.add (local.get $i) (i32.const 1))) (br_if $l (i32.lt_u (local.get $i) (i32.const 1000))))
         unreachable",
    )), "trap", ["wasm `unreachable` instruction executed"];
    a_log_line_from_outside_of_its_memory: core(&drift_core(
        LOG, "", "(call $log (i32.const 2) (i32.const -16) (i32.const 64)) unreachable"
    )), "bad-output", ["its answer can't be taken"];
    a_huge_string: reason(0, 12_000_000), "bad-output", ["raise `limits.output`"];
    a_reason_that_nobody_would_read: reason(0, 1025), "bad-output", ["its reason has 1025 bytes", "raise `limits.reason`"];
    a_string_from_outside_of_its_memory: reason(u32::MAX - 8, 8), "bad-output", ["its answer can't be taken"];
    text_that_is_not_utf8: core(&drift_core(
        "",
        r#"(data (i32.const 512) "\ff\fe\fd")"#,
        "(i32.store (i32.const 72) (i32.const 512)) (i32.store (i32.const 76) (i32.const 3)) (i32.const 64)",
    )), "bad-output", ["utf-8"];
    an_answer_outside_of_the_variant: body("(i32.store8 (i32.const 68) (i32.const 9)) (i32.const 64)"), "bad-output",
        ["discriminant"];
    a_result_that_lies_nowhere: body("(i32.const -4)"), "bad-output", ["its answer can't be taken"];
    a_result_that_is_not_aligned: body("(i32.const 65)"), "bad-output", ["aligned"];
    a_policy_that_gives_up: policy_error(2), "internal", ["it gave up: drift-guest"];
    a_policy_that_dislikes_its_input: policy_error(1), "invalid-input", ["make no sense to it: drift-guest"];
    a_policy_that_never_has_an_opinion: policy_error(0), "not-applicable", ["It has no opinion here."];
    settings_that_it_refuses: altered(
        "(i32.store8 (i32.const 64) (i32.const 0))\n    (i32.const 64))",
        "(i32.store8 (i32.const 64) (i32.const 1)) (i32.store (i32.const 68) (i32.const 128)) (i32.store (i32.const 72) (i32.const 1))
         (i32.store (i32.const 128) (i32.const 16)) (i32.store (i32.const 132) (i32.const 11))
         (i32.store (i32.const 136) (i32.const 16)) (i32.store (i32.const 140) (i32.const 11)) (i32.const 64))"
    ), "refused", ["it refuses its settings for the hook `drift`"];
    no_file_that_anybody_knows: guest(b"#!/bin/sh\nexit 1\n".to_vec()), "refused", ["not a WebAssembly component"];
    an_empty_file: guest(Vec::new()), "refused", ["not a WebAssembly component"];
    a_core_module: guest(wat::parse_str("(module)").unwrap()), "refused", ["not a WebAssembly component"];
    a_component_that_was_cut: guest(drift(SAME)[..300].to_vec()), "refused", ["damaged"];
    an_enormous_module: guest([drift(SAME), custom_section(5 << 20)].concat()), "refused",
        ["more than 4194304 bytes", "raise `limits.moduleSize`"];
    data_that_unpacks_without_end: guest(zeros(64 << 20)), "refused", ["when it is unpacked", "raise `limits.moduleSize`"];
    components_within_components: guest(nested(200)), "refused", ["doesn't export `moorline:policy/policy@0.1.0`"];
    a_module_other_than_the_pinned_one: Guest { pin: Some(Digest::of(b"another")), ..body(SAME) }, "refused",
        ["is pinned"];
    a_wrong_signature: guest(component(
        &CONTRACT.replace("assess: func(observation: observation, settings: string)", "assess: func(settings: string)"),
        "drift-only",
        &drift_core("", "", "").replace(
            r#"#assess") (param i32) (result i32) (local $i i32) "#, r#"#assess") (param i32 i32) (result i32) (i32.const 64)"#
        ),
    )), "refused", ["`moorline:policy/drift@0.1.0` doesn't fit"];
    a_missing_export: guest(component(
        &format!("{CONTRACT} world mute {{ export policy; }}"),
        "mute",
        &drift_core("", "", SAME),
    )), "refused", ["exports no hook"];
    no_description_of_itself: guest(component(
        &format!("{CONTRACT} world nameless {{ export drift; }}"),
        "nameless",
        &drift_core("", "", SAME),
    )), "refused", ["doesn't export `moorline:policy/policy@0.1.0`"];
    another_version_of_the_contract: guest(component(
        &CONTRACT.replace("@0.1.0", "@0.2.0"),
        "drift-only",
        &drift_core("", "", SAME).replace("@0.1.0", "@0.2.0"),
    )), "refused", ["built for `moorline:policy@0.2.0`"];
    a_forbidden_import: guest(component(
        &format!(
            "{CONTRACT}
             world wants-a-clock {{ import wasi:clocks/wall-clock@0.2.0; export policy; export drift; }}
             package wasi:clocks@0.2.0 {{ interface wall-clock {{ now: func() -> u64; }} }}"
        ),
        "wants-a-clock",
        &drift_core(r#"(import "wasi:clocks/wall-clock@0.2.0" "now" (func (result i64)))"#, "", SAME),
    )), "refused", ["it imports `wasi:clocks/wall-clock@0.2.0`"];
    a_compile_bomb_for_the_time: Guest {
        compiler: Compiler::Child, limits: "{compileDeadline: 1s}", ..guest(bomb(60_000))
    }, "refused", ["raise `limits.compile"];
    a_compile_bomb_for_the_memory: Guest {
        compiler: Compiler::Child, limits: "{compileMemory: 32MiB, compileDeadline: 1m}", ..guest(bomb(60_000))
    }, "refused", ["with 33554432 bytes of memory", "raise `limits.compileMemory`"];
    a_module_that_kills_the_compiler: Guest { compiler: Compiler::Shell("kill -SEGV $$"), ..body(SAME) }, "refused",
        ["the compiler broke down over it"];
}

/// Zeros, packed.
fn zeros(many: usize) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), many.try_into().unwrap()), &mut packed).unwrap();
    packed.finish().unwrap()
}

/// A section that means nothing, of so many bytes.
fn custom_section(bytes: usize) -> Vec<u8> {
    section(0, &vec![0; bytes])
}

fn section(id: u8, content: &[u8]) -> Vec<u8> {
    let size = u32::try_from(content.len()).unwrap();
    let leb = (0..5).map(|part| u8::try_from(size >> (7 * part) & 0x7f).unwrap() | if part < 4 { 0x80 } else { 0 });
    [id].into_iter().chain(leb).chain(content.iter().copied()).collect()
}

/// Components in components, so deep.
fn nested(depth: usize) -> Vec<u8> {
    let begin = b"\0asm\x0d\0\x01\0";
    (0..depth).fold(begin.to_vec(), |inner, _| [begin.as_slice(), &section(4, &inner)].concat())
}

/// One function with so many branches that compiling it takes long and much memory.
fn bomb(branches: usize) -> Vec<u8> {
    let body: String = (0..branches)
        .map(|step| {
            format!(
                "(if (i64.eqz (local.get $n)) (then (local.set $n (i64.add (local.get $n) (i64.const {step})))) \
                 (else (local.set $n (i64.mul (local.get $n) (i64.const 3)))))"
            )
        })
        .collect();
    component(CONTRACT, "drift-only", &drift_core("", &format!("(func $bomb (local $n i64) {body})"), SAME))
}

/// What a verdict says must not depend on where the host happens to put something.
#[tokio::test(start_paused = true)]
async fn a_verdict_that_depends_on_an_address() {
    // Its reason is the address of its input, in four letters of four bits.
    let letters: String = (0..4)
        .map(|letter| {
            let shift = letter * 4;
            format!(
                "(i32.store8 (i32.const {}) (i32.add (i32.const 97) (i32.and (i32.shr_u (local.get 0) (i32.const {shift})) (i32.const 15))))",
                200 + letter
            )
        })
        .collect();
    let guest = body(&format!(
        "{letters} {SAME} (i32.store (i32.const 72) (i32.const 200)) (i32.store (i32.const 76) (i32.const 4))"
    ));
    let mut reasons = Vec::new();
    for _ in 0..3 {
        let Seen { page, .. } = live_with(&guest).await;
        assert_eq!(page["lastVerdicts"]["drift"]["binding"], "hostile");
        reasons.push(page["lastVerdicts"]["drift"]["reason"].clone());
    }
    assert!(reasons.windows(2).all(|pair| pair[0] == pair[1]), "{reasons:?}");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_log_lines_is_capped_and_its_verdict_taken() {
    let flood = format!(
        "(loop $l (call $log (i32.const 3) (i32.const 0) (i32.const 10))
           (local.set $i (i32.add (local.get $i) (i32.const 1))) (br_if $l (i32.lt_u (local.get $i) (i32.const 100000))))
         {SAME}"
    );
    let Seen { page, .. } = live_with(&core(&drift_core(LOG, "", &flood))).await;
    assert_eq!(page["lastVerdicts"]["drift"]["binding"], "hostile");
}
