//! Questions of the life in the words of the contract, and verdicts back. A table of conversions: nothing is decided here.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use moorline_lifecycle as life;
use moorline_lifecycle::{Outcome, PolicyAnswer, Question, Verdict};
use moorline_policy::hooks::{
    Acknowledgment, AcknowledgmentSubject, Adoption, AdoptionVerdict, Assignment, Attempt, Cni, CniSubject, CniVerdict,
    Drift, DriftVerdict, Node, Observation, Pool, Retry, RetryVerdict, Site, Taint, Taints, TaintsSubject,
};
use moorline_policy::{Answer, Binding, Decision, Hook, PolicySet, Trouble};

use super::PluginTypes;
use crate::journal::PolicyCall;

/// Asks the bindings of the question's hook. Blocks for as long as their deadlines allow.
pub(super) fn ask(
    set: &PolicySet,
    plugin_types: &PluginTypes,
    question: &Question,
    now: Duration,
) -> (PolicyAnswer, PolicyCall) {
    let asking = Asking { set, plugin_types, now, hook: question.hook() };
    match question {
        Question::Adopt(node) => asking.ask::<Adoption>(None, to_node(node), |verdict| match verdict {
            AdoptionVerdict::Assigned(assigned) => {
                ("assigned", Verdict::Assigned { site: assigned.site, pool: assigned.pool, reason: assigned.reason })
            }
            AdoptionVerdict::Wait(reason) => ("wait", Verdict::Wait(reason)),
        }),
        Question::Assess(observation) => {
            let input = Observation {
                adopted: to_assignment(&observation.adopted),
                adopted_node: to_node(&observation.adopted_node),
                observed: to_node(&observation.observed),
                projected: observation.projected.as_ref().map(to_assignment),
                extra: Vec::new(),
            };
            asking.ask::<Drift>(Some(&observation.adopted.site), input, |verdict| match verdict {
                DriftVerdict::Same(reason) => ("same", Verdict::Same(reason)),
                DriftVerdict::Drifted(reason) => ("drifted", Verdict::Drifted(reason)),
            })
        }
        Question::Pause(attempt) => {
            let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            let input = Attempt {
                operation: attempt.operation.as_str().into(),
                failure: attempt.failure.as_str().into(),
                number: attempt.number,
                elapsed_ms: millis(attempt.elapsed),
                retry_after_ms: attempt.retry_after.map(millis),
                jitter: attempt.jitter,
                extra: Vec::new(),
            };
            asking.ask::<Retry>(attempt.site.as_deref(), input, |verdict| match verdict {
                RetryVerdict::Wait(pause) => {
                    ("wait", Verdict::Pause(Duration::from_millis(pause.after_ms), pause.reason))
                }
                RetryVerdict::GiveUp(reason) => ("give-up", Verdict::GiveUp(reason)),
            })
        }
        Question::Unwanted(subject) => {
            let input = TaintsSubject {
                adopted: to_assignment(&subject.adopted),
                node: to_node(&subject.node),
                extra: Vec::new(),
            };
            asking.ask::<Taints>(Some(&subject.adopted.site), input, |verdict| {
                let unwanted = verdict.unwanted.into_iter().map(|removal| (removal.key, removal.effect)).collect();
                ("unwanted", Verdict::Unwanted(unwanted, verdict.reason))
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
            asking.ask::<Cni>(Some(&subject.adopted.site), input, |verdict| match verdict {
                CniVerdict::Managed(managed) => ("managed", Verdict::Managed(managed.conflist, managed.reason)),
                CniVerdict::Unmanaged(reason) => ("unmanaged", Verdict::Unmanaged(reason)),
                CniVerdict::Wait(reason) => ("wait", Verdict::Wait(reason)),
            })
        }
        Question::Annotate(subject) => {
            let input = AcknowledgmentSubject {
                adopted: to_assignment(&subject.adopted),
                node: to_node(&subject.node),
                extra: Vec::new(),
            };
            asking.ask::<Acknowledgment>(Some(&subject.adopted.site), input, |verdict| {
                ("annotations", Verdict::Annotations(verdict.annotations.into_iter().collect(), verdict.reason))
            })
        }
    }
}

struct Asking<'a> {
    set: &'a PolicySet,
    plugin_types: &'a PluginTypes,
    now: Duration,
    hook: &'static str,
}

impl Asking<'_> {
    fn ask<H: Hook>(
        &self,
        site: Option<&str>,
        input: H::Input,
        verdict_of: impl FnOnce(H::Verdict) -> (&'static str, Verdict),
    ) -> (PolicyAnswer, PolicyCall) {
        let started = Instant::now();
        let Answer { decision, passed_over } = self.set.ask::<H>(&input, site, self.now);
        let took = started.elapsed();
        let passed_over = passed_over.iter().map(ToString::to_string).collect();
        let call = |binding: Option<&life::Binding>, verdict, reason: &str| PolicyCall {
            hook: self.hook,
            binding: binding.map(|binding| binding.name.clone()),
            digest: binding.map(|binding| binding.digest.clone()),
            verdict,
            reason: reason.to_owned(),
            took,
        };
        let (outcome, call) = match decision {
            Decision::Decided { verdict, by } => {
                let by = self.binding(&by);
                let reason = H::reason(&verdict).to_owned();
                let (word, verdict) = verdict_of(verdict);
                let call = call(Some(&by), word, &reason);
                (Outcome::Decided(verdict, by), call)
            }
            Decision::NoBinding => (Outcome::NoBinding, call(None, "no-binding", "No binding answers.")),
            Decision::Held(trouble) => {
                let by = self.holder(&trouble);
                let error = trouble.to_string();
                let call = call(Some(&by), "held", &error);
                (Outcome::Held(by, error), call)
            }
        };
        (PolicyAnswer { outcome, passed_over }, call)
    }

    fn binding(&self, binding: &Binding) -> life::Binding {
        life::Binding {
            name: binding.name().to_owned(),
            digest: binding.policy().map(|policy| policy.digest().to_string()).unwrap_or_default(),
            may_tolerate: binding.grants().may_tolerate,
            plugin_types: self.plugin_types.get(binding.name()).cloned().unwrap_or_default(),
        }
    }

    fn holder(&self, trouble: &Trouble) -> life::Binding {
        let holder = self.set.bindings().find(|b| b.hook() == trouble.hook && b.name() == trouble.binding);
        holder.map_or_else(
            || life::Binding {
                name: trouble.binding.clone(),
                digest: String::new(),
                may_tolerate: false,
                plugin_types: Default::default(),
            },
            |binding| self.binding(binding),
        )
    }
}

fn entries(map: &BTreeMap<String, String>) -> Vec<(String, String)> {
    map.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn to_node(node: &life::Node) -> Node {
    Node {
        name: node.name.clone(),
        uid: node.uid.clone(),
        labels: entries(&node.labels),
        annotations: entries(&node.annotations),
        taints: node
            .taints
            .iter()
            .map(|taint| Taint {
                key: taint.key.clone(),
                value: taint.value.clone(),
                effect: taint.effect.clone(),
                time_added: taint.time_added.clone(),
            })
            .collect(),
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
