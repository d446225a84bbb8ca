//! The life itself: facts, and what they call for. Every event only updates facts; then [`Life::step`] walks through the
//! life in its order and emits what is needed next and not yet under way. So there is no transition to forget: whatever
//! order events come in, the same facts call for the same actions.

mod acknowledge;
mod answers;
mod cleanup;
mod end;
mod ledger;
mod node;
mod observe;
mod reconcile;
mod successor;
mod tell;
mod trouble;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::boot::{AgentIdentity, Boot, LedgerFound, Settings};
use crate::bucket::Bucket;
use crate::event::{Action, Attempt, Call, CniSubject, Event, Failure, Observation, Question, Subject, TroubleReason};
use crate::ledger::Ledger;
use crate::note::Note;
use crate::objects::{Assignment, Node, Pool, Site};
use crate::rng::Rng;
use crate::row::{Operation, Row, Standing};
use crate::slot::{AnySlot, Slot};
use crate::status::State;

use acknowledge::Acknowledgment;
use cleanup::Cleanup;
use end::Ending;
use node::NodeTrack;
use reconcile::Work;
use successor::Track;
use trouble::Troubles;

/// A start within this time of the last one is splayed.
const RESTART_WINDOW: Duration = Duration::from_secs(60);
const ADOPTION: &str = "adoption";
const CNI: &str = "cni";

/// The adopted assignment and the Node that it was adopted from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Adopted {
    assignment: Assignment,
    node: Node,
    reason: String,
}

/// The life of one agent process. See the crate's documentation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Life {
    settings: Settings,
    identity: AgentIdentity,
    boot_id: Option<String>,
    wall_ms: i64,

    now: Duration,
    rng: Rng,
    next_call: u64,
    bucket: Bucket,
    /// When the bucket has a token for a request that was wanted and not sent.
    starved_until: Option<Duration>,
    rows: BTreeMap<Operation, Row>,
    actions: Vec<Action>,

    started: bool,
    splayed_until: Duration,
    /// What the ledger has to say, and what is known to be durable.
    ledger: Ledger,
    durable: Option<Ledger>,
    saving: Option<Ledger>,
    /// A save has failed since: nobody knows how far it got.
    durable_in_doubt: bool,

    node: NodeTrack,
    adopted: Option<Adopted>,
    site: Track<Site>,
    pool: Track<Pool>,
    /// The own Pod still has to be read, because no ledger says what stands on it.
    pod_unread: bool,

    projection: Slot<Node>,
    drift: Slot<Observation>,
    taints: Slot<Subject>,
    cni: Slot<CniSubject>,
    annotations: Slot<Subject>,

    cleanup: Option<Cleanup>,
    work: Work,
    acknowledgment: Acknowledgment,
    refused_policies: Vec<String>,
    troubles: Troubles,
    ending: Option<Ending>,
    ended: bool,

    state: State,
    state_reason: Option<String>,
    state_since: Duration,
}

impl Life {
    /// A life about to start.
    pub fn new(boot: Boot) -> Self {
        let mut rng = Rng::new(boot.seed);
        let splayed_until = match boot.previous_start_ago {
            Some(ago) if ago < RESTART_WINDOW => rng.up_to(boot.settings.start_splay),
            _ => Duration::ZERO,
        };
        // A ledger of another Node (a cloned disk) is about another machine's cluster objects, but its files and links
        // are here: what it lists on this machine is cleaned up as after a changed UID; its Pod and its routes are not ours.
        let found = match boot.ledger {
            LedgerFound::None => None,
            LedgerFound::Some(ledger) => Some(*ledger),
        };
        let mut ledger = found.clone().unwrap_or_else(|| {
            // Listed from now on, so that the next process knows it too, whatever this one comes to.
            let cni = boot.cni_in_place.into_iter().collect();
            Ledger { cni, incomplete: true, ..Ledger::empty(&boot.settings.node_name) }
        });
        if ledger.node_name != boot.settings.node_name {
            ledger.advertised = false;
        }
        Self {
            ledger,
            pod_unread: found.is_none(),
            durable: found,
            saving: None,
            durable_in_doubt: false,
            settings: boot.settings,
            identity: boot.identity,
            boot_id: boot.boot_id,
            wall_ms: boot.wall_ms,
            now: Duration::ZERO,
            rng,
            next_call: 0,
            bucket: Bucket::default(),
            starved_until: None,
            rows: BTreeMap::new(),
            actions: Vec::new(),
            started: false,
            splayed_until,
            node: NodeTrack::default(),
            adopted: None,
            site: Track::default(),
            pool: Track::default(),
            projection: Slot::default(),
            drift: Slot::default(),
            taints: Slot::default(),
            cni: Slot::default(),
            annotations: Slot::default(),
            cleanup: None,
            work: Work::default(),
            acknowledgment: Acknowledgment::default(),
            refused_policies: boot.refused_policies,
            troubles: Troubles::default(),
            ending: None,
            ended: false,
            state: State::Starting,
            state_reason: None,
            state_since: Duration::ZERO,
        }
    }

    /// Takes one event at a time since the start of the process, and says what is wanted now. Times never go back; an
    /// answer to a call that nobody waits for any more changes nothing.
    pub fn step(&mut self, now: Duration, event: Event) -> Vec<Action> {
        self.now = self.now.max(now);
        if self.ended {
            return Vec::new();
        }
        match event {
            Event::Started => {
                self.started = true;
                for refusal in std::mem::take(&mut self.refused_policies) {
                    self.trouble(TroubleReason::PolicyRefused, refusal);
                }
            }
            Event::Tick => {}
            Event::Terminate => self.terminate(),
            Event::PoliciesChanged(policies) => self.policies_changed(policies),
            Event::PoliciesRefused(refusal) => self.trouble(TroubleReason::PolicyRefused, refusal),
            Event::Answer(call, answer) => self.answered(call, answer),
            Event::NodeStream(call, stream) => self.node_stream(call, stream),
            Event::SiteStream(call, stream) => self.site_stream(call, stream),
            Event::PoolStream(call, stream) => self.pool_stream(call, stream),
            Event::CniSeen(seen) => self.cni_seen(seen),
        }
        self.advance();
        self.tell_state();
        std::mem::take(&mut self.actions)
    }

    /// When the life wants [`Event::Tick`], if nothing else happens before.
    pub fn deadline(&self) -> Option<Duration> {
        if self.ended || (!self.started && self.ending.is_none()) {
            return None;
        }
        let slots = self.slots().map(AnySlot::deadline);
        let others = [
            Some(self.splayed_until),
            self.starved_until,
            self.site.deadline(),
            self.pool.deadline(),
            self.cleanup.as_ref().and_then(Cleanup::deadline),
            self.ending.as_ref().map(Ending::deadline),
        ];
        let rows = self.rows.values().map(Row::deadline);
        slots.into_iter().chain(others).chain(rows).flatten().filter(|at| *at > self.now).min()
    }

    /// What the facts call for, in the order of the life.
    fn advance(&mut self) {
        self.starved_until = None;
        if self.ending.is_some() {
            self.drive_end();
            return;
        }
        if !self.started || self.now < self.splayed_until {
            return;
        }
        self.drive_owed();
        self.drive_node();
        self.drive_pod();
        self.guard_restarts();
        self.drive_assessment();
        if self.ending.is_some() {
            self.drive_end();
            return;
        }
        self.drive_successor();
        self.drive_cleanup();
        self.drive_reconciliation();
        self.drive_acknowledgment();
        self.drive_ledger();
        self.drive_troubles();
    }

    fn policies_changed(&mut self, policies: Vec<(String, String)>) {
        // What is acknowledged already keeps the names of those that made it so.
        self.identity.policies = policies;
        // The adoption's component stays loaded and answers projections until settled; before, others may adopt.
        let adopted = self.adopted.is_some();
        self.forget_questions(|hook| hook != ADOPTION || !adopted);
        self.node.ignored_binding = None;
    }

    fn settled(&self) -> bool {
        self.acknowledgment.is_saved()
    }

    fn slots(&self) -> [&dyn AnySlot; 5] {
        [&self.projection, &self.drift, &self.taints, &self.cni, &self.annotations]
    }

    /// The slots, each with the name of its hook.
    fn slots_mut(&mut self) -> [(&'static str, &mut dyn AnySlot); 5] {
        [
            (ADOPTION, &mut self.projection),
            ("drift", &mut self.drift),
            ("taints", &mut self.taints),
            (CNI, &mut self.cni),
            ("acknowledgment", &mut self.annotations),
        ]
    }

    /// Asks a question, unless it is under way or an answer stands for this input.
    fn ask<I: Clone + PartialEq>(
        &mut self,
        slot: fn(&mut Self) -> &mut Slot<I>,
        input: &I,
        question: fn(Box<I>) -> Question,
    ) {
        let now = self.now;
        if slot(self).wants(now, input) {
            let call = self.call();
            slot(self).ask(call, input.clone());
            self.actions.push(Action::Ask(call, question(Box::new(input.clone()))));
        }
    }

    /// Forgets what these hooks were asked and what they said.
    fn forget_questions(&mut self, of: impl Fn(&str) -> bool) {
        let slots = self.slots_mut().into_iter().filter(|(hook, _)| of(hook));
        let calls: Vec<_> = slots.filter_map(|(_, slot)| slot.forget()).collect();
        self.actions.extend(calls.into_iter().map(Action::Cancel));
    }

    /// What the taints and acknowledgment hooks are asked about.
    fn subject(&self) -> Option<Subject> {
        Some(Subject { adopted: self.adopted.as_ref()?.assignment.clone(), node: self.node_view()? })
    }

    fn call(&mut self) -> Call {
        self.next_call += 1;
        Call(self.next_call)
    }

    fn note(&mut self, note: Note) {
        self.actions.push(Action::Note(note));
    }

    fn row(&mut self, operation: Operation) -> &mut Row {
        self.rows.entry(operation).or_default()
    }

    fn is_ready(&self, operation: Operation) -> bool {
        self.rows.get(&operation).is_none_or(|row| row.is_ready(self.now))
    }

    fn is_trying(&self, operation: Operation) -> bool {
        matches!(self.rows.get(&operation), Some(Row { standing: Standing::Trying(_), .. }))
    }

    /// Tries an operation that sends a request: if its row is ready and the bucket has a token.
    fn request(&mut self, operation: Operation, action: impl FnOnce(Call) -> Action) -> Option<Call> {
        if !self.is_ready(operation) || !self.take_token() {
            return None;
        }
        self.local(operation, action)
    }

    /// Takes a token for a request, or sees to it that the life is ticked when there is one.
    fn take_token(&mut self) -> bool {
        match self.bucket.take(self.now) {
            Ok(()) => true,
            Err(ready_at) => {
                self.starved_until = Some(ready_at);
                false
            }
        }
    }

    /// Tries an operation that stays on this machine: if its row is ready.
    fn local(&mut self, operation: Operation, action: impl FnOnce(Call) -> Action) -> Option<Call> {
        if !self.is_ready(operation) {
            return None;
        }
        let call = self.call();
        self.row(operation).standing = Standing::Trying(call);
        self.actions.push(action(call));
        Some(call)
    }

    /// The operation's row ends well.
    fn succeed(&mut self, operation: Operation) {
        self.rows.remove(&operation);
    }

    /// The operation may be tried at once, but its row goes on: what it did was right and has to be seen to last.
    fn ready(&mut self, operation: Operation) {
        self.row(operation).standing = Standing::Ready;
    }

    /// The operation failed: an admission denial parks it, anything else asks the retry hook for the wait.
    fn fail(&mut self, operation: Operation, failure: Failure) {
        let now = self.now;
        let left_alone = match failure.retry_after {
            // A removal is tried again when its Node changes; what else was denied stays so until its interval is over.
            _ if failure.denied && operation != Operation::TaintRemoval => self.settings.denial_interval,
            Some(after) => after,
            None => Duration::ZERO,
        };
        let row = self.row(operation);
        row.fail(now, &failure.message, left_alone);
        let (number, elapsed) = (row.number, now.saturating_sub(row.since));
        if failure.denied {
            let wait = self.settings.denial_interval + self.rng.up_to(self.settings.denial_interval / 5);
            self.row(operation).standing = Standing::Waiting(now + wait);
            self.note(Note::Parked { operation, message: failure.message, wait });
            return;
        }
        let attempt = Attempt {
            operation,
            failure: failure.kind,
            number,
            elapsed,
            retry_after: failure.retry_after,
            jitter: self.rng.jitter(),
            site: self.adopted.as_ref().map(|adopted| adopted.assignment.site.clone()),
        };
        let call = self.call();
        self.row(operation).standing = Standing::Asking(call, failure);
        self.actions.push(Action::Ask(call, Question::Pause(attempt)));
    }

    /// Nobody waits for this operation's answer any more, and its row begins anew.
    fn abandon(&mut self, operation: Operation) {
        let Some(row) = self.rows.get_mut(&operation) else { return };
        if let Standing::Trying(call) | Standing::Asking(call, _) = row.standing {
            self.actions.push(Action::Cancel(call));
        }
        row.reset();
    }

    fn watch_lifetime(&mut self) -> Duration {
        let (shortest, longest) = self.settings.watch_lifetime;
        let lifetime = shortest + self.rng.up_to(longest.saturating_sub(shortest));
        Duration::from_secs(lifetime.as_secs())
    }
}
