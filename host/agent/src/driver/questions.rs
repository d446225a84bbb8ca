//! Questions of the life in the words of the contract, and verdicts back. A table of conversions: nothing is decided here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use moorline_lifecycle as life;
use moorline_lifecycle::{Outcome, PolicyAnswer, Question, Verdict};
use moorline_policy::hooks::{
    Acknowledgment, AcknowledgmentSubject, Adoption, AdoptionVerdict, Assignment, Attempt, Cni, CniSubject, CniVerdict,
    Drift, DriftVerdict, Node, Observation, Pool, Retry, RetryVerdict, Site, Taint, Taints, TaintsSubject,
};
use moorline_policy::{
    Answer, Asked, Binding, CallRecord, Decision, Hook, Observer, OnFailure, PolicySet, RecordedOutcome, Trouble,
};

use tokio::sync::mpsc::UnboundedSender;

use super::effects::Told;
use crate::journal::PolicyCall;

/// What asking came to.
pub(super) struct Asking {
    /// For the life.
    pub(super) answer: PolicyAnswer,
    /// The binding that decided.
    pub(super) by: Option<Arc<Binding>>,
    /// That nobody answers; all else is told by the set's observer.
    pub(super) unanswered: Option<PolicyCall>,
}

/// Whom to ask.
#[derive(Clone)]
pub(super) struct Policies {
    pub(super) set: Arc<PolicySet>,
    /// The binding that made the adoption: what the Node's assignment would be now is its to say, and nobody else's.
    pub(super) adopter: Option<Arc<Binding>>,
}

impl Policies {
    /// Asks the bindings of the question's hook. Blocks for as long as their deadlines allow.
    pub(super) fn ask(&self, question: &Question, now: Duration) -> Asking {
        match question {
            Question::Adopt(node) => self.ask_hook::<Adoption>(None, now, to_node(node), |verdict| match verdict {
                AdoptionVerdict::Assigned(assigned) => {
                    Verdict::Assigned { site: assigned.site, pool: assigned.pool, reason: assigned.reason }
                }
                AdoptionVerdict::Wait(reason) => Verdict::Wait(reason),
            }),
            Question::Assess(observation) => {
                let input = Observation {
                    adopted: to_assignment(&observation.adopted),
                    adopted_node: to_node(&observation.adopted_node),
                    observed: to_node(&observation.observed),
                    projected: observation.projected.as_ref().map(to_assignment),
                    extra: Vec::new(),
                };
                self.ask_hook::<Drift>(Some(&observation.adopted.site), now, input, |verdict| match verdict {
                    DriftVerdict::Same(reason) => Verdict::Same(reason),
                    DriftVerdict::Drifted(reason) => Verdict::Drifted(reason),
                })
            }
            Question::Pause(attempt) => {
                let input = to_attempt(attempt);
                self.ask_hook::<Retry>(attempt.site.as_deref(), now, input, |verdict| match verdict {
                    RetryVerdict::Wait(pause) => Verdict::Pause(Duration::from_millis(pause.after_ms), pause.reason),
                    RetryVerdict::GiveUp(reason) => Verdict::GiveUp(reason),
                })
            }
            Question::Unwanted(subject) => {
                let (adopted, node) = (to_assignment(&subject.adopted), to_node(&subject.node));
                let input = TaintsSubject { adopted, node, extra: Vec::new() };
                self.ask_hook::<Taints>(Some(&subject.adopted.site), now, input, |verdict| {
                    let unwanted = verdict.unwanted.into_iter().map(|removal| (removal.key, removal.effect));
                    Verdict::Unwanted(unwanted.collect(), verdict.reason)
                })
            }
            Question::Render(subject) => {
                let input = CniSubject {
                    adopted: to_assignment(&subject.adopted),
                    node: to_node(&subject.node),
                    site: to_site(&subject.site),
                    pool: subject.pool.as_ref().map(to_pool),
                    extra: Vec::new(),
                };
                self.ask_hook::<Cni>(Some(&subject.adopted.site), now, input, |verdict| match verdict {
                    CniVerdict::Managed(managed) => Verdict::Managed(managed.conflist, managed.reason),
                    CniVerdict::Unmanaged(reason) => Verdict::Unmanaged(reason),
                    CniVerdict::Wait(reason) => Verdict::Wait(reason),
                })
            }
            Question::Annotate(subject) => {
                let (adopted, node) = (to_assignment(&subject.adopted), to_node(&subject.node));
                let input = AcknowledgmentSubject { adopted, node, extra: Vec::new() };
                self.ask_hook::<Acknowledgment>(Some(&subject.adopted.site), now, input, |verdict| {
                    Verdict::Annotations(verdict.annotations.into_iter().collect(), verdict.reason)
                })
            }
        }
    }

    fn ask_hook<H: Hook>(
        &self,
        site: Option<&str>,
        now: Duration,
        input: H::Input,
        verdict_of: impl FnOnce(H::Verdict) -> Verdict,
    ) -> Asking {
        let Answer { decision, passed_over } = match &self.adopter {
            Some(adopter) if adopter.hook() == H::NAME => ask_alone::<H>(adopter, now, &input),
            _ => self.set.ask::<H>(&input, site, now),
        };
        let mut by = None;
        let outcome = match decision {
            Decision::Decided { verdict, by: binding } => {
                let outcome = Outcome::Decided(verdict_of(verdict), self.binding(&binding));
                by = Some(binding);
                outcome
            }
            Decision::NoBinding => Outcome::NoBinding,
            Decision::Held(trouble) => Outcome::Held(self.holder(&trouble), trouble.to_string()),
        };
        let unanswered = (outcome == Outcome::NoBinding).then(|| unanswered(H::NAME));
        let passed_over = passed_over.iter().map(ToString::to_string).collect();
        Asking { answer: PolicyAnswer { outcome, passed_over }, by, unanswered }
    }

    fn binding(&self, binding: &Binding) -> life::Binding {
        life::Binding {
            name: binding.name().to_owned(),
            digest: binding.policy().map(|policy| policy.digest().to_string()).unwrap_or_default(),
            may_tolerate: binding.grants().may_tolerate,
            plugin_types: binding.grants().permits.clone(),
        }
    }

    fn holder(&self, trouble: &Trouble) -> life::Binding {
        let is_it = |binding: &&Arc<Binding>| binding.hook() == trouble.hook && binding.name() == trouble.binding;
        match self.set.bindings().find(is_it) {
            Some(binding) => self.binding(binding),
            None => life::Binding {
                name: trouble.binding.clone(),
                digest: String::new(),
                may_tolerate: false,
                plugin_types: Default::default(),
            },
        }
    }
}

fn ask_alone<H: Hook>(binding: &Arc<Binding>, now: Duration, input: &H::Input) -> Answer<H::Verdict> {
    let mut passed_over = Vec::new();
    let decision = match binding.ask::<H>(input, now) {
        Asked::Verdict(verdict) => Decision::Decided { verdict, by: binding.clone() },
        Asked::NotApplicable => Decision::NoBinding,
        Asked::Failed(trouble) if binding.on_failure() == OnFailure::Hold => Decision::Held(trouble),
        Asked::Failed(trouble) => {
            passed_over.push(trouble);
            Decision::NoBinding
        }
    };
    Answer { decision, passed_over }
}

fn unanswered(hook: &'static str) -> PolicyCall {
    PolicyCall {
        hook,
        binding: None,
        policy: None,
        digest: None,
        outcome: "no-binding",
        verdict: "no-binding".into(),
        reason: "No binding answers.".into(),
        fuel: 0,
        took: Duration::ZERO,
    }
}

/// Tells the driver of every binding that is asked, in their order.
pub(super) struct Listener(pub(super) UnboundedSender<Told>);

impl Observer for Listener {
    fn called(&self, record: &CallRecord<'_>) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            // Nothing in a record is a map with keys other than text, the one thing that JSON can't hold.
            let whole = serde_json::to_string(record).unwrap_or_default();
            tracing::debug!(record = whole, "Policy called");
        }
        // A driver that is gone has nobody to tell, here and below.
        let _ = self.0.send(Told::Policy(called(record)));
    }

    fn not_called(&self, binding: &Binding, trouble: &Trouble) {
        let policy = binding.policy().ok();
        let kind = trouble.cause.kind();
        let _ = self.0.send(Told::Policy(PolicyCall {
            binding: Some(binding.name().to_owned()),
            policy: policy.map(|policy| policy.name().to_owned()),
            digest: policy.map(|policy| policy.digest().to_string()),
            outcome: kind,
            verdict: kind.to_owned(),
            reason: trouble.to_string(),
            ..unanswered(binding.hook())
        }));
    }
}

fn called(record: &CallRecord<'_>) -> PolicyCall {
    let (outcome, verdict, reason) = match &record.outcome {
        RecordedOutcome::Verdict { reason, verdict } => ("decided", word(record.hook, &verdict.to_json()), *reason),
        RecordedOutcome::NotApplicable => ("not-applicable", "not-applicable".into(), "It has no opinion here."),
        RecordedOutcome::Failed(error) => {
            return PolicyCall { reason: error.to_string(), ..heard(record, error.kind(), error.kind().into()) };
        }
    };
    PolicyCall { reason: reason.to_owned(), ..heard(record, outcome, verdict) }
}

fn heard(record: &CallRecord<'_>, outcome: &'static str, verdict: String) -> PolicyCall {
    PolicyCall {
        binding: Some(record.binding.to_owned()),
        policy: Some(record.policy.to_owned()),
        digest: Some(record.digest.to_string()),
        outcome,
        verdict,
        fuel: record.fuel,
        took: record.elapsed,
        ..unanswered(record.hook)
    }
}

/// A verdict in a word: the case of a variant, or what the record is about.
fn word(hook: &str, verdict: &serde_json::Value) -> String {
    match hook {
        "taints" => "unwanted".into(),
        "acknowledgment" => "annotations".into(),
        _ => verdict.as_object().and_then(|cases| cases.keys().next()).cloned().unwrap_or_else(|| "decided".into()),
    }
}

fn entries(map: &BTreeMap<String, String>) -> Vec<(String, String)> {
    map.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn to_attempt(attempt: &life::Attempt) -> Attempt {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Attempt {
        operation: attempt.operation.as_str().into(),
        failure: attempt.failure.as_str().into(),
        number: attempt.number,
        elapsed_ms: millis(attempt.elapsed),
        retry_after_ms: attempt.retry_after.map(millis),
        jitter: attempt.jitter,
        extra: Vec::new(),
    }
}

fn to_node(node: &life::Node) -> Node {
    let taints = node.taints.iter().map(|taint| Taint {
        key: taint.key.clone(),
        value: taint.value.clone(),
        effect: taint.effect.clone(),
        time_added: taint.time_added.clone(),
    });
    Node {
        name: node.name.clone(),
        uid: node.uid.clone(),
        labels: entries(&node.labels),
        annotations: entries(&node.annotations),
        taints: taints.collect(),
        pod_cidrs: node.pod_cidrs.clone(),
        deleting: node.deleting,
        extra: Vec::new(),
    }
}

fn to_assignment(assignment: &life::Assignment) -> Assignment {
    Assignment {
        node_uid: assignment.node_uid.clone(),
        site: assignment.site.clone(),
        pool: assignment.pool.clone(),
        extra: Vec::new(),
    }
}

fn to_site(site: &life::Site) -> Site {
    Site {
        name: site.name.clone(),
        labels: entries(&site.labels),
        manage_cni: site.manage_cni,
        spec: site.spec.clone(),
        extra: Vec::new(),
    }
}

fn to_pool(pool: &life::Pool) -> Pool {
    Pool { name: pool.name.clone(), labels: entries(&pool.labels), spec: pool.spec.clone(), extra: Vec::new() }
}
