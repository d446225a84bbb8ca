//! The story of a process as it happens, for whoever wants to listen: the log, the simulator's timeline, a recorder.
//! Nothing is formatted or copied for a journal that isn't there.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use moorline_lifecycle::{self as life, Action, Event, Exit, Status};

/// Hears of everything that happens to a process, in order, on the driver's thread.
pub trait Journal: Send + Sync {
    /// Something happened, this long after the start of the process.
    fn tell(&self, at: Duration, entry: &Entry<'_>);
}

/// Something that happened.
#[derive(Debug)]
pub enum Entry<'a> {
    /// Before the life begins.
    Boot(Boot<'a>),
    /// The life begins with this.
    Born(&'a life::Boot),
    /// The life was told this. With the times and [`Entry::Born`], these are all that a replay needs: see [`crate::trace`].
    Event(&'a Event),
    /// The life wants this.
    Action(&'a Action),
    /// A policy was called, or should have been.
    Policy(&'a PolicyCall),
    /// What would be done by a process that doesn't only observe, in a sentence.
    Intent(&'a str),
    /// The life as seen from outside is this from now on.
    Status(&'a Status),
    /// The process ends.
    Exit(&'a Exit),
}

/// A step of the boot.
#[derive(Debug)]
pub enum Boot<'a> {
    /// Health is served here.
    HealthUp(SocketAddr),
    /// Something has to end before the process may go on: the reason is a sentence.
    Waiting(&'a str),
    /// The lock of the state folder is held.
    Locked,
    /// The policies are loaded: what an operator should know about them.
    Policies {
        /// Name and digest of each policy.
        loaded: &'a [(String, String)],
        /// Policies that were refused, each with the reason.
        refused: &'a [String],
        /// What an operator may want to know.
        warnings: &'a [String],
    },
    /// What became of the ledger, where that is worth a word.
    Ledger(&'a str),
}

/// One call of a binding, or a question for which none was called.
#[derive(Debug, Clone)]
pub struct PolicyCall {
    /// The hook.
    pub hook: &'static str,
    /// The binding; none when no binding answers.
    pub binding: Option<String>,
    /// The name of its policy.
    pub policy: Option<String>,
    /// The digest of its policy.
    pub digest: Option<String>,
    /// `decided`, `not-applicable`, `refused`, `resting`, `no-binding`, or the kind of failure in one word.
    pub outcome: &'static str,
    /// The verdict in a word (`assigned`, `wait`, `same`, …); the outcome where there is none.
    pub verdict: String,
    /// The verdict's reason, or why there is none.
    pub reason: String,
    /// Units of fuel used.
    pub fuel: u64,
    /// Real time; zero where nothing was called.
    pub took: Duration,
}

/// Tells several journals the same.
impl Journal for Vec<Arc<dyn Journal>> {
    fn tell(&self, at: Duration, entry: &Entry<'_>) {
        self.iter().for_each(|journal| journal.tell(at, entry));
    }
}
