//! Events for people: only trouble, each said once while it lasts, and failing to write one stops nothing.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::event::{Action, Answer, Call, Trouble, TroubleReason};
use crate::life::Life;
use crate::note::Note;

/// The same trouble is not written again within this time.
const QUIET: Duration = Duration::from_secs(600);
/// Two Events of one reason are at least this far apart.
const SPACING: Duration = Duration::from_secs(30);
/// More than these are not kept for writing.
const MOST_PENDING: usize = 8;

/// Troubles to be written, and those written lately.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Troubles {
    pending: VecDeque<(TroubleReason, String)>,
    writing: Option<Call>,
    written: BTreeMap<TroubleReason, (Duration, String)>,
}

impl Troubles {
    pub(super) fn is_writing(&self, call: Call) -> bool {
        self.writing == Some(call)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.writing.is_none()
    }
}

impl Life {
    pub(super) fn trouble(&mut self, reason: TroubleReason, message: String) {
        if !self.settings.events {
            return;
        }
        if let Some((at, said)) = self.troubles.written.get(&reason) {
            let since = self.now.saturating_sub(*at);
            if since < SPACING || (since < QUIET && *said == message) {
                return;
            }
        }
        if self.troubles.pending.len() < MOST_PENDING {
            self.troubles.written.insert(reason, (self.now, message.clone()));
            self.troubles.pending.push_back((reason, message));
        }
    }

    pub(super) fn policy_trouble(&mut self, hook: &str, message: String) {
        self.note(Note::PolicyTrouble { hook: hook.into(), message: message.clone() });
        self.trouble(TroubleReason::PolicyFailed, message);
    }

    pub(super) fn drive_troubles(&mut self) {
        if self.troubles.writing.is_some() || self.troubles.pending.is_empty() {
            return;
        }
        let node_uid = match (&self.node.observed, &self.adopted) {
            (Some(node), _) => node.uid.clone(),
            (None, Some(adopted)) => adopted.assignment.node_uid.clone(),
            // An Event is about a Node: it waits until there is one.
            (None, None) => return,
        };
        if self.take_token()
            && let Some((reason, message)) = self.troubles.pending.pop_front()
        {
            let call = self.call();
            let trouble = Trouble { reason, message, node_uid };
            self.troubles.writing = Some(call);
            self.actions.push(Action::WriteEvent(call, trouble));
        }
    }

    pub(super) fn trouble_written(&mut self, _answer: &Answer) {
        self.troubles.writing = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::{Boot, Settings};

    /// What becomes of a trouble that is said at each of these times, in milliseconds.
    fn said(times: &[(u64, &str)]) -> Vec<usize> {
        let mut life = Life::new(Boot::new(Settings::new("node-1", "pod", "kube-system", "uid")));
        let say = |(at, message): &(u64, &str)| {
            life.now = Duration::from_millis(*at);
            life.trouble(TroubleReason::CniBlocked, (*message).to_owned());
            life.troubles.pending.len()
        };
        times.iter().map(say).collect()
    }

    #[test]
    fn another_message_of_a_reason_is_written_after_30_seconds_and_the_same_one_after_ten_minutes() {
        assert_eq!(said(&[(0, "a"), (29_999, "b"), (30_000, "b"), (60_000, "b")]), [1, 1, 2, 2]);
        assert_eq!(said(&[(0, "a"), (599_999, "a"), (600_000, "a"), (600_001, "b")]), [1, 1, 2, 2]);
    }

    #[test]
    fn a_few_are_kept_for_writing() {
        let messages: Vec<_> = (0..20).map(|number| number.to_string()).collect();
        let times: Vec<_> = (0..20).map(|number| number * 30_000).zip(messages.iter().map(String::as_str)).collect();
        assert_eq!(said(&times).last(), Some(&MOST_PENDING));
    }

    #[test]
    fn where_events_are_off_none_is_kept() {
        let settings = Settings { events: false, ..Settings::new("node-1", "pod", "kube-system", "uid") };
        let mut life = Life::new(Boot::new(settings));
        life.trouble(TroubleReason::CniBlocked, "a".into());
        assert!(life.troubles.is_idle());
    }
}
