//! Admission rules: what a `ValidatingAdmissionPolicy` or a webhook would say to a write that is otherwise valid.

use serde_json::Value;

use super::{
    Attributes, Matching, RuleId,
    resource::Resource,
    status::{self, Refusal},
};

/// A rule that denies writes.
#[derive(Clone, Debug)]
pub struct Admission {
    /// Which writes are looked at. Without a subresource only writes of the object itself are, as for a rule on `nodes`.
    pub matching: Matching,
    /// Only writes that change what this JSON pointer names, for example `/spec/taints`; `None` means all.
    pub changing: Option<String>,
    /// How many are denied; `None` means all until the rule is removed.
    pub times: Option<u32>,
    /// How they are denied.
    pub denial: Denial,
}

impl Admission {
    /// Denies every matching write.
    pub fn deny(matching: Matching, denial: Denial) -> Self {
        Self { matching, changing: None, times: None, denial }
    }

    /// Only where what the pointer names would change.
    #[must_use]
    pub fn changing(self, pointer: impl Into<String>) -> Self {
        Self { changing: Some(pointer.into()), ..self }
    }

    /// Only this many times.
    #[must_use]
    pub fn times(self, times: u32) -> Self {
        Self { times: Some(times), ..self }
    }
}

/// The form that a denial takes.
#[derive(Clone, Debug)]
pub enum Denial {
    /// A `ValidatingAdmissionPolicy`.
    Policy {
        /// The policy's name.
        policy: String,
        /// The binding's name.
        binding: String,
        /// The policy's own message.
        message: String,
        /// The policy's reason; without one it is `Invalid`.
        reason: PolicyReason,
    },
    /// A webhook that says no.
    Webhook {
        /// The webhook's name.
        name: String,
        /// Any code; below 400 it becomes 400, as in Kubernetes.
        code: u16,
        /// The reason of the Status, may be empty.
        reason: String,
        /// The webhook's own message, may be empty.
        message: String,
    },
    /// A webhook with `failurePolicy: Fail` that can't be reached.
    Unreachable {
        /// The webhook's name.
        name: String,
        /// What the connection said.
        cause: String,
    },
}

/// The reasons that a `ValidatingAdmissionPolicy` may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyReason {
    /// 422, the default.
    #[default]
    Invalid,
    /// 403.
    Forbidden,
    /// 401.
    Unauthorized,
    /// 413.
    RequestEntityTooLarge,
}

impl PolicyReason {
    fn code_and_word(self) -> (u16, &'static str) {
        match self {
            Self::Invalid => (422, "Invalid"),
            Self::Forbidden => (403, "Forbidden"),
            Self::Unauthorized => (401, "Unauthorized"),
            Self::RequestEntityTooLarge => (413, "RequestEntityTooLarge"),
        }
    }
}

impl Denial {
    /// A policy's denial with the default reason.
    pub fn policy(policy: impl Into<String>, message: impl Into<String>) -> Self {
        let policy = policy.into();
        Self::Policy { binding: policy.clone(), policy, message: message.into(), reason: PolicyReason::default() }
    }

    fn refusal(&self, resource: &Resource, name: &str) -> Refusal {
        match self {
            Self::Policy { policy, binding, message, reason } => {
                let (code, word) = reason.code_and_word();
                let text =
                    format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}");
                status::policy_denied(resource, name, code, word, text)
            }
            Self::Webhook { name, code, reason, message } => {
                let said = [message, reason].into_iter().find(|word| !word.is_empty());
                let text = match said {
                    Some(said) => format!("admission webhook {name:?} denied the request: {said}"),
                    None => format!("admission webhook {name:?} denied the request without explanation"),
                };
                status::webhook_denied((*code).max(400), reason, text)
            }
            Self::Unreachable { name, cause } => {
                status::internal(&format!("failed calling webhook {name:?}: failed to call webhook: {cause}"))
            }
        }
    }

    /// How audit records name it.
    fn describe(&self) -> String {
        match self {
            Self::Policy { policy, .. } => format!("denied by policy {policy}"),
            Self::Webhook { name, .. } => format!("denied by webhook {name}"),
            Self::Unreachable { name, .. } => format!("webhook {name} unreachable"),
        }
    }
}

/// A denial, and how audit records name it.
pub(crate) struct Denied {
    pub(crate) refusal: Refusal,
    pub(crate) verdict: String,
}

#[derive(Default)]
pub(crate) struct AdmissionRules {
    rules: Vec<(RuleId, Admission)>,
    next: u64,
}

impl AdmissionRules {
    pub(crate) fn add(&mut self, rule: Admission) -> RuleId {
        self.next += 1;
        self.rules.push((RuleId(self.next), rule));
        RuleId(self.next)
    }

    pub(crate) fn remove(&mut self, id: RuleId) {
        self.rules.retain(|(known, _)| *known != id);
    }

    pub(crate) fn check(
        &mut self,
        resource: &Resource,
        request: &Attributes,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Result<(), Denied> {
        let meant = |rule: &Admission| {
            let subresource = rule.matching.subresource.is_some() || request.subresource.is_empty();
            let changed = rule.changing.as_ref().is_none_or(|pointer| {
                old.and_then(|old| old.pointer(pointer)) != new.and_then(|new| new.pointer(pointer))
            });
            rule.times != Some(0) && subresource && changed && rule.matching.matches(request)
        };
        let Some((_, rule)) = self.rules.iter_mut().find(|(_, rule)| meant(rule)) else { return Ok(()) };
        if let Some(times) = &mut rule.times {
            *times -= 1;
        }
        Err(Denied { refusal: rule.denial.refusal(resource, &request.name), verdict: rule.denial.describe() })
    }
}
