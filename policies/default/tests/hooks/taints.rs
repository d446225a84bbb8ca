//! The gateway taint on a worker.

use moorline_policy_test::{GATEWAY_TAINT, SubjectBuilder, hooks::Taints, json, subject};

use crate::policy;

fn tainted() -> SubjectBuilder {
    subject().node(|node| {
        node.taint("node.kubernetes.io/not-ready", "NoSchedule")
            .taint(GATEWAY_TAINT, "NoSchedule")
            .taint(GATEWAY_TAINT, "NoExecute")
    })
}

#[test]
fn a_worker_wants_none_of_its_gateway_taints_whatever_their_effect() {
    let verdict = policy().ask::<Taints>(tainted());
    let unwanted: Vec<_> = verdict.unwanted.iter().map(|taint| (taint.key.as_str(), taint.effect.as_str())).collect();
    assert_eq!(unwanted, [(GATEWAY_TAINT, "NoSchedule"), (GATEWAY_TAINT, "NoExecute")]);
    assert!(verdict.reason.contains("net.unbounded-cloud.io/gateway-node:NoExecute"), "{}", verdict.reason);
}

#[test]
fn a_gateway_keeps_every_taint() {
    let verdict = policy().ask::<Taints>(tainted().pool("edge"));
    assert!(verdict.unwanted.is_empty());
    assert_eq!(verdict.reason, "a gateway of pool \"edge\" keeps its taints");
}

#[test]
fn a_worker_without_the_taint_wants_nothing_gone() {
    assert!(policy().ask::<Taints>(subject()).unwanted.is_empty());
}

#[test]
fn other_taints_can_be_set() {
    let settings = json!({"taints": {"worker-unwanted": ["node.kubernetes.io/not-ready"]}});
    let verdict = policy().with_settings(settings).ask::<Taints>(tainted());
    assert_eq!(verdict.unwanted.len(), 1);
}
