//! The component as a whole.

use moorline_policy_test::{attempt, hooks::Retry, node, observation};

use crate::policy;

#[test]
fn all_six_hooks_are_answered() {
    let mut hooks: Vec<_> = policy().policy().hooks().map(|hook| hook.name).collect();
    hooks.sort_unstable();
    assert_eq!(hooks, ["acknowledgment", "adoption", "cni", "drift", "retry", "taints"]);
}

#[test]
fn it_says_what_it_is() {
    let policy = policy();
    let said = policy.describe();
    assert_eq!((said.name.as_str(), said.version.as_str()), ("moorline-default-policy", env!("CARGO_PKG_VERSION")));
    assert!(!said.summary.is_empty());
}

#[test]
fn nothing_is_logged_on_the_ordinary_way() {
    let logs = policy().outcome::<Retry>(attempt("node-read")).logs;
    assert!(logs.lines.is_empty(), "{logs:?}");
}

#[test]
fn a_large_node_stays_within_the_limits_of_a_call() {
    let large = (0..200).fold(node(), |node, index| node.label(&format!("example.com/label-{index}"), "value"));
    let observation = observation().observed(|_| large.clone()).projected("site-a", None);
    assert!(policy().outcome::<moorline_policy_test::hooks::Drift>(observation).result.is_ok());
    assert!(policy().outcome::<moorline_policy_test::hooks::Adoption>(large).result.is_ok());
}
