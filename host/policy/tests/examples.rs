//! The example policies that are written by hand load, answer as they say, and are what their text gives.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

mod guests;

use std::fs;

use guests::{CONTRACT, component, load};
use moorline_policy::{Policy, Reply};

/// Name and world.
const EXAMPLES: [(&str, &str); 2] = [("trap-all", "full"), ("always-drifted", "drift-only")];

fn path(name: &str, extension: &str) -> String {
    let file = name.replace('-', "_");
    format!("{}/../../examples/policies/{name}/{file}.{extension}", env!("CARGO_MANIFEST_DIR"))
}

fn example(name: &str) -> Policy {
    load(&fs::read(path(name, "wasm")).unwrap()).unwrap()
}

#[test]
fn trap_all_loads_and_traps_in_all_six_hooks() {
    let policy = example("trap-all");
    assert_eq!(policy.hooks().count(), 6);
    for hook in policy.hooks() {
        assert_eq!(policy.validate_settings(hook.name, r#"{"any": "thing"}"#), Ok(vec![]));
        let error = policy.call_json(hook.name, hook.sample(), "{}").unwrap().unwrap().result.unwrap_err();
        assert_eq!((error.kind(), error.function), ("trap", hook.name));
    }
}

#[test]
fn always_drifted_answers_drift_alone_and_always_the_same() {
    let policy = example("always-drifted");
    let hooks: Vec<_> = policy.hooks().collect();
    assert_eq!(hooks.iter().map(|hook| hook.name).collect::<Vec<_>>(), ["drift"]);
    let verdict = policy.call_json("drift", hooks[0].sample(), "{}").unwrap().unwrap().result.unwrap();
    let drifted = serde_json::json!({"drifted": "nothing is ever as it was"});
    assert!(matches!(&verdict, Reply::Verdict(verdict) if *verdict == drifted), "{verdict:?}");
}

#[test]
fn their_components_are_those_that_are_committed() {
    for (name, world) in EXAMPLES {
        let made = component(CONTRACT, world, &fs::read_to_string(path(name, "wat")).unwrap());
        let file = path(name, "wasm");
        if std::env::var_os("UPDATE_GUESTS").is_some() {
            fs::write(&file, &made).unwrap();
        }
        assert!(
            fs::read(&file).unwrap() == made,
            "{file} isn't what its text gives; run this test with UPDATE_GUESTS=1"
        );
    }
}
