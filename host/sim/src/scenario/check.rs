//! Judges expectations: what is wrong with a run, in words, or nothing. It looks and changes nothing.

use std::path::Path;

use serde_json::Value;

use super::act::{Stage, is_taint};
use super::expectation::{
    AcknowledgmentCheck, AssignmentCheck, Expectation, FileCheck, FolderCheck, Phase, ReadyzCheck, RequestsCheck,
    TaintsCheck, VerdictsCheck,
};
use super::kubelet::Running;
use super::machine;
use super::pattern::{Count, EntryPattern, RequestPattern, Turn, contains, includes};
use super::timeline::{Inner, Source, TimelineEntry};
use crate::server::ObjectName;

/// Where the acknowledgment stands on a Pod.
const ACKNOWLEDGMENT: &str = "moorline.dev/acknowledgment";

/// What can be looked at.
pub(super) struct World<'a> {
    pub(super) stage: &'a Stage,
    pub(super) running: &'a Running,
}

/// What is wrong now; nothing when the expectation holds.
pub(super) fn fault(world: &World<'_>, expectation: &Expectation) -> Option<String> {
    let faults = [
        expectation.settled.as_ref().and_then(|check| world.settled(check)),
        expectation.acknowledgment.as_ref().and_then(|check| world.acknowledgment(check)),
        expectation.taints.as_ref().and_then(|check| world.taints(check)),
        expectation.routes.as_ref().and_then(|wanted| world.routes(wanted)),
        expectation.object.as_ref().and_then(|check| {
            let found = world.stage.server.get(&(&check.object()).into()).ok();
            check.fault(found.as_ref())
        }),
        expectation.requests.as_ref().and_then(|check| requests(&world.stage.log.lock().entries, check)),
        expectation.only_writes.as_ref().and_then(|allowed| writes(&world.stage.log.lock().entries, allowed)),
        expectation.startup_watch_ends.and_then(|wanted| {
            let found = startup_watch(&world.stage.log.lock().entries);
            if wanted { found } else { found.is_none().then(|| "the startup watch ended".to_owned()) }
        }),
        expectation.timeline.as_ref().and_then(|turns| in_order(&world.stage.log.lock().entries, turns)),
        expectation.entries.as_ref().and_then(|check| {
            let found = world.stage.log.lock().entries.iter().filter(|entry| check.of.matches(entry)).count();
            counted(check.into(), found, "entries")
        }),
        expectation.verdicts.as_ref().and_then(|check| verdicts(&world.stage.log.lock(), check)),
        expectation.folder.as_ref().and_then(|check| folder(&world.stage.machine, check)),
        expectation.file.as_ref().and_then(|check| world.file(check)),
        expectation.exits.as_ref().and_then(|wanted| exits(&world.stage.log.lock().entries, wanted)),
        expectation.readyz.as_ref().and_then(|check| world.readyz(check)),
    ];
    faults.into_iter().flatten().next()
}

impl World<'_> {
    fn settled(&self, check: &AssignmentCheck) -> Option<String> {
        if self.running.readiness().is_none() {
            return Some("no process runs".to_owned());
        }
        let log = self.stage.log.lock();
        let number = self.running.number();
        let state = last(&log.entries, number, "entered").map_or("no state", |entry| word(entry, "state"));
        if state != "settled" {
            return Some(format!("process {number} is {state}"));
        }
        let adopted = last(&log.entries, number, "adopted").and_then(|entry| entry.fields.get("assignment"));
        let part = |name: &str| adopted.and_then(|adopted| adopted[name].as_str());
        let (site, pool) = (part("site"), part("pool"));
        let right = site == Some(&*check.site) && pool == check.pool.as_deref();
        (!right).then(|| format!("process {number} is settled in Site {site:?} and GatewayPool {pool:?}"))
    }

    fn acknowledgment(&self, check: &AcknowledgmentCheck) -> Option<String> {
        let pod = self.running.pod();
        let found = self.stage.server.get(&ObjectName::new("pods", &pod.name).namespace(&pod.namespace)).ok();
        let text = found.as_ref().and_then(|pod| pod["metadata"]["annotations"][ACKNOWLEDGMENT].as_str());
        let Some(text) = text else {
            return check.present.then(|| format!("Pod {} has no acknowledgment", pod.name));
        };
        if !check.present {
            return Some(format!("Pod {} has the acknowledgment {text}", pod.name));
        }
        let json: Value = serde_json::from_str(text).unwrap_or_default();
        let right = includes(&json, &Value::Object(check.says.clone()));
        (!right).then(|| format!("Pod {} has the acknowledgment {text}", pod.name))
    }

    fn taints(&self, check: &TaintsCheck) -> Option<String> {
        let node = self.stage.server.get(&ObjectName::new("nodes", &self.stage.node)).ok();
        let taints = node.and_then(|node| node["spec"]["taints"].as_array().cloned()).unwrap_or_default();
        let has = |wanted: &String| taints.iter().any(|taint| is_taint(taint, wanted));
        let right = check.present.iter().all(has) && !check.absent.iter().any(has);
        (!right).then(|| format!("the Node's taints are {}", Value::from(taints)))
    }

    fn routes(&self, wanted: &[String]) -> Option<String> {
        let object = self.stage.server.get(&ObjectName::new("gatewaypoolnodes", &self.stage.node)).ok();
        let routes = object.as_ref().and_then(|object| object["status"]["routes"].as_object());
        let mut found: Vec<&str> = routes.into_iter().flat_map(|routes| routes.keys()).map(String::as_str).collect();
        let mut wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        found.sort_unstable();
        wanted.sort_unstable();
        (found != wanted).then(|| format!("the routes are {found:?}"))
    }

    fn file(&self, check: &FileCheck) -> Option<String> {
        let shown = check.path.display();
        let now = match machine::snapshot(&self.stage.machine) {
            Ok(now) => now,
            Err(error) => return Some(format!("the machine's files can't be read: {error}")),
        };
        let found = now.get(&check.path);
        let text = found.map(|file| String::from_utf8_lossy(&file.content));
        let said =
            text.as_ref().map_or_else(|| format!("{shown} is not there"), |text| format!("{shown} holds {text}"));
        let json: Option<Value> = text.as_ref().and_then(|text| serde_json::from_str(text).ok());
        let snapshots = self.stage.snapshots.borrow();
        let at = |name: &String| snapshots.get(name).and_then(|files| files.get(&check.path));
        if let Some(name) = &check.untouched_since
            && at(name) != found
        {
            return Some(format!("{shown} was written since `{name}`"));
        }
        let right = check.exists.is_none_or(|exists| exists == found.is_some())
            && check.content.as_ref().is_none_or(|wanted| text.as_deref() == Some(wanted))
            && check.json.as_ref().is_none_or(|wanted| json.as_ref() == Some(wanted))
            && check.includes.as_ref().is_none_or(|wanted| json.as_ref().is_some_and(|json| includes(json, wanted)))
            && check
                .same_as
                .as_ref()
                .is_none_or(|name| at(name).map(|file| &file.content) == found.map(|file| &file.content));
        (!right).then_some(said)
    }

    fn readyz(&self, check: &ReadyzCheck) -> Option<String> {
        let Some(found) = self.running.readiness() else { return Some("no process runs".to_owned()) };
        let right = check.ready.is_none_or(|ready| ready == found.ready)
            && check.contains.iter().all(|part| contains(&found.text, part));
        let word = if found.ready { "ready" } else { "not ready" };
        (!right).then(|| format!("it is {word} and says {:?}", found.text))
    }
}

fn word<'a>(entry: &'a TimelineEntry, name: &str) -> &'a str {
    entry.fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn last<'a>(entries: &'a [TimelineEntry], process: u32, kind: &str) -> Option<&'a TimelineEntry> {
    entries.iter().rev().find(|entry| is_agents(entry, kind) && entry.process == Some(process))
}

fn is_agents(entry: &TimelineEntry, kind: &str) -> bool {
    entry.source == Source::Agent && entry.kind == kind
}

fn counted(count: Count, found: usize, what: &str) -> Option<String> {
    (!count.allows(found)).then(|| format!("there are {found} {what}"))
}

fn requests(entries: &[TimelineEntry], check: &RequestsCheck) -> Option<String> {
    let settled = |process: Option<u32>| {
        let at = |entry: &TimelineEntry| {
            is_agents(entry, "entered") && entry.process == process && word(entry, "state") == "settled"
        };
        entries.iter().position(at).unwrap_or(usize::MAX)
    };
    let found: Vec<&str> = entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| check.of.matches(entry))
        .filter(|(index, entry)| match check.during {
            Phase::Life => true,
            Phase::Startup => *index < settled(entry.process),
            Phase::Settled => *index > settled(entry.process),
        })
        .map(|(_, entry)| entry.text.as_str())
        .collect();
    counted(check.into(), found.len(), "requests").map(|text| format!("{text}: {}", found.join("; ")))
}

fn writes(entries: &[TimelineEntry], allowed: &[RequestPattern]) -> Option<String> {
    let is_write = |entry: &&TimelineEntry| {
        entry.source == Source::Server
            && entry.kind == "request"
            && matches!(word(entry, "verb"), "create" | "update" | "patch" | "delete")
    };
    let other = entries.iter().filter(is_write).find(|entry| !allowed.iter().any(|pattern| pattern.matches(entry)));
    other.map(|entry| format!("there is another write: {}", entry.text))
}

/// In each process, nothing watches Nodes once the acknowledgment is saved.
fn startup_watch(entries: &[TimelineEntry]) -> Option<String> {
    let is_node_watch = |entry: &TimelineEntry| {
        entry.source == Source::Server && word(entry, "verb") == "watch" && word(entry, "resource") == "nodes"
    };
    let mut acknowledged = 0;
    for (index, saved) in entries.iter().enumerate().filter(|(_, entry)| is_agents(entry, "acknowledgment-saved")) {
        acknowledged += 1;
        let of_process = |entry: &&TimelineEntry| entry.process == saved.process && is_node_watch(entry);
        // One that was on its way already is cancelled.
        let was_on_its_way = |entry: &TimelineEntry| {
            let same = |earlier: &TimelineEntry| earlier.fields.get("audit") == entry.fields.get("audit");
            entries[..index].iter().any(|earlier| earlier.kind == "request-received" && same(earlier))
        };
        let is_new = |entry: &&TimelineEntry| entry.kind != "watch-closed" && !was_on_its_way(entry);
        if let Some(later) = entries[index..].iter().filter(of_process).find(is_new) {
            return Some(format!("after the acknowledgment of process {:?}: {}", saved.process, later.text));
        }
        let opened = entries.iter().filter(of_process).filter(|entry| entry.kind == "watch-opened");
        for opened in opened {
            let id = opened.fields.get("audit");
            let closed = entries.iter().find(|entry| entry.kind == "watch-closed" && entry.fields.get("audit") == id);
            // Closing is the next thing that is done; a moment passes until the server sees it.
            let limit = saved.at + std::time::Duration::from_millis(10);
            if closed.is_none_or(|closed| closed.at > limit) {
                return Some(format!("a watch of process {:?} outlives its acknowledgment", saved.process));
            }
        }
    }
    (acknowledged == 0).then(|| "no process has acknowledged".to_owned())
}

fn in_order(entries: &[TimelineEntry], turns: &[Turn]) -> Option<String> {
    let mut rest = entries.iter();
    let missed = turns.iter().position(|turn| !rest.any(|entry| turn.0.matches(entry)))?;
    let EntryPattern { source, kind, text, fields, process } = &turns[missed].0;
    let parts = [
        source.map(|source| format!("source {source:?}")),
        kind.as_ref().map(|kind| format!("kind {kind}")),
        text.as_ref().map(|text| format!("{text:?}")),
        (!fields.is_empty()).then(|| Value::Object(fields.clone()).to_string()),
        process.map(|process| format!("process {process}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    Some(format!("turn {} of {} is missing, or comes too early: {}", missed + 1, turns.len(), parts.join(", ")))
}

fn verdicts(log: &Inner, check: &VerdictsCheck) -> Option<String> {
    let is = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
    let found = log
        .calls
        .iter()
        .filter(|(_, call)| {
            is(&check.hook, &call.hook)
                && is(&check.policy, call.policy.as_deref().unwrap_or_default())
                && is(&check.verdict, &call.verdict)
                && check.reason.as_ref().is_none_or(|reason| contains(&call.reason, reason))
        })
        .count();
    counted(check.into(), found, "such answers")
}

fn folder(machine: &Path, check: &FolderCheck) -> Option<String> {
    let all = match machine::snapshot(machine) {
        Ok(all) => all,
        Err(error) => return Some(format!("the machine's files can't be read: {error}")),
    };
    let below = all.keys().filter_map(|path| path.strip_prefix(&check.path).ok());
    let found: Vec<String> = below.map(|path| path.display().to_string()).collect();
    let named = |file: &String| check.holds.iter().any(|wanted| matches_whole(file, wanted));
    let there = |wanted: &String| wanted.contains('*') || found.contains(wanted);
    let right = found.iter().all(named) && check.holds.iter().all(there);
    (!right).then(|| format!("it holds {found:?}"))
}

/// A file's path against a pattern in which `*` stands for anything, folders included.
fn matches_whole(path: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => path == pattern,
        Some((front, rest)) => path.strip_prefix(front).is_some_and(|after| {
            let ends = after.char_indices().map(|(at, _)| at).chain([after.len()]);
            ends.into_iter().any(|at| matches_whole(&after[at..], rest))
        }),
    }
}

fn exits(entries: &[TimelineEntry], wanted: &[i32]) -> Option<String> {
    let found: Vec<i64> = entries
        .iter()
        .filter(|entry| entry.source == Source::Kubelet && entry.kind == "exited")
        .filter_map(|entry| entry.fields.get("code").and_then(Value::as_i64))
        .collect();
    let wanted: Vec<i64> = wanted.iter().map(|code| i64::from(*code)).collect();
    (found != wanted).then(|| format!("the exit codes are {found:?}"))
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
