//! Scenarios that can't be run: each mistake is told with its place and the way out.

use moorline_sim::scenario::{LoadError, find};

use crate::toy::{BASE, load_text};

fn complaint(text: &str) -> String {
    let (path, result) = load_text(text);
    let told = result.map(|_| ()).unwrap_err().to_string();
    let told = told.strip_prefix(&path.display().to_string()).unwrap_or(&told);
    told.to_owned()
}

#[track_caller]
fn refused(rest: &str, parts: &[&str]) {
    let told = complaint(&format!("{BASE}{rest}"));
    for part in parts {
        assert!(told.contains(part), "{part:?} is not in: {told}");
    }
    assert_eq!(told.lines().count(), 1, "one clear error: {told}");
}

#[test]
fn a_typo_in_a_key_is_named_with_line_field_and_what_there_is() {
    refused("expect:\n- setled: {site: a}\n", &[":10:3: ", "expect[0]", "setled", "settled", "acknowledgment"]);
    refused("stepz: []\nexpect: []\n", &[":9:1: ", "stepz", "steps"]);
    refused("steps:\n- label: {sett: {}}\nexpect: []\n", &[":10:11: ", "steps[0].label", "sett"]);
}

#[test]
fn a_value_that_makes_no_sense_is_named_with_line_and_field() {
    refused("steps: [{at: 5, agent: kill}]\nexpect: []\n", &[":9:", "steps[0].at", "500ms"]);
    refused("steps: [{agent: shoot}]\nexpect: []\n", &["steps[0].agent", "shoot", "kill"]);
    refused("expect: [{requests: {of: {verb: fetch}}}]\n", &["expect[0].requests.of.verb", "fetch", "get, list"]);
    refused("expect:\n- {exits: [ten]}\n", &[":10:12: ", "expect[0].exits[0]"]);
}

#[test]
fn a_step_has_one_action_and_an_expectation_is_about_one_thing() {
    refused("steps:\n- {at: 1s}\nexpect: [{exits: []}]\n", &[":10:", "steps[0]", "apply, patch"]);
    refused("steps: [{agent: kill, compact: {}}]\nexpect: [{exits: []}]\n", &["`compact` and `agent`"]);
    refused("steps: [{at: 1s, after: 1s, compact: {}}]\nexpect: [{exits: []}]\n", &["steps[0]", "`at` stands alone"]);
    refused("expect: [{by: 1s}]\n", &["expect[0]", "nothing is said", "settled"]);
    refused("expect: [{exits: [], routes: []}]\n", &["expect[0]", "`routes` and `exits`"]);
    refused("expect: [{exits: [], by: 11m}]\n", &["expect[0]", "after the end", "`end`"]);
    refused("expect: []\n", &["expect: ", "add one"]);
}

#[test]
fn names_that_nothing_has_are_told_before_the_run() {
    refused("expect: [{object: {kind: Nod, name: x, exists: true}}]\n", &["expect[0]", "Nod", "nodes"]);
    refused("expect: [{requests: {of: {resource: Node}}}]\n", &["expect[0]", "`Node`", "plural"]);
    refused("steps: [{closing: {resource: widgets}}]\nexpect: [{exits: []}]\n", &["steps[0]", "widgets"]);
    refused("expect: [{file: {path: x, sameAs: before}}]\n", &["expect[0]", "snapshot `before`"]);
    refused("expect: [{file: {path: ../x, exists: true}}]\n", &["expect[0]", "leads out"]);
    refused("expect: [{file: {path: x}}]\n", &["expect[0]", "exists: true"]);
    refused("steps: [{taint: {add: [k]}}]\nexpect: [{exits: []}]\n", &["steps[0]", "key=value:NoSchedule"]);
    refused("steps: [{fault: {on: {verb: get}, stream: {is: closed}}}]\nexpect: [{exits: []}]\n", &["verb: watch"]);
    refused("files: [other.yaml]\nexpect: [{exits: []}]\n", &[":9:9: ", "files", "other.yaml"]);
}

#[test]
fn what_the_api_server_would_refuse_is_refused_before_the_run() {
    let text = BASE.replace("labels: {a: b}", "labels: {'no label': b}");
    let told = complaint(&format!("{text}expect: [{{exits: []}}]\n"));
    assert!(told.contains("objects") && told.contains("no label"), "{told}");
    let text = BASE.replace("name: p1}", "name: p2}");
    let told = complaint(&format!("{text}expect: [{{exits: []}}]\n"));
    assert!(told.contains("agent.pod") && told.contains("ns/p2"), "{told}");
    let told = complaint(&format!("{}expect: [{{exits: []}}]\n", BASE.replace("kind: Node, ", "")));
    assert!(told.contains(":4:3: ") && told.contains("no kind") && told.contains("kubectl get -o yaml"), "{told}");
}

#[test]
fn a_policy_volume_that_is_not_there_is_told_before_the_run() {
    for (policies, part) in [
        ("{path: nowhere}", "no policies.yaml"),
        ("{inline: {}, modules: {a.wasm: nowhere.wasm}}", "modules.a.wasm"),
        ("{}", "`inline`"),
    ] {
        let text = BASE.replace("  node: n1\n", &format!("  node: n1\n  policies: {policies}\n"));
        let told = complaint(&format!("{text}expect: [{{exits: []}}]\n"));
        assert!(told.starts_with(":8:13: ") && told.contains("agent.policies") && told.contains(part), "{told}");
    }
}

#[test]
fn a_file_that_is_not_there_is_told_and_a_folder_means_its_scenarios() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(find(&folder.path().join("x.yaml")), Err(LoadError::Read { .. })));
    assert!(matches!(find(folder.path()), Err(LoadError::Empty { .. })));
    for name in ["b.yaml", "a.yaml", "README.md"] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    std::fs::create_dir(folder.path().join("objects.yaml")).unwrap();
    let found = find(folder.path()).unwrap();
    assert_eq!(found, [folder.path().join("a.yaml"), folder.path().join("b.yaml")]);
}

#[test]
fn text_that_is_not_yaml_is_told_with_its_line() {
    let told = complaint("name: [\nx: y\n");
    assert!(told.starts_with(':') && told.contains(':'), "{told}");
}
