//! Backoff: what is built in, what can be set.

use moorline_policy_test::{AttemptBuilder, Tested, attempt, hooks::Retry, hooks::RetryVerdict as Verdict, json};

use crate::policy;

/// The longest that this wait could have been; none when the row is given up.
fn ceiling(policy: &Tested, attempt: AttemptBuilder) -> Option<u64> {
    match policy.ask::<Retry>(attempt.jitter(u32::MAX)) {
        Verdict::Wait(pause) => Some(pause.after_ms),
        Verdict::GiveUp(_) => None,
    }
}

fn ceilings(operation: &str, failure: &str) -> Vec<Option<u64>> {
    (1..=8).map(|number| ceiling(&policy(), attempt(operation).failure(failure).number(number))).collect()
}

fn growing(waits: &[u64]) -> Vec<Option<u64>> {
    waits.iter().copied().map(Some).collect()
}

#[test]
fn a_patch_race_on_a_taint_is_tried_six_times_and_anything_else_is_given_up_at_once() {
    let mut expected = growing(&[100, 200, 400, 800, 1600]);
    expected.extend([None, None, None]);
    assert_eq!(ceilings("taint-removal", "conflict"), expected);
    for failure in ["forbidden", "invalid", "not-found", "timeout", "throttled", "unavailable", "a-later-word"] {
        assert_eq!(ceilings("taint-removal", failure), [None; 8], "{failure}");
    }
}

#[test]
fn nested_operations_are_given_up_after_three_tries() {
    for operation in ["site-read", "pool-read", "data-plane", "cni-write", "advertisement"] {
        assert_eq!(ceilings(operation, "unavailable")[..4], [Some(500), Some(1000), None, None], "{operation}");
    }
}

#[test]
fn an_absent_object_to_advertise_on_is_waited_for() {
    let expected = growing(&[500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
    assert_eq!(ceilings("advertisement", "not-found"), expected);
}

#[test]
fn operations_of_their_own_are_never_given_up() {
    let steady = growing(&[1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
    for operation in
        ["node-read", "node-watch", "pod-read", "site-watch", "pool-watch", "acknowledgment", "withdrawal", "cleanup"]
    {
        assert_eq!(ceilings(operation, "closed"), steady, "{operation}");
    }
    let slow = growing(&[2000, 4000, 8000, 16_000, 32_000, 64_000, 120_000, 120_000]);
    assert_eq!(ceilings("reconciliation", "other"), slow);
    assert_eq!(ceilings("an-embedders-own", "other"), slow, "an unknown operation gets a cautious answer");
}

#[test]
fn failures_that_a_quick_retry_will_not_mend_start_higher_within_the_cap() {
    for failure in ["unauthorized", "forbidden", "throttled"] {
        assert_eq!(ceilings("node-read", failure)[..2], [Some(5000), Some(10_000)], "{failure}");
        assert_eq!(ceilings("site-read", failure)[..2], [Some(5000), Some(5000)], "{failure}");
    }
}

#[test]
fn a_wait_is_never_shorter_than_retry_after_and_the_reason_says_so() {
    let Verdict::Wait(pause) = policy().ask::<Retry>(attempt("node-read").retry_after_ms(90_000)) else {
        panic!("given up")
    };
    assert_eq!(pause.after_ms, 90_000);
    assert_eq!(pause.reason, "try 1 of node-read failed with unavailable: the server asked for 90000 ms");
    assert_eq!(ceiling(&policy(), attempt("node-read").retry_after_ms(u64::MAX)), Some(u64::MAX));
}

#[test]
fn the_lowest_jitter_still_waits() {
    let Verdict::Wait(pause) = policy().ask::<Retry>(attempt("node-read").jitter(0)) else { panic!("given up") };
    assert_eq!(pause.after_ms, 10);
}

#[test]
fn the_last_attempt_number_there_is_overflows_nothing() {
    assert_eq!(ceiling(&policy(), attempt("node-read").number(u32::MAX)), Some(60_000));
    assert_eq!(ceiling(&policy(), attempt("node-read").number(0)), Some(1000));
    let huge =
        json!({"retry": {"operations": {"node-read": {"base-ms": 86_400_000, "cap-ms": 86_400_000, "factor": 10}}}});
    assert_eq!(ceiling(&policy().with_settings(huge), attempt("node-read").number(u32::MAX)), Some(86_400_000));
}

#[test]
fn settings_change_one_operation_or_one_failure_of_it_and_leave_the_rest() {
    let policy = policy().with_settings(json!({"retry": {
        "default": {"base-ms": 3000},
        "operations": {"site-read": {"max-tries": 5}, "site-read/timeout": {"base-ms": 700}},
        "slow-failures": ["timeout"],
        "slow-base-ms": 600,
    }}));
    let of = |operation: &str, failure: &str| ceiling(&policy, attempt(operation).failure(failure));
    assert_eq!(of("site-read", "unavailable"), Some(500));
    assert_eq!(of("site-read", "timeout"), Some(700));
    assert_eq!(of("pool-read", "timeout"), Some(600));
    assert_eq!(of("pool-read", "forbidden"), Some(500));
    assert_eq!(of("reconciliation", "other"), Some(3000));
    assert_eq!(ceiling(&policy, attempt("site-read").failure("timeout").number(4)), Some(5000));
    assert_eq!(ceiling(&policy, attempt("site-read").failure("timeout").number(5)), None);
}

#[test]
fn a_row_that_is_given_up_says_after_what() {
    let gives_up = |attempt: AttemptBuilder| match policy().ask::<Retry>(attempt) {
        Verdict::GiveUp(reason) => reason,
        Verdict::Wait(pause) => panic!("no end: {}", pause.reason),
    };
    assert_eq!(
        gives_up(attempt("taint-removal").failure("conflict").number(6)),
        "taint-removal failed 6 times in a row, last with conflict"
    );
    assert_eq!(gives_up(attempt("taint-removal").failure("invalid")), "taint-removal is not tried again after invalid");
}
