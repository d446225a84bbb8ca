//! Site and pool from labels.

use moorline_policy_test::{
    NodeBuilder, hooks::Adoption, hooks::AdoptionVerdict as Verdict, hooks::Assigned, json, node,
};

use crate::policy;

const SITE: &str = "unbounded-cloud.io/site";
const OLD_SITE: &str = "net.unbounded-cloud.io/site";
const POOL: &str = "net.unbounded-cloud.io/gateway-pool";

fn assigned(node: NodeBuilder) -> (String, Option<String>, String) {
    match policy().ask::<Adoption>(node) {
        Verdict::Assigned(Assigned { site, pool, reason }) => (site, pool, reason),
        Verdict::Wait(reason) => panic!("no assignment: {reason}"),
    }
}

fn waits(node: NodeBuilder) -> String {
    match policy().ask::<Adoption>(node) {
        Verdict::Wait(reason) => reason,
        Verdict::Assigned(assigned) => panic!("assigned: {assigned:?}"),
    }
}

#[test]
fn a_node_with_a_site_label_is_a_worker_and_the_reason_names_label_and_value() {
    let (site, pool, reason) = assigned(node().label(SITE, "berlin"));
    assert_eq!((site.as_str(), pool), ("berlin", None));
    assert_eq!(reason, "label unbounded-cloud.io/site is \"berlin\"; no gateway-pool label, so this Node is a worker");
}

#[test]
fn a_node_with_a_pool_label_too_is_a_gateway() {
    let (site, pool, reason) = assigned(node().label(SITE, "berlin").label(POOL, "edge"));
    assert_eq!((site.as_str(), pool.as_deref()), ("berlin", Some("edge")));
    assert!(
        reason.ends_with("label net.unbounded-cloud.io/gateway-pool is \"edge\", so this Node is a gateway"),
        "{reason}"
    );
}

#[test]
fn the_deprecated_label_counts_where_the_canonical_one_says_nothing() {
    assert_eq!(assigned(node().label(OLD_SITE, "paris")).0, "paris");
    assert_eq!(assigned(node().label(SITE, "").label(OLD_SITE, "paris")).0, "paris");
}

#[test]
fn the_canonical_label_wins_and_a_contradiction_is_named() {
    let (site, _, reason) = assigned(node().label(SITE, "berlin").label(OLD_SITE, "paris"));
    assert_eq!(site, "berlin");
    assert!(reason.contains("label net.unbounded-cloud.io/site says \"paris\" and is ignored"), "{reason}");
    let (_, _, reason) = assigned(node().label(SITE, "berlin").label(OLD_SITE, "berlin"));
    assert!(!reason.contains("ignored"), "{reason}");
}

#[test]
fn a_node_without_a_site_waits_whatever_its_pool() {
    let reason = waits(node().label(POOL, "edge"));
    assert_eq!(
        reason,
        "no label unbounded-cloud.io/site; no label net.unbounded-cloud.io/site, so this Node has no Site yet"
    );
}

#[test]
fn an_empty_label_is_as_good_as_none_and_the_reason_says_so() {
    let reason = waits(node().label(SITE, ""));
    assert!(reason.starts_with("label unbounded-cloud.io/site is empty"), "{reason}");
    let (_, pool, reason) = assigned(node().label(SITE, "berlin").label(POOL, ""));
    assert_eq!(pool, None);
    assert!(reason.contains("label net.unbounded-cloud.io/gateway-pool is empty"), "{reason}");
}

#[test]
fn other_labels_can_be_set() {
    let settings = json!({"adoption": {"site-labels": ["example.com/rack"], "pool-label": "example.com/role"}});
    let node = node().label("example.com/rack", "r7").label("example.com/role", "edge").label(SITE, "berlin");
    let Verdict::Assigned(assigned) = policy().with_settings(settings).ask::<Adoption>(node) else {
        panic!("no assignment");
    };
    assert_eq!((assigned.site.as_str(), assigned.pool.as_deref()), ("r7", Some("edge")));
}
