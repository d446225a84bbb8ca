//! A small model of everything around a life, in which one step at a time can be taken, and every promise is asked after
//! each. Nothing here knows how the life works inside.
#![allow(dead_code, reason = "every test binary uses its own part of this world")]
#![allow(unreachable_pub, reason = "a test binary has no outside")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may fail by panicking")]

pub mod api;
pub mod facts;
pub mod flight;
pub mod hearing;
pub mod machine;
pub mod policies;
pub mod promises;
pub mod rest;
pub mod steps;
pub mod strategy;

use std::collections::BTreeSet;
use std::hash::{Hash as _, Hasher as _};
use std::time::Duration;

use moorline_lifecycle::{
    Action, Answer, Binding, Boot, Call, CniSeen, Event, Failure, FailureKind, LedgerFound, Life, Node, Note,
    Operation, Settings, State, Stream,
};

pub use flight::{Fault, Flight, Kind, Open, Says, call};

use api::{Api, NODE, Versions};
use facts::{Facts, failure, is_acknowledgment};
use flight::{brief, brief_action, open, say};
use machine::{Machine, Reached, foreign};
use policies::{Adoption, Policies};
use promises::Check;

#[derive(Debug, Clone)]
pub struct World {
    pub settings: Settings,
    /// Since the world began.
    pub clock: Duration,
    pub started_at: Duration,
    starts: u64,
    pub api: Api,
    pub machine: Machine,
    pub policies: Policies,
    pinned: Option<Adoption>,
    pub life: Life,
    pub flight: Vec<Flight>,
    /// Answers that come although nobody waits for them.
    pub late: Vec<(Call, Answer)>,
    pub node: Option<Open<Node>>,
    pub site: Option<Open<moorline_lifecycle::Site>>,
    pub pool: Option<Open<moorline_lifecycle::Pool>>,
    pub facts: Facts,
    /// What the ledger listed was found to be over; a cleanup that was forced goes on.
    pub forced: bool,
    /// An acknowledgment of this process may have reached the Pod.
    pub wrote_acknowledgment: bool,
    guarded: bool,
    /// The ledger was being saved when this step began.
    pub saving: bool,
    /// The situations that came up, in this process and before.
    pub visited: BTreeSet<&'static str>,
    /// Everything that happened, for people.
    pub story: Option<Vec<String>>,
    /// Every action of this process, for tests that look at them.
    pub actions: Vec<(Duration, Action)>,
}

const WALL_MS: i64 = 1_700_000_000_000;

impl World {
    pub fn new(api: Api) -> Self {
        let settings = Settings::new(NODE, "agent", "kube-system", &api.pod.uid);
        Self {
            clock: Duration::ZERO,
            started_at: Duration::ZERO,
            starts: 0,
            life: Life::new(Boot::new(settings.clone())),
            facts: Facts::default(),
            settings,
            api,
            machine: Machine::default(),
            policies: Policies::default(),
            pinned: None,
            flight: Vec::new(),
            late: Vec::new(),
            node: None,
            site: None,
            pool: None,
            forced: false,
            wrote_acknowledgment: false,
            guarded: false,
            saving: false,
            visited: BTreeSet::new(),
            story: None,
            actions: Vec::new(),
        }
    }

    pub fn now(&self) -> Duration {
        self.clock - self.started_at
    }

    /// How often a process was started here.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// Two worlds with the same fingerprint go on the same way: everything is in it by which a life, its environment or a
    /// promise decides. What is kept for people alone is not.
    pub fn fingerprint(&self) -> u64 {
        let Self {
            clock,
            started_at,
            starts,
            api,
            machine,
            policies,
            pinned,
            life,
            flight,
            late,
            node,
            site,
            pool,
            ..
        } = self;
        let Self { facts, forced, wrote_acknowledgment, guarded, saving, settings, .. } = self;
        let mut hasher = std::hash::DefaultHasher::new();
        (clock, started_at, starts, api, machine, policies, pinned, life, flight, late).hash(&mut hasher);
        (node, site, pool, facts, forced, wrote_acknowledgment, guarded, saving, &settings.pod_uid).hash(&mut hasher);
        hasher.finish()
    }

    fn wall_ms(&self, at: Duration) -> i64 {
        WALL_MS + i64::try_from(at.as_millis()).unwrap()
    }

    /// A process starts, with what the last one left.
    pub fn start(&mut self) -> Check {
        let durable = self.machine.durable().cloned();
        self.settings.pod_uid.clone_from(&self.api.pod.uid);
        let boot = Boot {
            ledger: durable.clone().map_or(LedgerFound::None, |ledger| LedgerFound::Some(Box::new(ledger))),
            cni_in_place: self.machine.cni.clone().filter(|here| durable.is_none() && !foreign(here)),
            previous_start_ago: (self.starts > 0).then(|| self.clock - self.started_at),
            wall_ms: self.wall_ms(self.clock),
            seed: self.starts * 7919 + 1,
            boot_id: Some("boot-1".into()),
            ..Boot::new(self.settings.clone())
        };
        self.starts += 1;
        self.started_at = self.clock;
        self.life = Life::new(boot);
        self.facts = Facts::new(&self.settings.pod_uid, durable.as_ref());
        self.pinned = None;
        self.flight.clear();
        self.late.clear();
        (self.node, self.site, self.pool) = (None, None, None);
        self.forced = false;
        self.wrote_acknowledgment = false;
        self.guarded = false;
        self.actions.clear();
        self.tell(Event::Started)
    }

    /// SIGKILL: what is under way has reached the other side, or has not.
    pub fn kill(&mut self, reached: bool) {
        self.tale(|| format!("    SIGKILL, effects {}", if reached { "reached" } else { "lost" }));
        for flight in std::mem::take(&mut self.flight) {
            if flight.served.is_none() && reached {
                self.fail_machine_or_serve(&flight.action);
            }
        }
    }

    fn fail_machine_or_serve(&mut self, action: &Action) {
        if self.api.serve(action, &self.settings.pod_uid.clone()).is_none() {
            let _ = self.machine.fail(action, Reached::Everything);
        }
    }

    /// Tells the life something, and asks every promise about what it does.
    pub fn tell(&mut self, event: Event) -> Check {
        let now = self.now();
        let flight = match &event {
            Event::Answer(call, _) => self.flight.iter().position(|f| f.call == *call).map(|i| self.flight.remove(i)),
            _ => None,
        };
        self.tale(|| format!("{now:>12.3?}  {}", brief(&event)));
        self.saving = self.flight.iter().any(|flight| matches!(flight.action, Action::SaveLedger(..)));
        self.facts.hear(now, &event, flight.as_ref());
        let actions = self.life.step(now, event);
        for (index, action) in actions.into_iter().enumerate() {
            self.tale(|| format!("              → {}", brief(&action)));
            promises::before(self, index, &action)?;
            self.send(action);
        }
        self.remember();
        promises::after(self)?;
        // A wish must not wait for an event that may never come.
        let more = self.life.step(now, Event::Tick);
        if more.is_empty() { Ok(()) } else { Err(format!("every wish is said at once: a tick brings {more:?}")) }
    }

    fn remember(&mut self) {
        let durable = self.machine.durable();
        self.forced |= self.facts.is_over(durable, &self.settings.node_name);
        self.guarded |= self.is_guarded(&policies::binding("nervous"));
        self.visit();
    }

    /// Which of the situations that matter this is.
    fn visit(&mut self) {
        let facts = &self.facts;
        let leaving = facts.adopted.is_some()
            && self.machine.durable().and_then(|ledger| ledger.assignment.as_ref()) != facts.assignment();
        let owed = self.machine.durable().and_then(|ledger| ledger.acknowledgment.as_ref()).is_some_and(|ack| ack.owed);
        let situations = [
            ("settled", facts.saved),
            ("settled on routes", facts.saved && facts.shown_routes.as_ref().is_some_and(|routes| !routes.is_empty())),
            ("settled after a lost answer", facts.saved && facts.resolved),
            ("drift", facts.drifted.is_some()),
            ("drift with an acknowledgment in flight", facts.drifted.is_some() && facts.unresolved.is_some()),
            ("a withdrawal is owed", owed),
            ("a handoff joins workers", leaving && facts.joining && !self.forced),
            ("a handoff undoes", leaving && facts.undoing && !self.forced),
            ("a forced cleanup undoes", self.forced && facts.undoing),
            ("an absence is confirmed", facts.absences >= 2),
            ("a removal is denied", facts.denial.is_some()),
            (
                "a removal meets a race",
                facts.tried.get(&Operation::TaintRemoval).is_some_and(|tried| tried.failures > 0),
            ),
            ("a restart guard ignores a policy", self.guarded),
            ("the bucket is empty", facts.requests.len() > 20),
            ("SIGTERM", facts.terminated.is_some()),
            ("SIGTERM while handing off", facts.terminated.is_some() && leaving && facts.joining),
            ("SIGTERM when settled", facts.terminated.is_some() && facts.saved),
            ("SIGTERM after drift", facts.terminated.is_some() && facts.drifted.is_some()),
        ];
        self.visited.extend(situations.into_iter().filter(|(_, is)| *is).map(|(name, _)| name));
    }

    /// Whether the restart guard ignores this binding, by the durable ledger.
    pub fn is_guarded(&self, binding: &Binding) -> bool {
        let (name, now) = (format!("{}@{}", binding.name, binding.digest), self.wall_ms(self.clock));
        let ends = self.machine.durable().map(|ledger| ledger.policy_ends.as_slice()).unwrap_or_default();
        let lately = ends.iter().filter(|end| end.binding == name && (0..600_000).contains(&(now - end.at_ms)));
        binding.name == "nervous" && (self.guarded || lately.count() >= 3)
    }

    fn send(&mut self, action: Action) {
        let now = self.now();
        let operation = self.facts.operation(&action, self.machine.durable());
        self.facts.ask(&action);
        if let Some(call) = call(&action) {
            self.facts.calls.insert(call);
        }
        let version = self.api.version();
        match &action {
            Action::WatchNode(call, from, _) => {
                self.node = Some(open(*call, now, NODE, Some(from), &self.api.nodes, version));
            }
            Action::WatchSite(call, name, from, _) => {
                self.site = Some(open(*call, now, name, from.as_deref(), &self.api.sites, version));
            }
            Action::WatchPool(call, name, from, _) => {
                self.pool = Some(open(*call, now, name, from.as_deref(), &self.api.pools, version));
            }
            Action::CloseWatch(call) => {
                self.node.take_if(|open| open.call == *call);
                self.site.take_if(|open| open.call == *call);
                self.pool.take_if(|open| open.call == *call);
            }
            Action::Cancel(call) => self.cancel(*call),
            Action::Note(Note::Adopted { .. }) => self.pinned = Some(self.policies.adoption),
            Action::Note(_) => {}
            Action::Exit(_) => self.kill(self.starts.is_multiple_of(2)),
            _ => {
                let Some(call) = call(&action) else { return };
                let node = match &action {
                    Action::PatchTaints { resource_version, .. } => self
                        .api
                        .nodes
                        .log
                        .iter()
                        .find(|(version, ..)| version.to_string() == *resource_version)
                        .and_then(|(_, _, node)| node.clone()),
                    _ => None,
                };
                self.flight.push(Flight { call, action: action.clone(), operation, served: None, node });
            }
        }
        self.actions.push((now, action));
    }

    /// Nobody waits any more: what was under way may have been done all the same.
    fn cancel(&mut self, call: Call) {
        let Some(index) = self.flight.iter().position(|flight| flight.call == call) else { return };
        let flight = self.flight.remove(index);
        if flight.served.is_none() && call.0.is_multiple_of(2) {
            self.fail_machine_or_serve(&flight.action);
        }
        let answer = flight.served.or_else(|| self.answer_to(&flight.action, Fault::Fails(FailureKind::Timeout)));
        self.late.extend(answer.map(|answer| (call, answer)));
    }

    /// The other side deals with the call at this place, in its way; the answer is on its way back.
    pub fn serve(&mut self, index: usize, fault: Fault) -> Check {
        let Some(flight) = self.flight.get(index).filter(|flight| flight.served.is_none()).cloned() else {
            return Ok(());
        };
        let answer = self.answer_to(&flight.action, fault);
        if let Action::PatchPod(_, patch) = &flight.action {
            self.wrote_acknowledgment |= is_acknowledgment(patch) && facts::shows(&self.api.pod.annotations, patch);
        }
        self.flight[index].served = answer;
        promises::served(self)
    }

    /// The answer to the call at this place arrives.
    pub fn deliver(&mut self, index: usize, fault: Fault) -> Check {
        self.serve(index, fault)?;
        let Some(flight) = self.flight.get(index).cloned() else { return Ok(()) };
        let Some(answer) = flight.served.clone() else { return Ok(()) };
        if let Some(failure) = failure(&answer) {
            let what = brief_action(&flight.action);
            self.tale(|| format!("    ({what} fails: {:?})", failure.kind));
        }
        self.tell(Event::Answer(flight.call, answer))
    }

    fn answer_to(&mut self, action: &Action, fault: Fault) -> Option<Answer> {
        if let Action::Ask(_, question) = action {
            let pinned = Policies { adoption: self.pinned.unwrap_or(self.policies.adoption), ..self.policies };
            return Some(Answer::Policy(if fault == Fault::None {
                pinned.answer(question)
            } else {
                Policies::trap(question)
            }));
        }
        let own = self.settings.pod_uid.clone();
        let read = matches!(action, Action::ReadNode(_) | Action::ReadPod(_) | Action::ReadRoutes(_));
        let pod = matches!(action, Action::ReadPod(_) | Action::PatchPod(..));
        let failure = |kind| Failure::new(kind, "The request failed.");
        let failure = match fault {
            Fault::None => {
                return self.api.serve(action, &own).or_else(|| self.machine.serve(action));
            }
            Fault::Ignored if !read => {
                let mut other = self.api.clone();
                let answer = other.serve(action, &own).or_else(|| self.machine.serve(action))?;
                return Some(match answer {
                    Answer::Node(Ok(_)) => {
                        Answer::Node(self.api.node().cloned().ok_or_else(|| failure(FailureKind::NotFound)))
                    }
                    Answer::Pod(Ok(_)) => Answer::Pod(Ok(self.api.pod.clone())),
                    Answer::Routes(Ok(_)) => Answer::Routes(Ok(self.api.routes.clone())),
                    other => other,
                });
            }
            Fault::Ignored => failure(FailureKind::Other),
            // Whether the own Pod is there is never told wrongly: the process would end as nobody's.
            Fault::Fails(FailureKind::NotFound | FailureKind::Invalid) if pod => failure(FailureKind::Forbidden),
            Fault::Fails(kind) => failure(kind),
            Fault::Throttled(seconds) => {
                Failure { retry_after: Some(Duration::from_secs(seconds.into())), ..failure(FailureKind::Throttled) }
            }
            Fault::Denied => {
                Failure { denied: !read, ..failure(if read { FailureKind::Forbidden } else { FailureKind::Invalid }) }
            }
            Fault::Lost(effect) => {
                if effect {
                    let _ = self.api.serve(action, &own);
                }
                Failure { effect_unknown: !read, ..failure(FailureKind::Timeout) }
            }
        };
        let reached = if fault == Fault::Lost(true) { Reached::Everything } else { Reached::Nothing };
        Some(match action {
            Action::ReadNode(_) | Action::PatchTaints { .. } => Answer::Node(Err(failure)),
            Action::ReadPod(_) | Action::PatchPod(..) => Answer::Pod(Err(failure)),
            Action::ReadRoutes(_) | Action::PatchRoutes(..) => Answer::Routes(Err(failure)),
            Action::WriteEvent(..) => Answer::EventWritten(Err(failure)),
            _ => {
                let mut answer = self.machine.fail(action, reached)?;
                // On a machine, what only a person can help is what a denial is to the API.
                if let (Fault::Denied, Answer::Done(Err(failure))) = (fault, &mut answer) {
                    failure.blocked = matches!(action, Action::WriteCni(..) | Action::DisableCni(..));
                }
                answer
            }
        })
    }

    /// The watch of this kind says something, if it is open and has something to say.
    pub fn stream(&mut self, kind: Kind, says: Says) -> Result<bool, String> {
        let version = self.api.version();
        let (event, operation, opened_at) = match kind {
            Kind::Node => {
                let Some(open) = &mut self.node else { return Ok(false) };
                let Some(said) = say(open, &self.api.nodes, version, says) else { return Ok(false) };
                (Event::NodeStream(open.call, said), Operation::NodeWatch, open.opened_at)
            }
            Kind::Site => {
                let Some(open) = &mut self.site else { return Ok(false) };
                let Some(said) = say(open, &self.api.sites, version, says) else { return Ok(false) };
                (Event::SiteStream(open.call, said), Operation::SiteWatch, open.opened_at)
            }
            Kind::Pool => {
                let Some(open) = &mut self.pool else { return Ok(false) };
                let Some(said) = say(open, &self.api.pools, version, says) else { return Ok(false) };
                (Event::PoolStream(open.call, said), Operation::PoolWatch, open.opened_at)
            }
        };
        let deleted_early = matches!(event, Event::NodeStream(_, Stream::Deleted)) && self.facts.adopted.is_none();
        if matches!(says, Says::Closed | Says::Fails(_)) || deleted_early {
            self.facts.now = self.now();
            self.facts.stream_ended(operation, opened_at, None);
        }
        if matches!(says, Says::Closed | Says::Fails(_)) {
            match kind {
                Kind::Node => self.node = None,
                Kind::Site => self.site = None,
                Kind::Pool => self.pool = None,
            }
        }
        self.tell(event)?;
        Ok(true)
    }

    /// Whether an open watch of this kind has something to say.
    pub fn has_news(&self, kind: Kind) -> bool {
        fn news<T: Clone>(open: Option<&Open<T>>, log: &Versions<T>) -> bool {
            open.is_some_and(|open| !open.initial.is_empty() || log.next(&mut open.place.clone(), &open.name).is_some())
        }
        match kind {
            Kind::Node => news(self.node.as_ref(), &self.api.nodes),
            Kind::Site => news(self.site.as_ref(), &self.api.sites),
            Kind::Pool => news(self.pool.as_ref(), &self.api.pools),
        }
    }

    /// An answer to a call that was cancelled comes all the same: it must change nothing.
    pub fn late_answer(&mut self, index: usize) -> Check {
        let Some((call, answer)) = self.late.get(index).cloned() else { return Ok(()) };
        let before = self.life.clone();
        let actions = self.life.step(self.facts.now, Event::Answer(call, answer));
        if actions.is_empty() && self.life.status() == before.status() {
            Ok(())
        } else {
            Err(format!("a late answer to cancelled {call:?} brings {actions:?}"))
        }
    }

    pub fn policies_changed(&mut self, policies: Policies) -> Check {
        self.policies = policies;
        self.guarded = false;
        self.tell(Event::PoliciesChanged(vec![("other".into(), "digest".into())]))
    }

    /// Somebody has taken the own CNI file away, or nobody has and it seems so, and somebody looks.
    pub fn look_at_cni(&mut self, taken: bool) -> Check {
        if taken && !self.machine.cni.as_deref().is_some_and(foreign) {
            self.machine.cni = None;
        }
        self.tell(Event::CniSeen(CniSeen { in_place: false, in_the_way: None }))
    }

    pub fn pass(&mut self, time: Duration) {
        self.clock += time;
    }

    /// Time passes until the life wants to be ticked, and it is.
    pub fn tick(&mut self) -> Check {
        if let Some(deadline) = self.life.deadline() {
            self.clock = self.clock.max(self.started_at + deadline);
        }
        self.tell(Event::Tick)
    }

    pub fn ended(&self) -> bool {
        self.facts.exit.is_some()
    }

    pub fn state(&self) -> State {
        self.life.status().state
    }

    fn tale(&mut self, line: impl FnOnce() -> String) {
        if self.story.is_some() {
            let line = line();
            self.story.get_or_insert_default().push(line);
        }
    }
}
