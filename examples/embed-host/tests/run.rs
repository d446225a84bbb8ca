//! The program does what its documentation says.
#![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

use std::process::Command;

fn run(arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_embed-host")).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_policy_judges_the_valve_and_the_record_of_the_call_is_heard() {
    let (success, judgement, record) = run(&["inlet", "120"]);
    assert!(success, "{record}");
    assert!(judgement.starts_with("inlet "), "{judgement}");
    assert!(record.contains(" answered for "), "{record}");
    let (success, other, _) = run(&["inlet", "7"]);
    assert!(success);
    let word = |judgement: &str| judgement.split(':').next().unwrap_or_default().to_owned();
    assert_ne!(word(&judgement), word(&other), "Little and much water are judged alike.");
}

#[test]
fn without_a_reading_it_says_what_it_wants() {
    let (success, _, error) = run(&[]);
    assert!(!success);
    assert!(error.contains("Name a valve"), "{error}");
}
