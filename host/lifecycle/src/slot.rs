//! One question and the answer that stands for its input: a question is asked again when its input changes, when other
//! policies answer, and, where a failed policy holds, after a native wait.

use std::time::Duration;

use crate::event::{Call, Outcome};

const FIRST_HOLD: Duration = Duration::from_secs(30);
const LAST_HOLD: Duration = Duration::from_secs(300);

/// The latest answer, and the question under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Slot<I> {
    asking: Option<(Call, I)>,
    answer: Option<(I, Outcome)>,
    holds: u32,
    again_at: Option<Duration>,
}

impl<I> Default for Slot<I> {
    fn default() -> Self {
        Self { asking: None, answer: None, holds: 0, again_at: None }
    }
}

/// A slot, whatever its question is about.
pub(crate) trait AnySlot {
    /// Whether this call asks its question.
    fn is_asking(&self, call: Call) -> bool;

    /// Whether a question is under way.
    fn is_under_way(&self) -> bool;

    /// Takes an answer to the question under way.
    fn answer(&mut self, now: Duration, outcome: Outcome);

    /// Forgets question and answer; a question under way is returned, to be cancelled.
    fn forget(&mut self) -> Option<Call>;

    /// When the question is asked again by itself.
    fn deadline(&self) -> Option<Duration>;
}

impl<I: Clone + PartialEq> Slot<I> {
    /// The outcome that stands for this input.
    pub(crate) fn outcome(&self, input: &I) -> Option<&Outcome> {
        self.answer.as_ref().filter(|(asked, _)| asked == input).map(|(_, outcome)| outcome)
    }

    /// Whether any question was ever answered.
    pub(crate) fn was_answered(&self) -> bool {
        self.answer.is_some()
    }

    /// Whether this input has to be asked now.
    pub(crate) fn wants(&self, now: Duration, input: &I) -> bool {
        self.asking.is_none()
            && (self.outcome(input).is_none() || self.again_at.is_some_and(|again_at| again_at <= now))
    }

    pub(crate) fn ask(&mut self, call: Call, input: I) {
        self.asking = Some((call, input));
    }
}

impl<I: Clone + PartialEq> AnySlot for Slot<I> {
    fn is_asking(&self, call: Call) -> bool {
        self.asking.as_ref().is_some_and(|(asked, _)| *asked == call)
    }

    fn is_under_way(&self) -> bool {
        self.asking.is_some()
    }

    fn answer(&mut self, now: Duration, outcome: Outcome) {
        let Some((_, input)) = self.asking.take() else { return };
        self.again_at = None;
        if matches!(outcome, Outcome::Held(..)) {
            let wait = FIRST_HOLD.saturating_mul(2_u32.saturating_pow(self.holds.min(4))).min(LAST_HOLD);
            self.holds += 1;
            self.again_at = Some(now + wait);
        } else {
            self.holds = 0;
        }
        self.answer = Some((input, outcome));
    }

    fn forget(&mut self) -> Option<Call> {
        let asking = self.asking.take().map(|(call, _)| call);
        *self = Self::default();
        asking
    }

    fn deadline(&self) -> Option<Duration> {
        self.again_at
    }
}
