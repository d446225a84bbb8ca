//! The story of a process as entries of a scenario's timeline: notes of the life by their own words, the boot, and policies
//! with their verdicts. Events and actions stay out: what they come to shows in notes and in the server's records.

use std::time::Duration;

use moorline_lifecycle::{Action, Note, State, Status};
use moorline_sim::scenario;
use serde_json::{Map, Value, json};

use crate::journal::{Boot, Entry, Journal};

/// Tells a scenario's timeline what a process tells its journal.
pub(super) struct Story {
    timeline: scenario::Journal,
}

impl Story {
    pub(super) fn new(timeline: scenario::Journal) -> Self {
        Self { timeline }
    }

    fn say(&self, kind: &str, text: &str) {
        self.timeline.entry(kind, text, Map::new());
    }

    fn boot(&self, boot: &Boot<'_>) {
        match boot {
            // The port is any free one: it is not part of the story.
            Boot::HealthUp(_) => self.say("health-up", "Health is served."),
            Boot::Waiting(reason) => self.say("boot-waiting", reason),
            Boot::Locked => self.say("locked", "The lock of the state folder is held."),
            Boot::Policies { loaded, refused, warnings } => {
                let names: Vec<&str> = loaded.iter().map(|(name, _)| name.as_str()).collect();
                let fields = Map::from_iter([("policies".to_owned(), json!(names))]);
                self.timeline.entry("policies-loaded", format!("Policies are loaded: {}.", names.join(", ")), fields);
                refused.iter().for_each(|refusal| self.say("policy-refused", refusal));
                warnings.iter().for_each(|warning| self.say("policy-warning", warning));
            }
            Boot::Ledger(what) => self.say("ledger", what),
        }
    }

    fn note(&self, note: &Note) {
        let Ok(Value::Object(mut fields)) = serde_json::to_value(note) else { return };
        let kind = fields.remove("note");
        let kind = kind.as_ref().and_then(Value::as_str).unwrap_or("note");
        self.timeline.entry(kind, note.to_string(), fields);
    }
}

impl Journal for Story {
    fn tell(&self, _at: Duration, entry: &Entry<'_>) {
        match entry {
            Entry::Boot(boot) => self.boot(boot),
            Entry::Action(Action::Note(note)) => self.note(note),
            Entry::Policy(call) => self.timeline.policy_call(scenario::PolicyCall {
                hook: call.hook.to_owned(),
                policy: call.binding.clone(),
                digest: call.digest.clone(),
                verdict: call.verdict.to_owned(),
                reason: call.reason.clone(),
                took: call.took,
            }),
            // The one wait of the life that has no note.
            Entry::Status(Status { state: State::Starting, missing, .. }) => {
                missing.iter().for_each(|missing| self.say("boot-waiting", &missing.reason));
            }
            Entry::Intent(intent) => self.say("intent", intent),
            Entry::Born(_) | Entry::Event(_) | Entry::Action(_) | Entry::Status(_) | Entry::Exit(_) => {}
        }
    }
}
