//! Node UID, Site and pool are drift; nothing else is.

use moorline_policy_test::{
    ObservationBuilder, POOL_LABEL, SITE_LABEL, hooks::Drift, hooks::DriftVerdict as Verdict, observation,
};

use crate::policy;

fn drifted(observation: ObservationBuilder) -> String {
    match policy().ask::<Drift>(observation) {
        Verdict::Drifted(reason) => reason,
        Verdict::Same(reason) => panic!("no drift: {reason}"),
    }
}

#[test]
fn an_unchanged_node_is_no_drift() {
    assert!(matches!(policy().ask::<Drift>(observation()), Verdict::Same(_)));
}

#[test]
fn labels_taints_podcidrs_and_a_deletion_timestamp_are_no_drift() {
    let observation = observation().relabel("example.com/rack", "7").observed(|node| {
        node.taint("node.kubernetes.io/unreachable", "NoExecute")
            .annotation("example.com/note", "x")
            .pod_cidrs(&["10.9.0.0/24"])
            .deleting()
    });
    assert!(matches!(policy().ask::<Drift>(observation), Verdict::Same(_)));
}

#[test]
fn a_changed_uid_is_drift_and_the_reason_says_from_what_to_what() {
    assert_eq!(drifted(observation().recreated("u2")), "Node UID changed from \"uid-of-node-1\" to \"u2\"");
}

#[test]
fn a_changed_site_is_drift() {
    let reason = drifted(observation().relabel(SITE_LABEL, "site-b").projected_by(&policy()));
    assert_eq!(reason, "Site changed from \"site-a\" to \"site-b\"");
}

#[test]
fn a_gained_lost_or_changed_pool_is_drift() {
    let gained = observation().relabel(POOL_LABEL, "edge").projected_by(&policy());
    assert_eq!(drifted(gained), "GatewayPool changed from none to \"edge\"");
    let lost = observation().adopted_pool("edge").unlabel(POOL_LABEL).projected_by(&policy());
    assert_eq!(drifted(lost), "GatewayPool changed from \"edge\" to none");
    let changed = observation().adopted_pool("edge").relabel(POOL_LABEL, "core").projected_by(&policy());
    assert_eq!(drifted(changed), "GatewayPool changed from \"edge\" to \"core\"");
}

#[test]
fn a_lost_assignment_is_drift() {
    let reason = drifted(observation().unlabel(SITE_LABEL).projected_by(&policy()));
    assert_eq!(reason, "the Node has no assignment any more; it was adopted for Site \"site-a\"");
}

#[test]
fn every_change_is_named() {
    let reason = drifted(observation().adopted_pool("edge").recreated("u2").projected("site-b", None));
    assert_eq!(reason.matches(" changed from ").count(), 3, "{reason}");
}
