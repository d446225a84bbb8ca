//! What a scenario has to obey beyond its form: one action for each step, names that are known, files that are there.
//! Pure but for looking whether files exist.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use serde_json::Value;
use serde_saphyr::Location;

use super::expectation::Expectation;
use super::format::Scenario;
use super::load::missing;
use super::pattern::ObjectCheck;
use super::step::{Condition, FaultStep, Step};
use crate::server::{Options, Server, Verb};

type Wrong = (Location, String);

/// The first thing that is wrong.
pub(super) fn check(folder: &Path, scenario: &Scenario, objects: &[Value]) -> Result<(), Wrong> {
    // A server of its own says whether it would take what the scenario gives it.
    let server = Server::new(Options { started: scenario.start, ..Options::default() });
    for object in objects {
        server.apply(object.clone()).map_err(|status| {
            let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
            (Location::UNKNOWN, format!("objects: the API server refuses {kind} {name}: {}", status.message))
        })?;
    }
    let agent = &scenario.agent;
    let named = |kind: &str, namespace: Option<&str>, name: &str| {
        objects.iter().any(|object| {
            object["kind"] == kind
                && object["metadata"]["name"] == name
                && namespace.is_none_or(|namespace| object["metadata"]["namespace"] == namespace)
        })
    };
    if !named("Pod", Some(&agent.pod.namespace), &agent.pod.name) {
        let what = format!(
            "agent.pod: there is no Pod {}/{} among the objects. Add it to `objects:`: the acknowledgment is written on it.",
            agent.pod.namespace, agent.pod.name
        );
        return Err((Location::UNKNOWN, what));
    }
    if let Some(policies) = &agent.policies {
        let spec = &policies.value;
        let wrong = |what: String| Err((policies.defined, format!("agent.policies{what}")));
        match (&spec.path, &spec.inline) {
            (Some(path), None) if spec.modules.is_empty() => {
                if !folder.join(path).join("policies.yaml").is_file() {
                    return wrong(format!(".path: the folder {} has no policies.yaml", folder.join(path).display()));
                }
            }
            (None, Some(_)) => {
                for (name, path) in &spec.modules {
                    if !folder.join(path).is_file() {
                        return wrong(format!(".modules.{name}: there is no file {}", folder.join(path).display()));
                    }
                }
            }
            _ => return wrong(": say either `path`, or `inline` and its `modules`".to_owned()),
        }
    }
    for path in scenario.machine.files.keys() {
        inside(path).map_err(|what| (Location::UNKNOWN, format!("machine.files: {what}")))?;
    }
    let mut snapshots = BTreeSet::new();
    for (index, step) in scenario.steps.iter().enumerate() {
        self::step(&server, &step.value).map_err(|what| (step.defined, format!("steps[{index}]: {what}")))?;
        snapshots.extend(step.value.snapshot.as_deref());
    }
    if scenario.expect.is_empty() {
        return Err((Location::UNKNOWN, "expect: a scenario without an expectation shows nothing; add one".to_owned()));
    }
    for (index, expectation) in scenario.expect.iter().enumerate() {
        self::expectation(&server, scenario, &snapshots, &expectation.value)
            .map_err(|what| (expectation.defined, format!("expect[{index}]: {what}")))?;
    }
    Ok(())
}

/// Exactly one of some fields has to be there.
fn one_of(there: &[(&str, bool)]) -> Result<(), String> {
    let found: Vec<&str> = there.iter().filter(|(_, there)| *there).map(|(name, _)| *name).collect();
    let all: Vec<&str> = there.iter().map(|(name, _)| *name).collect();
    match found.as_slice() {
        [_] => Ok(()),
        [] => Err(format!("nothing is said; it has exactly one of: {}", all.join(", "))),
        several => Err(format!("`{}` stand together; write one for each", several.join("` and `"))),
    }
}

fn step(server: &Server, step: &Step) -> Result<(), String> {
    if step.at.is_some() && (step.after.is_some() || step.when.is_some()) {
        return Err(
            "`at` stands alone: it is a time since the start; `after` and `when` are relative to what was before"
                .to_owned(),
        );
    }
    one_of(&[
        ("apply", step.apply.is_some()),
        ("patch", step.patch.is_some()),
        ("delete", step.delete.is_some()),
        ("label", step.label.is_some()),
        ("taint", step.taint.is_some()),
        ("fault", step.fault.is_some()),
        ("admission", step.admission.is_some()),
        ("closing", step.closing.is_some()),
        ("compact", step.compact.is_some()),
        ("agent", step.agent.is_some()),
        ("file", step.file.is_some()),
        ("snapshot", step.snapshot.is_some()),
    ])?;
    if let Some(condition) = &step.when {
        self::condition(server, condition)?;
    }
    if let Some(object) = &step.apply
        && let Some(missing) = missing(object)
    {
        return Err(format!("apply: the object has no {missing}"));
    }
    if let Some(patch) = &step.patch {
        resource(server, &patch.kind, patch.api_version.as_deref())?;
    }
    if let Some(object) = &step.delete {
        resource(server, &object.kind, object.api_version.as_deref())?;
    }
    if let Some(label) = &step.label {
        match (&label.kind, &label.name) {
            (Some(kind), Some(_)) => resource(server, kind, None)?,
            (None, None) => {}
            _ => return Err("label: say both `kind` and `name`, or neither for the agent's own Node".to_owned()),
        }
    }
    if let Some(taint) = &step.taint {
        for text in &taint.add {
            super::act::taint(text)?;
        }
    }
    if let Some(fault) = &step.fault {
        self::fault(server, fault)?;
    }
    if let Some(admission) = &step.admission
        && !matches!(admission.code, None | Some(422 | 403 | 413))
    {
        return Err("admission.code: an admission policy denies with 422, 403 or 413".to_owned());
    }
    if let Some(closing) = &step.closing {
        plural(server, &closing.resource)?;
    }
    step.file.as_ref().map_or(Ok(()), |file| inside(&file.path))
}

fn condition(server: &Server, condition: &Condition) -> Result<(), String> {
    one_of(&[
        ("request", condition.request.is_some()),
        ("arrival", condition.arrival.is_some()),
        ("entry", condition.entry.is_some()),
        ("state", condition.state.is_some()),
        ("exit", condition.exit.is_some()),
        ("object", condition.object.is_some()),
    ])
    .map_err(|what| format!("when: {what}"))?;
    if condition.count == Some(0) {
        return Err("when.count: what is seen is seen at least once".to_owned());
    }
    for pattern in [&condition.request, &condition.arrival].into_iter().flatten() {
        pattern.resource.as_deref().map_or(Ok(()), |word| plural(server, word))?;
    }
    condition.object.as_ref().map_or(Ok(()), |check| object(server, check))
}

fn fault(server: &Server, fault: &FaultStep) -> Result<(), String> {
    let on_stream = fault.stream.is_some() || fault.error_event.is_some();
    one_of(&[
        ("status", fault.status.is_some()),
        ("delay", fault.delay.is_some()),
        ("lost", fault.lost.is_some()),
        ("stream", fault.stream.is_some()),
        ("errorEvent", fault.error_event.is_some()),
    ])
    .map_err(|what| format!("fault: {what}"))?;
    if on_stream && fault.on.verb != Some(Verb::Watch) {
        return Err("fault.on: only watches have streams; say `verb: watch`".to_owned());
    }
    for status in [&fault.status, &fault.error_event].into_iter().flatten() {
        if !(400..600).contains(&status.code) {
            return Err(format!("fault: {} is no status code of a failure; those are 400 to 599", status.code));
        }
    }
    fault.on.resource.as_deref().map_or(Ok(()), |word| plural(server, word))
}

fn expectation(
    server: &Server,
    scenario: &Scenario,
    snapshots: &BTreeSet<&str>,
    expectation: &Expectation,
) -> Result<(), String> {
    if expectation.at.is_some() && expectation.by.is_some() {
        return Err("`at` and `by` stand together; `at` means just then, `by` means at some time up to it".to_owned());
    }
    for time in [expectation.at, expectation.by].into_iter().flatten() {
        if time > scenario.end {
            return Err(format!("{time} is after the end of the run; set `end` to a later time"));
        }
    }
    one_of(&[
        ("settled", expectation.settled.is_some()),
        ("acknowledgment", expectation.acknowledgment.is_some()),
        ("taints", expectation.taints.is_some()),
        ("routes", expectation.routes.is_some()),
        ("object", expectation.object.is_some()),
        ("requests", expectation.requests.is_some()),
        ("onlyWrites", expectation.only_writes.is_some()),
        ("startupWatchEnds", expectation.startup_watch_ends.is_some()),
        ("timeline", expectation.timeline.is_some()),
        ("entries", expectation.entries.is_some()),
        ("verdicts", expectation.verdicts.is_some()),
        ("folder", expectation.folder.is_some()),
        ("file", expectation.file.is_some()),
        ("exits", expectation.exits.is_some()),
        ("readyz", expectation.readyz.is_some()),
    ])?;
    if let Some(check) = &expectation.object {
        object(server, check)?;
    }
    if let Some(pattern) = expectation.requests.as_ref().and_then(|check| check.of.resource.as_deref()) {
        plural(server, pattern)?;
    }
    for pattern in expectation.only_writes.iter().flatten() {
        if let Some(word) = &pattern.resource {
            plural(server, word)?;
        }
    }
    if let Some(folder) = &expectation.folder {
        inside(&folder.path)?;
    }
    let Some(file) = &expectation.file else { return Ok(()) };
    inside(&file.path)?;
    for name in [&file.same_as, &file.untouched_since].into_iter().flatten() {
        if !snapshots.contains(name.as_str()) {
            return Err(format!("file: no step takes a snapshot `{name}`"));
        }
    }
    if *file == (super::expectation::FileCheck { path: file.path.clone(), ..Default::default() }) {
        return Err("file: say what has to be true of it, such as `exists: true`".to_owned());
    }
    Ok(())
}

fn object(server: &Server, check: &ObjectCheck) -> Result<(), String> {
    resource(server, &check.kind, check.api_version.as_deref())?;
    if check.exists.is_none() && check.equals.is_none() && check.includes.is_none() {
        return Err(
            "object: say `exists`, `equals` or `includes`; for what must not be there, `exists: false`".to_owned()
        );
    }
    Ok(())
}

/// A kind that the server has.
fn resource(server: &Server, word: &str, api_version: Option<&str>) -> Result<(), String> {
    server.list(&super::act::resource(word, api_version)).map(|_| ()).map_err(|status| status.message.clone())
}

/// A resource as requests name it: by its plural, and by nothing else.
fn plural(server: &Server, word: &str) -> Result<(), String> {
    resource(server, word, None)?;
    if word.ends_with('s') { Ok(()) } else { Err(format!("`{word}`: name resources by their plural, such as `nodes`")) }
}

/// Paths of the machine lead into its folder, never out of it.
fn inside(path: &Path) -> Result<(), String> {
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    if plain {
        Ok(())
    } else {
        Err(format!(
            "{} leads out of the machine's folder; write it without `/` in front and without `..`",
            path.display()
        ))
    }
}
