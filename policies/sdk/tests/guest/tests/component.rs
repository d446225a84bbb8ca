//! What the SDK makes of a policy, seen by the real host.
#![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

use moorline_policy_test::{CallOutcome, Tested, hooks, json, load, observation, subject};

fn policy() -> Tested {
    load(std::env::var_os("MOORLINE_TEST_COMPONENT").unwrap_or_else(|| "guest.wasm".into()))
}

fn told_to(what: &str) -> CallOutcome<hooks::DriftVerdict> {
    policy().outcome::<hooks::Drift>(observation().relabel("do", what))
}

fn lines(outcome: &CallOutcome<hooks::DriftVerdict>) -> Vec<&str> {
    outcome.logs.lines.iter().map(|(_, line)| line.as_str()).collect()
}

#[test]
fn a_component_answers_the_hooks_that_it_exports_and_no_others() {
    let mut hooks: Vec<_> = policy().policy().hooks().map(|hook| hook.name).collect();
    hooks.sort_unstable();
    assert_eq!(hooks, ["drift", "taints"]);
    let verdict = policy().ask::<hooks::Taints>(subject().node(|node| node.taint("a", "NoSchedule")));
    assert_eq!(verdict.unwanted[0].key, "a");
}

#[test]
fn the_text_of_a_panic_and_its_place_are_logged_before_the_trap() {
    let outcome = told_to("panic");
    assert!(outcome.result.is_err());
    let [line] = lines(&outcome)[..] else { unreachable!("{:?}", outcome.logs) };
    assert!(line.contains("node-1 is not what it was"), "{line}");
    assert!(line.contains("tests/guest/src/lib.rs"), "{line}");
}

#[test]
fn a_panic_that_nobody_wrote_is_logged_too() {
    let outcome = told_to("index");
    assert!(outcome.result.is_err());
    let [line] = lines(&outcome)[..] else { unreachable!("{:?}", outcome.logs) };
    assert!(line.contains("index out of bounds: the len is 1 but the index is 2"), "{line}");
}

#[test]
fn lines_are_logged_at_their_levels_and_only_those_that_the_host_keeps() {
    let outcome = told_to("log");
    assert!(outcome.result.is_ok());
    assert!(lines(&outcome).ends_with(&["node-1 at info", "node-1 at warn", "node-1 at error"]), "{:?}", outcome.logs);
    assert_eq!(outcome.logs.dropped, 0);
}

#[test]
fn a_policy_can_pass_the_question_on() {
    let reply = told_to("pass").result.unwrap();
    assert!(matches!(reply, moorline_policy_test::Reply::NotApplicable));
}

#[test]
fn a_policy_without_settings_takes_none() {
    assert_eq!(policy().setting_errors("drift", &json!({})), []);
    assert_eq!(policy().setting_errors("taints", &json!({"a": 1}))[0].path, "/a");
    assert_eq!(policy().setting_errors("cni", &json!({}))[0].path, "");
}
