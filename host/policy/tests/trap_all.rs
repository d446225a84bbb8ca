//! The example policy that traps in every hook loads, and fails in each of the six as a trap.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

mod guests;

use std::fs;

use guests::{CONTRACT, component, load};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/policies/trap-all");

#[test]
fn it_loads_and_traps_in_all_six_hooks() {
    let policy = load(&fs::read(format!("{FOLDER}/trap_all.wasm")).unwrap()).unwrap();
    assert_eq!(policy.hooks().count(), 6);
    for hook in policy.hooks() {
        assert_eq!(policy.validate_settings(hook.name, r#"{"any": "thing"}"#), Ok(vec![]));
        let error = policy.call_json(hook.name, hook.sample(), "{}").unwrap().unwrap().result.unwrap_err();
        assert_eq!((error.kind(), error.function), ("trap", hook.name));
    }
}

#[test]
fn its_component_is_the_one_that_is_committed() {
    let made = component(CONTRACT, "full", &fs::read_to_string(format!("{FOLDER}/trap_all.wat")).unwrap());
    let file = format!("{FOLDER}/trap_all.wasm");
    if std::env::var_os("UPDATE_GUESTS").is_some() {
        fs::write(&file, &made).unwrap();
    }
    assert!(
        fs::read(&file).unwrap() == made,
        "trap_all.wasm isn't what trap_all.wat gives; run this test with UPDATE_GUESTS=1"
    );
}
