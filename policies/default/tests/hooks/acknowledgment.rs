//! Annotations beside the host's record.

use moorline_policy_test::{hooks::Acknowledgment, json, subject};

use crate::policy;

#[test]
fn nothing_is_added_by_default() {
    let verdict = policy().ask::<Acknowledgment>(subject());
    assert!(verdict.annotations.is_empty());
    assert_eq!(verdict.reason, "the host's own record says enough");
}

#[test]
fn annotations_hold_constants_and_what_was_adopted() {
    let settings = json!({"acknowledgment": {"annotations": {
        "example.com/constant": "yes",
        "example.com/where": "{node} in {site}, pool {pool}",
        "example.com/uid": "{node-uid}",
    }}});
    let policy = policy().with_settings(settings);
    let on_gateway = policy.ask::<Acknowledgment>(subject().pool("edge")).annotations;
    let entry = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(
        on_gateway,
        [
            entry("example.com/constant", "yes"),
            entry("example.com/uid", "uid-of-node-1"),
            entry("example.com/where", "node-1 in site-a, pool edge"),
        ]
    );
    let on_worker = policy.ask::<Acknowledgment>(subject());
    assert_eq!(on_worker.annotations.len(), 2, "one that names the pool is left out on a worker");
    assert_eq!(on_worker.reason, "the settings add example.com/constant, example.com/uid");
}
