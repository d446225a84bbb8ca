//! Takes the steps of a scenario: what a step does to the API server, the machine and the agent.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc::UnboundedSender;

use super::machine::{self, Snapshot};
use super::pattern::ObjectRef;
use super::step::{
    AdmissionStep, AgentStep, FaultStep, FaultTarget, FileStep, LabelStep, Lost, StatusFault, Step, StreamEnd,
    TaintStep,
};
use super::timeline::{Log, Source};
use crate::server::{
    Admission, Answer, Denial, Effect, Fault, Interruption, Matching, ObjectName, PolicyReason, RuleId, Server, Verb,
};

/// Where the steps are taken.
pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) log: Log,
    /// The agent's own Node.
    pub(crate) node: String,
    /// The machine's root folder.
    pub(crate) machine: PathBuf,
    pub(crate) kubelet: UnboundedSender<AgentStep>,
    pub(crate) snapshots: RefCell<BTreeMap<String, Snapshot>>,
    pub(crate) admissions: RefCell<BTreeMap<String, RuleId>>,
}

impl Stage {
    /// Takes a step, and tells of it; or says why it could not be taken.
    pub(crate) fn take(&self, step: &Step) -> Result<(), String> {
        // Told before it is done, so that it stands before what it causes.
        let tell = |text: String| {
            let text = step.note.as_ref().map_or_else(|| text.clone(), |note| format!("{note} ({text})"));
            self.log.push(Source::Scenario, None, "step", text, Map::new());
        };
        if let Some(object) = &step.apply {
            tell(format!("apply {} {}", word(&object["kind"]), word(&object["metadata"]["name"])));
            self.server.apply(object.clone()).map_err(|status| status.message.clone())?;
        }
        if let Some(patch) = &step.patch {
            tell(format!("patch {} {}: {}", patch.kind, patch.name, patch.merge));
            let name = object(&patch.kind, patch.api_version.as_deref(), &patch.name, patch.namespace.as_deref());
            self.patch(&name, &patch.merge)?;
        }
        if let Some(object) = &step.delete {
            tell(format!("delete {} {}", object.kind, object.name));
            self.server.delete(&object.into()).map_err(|status| status.message.clone())?;
        }
        if let Some(label) = &step.label {
            self.label(label, tell)?;
        }
        if let Some(taint) = &step.taint {
            self.taint(taint, tell)?;
        }
        if let Some(fault) = &step.fault {
            let (fault, text) = disturbance(fault);
            tell(text);
            self.server.fault(fault);
        }
        if let Some(admission) = &step.admission {
            self.admission(admission, tell);
        }
        if let Some(closing) = &step.closing {
            tell(format!("the watches on {} are closed", closing.resource));
            self.server.interrupt(&Matching::new(Verb::Watch, &closing.resource), &Interruption::Close);
        }
        if step.compact.is_some() {
            tell("older versions are compacted away".to_owned());
            self.server.compact();
        }
        if let Some(agent) = step.agent {
            let what = match agent {
                AgentStep::Kill => "the agent is killed (SIGKILL)",
                AgentStep::Terminate => "the agent is asked to end (SIGTERM)",
                AgentStep::ReplacePod => "the agent's Pod is replaced",
            };
            tell(what.to_owned());
            // The kubelet lives as long as the steps are taken.
            let _ = self.kubelet.send(agent);
        }
        if let Some(file) = &step.file {
            self.file(file, tell)?;
        }
        if let Some(name) = &step.snapshot {
            tell(format!("the machine's files are remembered as `{name}`"));
            let taken = machine::snapshot(&self.machine).map_err(|error| error.to_string())?;
            self.snapshots.borrow_mut().insert(name.clone(), taken);
        }
        Ok(())
    }

    fn patch(&self, name: &ObjectName, patch: &Value) -> Result<(), String> {
        self.server.merge_patch(name, patch).map(|_| ()).map_err(|status| status.message.clone())
    }

    fn label(&self, label: &LabelStep, tell: impl Fn(String)) -> Result<(), String> {
        let kind = label.kind.as_deref().unwrap_or("Node");
        let name = label.name.as_deref().unwrap_or(&self.node);
        let set: Vec<String> = label
            .set
            .iter()
            .map(|(key, value)| value.as_ref().map_or_else(|| format!("{key}-"), |value| format!("{key}={value}")))
            .collect();
        tell(format!("label {kind} {name}: {}", set.join(", ")));
        let name = object(kind, None, name, label.namespace.as_deref());
        self.patch(&name, &json!({"metadata": {"labels": label.set}}))
    }

    fn taint(&self, step: &TaintStep, tell: impl Fn(String)) -> Result<(), String> {
        let node = step.node.as_deref().unwrap_or(&self.node);
        let said: Vec<String> =
            step.add.iter().cloned().chain(step.remove.iter().map(|taint| format!("{taint}-"))).collect();
        tell(format!("taint Node {node}: {}", said.join(", ")));
        let name = ObjectName::new("nodes", node);
        let found = self.server.get(&name).map_err(|status| status.message.clone())?;
        let mut taints = found["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.retain(|taint| !step.remove.iter().any(|removed| is_taint(taint, removed)));
        for text in &step.add {
            taints.push(self::taint(text)?);
        }
        self.patch(&name, &json!({"spec": {"taints": taints}}))
    }

    fn admission(&self, step: &AdmissionStep, tell: impl Fn(String)) {
        let policy = &step.policy;
        let before = self.admissions.borrow_mut().remove(policy);
        if let Some(rule) = before {
            self.server.remove_admission(rule);
        }
        let Some(denied) = &step.denies else {
            tell(format!("admission policy {policy} is lifted"));
            return;
        };
        tell(format!("admission policy {policy} denies {}", requests(denied)));
        let reason = match step.code {
            Some(403) => PolicyReason::Forbidden,
            Some(413) => PolicyReason::RequestEntityTooLarge,
            _ => PolicyReason::Invalid,
        };
        let message = step.message.clone().unwrap_or_else(|| "not allowed".to_owned());
        let denial = Denial::Policy { policy: policy.clone(), binding: policy.clone(), message, reason };
        let rule = self.server.admit(Admission::deny(matching(denied), denial));
        self.admissions.borrow_mut().insert(policy.clone(), rule);
    }

    fn file(&self, step: &FileStep, tell: impl Fn(String)) -> Result<(), String> {
        let path = self.machine.join(&step.path);
        let shown = step.path.display();
        let done = match &step.content {
            Some(content) => {
                tell(format!("someone writes {shown}"));
                machine::write(&path, content)
            }
            None => {
                tell(format!("someone removes {shown}"));
                std::fs::remove_file(&path)
            }
        };
        done.map_err(|error| format!("{shown}: {error}"))
    }
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A resource in the server's words.
pub(super) fn resource(kind: &str, api_version: Option<&str>) -> String {
    let group = api_version.and_then(|version| version.split_once('/')).map(|(group, _)| group);
    group.map_or_else(|| kind.to_owned(), |group| format!("{kind}.{group}"))
}

fn object(kind: &str, api_version: Option<&str>, name: &str, namespace: Option<&str>) -> ObjectName {
    ObjectName { resource: resource(kind, api_version), namespace: namespace.map(str::to_owned), name: name.to_owned() }
}

impl From<&ObjectRef> for ObjectName {
    fn from(from: &ObjectRef) -> Self {
        object(&from.kind, from.api_version.as_deref(), &from.name, from.namespace.as_deref())
    }
}

/// A taint in kubectl's words.
pub(super) fn taint(text: &str) -> Result<Value, String> {
    let wrong = || format!("taint: `{text}` is no taint; write it as `key=value:NoSchedule`");
    let (key, effect) = text.rsplit_once(':').ok_or_else(wrong)?;
    let (key, value) = key.split_once('=').unwrap_or((key, ""));
    if key.is_empty() || !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        return Err(wrong());
    }
    let mut taint = json!({"key": key, "effect": effect});
    if !value.is_empty() {
        taint["value"] = value.into();
    }
    Ok(taint)
}

/// Whether a taint is the one that `key` or `key:effect` means.
pub(super) fn is_taint(taint: &Value, text: &str) -> bool {
    match text.rsplit_once(':') {
        Some((key, effect)) => taint["key"] == key && taint["effect"] == effect,
        None => taint["key"] == text,
    }
}

fn matching(target: &FaultTarget) -> Matching {
    Matching {
        verb: target.verb,
        resource: target.resource.clone(),
        subresource: target.subresource.clone(),
        name: target.name.clone(),
        ..Matching::any()
    }
}

fn requests(target: &FaultTarget) -> String {
    let verb = target.verb.map_or_else(|| "requests".to_owned(), |verb| verb.as_str().to_uppercase());
    let parts = [&target.resource, &target.name, &target.subresource].into_iter().flatten();
    let what: Vec<&str> = parts.map(String::as_str).filter(|part| !part.is_empty()).collect();
    if what.is_empty() { verb } else { format!("{verb} {}", what.join("/")) }
}

fn answer(status: &StatusFault) -> Answer {
    let answer = match &status.body {
        Some(body) => Answer::text(status.code, body.clone()),
        None => Answer::status(status.code, &status.reason, &status.message),
    };
    Answer { retry_after: status.retry_after, ..answer }
}

/// A disturbance in the server's words, and for people.
fn disturbance(step: &FaultStep) -> (Fault, String) {
    let after = step.stream.and_then(|stream| stream.after).map_or(Duration::ZERO, |after| after.0);
    let stream = |interruption| Effect::Stream { after, interruption };
    let (effect, what) = if let Some(status) = &step.status {
        (Effect::Answer(answer(status)), format!("answered with {}", status.code))
    } else if let Some(status) = &step.error_event {
        (stream(Interruption::Error(answer(status))), format!("begun with an error event {}", status.code))
    } else if let Some(end) = step.stream {
        match end.is {
            StreamEnd::Closed => (stream(Interruption::Close), format!("closed after {after:?}")),
            StreamEnd::Silent => (stream(Interruption::Silence), format!("silent after {after:?}")),
        }
    } else {
        match step.lost {
            Some(Lost::Request) => (Effect::LostRequest, "lost".to_owned()),
            Some(Lost::Answer) => (Effect::LostAnswer, "done, and the answer lost".to_owned()),
            None => (Effect::None, format!("delayed by {:?}", step.delay.map_or(Duration::ZERO, |delay| delay.0))),
        }
    };
    let before = step.delay.map_or(Duration::ZERO, |delay| delay.0);
    let fault = Fault { before, ..Fault::once(matching(&step.on), effect).times(step.times) };
    let which = if step.times == 1 { "the next".to_owned() } else { format!("the next {}", step.times) };
    (fault, format!("{which} {} will be {what}", requests(&step.on)))
}
