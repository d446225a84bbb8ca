//! `moorline simulate` as a person meets it: what it prints, and what its exit code says.

use std::path::{Path, PathBuf};

use moorline::cli::ReplayCommand;
use moorline::simulate::{Format, SimulateCommand};
use moorline_lifecycle::ExitCode;
use serde_json::Value;

use crate::{LAUNCHER, root};

struct Said {
    code: ExitCode,
    out: String,
    err: String,
}

fn simulate(scenarios: &[PathBuf], format: Format, schema: bool) -> Said {
    let command = SimulateCommand { scenarios: scenarios.to_vec(), format, record: None, schema };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = command.run(|| Ok(LAUNCHER.clone()), false, &mut out, &mut err).unwrap();
    Said { code, out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap() }
}

fn example(name: &str) -> PathBuf {
    root().join("examples/scenarios").join(name)
}

/// A scenario of the examples with a change, in a folder of its own that has what it names.
fn changed(folder: &Path, name: &str, from: &str, to: &str) -> PathBuf {
    let text = std::fs::read_to_string(example(name)).unwrap();
    assert!(text.contains(from), "{from}");
    let text = text.replacen(from, to, 1).replace("objects/", &format!("{}/", example("objects").display()));
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// One problem, on one line, with all of this in it.
#[track_caller]
fn refused(said: &Said, parts: &[&str]) {
    assert_eq!((said.code, said.out.as_str()), (ExitCode::Configuration, ""));
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    for part in parts {
        assert!(said.err.contains(part), "{part:?} is not in: {}", said.err);
    }
}

#[test]
fn the_report_of_a_passed_scenario_has_its_four_parts_and_ends_with_0() {
    let said = simulate(&[example("missing-pool.yaml")], Format::Text, false);
    assert_eq!((said.code, said.err.as_str()), (ExitCode::Asked, ""), "{}", said.out);
    let parts = ["Timeline", "Requests to the API server", "Verdicts", "Expectations", "missing-pool: passed"];
    let places: Vec<_> = parts.iter().map(|part| said.out.find(part).unwrap_or_else(|| panic!("{part}"))).collect();
    assert!(places.is_sorted(), "{places:?}");
    let verdict = said.out.lines().find(|line| line.contains("GatewayPool changed from") && line.contains("drifted"));
    let cells: Vec<&str> = verdict.unwrap().split_whitespace().collect();
    assert_eq!(cells[..2], ["drift", "default"]);
    assert!(!said.out.contains('\u{1b}'), "no colours where nobody asked for them");
}

#[test]
fn a_failed_expectation_is_named_and_ends_with_1() {
    let folder = tempfile::tempdir().unwrap();
    let path = changed(folder.path(), "quiet-worker.yaml", "during: startup, max: 4", "during: startup, max: 3");
    let said = simulate(&[path], Format::Text, false);
    assert_eq!(said.code, ExitCode::Failed);
    assert!(said.out.contains("✗ another process on the same machine needs four requests at most"), "{}", said.out);
    assert!(said.out.contains("found: there are 4 requests"), "{}", said.out);
}

#[test]
fn a_folder_means_all_of_its_scenarios_and_ends_with_a_count() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["quiet-worker.yaml", "site-missing.yaml"] {
        changed(folder.path(), name, "name: ", "name: ");
    }
    let said = simulate(&[folder.path().to_owned()], Format::Text, false);
    assert_eq!(said.code, ExitCode::Asked, "{}", said.out);
    assert!(said.out.ends_with("2 scenarios, 0 failed\n"), "{}", said.out);
}

#[test]
fn the_json_document_is_as_its_schema_says() {
    let schema: Value = serde_json::from_str(&simulate(&[], Format::Text, true).out).unwrap();
    let said = simulate(&[example("missing-pool.yaml"), example("demotion.yaml")], Format::Json, false);
    let mut document: Value = serde_json::from_str(&said.out).unwrap();
    crate::schema::validate(&schema, &document).unwrap();
    assert_eq!((said.code, &document["passed"]), (ExitCode::Asked, &Value::Bool(true)));
    assert_eq!(document["scenarios"][1]["name"], "demotion");

    // A check that can't fail would show nothing.
    document["scenarios"][0]["timeline"][0]["source"] = "nobody".into();
    crate::schema::validate(&schema, &document).unwrap_err();
    document["scenarios"][0]["timeline"][0]["source"] = "agent".into();
    document["scenarios"][1].as_object_mut().unwrap().remove("seed");
    crate::schema::validate(&schema, &document).unwrap_err();
}

#[test]
fn every_field_of_the_schema_is_documented() {
    let schema: Value = serde_json::from_str(&simulate(&[], Format::Text, true).out).unwrap();
    let definitions = schema["$defs"].as_object().unwrap().iter();
    let all = definitions.map(|(name, definition)| (name.as_str(), definition)).chain([("Document", &schema)]);
    for (name, definition) in all {
        for (field, property) in definition["properties"].as_object().into_iter().flatten() {
            assert!(property["description"].is_string(), "{name}.{field}");
        }
    }
}

#[test]
fn a_typo_in_a_scenario_is_one_clear_error_and_ends_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let path = changed(folder.path(), "missing-pool.yaml", "- exits: [10]", "- exit: [10]");
    let said = simulate(std::slice::from_ref(&path), Format::Text, false);
    refused(&said, &[&format!("{}:35:3: ", path.display()), "expect[4]", "unknown field `exit`", "exits"]);
}

#[test]
fn a_missing_file_is_one_clear_error_and_ends_with_2() {
    let folder = tempfile::tempdir().unwrap();
    refused(&simulate(&[folder.path().join("x.yaml")], Format::Text, false), &["x.yaml", "Name a scenario file"]);
    let path = changed(folder.path(), "quiet-worker.yaml", "worker.yaml", "wroker.yaml");
    refused(&simulate(&[path], Format::Text, false), &["quiet-worker.yaml:3:", "files", "wroker.yaml"]);
}

#[test]
fn a_policy_that_is_not_wasm_is_one_clear_error_and_ends_with_2() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("text.wasm"), "not wasm").unwrap();
    let policies = "agent:\n  policies:\n    inline: {modules: {m: {file: m.wasm}}, bindings: {drift: [{name: b, module: m}]}}\n    modules: {m.wasm: text.wasm}\n";
    let path = changed(folder.path(), "quiet-worker.yaml", "agent:\n", policies);
    refused(&simulate(&[path], Format::Text, false), &["quiet-worker.yaml:6: agent.policies", "m.wasm"]);
}

#[test]
fn a_configuration_with_three_mistakes_has_all_of_them_told_and_ends_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let config =
        "agent:\n  config:\n    deadlines: {end: soon}\n    floors: {allowedTaint: []}\n    log: {format: xml}\n";
    let path = changed(folder.path(), "quiet-worker.yaml", "agent:\n", config);
    let said = simulate(&[path], Format::Text, false);
    assert_eq!((said.code, said.out.as_str()), (ExitCode::Configuration, ""));
    let lines: Vec<&str> = said.err.lines().collect();
    assert_eq!(lines.len(), 3, "{}", said.err);
    for (line, key) in lines.iter().zip(["`deadlines.end`", "allowedTaint", "`log.format`"]) {
        assert!(line.contains("quiet-worker.yaml") && line.contains("agent.config") && line.contains(key), "{line}");
    }
}

#[test]
fn what_is_recorded_replays_and_what_was_tampered_with_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let command = SimulateCommand {
        scenarios: vec![example("quiet-worker.yaml"), example("missing-pool.yaml")],
        format: Format::Text,
        record: Some(trace.clone()),
        schema: false,
    };
    let code = command.run(|| Ok(LAUNCHER.clone()), false, &mut Vec::new(), &mut Vec::new()).unwrap();
    assert_eq!(code, ExitCode::Asked);
    let replay = |path: &Path| {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = ReplayCommand { files: vec![path.to_owned()], all: true }.run(&mut out, &mut err).unwrap();
        Said { code, out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap() }
    };
    let said = replay(&trace);
    assert_eq!((said.code, said.err.as_str()), (ExitCode::Asked, ""));
    for part in ["A life begins.", "Adopted: worker in Site", "State settled", "all the same as recorded."] {
        assert!(said.out.contains(part), "{part:?} is not in: {}", said.out);
    }

    let text = std::fs::read_to_string(&trace).unwrap();
    let tampered = text.replacen("\"unbounded-cloud.io/site\":\"", "\"unbounded-cloud.io/site\":\"x", 1);
    assert_ne!(tampered, text);
    std::fs::write(&trace, tampered).unwrap();
    let said = replay(&trace);
    assert_eq!(said.code, ExitCode::Failed);
    assert!(said.err.contains("wants something else than was recorded"), "{}", said.err);
    let said = replay(&folder.path().join("absent"));
    assert_eq!(said.code, ExitCode::Configuration);
}
