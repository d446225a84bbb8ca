//! What an observation of the own Node means: adoption before there is an assignment, projection and drift after it.

use crate::event::{Binding, ExitCode, Observation, Outcome, Question, Verdict};
use crate::floors;
use crate::ledger::PolicyEnd;
use crate::life::{Adopted, Life};
use crate::note::Note;
use crate::objects::{Assignment, Node};

/// Ends for no change within [`GUARD_WINDOW_MS`] after which a binding's `drifted` is ignored.
const GUARDED_ENDS: usize = 3;
const GUARD_WINDOW_MS: i64 = 10 * 60 * 1000;

/// What the last observation comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Assessment {
    /// A question is under way, or a failed policy holds.
    Open(String),
    /// No drift. `tolerated`: the projection that a granted binding tolerates.
    Clear { tolerated: Option<(Option<Assignment>, String)> },
    /// The process has to end.
    Drift { code: ExitCode, reason: String, policy: Option<Binding> },
}

impl Life {
    pub(super) fn drive_assessment(&mut self) {
        let Some(node) = self.node_view() else { return };
        if self.settled() {
            return;
        }
        self.ask(|life| &mut life.projection, &node, Question::Adopt);
        if self.adopted.is_none() {
            self.adopt(&node);
        }
        let Some(adopted) = self.adopted.clone() else { return };
        if let Some(observation) = self.observation(&adopted, &node) {
            self.ask(|life| &mut life.drift, &observation, Question::Assess);
        }
        if let Assessment::Drift { code, reason, policy } = self.assess() {
            if let Some(binding) = policy {
                self.remember_policy_end(binding);
            }
            self.drifted(code, reason);
        }
    }

    fn adopt(&mut self, node: &Node) {
        if !self.node.validated {
            return;
        }
        let Some(Outcome::Decided(Verdict::Assigned { site, pool, reason }, _)) =
            self.projection.outcome(node).cloned()
        else {
            return;
        };
        if floors::assignment_problem(&site, pool.as_deref()).is_some() {
            return;
        }
        let assignment = Assignment { node_uid: node.uid.clone(), site, pool };
        self.note(Note::Adopted { assignment: assignment.clone(), reason: reason.clone() });
        self.adopted = Some(Adopted { assignment, node: node.clone(), reason });
    }

    /// The assignment that the adoption hook gives this Node: none of all where it was not answered, or failed.
    fn projected(&self, node: &Node) -> Option<Option<Assignment>> {
        match self.projection.outcome(node)? {
            Outcome::Decided(Verdict::Assigned { site, pool, .. }, _) => {
                Some(Some(Assignment { node_uid: node.uid.clone(), site: site.clone(), pool: pool.clone() }))
            }
            Outcome::Held(..) => None,
            _ => Some(None),
        }
    }

    fn observation(&self, adopted: &Adopted, node: &Node) -> Option<Observation> {
        Some(Observation {
            adopted: adopted.assignment.clone(),
            adopted_node: adopted.node.clone(),
            observed: node.clone(),
            projected: self.projected(node)?,
        })
    }

    /// What the last observation comes to, with the floors applied. A function of the facts alone.
    pub(super) fn assess(&self) -> Assessment {
        let (Some(adopted), Some(node)) = (&self.adopted, self.node_view()) else {
            return Assessment::Open("The own Node is not known.".into());
        };
        if node.uid != adopted.assignment.node_uid {
            let reason = format!(
                "Node {} was created again: its UID changed from {} to {}.",
                node.name, adopted.assignment.node_uid, node.uid
            );
            return Assessment::Drift { code: ExitCode::AssignmentChanged, reason, policy: None };
        }
        let Some(observation) = self.observation(adopted, &node) else {
            return Assessment::Open("The adoption policy has not said which assignment the Node has now.".into());
        };
        let change = floors::change(&adopted.assignment, observation.projected.as_ref());
        let drift = |reason: String| Assessment::Drift { code: ExitCode::AssignmentChanged, reason, policy: None };
        match (self.drift.outcome(&observation), change) {
            (None, _) => Assessment::Open("The drift policy has not answered yet.".into()),
            (Some(Outcome::NoBinding), None) => Assessment::Clear { tolerated: None },
            (Some(Outcome::NoBinding), Some(change)) => drift(change),
            (Some(Outcome::Held(binding, _)), Some(change)) if !binding.may_tolerate => drift(change),
            (Some(Outcome::Held(_, error)), _) => Assessment::Open(error.clone()),
            (Some(Outcome::Decided(Verdict::Drifted(reason), _)), Some(_)) => drift(reason.clone()),
            (Some(Outcome::Decided(Verdict::Drifted(reason), binding)), None) => {
                if self.is_ignored(binding) {
                    Assessment::Open(format!(
                        "The drift binding {} ended {GUARDED_ENDS} processes within 10 minutes although the assignment \
                         was unchanged, so its verdict is ignored until the policies change: {reason}",
                        binding.name
                    ))
                } else {
                    let reason = reason.clone();
                    let policy = Some(binding.clone());
                    Assessment::Drift { code: ExitCode::AssignmentChanged, reason, policy }
                }
            }
            (Some(Outcome::Decided(Verdict::Same(_), _)), None) => Assessment::Clear { tolerated: None },
            (Some(Outcome::Decided(Verdict::Same(reason), binding)), Some(_)) if binding.may_tolerate => {
                Assessment::Clear { tolerated: Some((observation.projected, reason.clone())) }
            }
            (Some(Outcome::Decided(_, _)), None) => {
                Assessment::Open("The drift hook gave a verdict of another hook.".into())
            }
            (Some(Outcome::Decided(_, binding)), Some(change)) => drift(format!(
                "{change} The drift binding {} would tolerate it, but was not granted mayTolerate.",
                binding.name
            )),
        }
    }

    /// Whether this binding ended enough processes for no change, by the ledger.
    fn is_ignored(&self, binding: &Binding) -> bool {
        let now_ms = self.wall_now_ms();
        let ends = self.ledger.policy_ends.iter().filter(|end| {
            end.binding == policy_end_name(binding) && (0..GUARD_WINDOW_MS).contains(&(now_ms - end.at_ms))
        });
        self.node.ignored_binding.as_ref() == Some(&policy_end_name(binding)) || ends.count() >= GUARDED_ENDS
    }

    /// Once ignored, always ignored until the policies change, although the ends in the ledger grow old.
    pub(super) fn guard_restarts(&mut self) {
        let Some(adopted) = &self.adopted else { return };
        let Some(node) = self.node_view() else { return };
        let Some(observation) = self.observation(adopted, &node) else { return };
        if let Some(Outcome::Decided(Verdict::Drifted(_), binding)) = self.drift.outcome(&observation)
            && floors::change(&observation.adopted, observation.projected.as_ref()).is_none()
            && self.is_ignored(binding)
        {
            let name = policy_end_name(binding);
            if self.node.ignored_binding.as_ref() != Some(&name) {
                let message = format!(
                    "The drift binding {} ended process after process although the assignment was unchanged. Its verdict is ignored until the policies change.",
                    binding.name
                );
                self.node.ignored_binding = Some(name);
                self.trouble(crate::event::TroubleReason::PolicyRestartLoop, message);
            }
        }
    }

    fn remember_policy_end(&mut self, binding: Binding) {
        let at_ms = self.wall_now_ms();
        self.ledger.policy_ends.retain(|end| (0..GUARD_WINDOW_MS).contains(&(at_ms - end.at_ms)));
        self.ledger.policy_ends.push(PolicyEnd { binding: policy_end_name(&binding), at_ms });
    }

    pub(super) fn wall_now_ms(&self) -> i64 {
        self.wall_ms.saturating_add(i64::try_from(self.now.as_millis()).unwrap_or(i64::MAX))
    }
}

/// A binding with another policy behind it is another binding: the policies changed.
fn policy_end_name(binding: &Binding) -> String {
    format!("{}@{}", binding.name, binding.digest)
}
