//! What `validate-settings` refuses, and where it points.

use moorline_policy_test::{hooks::Adoption, json, node};
use serde_json::Value;

use crate::policy;

/// The paths that are refused, whatever the hook.
fn refused(settings: &Value) -> Vec<(String, String)> {
    let errors = policy().setting_errors("adoption", settings);
    assert_eq!(errors, policy().setting_errors("retry", settings), "the settings are one document for all hooks");
    errors.into_iter().map(|error| (error.path, error.message)).collect()
}

fn paths(settings: &Value) -> Vec<String> {
    refused(settings).into_iter().map(|(path, _)| path).collect()
}

#[test]
fn no_settings_are_good_settings() {
    assert_eq!(refused(&json!({})), []);
}

#[test]
fn an_unknown_key_is_refused_by_name() {
    let errors = refused(&json!({"adoption": {"pool-lable": "x"}}));
    let [(path, message)] = errors.as_slice() else { panic!("{errors:?}") };
    assert_eq!(path, "/adoption/pool-lable");
    assert!(message.contains("unknown field `pool-lable`") && message.contains("`pool-label`"), "{message}");
    assert_eq!(paths(&json!({"adoptoin": {}})), ["/adoptoin"]);
    assert_eq!(paths(&json!({"drift": {}})), ["/drift"]);
    assert_eq!(
        paths(&json!({"retry": {"operations": {"taint-removal/conflict": {"cap": 1}}}})),
        ["/retry/operations/taint-removal~1conflict/cap"]
    );
}

#[test]
fn a_value_of_the_wrong_type_is_refused_where_it_is() {
    for (settings, path) in [
        (json!({"adoption": {"site-labels": ["a", 1]}}), "/adoption/site-labels/1"),
        (json!({"adoption": {"site-labels": "a"}}), "/adoption/site-labels"),
        (json!({"retry": {"default": {"base-ms": -1}}}), "/retry/default/base-ms"),
        (json!({"retry": {"default": {"base-ms": "100ms"}}}), "/retry/default/base-ms"),
        (json!({"retry": {"default": {"factor": 1.5}}}), "/retry/default/factor"),
        (json!({"cni": {"cni-version": "0.3.1"}}), "/cni/cni-version"),
        (json!({"cni": {"ip-masq": "yes"}}), "/cni/ip-masq"),
        (json!({"taints": null}), "/taints"),
        (json!("adoption"), ""),
    ] {
        assert_eq!(paths(&settings), [path], "{settings}");
    }
}

#[test]
fn every_bad_value_is_listed() {
    let errors = paths(&json!({
        "adoption": {"site-labels": ["Example.com/site", "ok", "x/"], "pool-label": ""},
        "taints": {"worker-unwanted": ["a b"]},
        "cni": {"mtu": 9001, "bridge": "a-name-too-long-for-a-link", "network": ".."},
        "acknowledgment": {"annotations": {"-": "v", "example.com/a": "{sitee}"}},
    }));
    assert_eq!(
        errors,
        [
            "/adoption/site-labels/0",
            "/adoption/site-labels/2",
            "/adoption/pool-label",
            "/taints/worker-unwanted/0",
            "/cni/network",
            "/cni/bridge",
            "/cni/mtu",
            "/acknowledgment/annotations/-",
            "/acknowledgment/annotations/example.com~1a",
        ]
    );
    assert_eq!(paths(&json!({"adoption": {"site-labels": []}})), ["/adoption/site-labels"]);
}

#[test]
fn a_backoff_that_would_storm_or_stall_is_refused() {
    let operations = |set: Value| json!({"retry": {"operations": {"node-read": set}}});
    for (set, key) in [
        (json!({"base-ms": 0}), "base-ms"),
        (json!({"factor": 0}), "factor"),
        (json!({"factor": 11}), "factor"),
        (json!({"cap-ms": 999}), "cap-ms"),
        (json!({"base-ms": 60_001}), "cap-ms"),
        (json!({"cap-ms": 86_400_001}), "cap-ms"),
    ] {
        assert_eq!(paths(&operations(set.clone())), [format!("/retry/operations/node-read/{key}")], "{set}");
    }
    assert_eq!(paths(&json!({"retry": {"operations": {"taint-remval": {}}}})), ["/retry/operations/taint-remval"]);
    assert_eq!(
        paths(&json!({"retry": {"least-ms": 0, "slow-base-ms": 86_400_001u64}})),
        ["/retry/slow-base-ms", "/retry/least-ms"]
    );
}

#[test]
fn a_hook_that_is_not_answered_is_refused() {
    let errors = policy().setting_errors("weather", &json!({}));
    assert_eq!(errors.len(), 1);
    assert!(errors[0].message.contains("\"weather\" is not answered"), "{}", errors[0].message);
}

#[test]
fn unchecked_settings_are_invalid_input_and_no_trap() {
    for settings in ["", "nonsense", "[]", "{\"adoption\":", "{} {}", "{\"adoption\": {\"pool-label\": \"\"}}"] {
        let outcome = policy().policy().call::<Adoption>(&node().build(), settings);
        let error = outcome.result.unwrap_err().to_string();
        assert!(error.contains("settings"), "{settings}: {error}");
    }
}

#[test]
fn the_schema_names_every_setting_with_its_default() {
    let schema: Value = serde_json::from_str(policy().describe().settings_schema.as_deref().unwrap()).unwrap();
    let mut settings = serde_json::Map::new();
    for (section, reference) in schema["properties"].as_object().unwrap() {
        assert_eq!(reference["$ref"], format!("#/$defs/{section}"));
        let properties = schema["$defs"][section]["properties"].as_object().unwrap();
        let defaults = properties.iter().filter_map(|(name, of)| Some((name.clone(), of.get("default")?.clone())));
        settings.insert(section.clone(), Value::Object(defaults.collect()));
    }
    // Each of them is known, so a setting can't be renamed in one place only; and none is wrong.
    assert_eq!(refused(&Value::Object(settings)), []);
    // The sections and fields that the policy reads are the ones that its message lists.
    let listed = |settings: &Value| {
        let (_, message) = refused(settings).remove(0);
        message.matches('`').count() / 2 - 1
    };
    assert_eq!(listed(&json!({"?": 0})), schema["properties"].as_object().unwrap().len());
    for section in ["adoption", "retry", "taints", "cni", "acknowledgment"] {
        // serde lists a single field as "expected `x`", several as "expected one of `x`, `y`".
        let count = schema["$defs"][section]["properties"].as_object().unwrap().len();
        assert_eq!(listed(&json!({section: {"?": 0}})), count, "{section}");
    }
}
