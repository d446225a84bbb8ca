//! An embedder's own hook, with its own WIT package, works as the six do; and the same guest is that of `examples/embed-host`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]
#![forbid(unsafe_code)]

mod guests;

use std::fs;

use guests::{component, engine};
use moorline_policy::{Decision, Hook, Hooks, Limits, Loader, PolicySet, Reply, Rules, SetOptions};
use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lift, Lower};

struct Flow;

#[derive(Clone, Debug, Serialize, Deserialize, ComponentType, Lower)]
#[component(record)]
struct Reading {
    valve: String,
    litres: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, ComponentType, Lift)]
#[component(record)]
struct Judgement {
    open: bool,
    reason: String,
}

impl Hook for Flow {
    const NAME: &'static str = "flow";
    const INTERFACE: &'static str = "acme:valves/flow@1.0.0";
    const FUNCTION: &'static str = "judge";
    const RULES: Rules = Rules::FALL_THROUGH;
    type Input = Reading;
    type Verdict = Judgement;

    fn reason(verdict: &Judgement) -> &str {
        &verdict.reason
    }

    fn sample() -> Reading {
        Reading { valve: "inlet".into(), litres: 7 }
    }

    fn check(verdict: &Judgement) -> Result<(), String> {
        if verdict.reason.is_empty() { Err("a judgement needs a reason.".into()) } else { Ok(()) }
    }
}

const CORE: &str = include_str!("../../../examples/embed-host/valves.wat");
const WIT: &str = include_str!("../../../examples/embed-host/wit/valves.wit");

fn valves() -> Vec<u8> {
    valves_of(CORE)
}

fn valves_of(core: &str) -> Vec<u8> {
    let contract = guests::CONTRACT.replacen("package moorline:policy@0.1.0;", "package moorline:policy@0.1.0 {", 1);
    component(&format!("{WIT}\n{contract} }}"), "valves", core)
}

#[test]
fn an_embedders_own_hook_is_asked_as_the_six_are() {
    let loader = Loader::new(&engine()).with_hooks(Hooks::none().with::<Flow>());
    let policy = loader.load("valves", &valves()).unwrap();
    let outcome = policy.call::<Flow>(&Reading { valve: "inlet".into(), litres: 100 }, "{}");
    assert_eq!(outcome.result, Ok(Reply::Verdict(Judgement { open: false, reason: "100 litres or more".into() })));

    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("v.wasm"), valves()).unwrap();
    fs::write(
        folder.path().join("policies.yaml"),
        "modules: {v: {file: v.wasm}}\nbindings: {flow: [{name: all, module: v}]}\n",
    )
    .unwrap();
    let set = PolicySet::load(&loader, Some(folder.path()), SetOptions::default()).unwrap();
    let Decision::Decided { verdict, by } = set.ask::<Flow>(&Flow::sample(), None, std::time::Duration::ZERO).decision
    else {
        panic!()
    };
    assert!(verdict.open && by.name() == "all");
}

#[test]
fn a_rule_of_the_hook_refuses_a_verdict() {
    let loader = Loader::new(&engine()).with_hooks(Hooks::none().with::<Flow>()).with_limits(Limits::default());
    let mute = CORE.replace("(select (i32.const 16) (i32.const 18) (local.get $open))", "(i32.const 0)");
    let policy = loader.load("valves", &valves_of(&mute)).unwrap();
    let error = policy.call::<Flow>(&Flow::sample(), "{}").result.unwrap_err();
    assert!(error.to_string().contains("a judgement needs a reason."), "{error}");
}

#[test]
fn the_example_component_is_the_one_that_is_committed() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/embed-host/policies/valves.wasm");
    if std::env::var_os("UPDATE_GUESTS").is_some() {
        fs::write(file, valves()).unwrap();
    }
    assert!(
        fs::read(file).unwrap() == valves(),
        "valves.wasm isn't what valves.wat gives; run this test with UPDATE_GUESTS=1"
    );
}
