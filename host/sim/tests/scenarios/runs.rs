//! What happens in a run.

use moorline_sim::scenario::{Document, Report, Shown};

use crate::toy::{failed, run};

fn starts(report: &Report) -> Vec<u64> {
    report.timeline.iter().filter(|entry| entry.kind == "started").map(|entry| entry.at.as_secs()).collect()
}

fn holds(rest: &str) -> Report {
    let report = run(rest);
    assert!(report.passed, "{}", Shown { report: &report, colours: false });
    report
}

#[test]
fn a_container_is_restarted_at_once_and_then_with_a_doubling_wait_until_it_has_run_for_long() {
    let report = run(
        "end: 40m\nsteps: [{at: 0s, label: {set: {end: \"3\"}}}, {at: 5m, label: {set: {end: null}}}, {at: 30m, agent: kill}]\nexpect: [{exits: [3, 3, 3, 3, 3, 3, 137]}]",
    );
    assert_eq!(failed(&report), Vec::<&str>::new());
    assert_eq!(starts(&report), [0, 0, 10, 30, 70, 150, 310, 1800]);
}

#[test]
fn the_waits_of_the_kubelet_are_the_scenarios() {
    let rest = "end: 10s\nkubelet: {backoff: 1s, longest: 2s}\nsteps: [{at: 0s, label: {set: {end: \"3\"}}}]\nexpect: [{exits: []}]";
    assert_eq!(starts(&run(rest)), [0, 0, 1, 3, 5, 7, 9]);
}

#[test]
fn a_killed_process_does_nothing_more_and_the_next_one_has_the_same_pod() {
    holds(
        "end: 10s\nsteps: [{at: 4500ms, agent: kill}]\nexpect: [{exits: [137]}, {readyz: {ready: true, contains: [process 2]}}, {entries: {of: {source: kubelet, kind: started, text: p1}, exactly: 2}}, {entries: {of: {kind: read, process: 1}, exactly: 5}}]",
    );
}

#[test]
fn a_process_that_ignores_sigterm_is_killed_after_the_grace_period() {
    holds(
        "end: 1m\nsteps: [{at: 0s, label: {set: {deaf: \"1\"}}}, {at: 10s, agent: terminate}]\nexpect: [{exits: [], at: 39s}, {exits: [137], by: 41s}]",
    );
}

#[test]
fn a_replaced_pod_has_another_name_and_uid_and_its_process_starts_at_once() {
    holds(
        "end: 10s\nsteps: [{at: 5s, agent: replacePod}]\nexpect: [{exits: [0]}, {object: {kind: Pod, namespace: ns, name: p1, exists: false}}, {object: {kind: Pod, namespace: ns, name: p1-2, exists: true}}, {readyz: {contains: [process 2]}, by: 6s}]",
    );
}

#[test]
fn steps_are_taken_in_order_each_after_what_it_waits_for() {
    holds(
        r"end: 20s
steps:
- {when: {request: {verb: get, resource: nodes}, count: 3}, label: {set: {x: first}}}
- {after: 2s, label: {set: {x: second}}}
- {when: {object: {kind: Node, name: n1, path: /metadata/labels/x, equals: second}}, taint: {add: ['k=v:NoSchedule']}}
- {when: {entry: {kind: read}}, file: {path: etc/x, content: hello}}
- {at: 10s, taint: {remove: [k]}}
- {at: 11s, delete: {kind: Node, name: n1}}
- {when: {request: {verb: get, code: 404}}, apply: {apiVersion: v1, kind: Node, metadata: {name: n1, uid: u2}}}
expect:
- {object: {kind: Node, name: n1, path: /metadata/labels/x, equals: first}, at: 3s}
- {object: {kind: Node, name: n1, path: /metadata/labels/x, equals: second}, at: 5s}
- {taints: {present: [k]}, at: 6s}
- {file: {path: etc/x, content: hello}}
- {object: {kind: Node, name: n1, path: /metadata/uid, equals: u2}}
- {folder: {holds: [seen, etc/x]}}
",
    );
}

#[test]
fn a_step_that_is_never_due_or_can_not_be_taken_fails_the_run() {
    let report = run(
        "end: 5s\nsteps: [{delete: {kind: Node, name: n2}}, {when: {exit: 7}, agent: kill}]\nexpect: [{exits: []}]",
    );
    assert_eq!(failed(&report), ["step 1", "step 2"]);
}

#[test]
fn faults_hit_the_next_requests_of_their_kind_and_no_more() {
    holds(
        r"end: 10s
steps:
- fault: {on: {verb: get, resource: nodes}, times: 2, status: {code: 503, reason: ServiceUnavailable, message: later}}
- fault: {on: {verb: get, resource: nodes}, lost: request}
- fault: {on: {verb: get, resource: nodes}, delay: 500ms}
expect:
- {requests: {of: {verb: get, code: 503}, exactly: 2}}
- {entries: {of: {kind: read, text: failed}, exactly: 3}}
- {timeline: [{kind: request, text: lost request}, {kind: request, text: 'delayed, held 500ms'}]}
",
    );
}

#[test]
fn a_file_that_is_put_back_was_touched_but_is_the_same() {
    let report = run(r"end: 10s
machine: {files: {etc/x: hello, etc/y: hello}}
steps:
- snapshot: before
- file: {path: etc/x}
- file: {path: etc/x, content: hello}
expect:
- {name: same, file: {path: etc/x, sameAs: before}}
- {name: touched, file: {path: etc/x, untouchedSince: before}}
- {name: untouched, file: {path: etc/y, untouchedSince: before}}
");
    assert_eq!(failed(&report), ["touched"]);
}

#[test]
fn what_has_to_be_true_by_a_time_may_be_so_before_it_and_not_only_after() {
    let report = run(r"end: 10s
steps: [{at: 3s, label: {set: {x: y}}}, {at: 5s, label: {set: {x: null}}}]
expect:
- {name: for a while, by: 4s, object: {kind: Node, name: n1, path: /metadata/labels/x, equals: y}}
- {name: too early, by: 2s, object: {kind: Node, name: n1, path: /metadata/labels/x, equals: y}}
- {name: at the end, object: {kind: Node, name: n1, path: /metadata/labels/x, equals: y}}
");
    assert_eq!(failed(&report), ["too early", "at the end"]);
    assert!(report.expectations.iter().all(|result| result.passed == result.found.is_none()));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let rest = "end: 1m\nsteps: [{at: 5s, agent: replacePod}, {at: 10s, agent: kill}]\nexpect: [{exits: [0, 137]}]";
    let (first, second) = (run(rest), run(rest));
    assert_eq!(first.timeline, second.timeline);
    assert_eq!(first.requests, second.requests);
}

#[test]
fn ten_minutes_take_no_time_worth_the_name() {
    let report = run("expect: [{exits: []}]");
    assert_eq!(report.virtual_time.as_secs(), 600);
    assert!(report.real_time.as_secs() < 5, "{:?}", report.real_time);
}

#[test]
fn a_failed_expectation_is_named_with_its_place_and_what_was_found() {
    let report = run("end: 1s\nexpect: [{exits: [1]}]");
    assert!(!Document::new(vec![report.clone()]).passed);
    let text = Shown { report: &report, colours: false }.to_string();
    assert!(text.contains("✗ exit codes [1] (") && text.contains("toy.yaml:10)"), "{text}");
    assert!(text.contains("found: the exit codes are []") && text.contains("1 expectation failed"), "{text}");
    assert!(!text.contains('\u{1b}'));
    assert!(Shown { report: &report, colours: true }.to_string().contains("\u{1b}[31m✗"));
}
