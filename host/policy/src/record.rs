//! A record of every call, for whoever wants to listen: a log, a journal, a table. Nothing is serialized before it is asked
//! for, and without a listener nothing happens at all.

use std::time::Duration;

use serde::{Serialize, Serializer, ser::SerializeStruct};
use serde_json::Value;

use crate::{Binding, CallError, CallOutcome, Digest, Hook, Limits, Logs, Policy, Reply, Trouble};

/// Hears of every call that the bindings of a set make, on the thread that made it and right after it.
pub trait Observer: Send + Sync {
    /// A call is over.
    fn called(&self, record: &CallRecord<'_>);

    /// A binding was asked and not called: its policy was refused, or rests.
    fn not_called(&self, binding: &Binding, trouble: &Trouble) {
        let _ = (binding, trouble);
    }
}

impl<F: Fn(&CallRecord<'_>) + Send + Sync> Observer for F {
    fn called(&self, record: &CallRecord<'_>) {
        self(record);
    }
}

/// One call: what it was asked, under which settings, and what came of it. The same component given the same input, settings
/// and limits gives the same outcome and uses the same fuel.
///
/// As JSON it is an object with the fields `hook`, `binding`, `policy`, `digest`, `settings` (the text that the policy was
/// given), `input`, `outcome` (`{"verdict": …}`, `"not-applicable"` or `{"failed": {"kind": …, "text": …}}`), `fuel`,
/// `elapsed-us` and `logs`: what a replay needs, and what it has to come to.
pub struct CallRecord<'a> {
    /// The hook.
    pub hook: &'static str,
    /// The binding's name.
    pub binding: &'a str,
    /// The policy's name.
    pub policy: &'a str,
    /// SHA-256 of the component.
    pub digest: Digest,
    /// The settings, as JSON.
    pub settings: &'a str,
    /// The limits of the call.
    pub limits: &'a Limits,
    /// What came of it.
    pub outcome: RecordedOutcome<'a>,
    /// Units of fuel used.
    pub fuel: u64,
    /// Wall-clock time.
    pub elapsed: Duration,
    /// What the policy logged.
    pub logs: &'a Logs,
    input: &'a dyn Json,
}

/// What came of a recorded call.
pub enum RecordedOutcome<'a> {
    /// A verdict.
    Verdict {
        /// Its reason.
        reason: &'a str,
        /// The verdict itself.
        verdict: Recorded<'a>,
    },
    /// No opinion.
    NotApplicable,
    /// No answer.
    Failed(&'a CallError),
}

/// A value that is turned into JSON only when it is wanted.
pub struct Recorded<'a>(&'a dyn Json);

impl Recorded<'_> {
    /// The value as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        self.0.to_json()
    }
}

trait Json {
    fn to_json(&self) -> Value;
}

impl<T: Serialize> Json for T {
    fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

impl<'a> CallRecord<'a> {
    pub(crate) fn new<H: Hook>(
        binding: &'a Binding,
        policy: &'a Policy,
        input: &'a H::Input,
        outcome: &'a CallOutcome<H::Verdict>,
    ) -> Self {
        Self {
            hook: H::NAME,
            binding: binding.name(),
            policy: policy.name(),
            digest: policy.digest(),
            settings: binding.settings(),
            limits: policy.limits(),
            outcome: match &outcome.result {
                Ok(Reply::Verdict(verdict)) => {
                    RecordedOutcome::Verdict { reason: H::reason(verdict), verdict: Recorded(verdict) }
                }
                Ok(Reply::NotApplicable) => RecordedOutcome::NotApplicable,
                Err(error) => RecordedOutcome::Failed(error),
            },
            fuel: outcome.fuel,
            elapsed: outcome.elapsed,
            logs: &outcome.logs,
            input,
        }
    }

    /// What the policy was asked, as JSON; [`Policy::call_json`] takes it back.
    #[must_use]
    pub fn input(&self) -> Value {
        self.input.to_json()
    }
}

impl Serialize for CallRecord<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut record = serializer.serialize_struct("CallRecord", 10)?;
        record.serialize_field("hook", self.hook)?;
        record.serialize_field("binding", self.binding)?;
        record.serialize_field("policy", self.policy)?;
        record.serialize_field("digest", &self.digest)?;
        record.serialize_field("settings", self.settings)?;
        record.serialize_field("input", &self.input())?;
        record.serialize_field("outcome", &self.outcome)?;
        record.serialize_field("fuel", &self.fuel)?;
        record.serialize_field("elapsed-us", &self.elapsed.as_micros())?;
        record.serialize_field("logs", self.logs)?;
        record.end()
    }
}

impl Serialize for RecordedOutcome<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "kebab-case")]
        enum Outcome {
            Verdict(Value),
            NotApplicable,
            Failed { kind: &'static str, text: String },
        }
        match self {
            Self::Verdict { verdict, .. } => Outcome::Verdict(verdict.to_json()),
            Self::NotApplicable => Outcome::NotApplicable,
            Self::Failed(error) => Outcome::Failed { kind: error.kind(), text: error.to_string() },
        }
        .serialize(serializer)
    }
}
