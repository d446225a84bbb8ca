//! The example as an agent asks it: the built component in the real host.
#![allow(clippy::panic, reason = "tests may fail by panicking")]

use moorline_policy_test::{
    ObservationBuilder, SITE_LABEL, Tested, hooks::Drift, hooks::DriftVerdict as Verdict, json, load, observation,
};

fn policy() -> Tested {
    load(std::env::var_os("MOORLINE_TEST_COMPONENT").unwrap_or_else(|| "rust_drift.wasm".into()))
}

/// A gateway of pool `edge` that is to be a worker now.
fn demoted() -> ObservationBuilder {
    observation().adopted_pool("edge").projected("site-a", None)
}

fn drifted(observation: ObservationBuilder) -> String {
    match policy().ask::<Drift>(observation) {
        Verdict::Drifted(reason) => reason,
        Verdict::Same(reason) => panic!("no drift: {reason}"),
    }
}

#[test]
fn a_pool_change_during_maintenance_is_tolerated_and_named() {
    let Verdict::Same(reason) = policy().ask::<Drift>(demoted().relabel("moorline.dev/maintenance", "")) else {
        panic!("drift")
    };
    assert_eq!(
        reason,
        "GatewayPool changed from \"edge\" to none; tolerated during maintenance (label moorline.dev/maintenance)"
    );
}

#[test]
fn a_pool_change_at_any_other_time_is_drift() {
    assert_eq!(drifted(demoted()), "GatewayPool changed from \"edge\" to none");
}

#[test]
fn maintenance_covers_nothing_but_the_pool() {
    let maintained = |observation: ObservationBuilder| observation.relabel("moorline.dev/maintenance", "yes");
    assert!(drifted(maintained(demoted().recreated("u2").projected("site-a", None))).starts_with("Node UID changed"));
    assert!(drifted(maintained(observation().projected("site-b", Some("edge")))).starts_with("Site changed"));
    assert!(drifted(maintained(observation().unlabel(SITE_LABEL).unprojected())).contains("no assignment any more"));
}

#[test]
fn an_unchanged_node_is_no_drift() {
    assert!(matches!(policy().ask::<Drift>(observation()), Verdict::Same(_)));
}

#[test]
fn the_label_can_be_set() {
    let policy = policy().with_settings(json!({"maintenance-label": "example.com/hands-off"}));
    let tolerated = policy.ask::<Drift>(demoted().relabel("example.com/hands-off", "1"));
    assert!(matches!(tolerated, Verdict::Same(_)));
    let drifted = policy.ask::<Drift>(demoted().relabel("moorline.dev/maintenance", "1"));
    assert!(matches!(drifted, Verdict::Drifted(_)));
    assert_eq!(policy.setting_errors("drift", &json!({"maintenance-label": ""}))[0].path, "/maintenance-label");
    assert_eq!(policy.setting_errors("drift", &json!({"label": "x"}))[0].path, "/label");
}
