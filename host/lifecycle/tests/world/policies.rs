//! What the bindings of each hook answer: as the default policy would, or in a way that no good policy would.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use moorline_lifecycle::{
    Attempt, Binding, CniSubject, FailureKind, Node, Observation, Outcome, PolicyAnswer, Question, Subject, Verdict,
};
use serde_json::json;

use super::api::{GATEWAY_TAINT, POOL_LABEL, SITE_LABEL};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Adoption {
    #[default]
    Default,
    Nonsense,
    NoBinding,
    Held,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Drift {
    #[default]
    Default,
    AlwaysDrifted,
    AlwaysSame,
    MayTolerate,
    NoBinding,
    Held,
    HeldMayTolerate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Retry {
    #[default]
    Default,
    AtOnce,
    Hour,
    GiveUp,
    NoBinding,
    Held,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Taints {
    #[default]
    Default,
    Everything,
    Nothing,
    NoBinding,
    Held,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Cni {
    #[default]
    Default,
    Evil,
    Broken,
    Wait,
    Unmanaged,
    NoBinding,
    Held,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Acknowledgment {
    #[default]
    Default,
    Rack,
    HostsKey,
    NoBinding,
    Held,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Policies {
    pub adoption: Adoption,
    pub drift: Drift,
    pub retry: Retry,
    pub taints: Taints,
    pub cni: Cni,
    pub acknowledgment: Acknowledgment,
}

pub fn binding(name: &str) -> Binding {
    Binding { name: name.into(), digest: "d1".into(), may_tolerate: false, plugin_types: BTreeSet::new() }
}

fn held(name: &str) -> Outcome {
    Outcome::Held(binding(name), "It trapped.".into())
}

fn decided(verdict: Verdict) -> Outcome {
    Outcome::Decided(verdict, binding("default"))
}

pub fn answer(outcome: Outcome) -> PolicyAnswer {
    PolicyAnswer { outcome, passed_over: Vec::new() }
}

/// The assignment's names that the default adoption policy gives this Node.
pub fn assigned(node: &Node) -> Option<(String, Option<String>)> {
    let site = node.labels.get(SITE_LABEL).filter(|site| !site.is_empty())?;
    Some((site.clone(), node.labels.get(POOL_LABEL).cloned()))
}

/// The configuration that the default cni policy gives.
pub fn conflist(subject: &CniSubject) -> String {
    let ranges: Vec<_> = subject.node.pod_cidrs.iter().map(|cidr| json!([{ "subnet": cidr }])).collect();
    json!({ "cniVersion": "1.0.0", "name": "unbounded-net", "plugins": [{
        "type": "bridge", "bridge": "cbr0", "isGateway": true, "mtu": 1400 + subject.site.generation,
        "ipam": { "type": "host-local", "ranges": ranges, "routes": [{ "dst": "0.0.0.0/0" }] },
    }] })
    .to_string()
}

impl Policies {
    pub fn answer(&self, question: &Question) -> PolicyAnswer {
        answer(match question {
            Question::Adopt(node) => self.adopt(node),
            Question::Assess(observation) => self.assess(observation),
            Question::Pause(attempt) => self.pause(attempt),
            Question::Unwanted(subject) => self.unwanted(subject),
            Question::Render(subject) => self.render(subject),
            Question::Annotate(_) => self.annotate(),
        })
    }

    /// The binding trapped: it holds where its hook allows that.
    pub fn trap(question: &Question) -> PolicyAnswer {
        answer(match question {
            Question::Pause(_) | Question::Annotate(_) => {
                return PolicyAnswer { outcome: Outcome::NoBinding, passed_over: vec!["default: it trapped.".into()] };
            }
            _ => held("default"),
        })
    }

    fn adopt(&self, node: &Node) -> Outcome {
        match self.adoption {
            Adoption::Default => decided(match assigned(node) {
                Some((site, pool)) => Verdict::Assigned { site, pool, reason: "By its labels.".into() },
                None => Verdict::Wait("The Node has no Site label.".into()),
            }),
            Adoption::Nonsense => {
                decided(Verdict::Assigned { site: "../etc".into(), pool: None, reason: "Why not.".into() })
            }
            Adoption::NoBinding => Outcome::NoBinding,
            Adoption::Held => held("adopter"),
        }
    }

    fn assess(&self, observation: &Observation) -> Outcome {
        let same = Verdict::Same("Nothing that matters changed.".into());
        let drifted = Verdict::Drifted("It is not what it was.".into());
        let grant = |name| Binding { may_tolerate: true, ..binding(name) };
        match self.drift {
            Drift::Default if observation.projected.as_ref() == Some(&observation.adopted) => decided(same),
            Drift::Default => decided(drifted),
            Drift::AlwaysDrifted => Outcome::Decided(drifted, binding("nervous")),
            Drift::AlwaysSame => Outcome::Decided(same, binding("blind")),
            Drift::MayTolerate => Outcome::Decided(same, grant("tolerant")),
            Drift::NoBinding => Outcome::NoBinding,
            Drift::Held => held("assessor"),
            Drift::HeldMayTolerate => Outcome::Held(grant("tolerant"), "It trapped.".into()),
        }
    }

    fn pause(&self, attempt: &Attempt) -> Outcome {
        let pause = |wait| decided(Verdict::Pause(wait, "Backoff.".into()));
        match self.retry {
            Retry::Default => {
                let conflict = attempt.failure == FailureKind::Conflict;
                let missing = attempt.failure == FailureKind::NotFound
                    && attempt.operation == moorline_lifecycle::Operation::Advertisement;
                if attempt.operation.is_nested() && !missing && !(conflict && attempt.number < 6) {
                    return decided(Verdict::GiveUp("Reconciliation is tried again as a whole.".into()));
                }
                let ceiling = Duration::from_millis(200 << attempt.number.min(8)).min(Duration::from_secs(60));
                let wait = ceiling.mul_f64(f64::from(attempt.jitter) / f64::from(u32::MAX));
                pause(wait.max(attempt.retry_after.unwrap_or_default()))
            }
            Retry::AtOnce => pause(Duration::ZERO),
            Retry::Hour => pause(Duration::from_secs(3600)),
            Retry::GiveUp => decided(Verdict::GiveUp("No more.".into())),
            Retry::NoBinding => Outcome::NoBinding,
            Retry::Held => held("waiter"),
        }
    }

    fn unwanted(&self, subject: &Subject) -> Outcome {
        let some = |taints: BTreeSet<_>| decided(Verdict::Unwanted(taints, "Because.".into()));
        let gateway = [(GATEWAY_TAINT.to_owned(), "NoSchedule".to_owned())];
        match self.taints {
            Taints::Default if subject.adopted.is_gateway() => some(BTreeSet::new()),
            Taints::Default => some(gateway.into()),
            Taints::Everything => some(
                subject
                    .node
                    .taints
                    .iter()
                    .map(|taint| (taint.key.clone(), taint.effect.clone()))
                    .chain(gateway)
                    .collect(),
            ),
            Taints::Nothing => some(BTreeSet::new()),
            Taints::NoBinding => Outcome::NoBinding,
            Taints::Held => held("remover"),
        }
    }

    fn render(&self, subject: &CniSubject) -> Outcome {
        match self.cni {
            Cni::Default if subject.site.manage_cni == Some(false) => {
                decided(Verdict::Unmanaged("The Site says so.".into()))
            }
            Cni::Default if subject.node.pod_cidrs.is_empty() => decided(Verdict::Wait("No podCIDRs yet.".into())),
            Cni::Default => decided(Verdict::Managed(conflist(subject), "The Site's.".into())),
            Cni::Evil => {
                let evil = conflist(subject).replace("bridge", "evil");
                Outcome::Decided(Verdict::Managed(evil, "Trust me.".into()), binding("renderer"))
            }
            Cni::Broken => decided(Verdict::Managed("{\"evil\":".into(), "Oh.".into())),
            Cni::Wait => decided(Verdict::Wait("Not yet.".into())),
            Cni::Unmanaged => decided(Verdict::Unmanaged("Someone else does.".into())),
            Cni::NoBinding => Outcome::NoBinding,
            Cni::Held => held("renderer"),
        }
    }

    fn annotate(&self) -> Outcome {
        let some = |key: &str| {
            decided(Verdict::Annotations(BTreeMap::from([(key.into(), "7".into())]), "It is good to know.".into()))
        };
        match self.acknowledgment {
            Acknowledgment::Default => decided(Verdict::Annotations(BTreeMap::new(), "Nothing to add.".into())),
            Acknowledgment::Rack => some("moorline.dev/rack"),
            Acknowledgment::HostsKey => some(moorline_lifecycle::ACKNOWLEDGMENT_KEY),
            Acknowledgment::NoBinding => Outcome::NoBinding,
            Acknowledgment::Held => held("annotator"),
        }
    }
}
