//! A set asks the right binding, goes on where it should, and holds where it must. Never in silence.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

mod guests;

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use guests::{CONTRACT, SAME, component, drift, drift_core, engine};
use moorline_policy::{
    Answer, CallRecord, Decision, Digest, Grants, Hook as _, Level, LimitOverrides, LoadFault, Loader, Observer,
    PolicySet, RecordedOutcome, SetError, SetOptions, TroubleCause,
    hooks::{Adoption, Drift, DriftVerdict},
};
use serde_json::{Value, json};

const NOW: Duration = Duration::from_secs(1000);

/// `not-applicable`, always.
fn silent() -> Vec<u8> {
    drift("(i32.store8 (i32.const 64) (i32.const 1)) (i32.store8 (i32.const 68) (i32.const 0)) (i32.const 64)")
}

/// `drifted`, always.
fn drifted() -> Vec<u8> {
    drift(&format!("{SAME} (i32.store8 (i32.const 68) (i32.const 1))"))
}

/// A folder with these modules and this text after `modules:`.
fn folder(modules: &[(&str, Vec<u8>)], bindings: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut text = "modules:\n".to_owned();
    for (name, bytes) in modules {
        fs::write(folder.path().join(format!("{name}.wasm")), bytes).unwrap();
        text += &format!("  {name}: {{file: {name}.wasm, sha256: {}}}\n", Digest::of(bytes));
    }
    fs::write(folder.path().join("policies.yaml"), text + bindings).unwrap();
    folder
}

fn options() -> SetOptions {
    let default = Loader::new(&engine()).load("built-in", &drift(SAME)).unwrap();
    SetOptions { default: Some(default), ..SetOptions::default() }
}

fn set_with(modules: &[(&str, Vec<u8>)], bindings: &str, options: SetOptions) -> PolicySet {
    let folder = folder(modules, bindings);
    PolicySet::load(&Loader::new(&engine()), Some(folder.path()), options).unwrap()
}

fn set(modules: &[(&str, Vec<u8>)], bindings: &str) -> PolicySet {
    set_with(modules, bindings, options())
}

fn ask(set: &PolicySet, site: Option<&str>, now: Duration) -> Answer<DriftVerdict> {
    set.ask::<Drift>(&Drift::sample(), site, now)
}

/// Who decided, and whether it is drift.
fn decided(answer: &Answer<DriftVerdict>) -> (&str, bool) {
    match &answer.decision {
        Decision::Decided { verdict, by } => (by.name(), matches!(verdict, DriftVerdict::Drifted(_))),
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_a_folder_the_default_answers() {
    let set = PolicySet::load(&Loader::new(&engine()), None, options()).unwrap();
    assert_eq!(decided(&ask(&set, None, NOW)), ("default", false));
    assert!(matches!(set.ask::<Adoption>(&Adoption::sample(), None, NOW).decision, Decision::NoBinding));
}

#[test]
fn the_first_binding_that_matches_and_has_an_opinion_decides() {
    let set = set(
        &[("silent", silent()), ("drifted", drifted())],
        "bindings:
  drift:
    - {name: quiet, module: silent}
    - {name: edge, module: drifted, sites: ['edge-*']}
",
    );
    assert_eq!(decided(&ask(&set, Some("edge-1"), NOW)), ("edge", true));
    assert_eq!(decided(&ask(&set, Some("core"), NOW)), ("default", false));
    assert_eq!(
        decided(&ask(&set, None, NOW)),
        ("default", false),
        "before adoption a binding limited to Sites matches nothing"
    );
    assert!(set.warnings().is_empty());
}

#[test]
fn a_failed_policy_holds_or_is_passed_over_and_is_named_either_way() {
    let bad = [("bad", drift("unreachable"))];
    let held = set(&bad, "bindings: {drift: [{name: strict, module: bad}]}\n");
    let Decision::Held(trouble) = ask(&held, None, NOW).decision else { panic!() };
    assert_eq!((trouble.binding.as_str(), trouble.cause.kind(), trouble.ask_again_at), ("strict", "trap", None));

    let passed = set(&bad, "bindings: {drift: [{name: lax, module: bad, on-failure: fall-through}]}\n");
    let answer = ask(&passed, None, NOW);
    assert_eq!(decided(&answer), ("default", false));
    assert_eq!(answer.passed_over.iter().map(|trouble| trouble.binding.as_str()).collect::<Vec<_>>(), ["lax"]);
}

#[test]
fn a_refused_module_holds_its_own_bindings_and_no_others() {
    let modules = [("broken", b"not wasm".to_vec()), ("drifted", drifted())];
    let bindings = "bindings:
  drift:
    - {name: b, module: broken, sites: [x]}
    - {name: d, module: drifted}
";
    let set = set(&modules, bindings);
    let refused: Vec<_> = set.refusals().map(|(binding, error)| (binding.name(), error.fault.kind())).collect();
    assert_eq!(refused, [("b", "not-a-component")]);
    let Decision::Held(trouble) = ask(&set, Some("x"), NOW).decision else { panic!() };
    assert!(matches!(trouble.cause, TroubleCause::Refused(_)));
    assert!(trouble.to_string().contains("broken.wasm"), "{trouble}");
    assert_eq!(decided(&ask(&set, Some("y"), NOW)), ("d", true));
}

#[test]
fn a_module_with_another_digest_is_refused() {
    let folder = folder(&[("drifted", drifted())], "bindings: {drift: [{name: d, module: drifted}]}\n");
    fs::write(folder.path().join("drifted.wasm"), drift(SAME)).unwrap();
    let set = PolicySet::load(&Loader::new(&engine()), Some(folder.path()), options()).unwrap();
    assert_eq!(set.refusals().next().unwrap().1.fault.kind(), "wrong-digest");
}

#[test]
fn a_binding_to_a_hook_that_the_module_doesnt_answer_is_refused() {
    let set = set(&[("drifted", drifted())], "bindings: {adoption: [{name: a, module: drifted}]}\n");
    let (_, error) = set.refusals().next().unwrap();
    assert!(
        error.to_string().contains("doesn't answer the hook `adoption`")
            && error.to_string().contains("It answers: drift."),
        "{error}"
    );
}

#[test]
fn settings_that_a_policy_refuses_are_listed_with_their_paths() {
    // One error: path `0.1.0` (any text does), message `drift-guest`, both in the guest's memory.
    let refusing = r#"
      (func (export "moorline:policy/policy@0.1.0#validate-settings") (param i32 i32 i32 i32) (result i32)
        (i32.store8 (i32.const 64) (i32.const 1))
        (i32.store (i32.const 68) (i32.const 128)) (i32.store (i32.const 72) (i32.const 1))
        (i32.store (i32.const 128) (i32.const 32)) (i32.store (i32.const 132) (i32.const 5))
        (i32.store (i32.const 136) (i32.const 16)) (i32.store (i32.const 140) (i32.const 11))
        (i32.const 64))"#;
    let core = drift_core("", "", SAME).replace(guests::VALIDATE, refusing);
    let set = set(
        &[("picky", component(CONTRACT, "drift-only", &core))],
        "bindings: {drift: [{name: p, module: picky, settings: {a: 1}}]}\n",
    );
    let (_, error) = set.refusals().next().unwrap();
    assert!(error.to_string().ends_with("for the hook `drift`: at `0.1.0`, drift-guest;"), "{error}");
}

#[test]
fn mistakes_in_the_file_are_listed_with_file_and_line() {
    let folder = folder(&[], "bindings:\n  drift:\n    - {name: a, module: nowhere}\n  drfit: []\n");
    let error = PolicySet::load(&Loader::new(&engine()), Some(folder.path()), options()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&folder.path().join("policies.yaml").display().to_string()), "{text}");
    assert!(
        text.contains("line 4: There is no module `nowhere`") && text.contains("line 5: There is no hook `drfit`"),
        "{text}"
    );
}

#[test]
fn a_folder_without_the_file_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let error = PolicySet::load(&Loader::new(&engine()), Some(folder.path()), options()).unwrap_err();
    assert!(matches!(error, SetError::Unreadable { .. }), "{error}");
}

#[test]
fn after_five_failures_a_binding_rests_and_a_hold_still_holds() {
    let set = set(&[("bad", drift("unreachable"))], "bindings: {drift: [{name: strict, module: bad}]}\n");
    for failure in 1..=5 {
        let Decision::Held(trouble) = ask(&set, None, NOW).decision else { panic!() };
        assert!(matches!(trouble.cause, TroubleCause::Failed(_)));
        assert_eq!(trouble.ask_again_at.is_some(), failure == 5);
    }
    let Decision::Held(trouble) = ask(&set, None, NOW + Duration::from_secs(29)).decision else { panic!() };
    assert!(matches!(trouble.cause, TroubleCause::Resting(_)), "{trouble}");
    assert_eq!(trouble.ask_again_at, Some(NOW + Duration::from_secs(30)));
    let status = set.bindings().next().unwrap().status(NOW + Duration::from_secs(10));
    assert_eq!((status.failures, status.resting_seconds), (5, Some(20)));
    let Decision::Held(trouble) = ask(&set, None, NOW + Duration::from_secs(30)).decision else { panic!() };
    assert!(matches!(trouble.cause, TroubleCause::Failed(_)), "the probe goes through: {trouble}");
}

#[test]
fn a_decision_can_stay_with_the_binding_that_made_it() {
    let set = set(&[("drifted", drifted())], "bindings: {drift: [{name: d, module: drifted}]}\n");
    let Decision::Decided { by, .. } = ask(&set, None, NOW).decision else { panic!() };
    drop(set);
    assert!(matches!(
        by.ask::<Drift>(&Drift::sample(), NOW),
        moorline_policy::Asked::Verdict(DriftVerdict::Drifted(_))
    ));
}

fn granted(name: &str, grants: Grants) -> SetOptions {
    SetOptions { grants: BTreeMap::from([(name.to_owned(), grants)]), ..options() }
}

/// Every place of a policy folder that might be asked for a grant: each is refused, and the error names file, line and key.
fn nobody_grants_themselves(key: &str, value: &Value) {
    let grant = json!({ key: value }).to_string();
    let inner = &grant[1..grant.len() - 1];
    for text in [
        format!("bindings:\n  drift:\n    - {{name: d, module: it, {inner}}}\n"),
        format!("bindings:\n  drift:\n    - {{name: d, module: it, grants: {grant}}}\n"),
        format!("bindings: {{drift: [{{name: d, module: it}}]}}\ngrants: {{d: {grant}}}\n"),
        format!("bindings: {{drift: [{{name: d, module: it}}]}}\ndefault: {grant}\n"),
        format!("  other: {{file: it.wasm, {inner}}}\nbindings: {{drift: [{{name: d, module: it}}]}}\n"),
    ] {
        let folder = folder(&[("it", drifted())], &text);
        let error = PolicySet::load(&Loader::new(&engine()), Some(folder.path()), options()).unwrap_err().to_string();
        let named = error.contains(&format!("`{key}`")) || error.contains("`grants`");
        assert!(error.contains("policies.yaml has mistakes.\n  line ") && named, "{text}{error}");
    }
    // In the settings it is a word to the policy, and nothing to the host.
    let set = set(
        &[("it", drifted())],
        &format!("bindings: {{drift: [{{name: d, module: it, settings: {{{inner}, grants: {grant}}}}}]}}\n"),
    );
    let binding = set.bindings().next().unwrap();
    assert_eq!(*binding.grants(), Grants::default());
    assert_eq!(binding.policy().unwrap().limits(), Loader::new(&engine()).limits());
}

#[test]
fn nobody_grants_themselves_that_their_same_counts() {
    nobody_grants_themselves("may-tolerate", &json!(true));
}

#[test]
fn nobody_grants_themselves_wasi() {
    nobody_grants_themselves("wasi", &json!("isolated"));
}

#[test]
fn nobody_grants_themselves_a_permit() {
    nobody_grants_themselves("permits", &json!(["ptp"]));
}

#[test]
fn nobody_grants_themselves_a_limit() {
    let one: Duration = Duration::from_millis(1);
    // No `..`: a limit that is added is looked at.
    let all = LimitOverrides {
        fuel: Some(1),
        deadline: Some(one),
        memory: Some(1),
        table_elements: Some(1),
        stack: Some(1),
        instances: Some(1),
        output: Some(1),
        reason: Some(1),
        log_lines: Some(1),
        log_size: Some(1),
        log_level: Some(Level::Trace),
        input_string: Some(1),
        module_size: Some(1),
        compile_memory: Some(1),
        compile_deadline: Some(one),
    };
    let all = serde_json::to_value(all).unwrap();
    nobody_grants_themselves("limits", &all);
    for (name, value) in all.as_object().unwrap() {
        nobody_grants_themselves("limits", &json!({ name: value }));
        nobody_grants_themselves(name, value);
    }
}

#[test]
fn nobody_puts_another_module_where_a_digest_was_granted() {
    nobody_grants_themselves("sha256-of-grant", &json!(Digest::of(&drifted())));
    let bindings = "bindings: {drift: [{name: d, module: it}]}\n";
    let grants = Grants { may_tolerate: true, sha256: Some(Digest::of(&drifted())), ..Grants::default() };
    let load =
        |folder: &Path| PolicySet::load(&Loader::new(&engine()), Some(folder), granted("d", grants.clone())).unwrap();
    // The granted digest as the pin, and another file: it has the grant, and doesn't run.
    let pinned = folder(&[("it", drifted())], bindings);
    assert_eq!(decided(&ask(&load(pinned.path()), None, NOW)), ("d", true));
    fs::write(pinned.path().join("it.wasm"), silent()).unwrap();
    let set = load(pinned.path());
    assert!(matches!(set.refusals().next().unwrap().1.fault, LoadFault::WrongDigest { .. }));
    assert!(matches!(ask(&set, None, NOW).decision, Decision::Held(_)));
    // No pin: it runs, and hasn't the grant.
    let text = fs::read_to_string(pinned.path().join("policies.yaml")).unwrap();
    let unpinned = text.replace(&format!(", sha256: {}", Digest::of(&drifted())), "");
    fs::write(pinned.path().join("policies.yaml"), unpinned).unwrap();
    let set = load(pinned.path());
    assert!(set.refusals().next().is_none());
    assert_eq!(*set.bindings().next().unwrap().grants(), Grants::default());
}

#[test]
fn a_grant_for_whichever_module_is_warned_of() {
    let grants = Grants { may_tolerate: true, ..Grants::default() };
    let set = set_with(&[("it", drifted())], "bindings: {drift: [{name: d, module: it}]}\n", granted("d", grants));
    assert!(set.warnings()[0].contains("`d` names no `sha256`"), "{:?}", set.warnings());
}

#[test]
fn a_grant_for_one_module_doesnt_pass_to_another_under_the_same_name() {
    let bindings = "bindings: {drift: [{name: d, module: it}]}\n";
    let grants = Grants { may_tolerate: true, sha256: Some(Digest::of(&drifted())), ..Grants::default() };
    let set = set_with(&[("it", drifted())], bindings, granted("d", grants.clone()));
    assert!(set.bindings().next().unwrap().grants().may_tolerate);
    let set = set_with(&[("it", silent())], bindings, granted("d", grants));
    assert!(!set.bindings().next().unwrap().grants().may_tolerate);
    assert!(set.warnings()[0].contains("another module"), "{:?}", set.warnings());
}

#[test]
fn granted_limits_are_those_of_the_binding_alone() {
    let limits = LimitOverrides { fuel: Some(10), ..LimitOverrides::default() };
    let set = set_with(
        &[("drifted", drifted())],
        "bindings: {drift: [{name: d, module: drifted}, {name: e, module: drifted}]}\n",
        granted("e", Grants { limits: limits.clone(), ..Grants::default() }),
    );
    // Under ten units of fuel it can't even describe itself, and that is said where it was granted.
    assert_eq!(decided(&ask(&set, None, NOW)), ("d", true));
    assert_eq!(set.refusals().map(|(binding, _)| binding.name()).collect::<Vec<_>>(), ["e"]);
    let (_, error) = set.refusals().next().unwrap();
    assert!(error.to_string().contains("10 units of fuel"), "{error}");
}

#[test]
fn a_granted_stack_is_that_of_the_binding_alone() {
    let core = drift_core(
        "",
        "(func $deep (param i64) (result i64)
           (if (result i64) (i64.eqz (local.get 0)) (then (i64.const 0))
             (else (i64.add (call $deep (i64.sub (local.get 0) (i64.const 1))) (local.get 0)))))",
        &format!("(drop (call $deep (i64.const 4000))) {SAME}"),
    );
    let limits = LimitOverrides { stack: Some(32 << 10), ..LimitOverrides::default() };
    let set = set_with(
        &[("it", component(CONTRACT, "drift-only", &core))],
        "bindings: {drift: [{name: flat, module: it, on-failure: fall-through}, {name: deep, module: it}]}\n",
        granted("flat", Grants { limits, ..Grants::default() }),
    );
    assert!(set.refusals().next().is_none(), "settings are checked without the recursion");
    let answer = ask(&set, None, NOW);
    assert_eq!(decided(&answer), ("deep", false));
    let [trouble] = &answer.passed_over[..] else { panic!("{:?}", answer.passed_over) };
    assert_eq!(trouble.cause.kind(), "stack");
}

#[test]
fn what_has_no_effect_is_said() {
    let options = granted("nobody", Grants::default());
    let folder = folder(&[("spare", drifted())], "  loose: {file: loose.wasm}\n");
    let set = PolicySet::load(&Loader::new(&engine()), Some(folder.path()), options).unwrap();
    for part in ["grant for the binding `nobody`", "module `spare` is in no binding", "module `loose` has no `sha256`"]
    {
        assert!(set.warnings().iter().any(|warning| warning.contains(part)), "{part}: {:?}", set.warnings());
    }
}

#[test]
fn the_digest_of_a_set_changes_with_anything_in_it() {
    let bindings = "bindings: {drift: [{name: d, module: it}]}\n";
    let digests = [
        set(&[("it", drifted())], bindings).digest(),
        set(&[("it", silent())], bindings).digest(),
        set(&[("it", drifted())], &bindings.replace("}]", ", settings: {a: 1}}]")).digest(),
        set_with(&[("it", drifted())], bindings, SetOptions::default()).digest(),
    ];
    assert_eq!(digests.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
    assert_eq!(set(&[("it", drifted())], bindings).digest(), digests[0]);
}

/// A recorded call: hook, binding, settings, input, what came of it, fuel.
type Line = (String, String, String, serde_json::Value, String, u64);

#[derive(Default)]
struct Journal(Mutex<Vec<Line>>);

impl Observer for Journal {
    fn called(&self, record: &CallRecord<'_>) {
        let outcome = match &record.outcome {
            RecordedOutcome::Verdict { verdict, reason } => format!("{} {reason}", verdict.to_json()),
            RecordedOutcome::NotApplicable => "not applicable".into(),
            RecordedOutcome::Failed(error) => error.kind().into(),
        };
        let line =
            (record.hook.into(), record.binding.into(), record.settings.into(), record.input(), outcome, record.fuel);
        self.0.lock().unwrap().push(line);
    }
}

#[test]
fn every_call_is_recorded_and_a_record_replays_to_the_same_answer_and_fuel() {
    let journal = Arc::new(Journal::default());
    let bindings = "bindings:
  drift:
    - {name: b, module: bad, on-failure: fall-through}
    - {name: q, module: quiet, settings: {z: 1, a: [x]}}
    - {name: d, module: drifted}
";
    let modules = [("bad", drift("unreachable")), ("quiet", silent()), ("drifted", drifted())];
    let set = set_with(&modules, bindings, SetOptions { observer: Some(journal.clone()), ..options() });
    assert_eq!(decided(&ask(&set, None, NOW)), ("d", true));
    let lines = journal.0.lock().unwrap().clone();
    let outcomes: Vec<_> = lines.iter().map(|line| (line.1.as_str(), line.4.as_str())).collect();
    assert_eq!(outcomes, [("b", "trap"), ("q", "not applicable"), ("d", r#"{"drifted":"drift-guest"} drift-guest"#)]);
    assert_eq!(lines[1].2, r#"{"a":["x"],"z":1}"#);
    for (binding, (hook, _, settings, input, _, fuel)) in set.bindings().zip(&lines) {
        let replayed = binding.policy().unwrap().call_json(hook, input.clone(), settings).unwrap().unwrap();
        assert_eq!(replayed.fuel, *fuel, "{}", binding.name());
    }
}

#[test]
fn many_threads_may_ask_at_once() {
    let set = set(&[("drifted", drifted())], "bindings: {drift: [{name: d, module: drifted}]}\n");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..50).for_each(|_| assert_eq!(decided(&ask(&set, None, NOW)), ("d", true))));
        }
    });
}
