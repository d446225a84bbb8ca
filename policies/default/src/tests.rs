//! What holds for every input, on the logic itself: thousands of cases without a sandbox. The answers to single questions
//! are tested through the built component, in `tests/hooks`.
#![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

use moorline_policy_sdk::{
    Assignment, Node, Site, Taint, acknowledgment, adoption, cni, drift,
    retry::{Attempt, Hook as _, Verdict},
    taints,
};
use proptest::prelude::*;

use crate::{AcknowledgmentSettings, DefaultPolicy, DefaultSettings};

fn attempt(operation: String, failure: String, number: u32, jitter: u32) -> Attempt {
    Attempt { operation, failure, number, elapsed_ms: 0, retry_after_ms: None, jitter, extra: Vec::new() }
}

/// The wait, if the row isn't given up.
fn wait(attempt: Attempt) -> Option<u64> {
    match DefaultPolicy::next(attempt, DefaultSettings::default()).unwrap() {
        Verdict::Wait(pause) => Some(pause.after_ms),
        Verdict::GiveUp(_) => None,
    }
}

fn operation() -> impl Strategy<Value = String> {
    let known = crate::retry::BUILT_IN.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>();
    prop_oneof![proptest::sample::select(known), ".{0,12}"]
}

fn failure() -> impl Strategy<Value = String> {
    let known = ["conflict", "not-found", "unauthorized", "forbidden", "throttled", "unavailable", "closed", "expired"];
    prop_oneof![proptest::sample::select(known.to_vec()).prop_map(str::to_owned), ".{0,12}"]
}

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![0..20u32, any::<u32>(), Just(u32::MAX)]
}

fn entries() -> impl Strategy<Value = Vec<(String, String)>> {
    let key = prop_oneof![
        Just("unbounded-cloud.io/site".to_owned()),
        Just("net.unbounded-cloud.io/gateway-pool".to_owned()),
        ".{0,8}"
    ];
    proptest::collection::vec((key, ".{0,8}"), 0..4)
}

prop_compose! {
    fn any_node()(
        name in ".{0,8}",
        uid in ".{0,8}",
        labels in entries(),
        annotations in entries(),
        keys in proptest::collection::vec(prop_oneof![Just("net.unbounded-cloud.io/gateway-node".to_owned()), ".{0,8}"], 0..3),
        pod_cidrs in proptest::collection::vec(prop_oneof![Just("10.0.0.0/8".to_owned()), "[0-9a-f:./]{0,20}", ".{0,8}"], 0..3),
        deleting: bool,
    ) -> Node {
        let taints = keys.into_iter().map(|key| Taint { key, value: String::new(), effect: "NoSchedule".into(), time_added: None });
        Node { name, uid, labels, annotations, taints: taints.collect(), pod_cidrs, deleting, extra: Vec::new() }
    }
}

prop_compose! {
    fn any_assignment()(node_uid in ".{0,8}", site in ".{0,8}", pool in proptest::option::of(".{0,8}")) -> Assignment {
        Assignment { node_uid, site, pool, extra: Vec::new() }
    }
}

proptest! {
    #[test]
    fn with_the_same_jitter_waits_never_shrink_and_stay_under_a_cap(
        operation in operation(), failure in failure(), number in number(), jitter: u32,
    ) {
        let at = |number| wait(attempt(operation.clone(), failure.clone(), number, jitter));
        if let (Some(now), Some(next)) = (at(number), at(number.saturating_add(1))) {
            prop_assert!(now <= next, "{now} ms, then {next} ms");
            prop_assert!(now >= 10 && next <= 120_000);
        }
    }

    #[test]
    fn a_row_once_given_up_stays_given_up(operation in operation(), failure in failure(), number in 0..u32::MAX, jitter: u32) {
        let at = |number| wait(attempt(operation.clone(), failure.clone(), number, jitter));
        prop_assert!(at(number).is_some() || at(number + 1).is_none());
    }

    #[test]
    fn more_jitter_never_waits_less_and_all_of_it_waits_the_ceiling(operation in operation(), number in number(), jitter: u32) {
        let at = |jitter| wait(attempt(operation.clone(), "conflict".into(), number, jitter));
        if let (Some(some), Some(all)) = (at(jitter), at(u32::MAX)) {
            prop_assert!(some <= all);
            // Full jitter: half of it is half of the wait, to the millisecond.
            let half = at(1 << 31).unwrap_or_default();
            prop_assert!(half.abs_diff(all / 2) <= 1 || half == 10, "{half} ms of {all} ms");
        }
    }

    #[test]
    fn no_wait_is_shorter_than_retry_after(operation in operation(), number in number(), jitter: u32, asked: u64) {
        let attempt = Attempt { retry_after_ms: Some(asked), ..attempt(operation, "throttled".into(), number, jitter) };
        prop_assert!(wait(attempt).is_none_or(|after| after >= asked));
    }

    #[test]
    fn no_input_makes_any_hook_panic(
        adopted_node in any_node(), node in any_node(), adopted in any_assignment(),
        projected in proptest::option::of(any_assignment()),
        manage_cni: Option<bool>, spec in prop_oneof![Just("{}".to_owned()), Just("{\"tunnelMTU\":1400}".to_owned()), ".{0,20}"],
        operation in operation(), failure in failure(), number in number(), jitter: u32, template in ".{0,20}",
    ) {
        let settings = || DefaultSettings {
            acknowledgment: AcknowledgmentSettings { annotations: [("example.com/a".to_owned(), template.clone())].into() },
            ..DefaultSettings::default()
        };
        let extra = Vec::new;
        let _ = <DefaultPolicy as adoption::Hook>::adopt(node.clone(), settings());
        let observation = drift::Observation {
            adopted: adopted.clone(), adopted_node, observed: node.clone(), projected, extra: extra(),
        };
        let _ = <DefaultPolicy as drift::Hook>::assess(observation, settings());
        let _ = DefaultPolicy::next(attempt(operation, failure, number, jitter), settings());
        let subject = taints::Subject { adopted: adopted.clone(), node: node.clone(), extra: extra() };
        let _ = <DefaultPolicy as taints::Hook>::unwanted(subject, settings());
        let site = Site { name: adopted.site.clone(), labels: Vec::new(), manage_cni, spec, extra: extra() };
        let subject = cni::Subject { adopted: adopted.clone(), node: node.clone(), site, pool: None, extra: extra() };
        let _ = <DefaultPolicy as cni::Hook>::render(subject, settings());
        let subject = acknowledgment::Subject { adopted, node, extra: extra() };
        let _ = <DefaultPolicy as acknowledgment::Hook>::annotate(subject, settings());
    }
}
