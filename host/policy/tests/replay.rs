//! A recorded call replays: the same component, settings and input give the same bytes and use the same fuel, whatever
//! the hook, the outcome and the allocator.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

mod guests;

use std::{
    fs,
    sync::{Arc, Mutex},
    time::Duration,
};

use moorline_policy::{
    Allocation, CallRecord, Engine, EngineConfig, Hook, Loader, Policy, PolicySet, Pool, Reply, SetOptions,
    hooks::{Acknowledgment, Adoption, Cni, Drift, Retry, Taints},
};
use serde_json::{Value, json};

/// An observer that keeps every record as a line of JSON, as a journal would.
fn journal(policy: Policy) -> Vec<String> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let observer = {
        let lines = Arc::clone(&lines);
        move |record: &CallRecord<'_>| lines.lock().unwrap().push(serde_json::to_string(record).unwrap())
    };
    let options = SetOptions { default: Some(policy), observer: Some(Arc::new(observer)), ..SetOptions::default() };
    let set = PolicySet::load(&Loader::new(&guests::engine()), None, options).unwrap();
    fn ask<H: Hook>(set: &PolicySet) {
        assert!(set.ask::<H>(&H::sample(), Some("site"), Duration::ZERO).passed_over.len() <= 1);
    }
    ask::<Adoption>(&set);
    ask::<Drift>(&set);
    ask::<Acknowledgment>(&set);
    ask::<Cni>(&set);
    ask::<Taints>(&set);
    ask::<Retry>(&set);
    let lines = lines.lock().unwrap();
    lines.clone()
}

fn replay(policy: &Policy, record: &Value) -> (Value, Value) {
    let hook = record["hook"].as_str().unwrap();
    let settings = record["settings"].as_str().unwrap();
    let again = policy.call_json(hook, record["input"].clone(), settings).unwrap().unwrap();
    let outcome = match &again.result {
        Ok(Reply::Verdict(verdict)) => json!({"verdict": verdict}),
        Ok(Reply::NotApplicable) => json!("not-applicable"),
        Err(error) => json!({"failed": {"kind": error.kind(), "text": error.to_string()}}),
    };
    (outcome, again.fuel.into())
}

fn every_record_replays(file: &str, sort: &str) {
    let component = fs::read(format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    // The policy's name stands in an error's text.
    let load = |engine: &Engine| Loader::new(engine).load("default", &component).unwrap();
    let pooled = EngineConfig { allocation: Allocation::Pooled(Pool::default()) };
    let lines = journal(load(&guests::engine()));
    let (fresh, pooled) = (load(&guests::engine()), load(&Engine::new(&pooled).unwrap()));

    let mut hooks = Vec::new();
    for line in &lines {
        let record: Value = serde_json::from_str(line).unwrap();
        assert!(record["outcome"].get(sort).is_some(), "{line}");
        assert_eq!(record["digest"], fresh.digest().to_string());
        for policy in [&fresh, &pooled] {
            let (outcome, fuel) = replay(policy, &record);
            assert_eq!(outcome.to_string(), record["outcome"].to_string(), "{line}");
            assert_eq!(fuel, record["fuel"], "{line}");
        }
        hooks.push(record["hook"].as_str().unwrap().to_owned());
    }
    hooks.sort();
    assert_eq!(hooks, ["acknowledgment", "adoption", "cni", "drift", "retry", "taints"]);
}

#[test]
fn recorded_verdicts_of_all_six_hooks_replay_to_the_same_bytes_and_fuel() {
    every_record_replays("policies/default/default.wasm", "verdict");
}

#[test]
fn recorded_failures_of_all_six_hooks_replay_to_the_same_text_and_fuel() {
    every_record_replays("examples/policies/trap-all/trap_all.wasm", "failed");
}
