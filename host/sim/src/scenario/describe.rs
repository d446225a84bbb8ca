//! Expectations in a few words, for those to which their author gave no name.

use super::expectation::{
    AcknowledgmentCheck, AssignmentCheck, EntriesCheck, Expectation, FileCheck, Phase, ReadyzCheck, RequestsCheck,
    TaintsCheck, VerdictsCheck,
};
use super::pattern::{Count, EntryPattern, ObjectCheck, RequestPattern};
use crate::server::Verb;

/// What an expectation is about, and when it has to be true.
pub(super) fn describe(expectation: &Expectation) -> String {
    let what = [
        expectation.settled.as_ref().map(settled),
        expectation.acknowledgment.as_ref().map(acknowledgment),
        expectation.taints.as_ref().map(taints),
        expectation.routes.as_ref().map(|routes| match routes.as_slice() {
            [] => "no routes are advertised".to_owned(),
            routes => format!("advertised are {}", routes.join(", ")),
        }),
        expectation.object.as_ref().map(object),
        expectation.requests.as_ref().map(requests),
        expectation.only_writes.as_ref().map(|allowed| {
            let allowed: Vec<String> = allowed.iter().map(request).collect();
            format!("no write but {}", allowed.join(", "))
        }),
        expectation.startup_watch_ends.map(|_| "the startup watch ends with the acknowledgment".to_owned()),
        expectation.timeline.as_ref().map(|turns| format!("{} turns of the story in order", turns.len())),
        expectation.entries.as_ref().map(entries),
        expectation.verdicts.as_ref().map(verdicts),
        expectation.folder.as_ref().map(|check| {
            let path = check.path.display().to_string();
            let path = if path.is_empty() { "the machine" } else { &path };
            if check.holds.is_empty() {
                format!("{path} is empty")
            } else {
                format!("{path} holds {}", check.holds.join(", "))
            }
        }),
        expectation.file.as_ref().map(file),
        expectation.exits.as_ref().map(|codes| match codes.as_slice() {
            [] => "no process ends".to_owned(),
            codes => format!("exit codes {codes:?}"),
        }),
        expectation.readyz.as_ref().map(readyz),
    ];
    let what = what.into_iter().flatten().next().unwrap_or_default();
    match (expectation.at, expectation.by) {
        (Some(at), _) => format!("{what}, at {at}"),
        (_, Some(by)) => format!("{what}, by {by}"),
        _ => what,
    }
}

fn settled(AssignmentCheck { site, pool }: &AssignmentCheck) -> String {
    match pool {
        Some(pool) => format!("settled as a gateway of {pool} in {site}"),
        None => format!("settled as a worker in {site}"),
    }
}

fn acknowledgment(check: &AcknowledgmentCheck) -> String {
    if !check.present {
        return "no acknowledgment".to_owned();
    }
    let says: Vec<String> = check.says.iter().map(|(name, value)| format!("{name} {value}")).collect();
    if says.is_empty() { "an acknowledgment".to_owned() } else { format!("acknowledged: {}", says.join(", ")) }
}

fn taints(check: &TaintsCheck) -> String {
    let list = |word: &str, taints: &[String]| (!taints.is_empty()).then(|| format!("{word} {}", taints.join(", ")));
    let parts = [list("tainted with", &check.present), list("not tainted with", &check.absent)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn object(check: &ObjectCheck) -> String {
    let place = if check.path.is_empty() { String::new() } else { format!(" {}", check.path) };
    let word = if check.exists == Some(false) { "is absent" } else { "is as it has to be" };
    format!("{} {}{place} {word}", check.kind, check.name)
}

fn count(count: Count) -> String {
    match count {
        Count { exactly: Some(0), .. } | Count { max: Some(0), .. } => "no".to_owned(),
        Count { exactly: Some(exactly), .. } => format!("exactly {exactly}"),
        Count { min: Some(min), max: Some(max), .. } => format!("{min} to {max}"),
        Count { max: Some(max), .. } => format!("at most {max}"),
        Count { min, .. } => format!("at least {}", min.unwrap_or(1)),
    }
}

fn request(pattern: &RequestPattern) -> String {
    let verb = pattern.verb.map_or_else(|| "requests".to_owned(), |verb: Verb| verb.as_str().to_uppercase());
    let mut text = verb;
    for part in [&pattern.resource, &pattern.name, &pattern.subresource].into_iter().flatten() {
        text = format!("{text} {part}");
    }
    if let Some(code) = pattern.code {
        text = format!("{text} with {code}");
    }
    text
}

fn of_process(process: Option<u32>) -> String {
    process.map(|process| format!(" of process {process}")).unwrap_or_default()
}

fn requests(check: &RequestsCheck) -> String {
    let when = match check.during {
        Phase::Life => "",
        Phase::Startup => " until it is settled",
        Phase::Settled => " once it is settled",
    };
    format!("{} {}{}{when}", count(check.into()), request(&check.of), of_process(check.of.process))
}

fn entries(check: &EntriesCheck) -> String {
    let EntryPattern { kind, text, fields, process, .. } = &check.of;
    let mut parts: Vec<String> = [kind, text].into_iter().flatten().cloned().collect();
    parts.extend(fields.values().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
    format!("{} entry `{}`{}", count(check.into()), parts.join(" "), of_process(*process))
}

fn verdicts(check: &VerdictsCheck) -> String {
    let parts = [&check.hook, &check.policy, &check.verdict, &check.reason].into_iter().flatten();
    let parts: Vec<&str> = parts.map(String::as_str).collect();
    format!("{} verdict `{}`", count(check.into()), parts.join(" "))
}

fn file(check: &FileCheck) -> String {
    let path = check.path.display();
    match check {
        FileCheck { exists: Some(false), .. } => format!("{path} is not there"),
        FileCheck { untouched_since: Some(name), .. } => format!("{path} is untouched since `{name}`"),
        FileCheck { same_as: Some(name), .. } => format!("{path} is as at `{name}`"),
        FileCheck { content: None, json: None, includes: None, .. } => format!("{path} is there"),
        _ => format!("{path} holds what it has to"),
    }
}

fn readyz(check: &ReadyzCheck) -> String {
    let word = match check.ready {
        Some(true) => "ready",
        Some(false) => "not ready",
        None => "/readyz",
    };
    if check.contains.is_empty() { word.to_owned() } else { format!("{word}, and says {}", check.contains.join(", ")) }
}
