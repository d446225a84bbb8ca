//! What a process is told, taken into the facts.

use std::time::Duration;

use moorline_lifecycle::{
    ACKNOWLEDGMENT_KEY, Action, Answer, Event, Failure, FailureKind, Node, Operation, Outcome, Question, Stream,
};
use serde_json::Value;

use super::Flight;
use super::facts::{Denial, Facts, Said, failure, floor, is_acknowledgment, shows};

impl Facts {
    /// Takes in what the life is about to be told; `flight` is the call that an answer is to.
    pub fn hear(&mut self, now: Duration, event: &Event, flight: Option<&Flight>) {
        self.now = now;
        self.just_saved = None;
        self.just_missing = false;
        match event {
            Event::Terminate => self.terminated = self.terminated.or(Some(now)),
            Event::PoliciesChanged(_) => {
                if self.adopted.is_none() {
                    self.projection = None;
                }
                self.assessment = None;
                self.unwanted = Said::default();
                self.rendered = Said::default();
            }
            Event::Answer(_, answer) => {
                if let Some(flight) = flight {
                    self.hear_answer(flight, answer);
                }
            }
            Event::NodeStream(call, stream) if self.node_stream == Some(*call) => self.hear_node(stream),
            Event::SiteStream(_, stream) => {
                hear_object(&mut self.site, &mut self.site_said, stream, |site| (site.uid.clone(), site.generation));
            }
            Event::PoolStream(_, stream) => {
                hear_object(&mut self.pool, &mut self.pool_said, stream, |pool| (pool.uid.clone(), pool.generation));
            }
            _ => {}
        }
    }

    fn hear_node(&mut self, stream: &Stream<Node>) {
        match stream {
            Stream::Changed(node) => self.observe(node),
            Stream::Bookmark { .. } => {}
            Stream::Deleted | Stream::Closed | Stream::Failed(_) => {
                self.deleted |= matches!(stream, Stream::Deleted) && self.adopted.is_some();
                if matches!(stream, Stream::Deleted) {
                    self.node = None;
                }
                self.validated = false;
                self.node_stream = None;
            }
        }
    }

    fn observe(&mut self, node: &Node) {
        let version = |node: &Node| node.resource_version.parse::<u64>().unwrap();
        if self.node.as_ref().is_none_or(|known| version(known) <= version(node)) {
            self.node = Some(node.clone());
        }
        if let Some(denial) = &mut self.denial {
            let key = |node: &Node| (node.taints.clone(), node.labels.clone(), node.uid.clone());
            denial.changed |= denial.node.as_ref().map(key) != self.node.as_ref().map(key);
        }
    }

    /// A stream has ended, or was never opened.
    pub fn stream_ended(&mut self, operation: Operation, opened_at: Duration, failure: Option<&Failure>) {
        if self.now.saturating_sub(opened_at) >= Duration::from_secs(60) {
            self.tried.remove(&operation);
        }
        let closed = Failure::new(FailureKind::Closed, "");
        self.failed(operation, failure.unwrap_or(&closed));
    }

    pub fn failed(&mut self, operation: Operation, failure: &Failure) {
        let tried = self.tried.entry(operation).or_default();
        tried.failures += 1;
        let retry_after = failure.retry_after.filter(|_| !failure.denied).unwrap_or_default();
        let mut wait = floor(tried.failures).max(retry_after.min(Duration::from_secs(300)));
        if failure.denied && operation != Operation::TaintRemoval {
            wait = Duration::from_secs(300);
        }
        tried.not_before = self.now + wait;
    }

    fn hear_answer(&mut self, flight: &Flight, answer: &Answer) {
        match (&flight.action, answer) {
            (Action::Ask(_, question), Answer::Policy(policy)) => self.hear_verdict(question, &policy.outcome),
            (Action::ReadNode(_), Answer::Node(Ok(node))) => {
                if flight.operation == Some(Operation::NodeRead) {
                    self.validated = true;
                    self.absences = 0;
                }
                self.observe(node);
            }
            (Action::ReadNode(_), Answer::Node(Err(failure))) if flight.operation == Some(Operation::NodeRead) => {
                let missing = failure.kind == FailureKind::NotFound;
                self.absences = if missing { self.absences + 1 } else { 0 };
                self.just_missing = missing && self.has_ledger;
            }
            (Action::PatchTaints { .. }, Answer::Node(Ok(node))) => self.observe(node),
            (Action::PatchTaints { .. }, Answer::Node(Err(failure))) if failure.denied => {
                self.denial = Some(Denial { at: self.now, node: flight.node.clone(), changed: false });
                if let Some(node) = self.node.clone() {
                    self.observe(&node);
                }
            }
            (Action::PatchPod(_, patch), Answer::Pod(Ok(pod))) if is_acknowledgment(patch) => {
                if shows(&pod.annotations, patch) {
                    self.acknowledged();
                } else {
                    self.unresolved = None;
                    self.failed(Operation::Acknowledgment, &Failure::new(FailureKind::Other, ""));
                    return;
                }
            }
            (Action::PatchPod(_, patch), Answer::Pod(Ok(pod))) => {
                self.may_stand = !shows(&pod.annotations, patch);
                if let (true, Some(operation)) = (self.may_stand, flight.operation) {
                    self.failed(operation, &Failure::new(FailureKind::Other, ""));
                    return;
                }
            }
            (Action::PatchPod(_, patch), Answer::Pod(Err(failure)))
                if !is_acknowledgment(patch)
                    && !failure.denied
                    && matches!(failure.kind, FailureKind::NotFound | FailureKind::Invalid) =>
            {
                // The Pod is gone, or is another: there is nothing to withdraw.
                self.may_stand = false;
                self.tried.remove(&Operation::Withdrawal);
                return;
            }
            (Action::PatchPod(_, patch), Answer::Pod(Err(failure)))
                if is_acknowledgment(patch) && !failure.effect_unknown =>
            {
                self.unresolved = None;
            }
            (Action::ReadPod(_), Answer::Pod(Ok(pod))) => match &self.unresolved {
                Some(patch) if flight.operation == Some(Operation::Acknowledgment) => {
                    self.resolved = true;
                    if shows(&pod.annotations, patch) {
                        self.acknowledged();
                    } else {
                        self.unresolved = None;
                        self.failed(Operation::Acknowledgment, &Failure::new(FailureKind::Unavailable, ""));
                    }
                    return;
                }
                _ => {
                    let record = pod.annotations.get(ACKNOWLEDGMENT_KEY);
                    self.may_stand = record.is_some();
                    self.recorded = record.map(|record| {
                        let record: Value = serde_json::from_str(record).unwrap();
                        record["nodeUID"].as_str().unwrap().to_owned()
                    });
                }
            },
            (Action::ReadRoutes(_), Answer::Routes(Ok(object))) => {
                self.shown_routes = Some(object.as_ref().map(|object| object.routes.clone()).unwrap_or_default());
            }
            (Action::PatchRoutes(_, _, patch), Answer::Routes(Ok(object))) => {
                let routes = object.as_ref().map(|object| object.routes.clone()).unwrap_or_default();
                let done = shows(&routes, patch);
                self.shown_routes = Some(routes);
                if let (false, Some(operation)) = (done, flight.operation) {
                    self.failed(operation, &Failure::new(FailureKind::Other, ""));
                    return;
                }
            }
            (Action::ApplyDataPlane(_, desired), Answer::Applied(Ok(routes))) => {
                self.applied = Some((*desired.clone(), routes.clone()));
                self.shown_routes = None;
            }
            (Action::JoinWorkers(_), Answer::Joined(left)) => {
                self.joined = left.is_empty();
                if let (false, Some(operation)) = (self.joined, flight.operation) {
                    self.failed(operation, &Failure::new(FailureKind::Timeout, ""));
                    return;
                }
            }
            (Action::SaveLedger(..), Answer::Done(done)) => {
                self.ledger_trouble = done.is_err();
                self.has_ledger |= done.is_ok();
            }
            _ => {}
        }
        let Some(operation) = flight.operation else { return };
        match failure(answer) {
            Some(failure) => self.failed(operation, &failure),
            // A read of a try of its own ends nothing, and an accepted removal has to last first.
            None if matches!(flight.action, Action::ReadRoutes(_)) => {}
            None if operation == Operation::TaintRemoval => {
                if matches!(flight.action, Action::PatchTaints { .. }) {
                    let tried = self.tried.entry(operation).or_default();
                    tried.not_before = tried.not_before.max(self.now + floor(1));
                }
            }
            None => drop(self.tried.remove(&operation)),
        }
    }

    fn acknowledged(&mut self) {
        self.unresolved = None;
        self.tried.remove(&Operation::Acknowledgment);
        if self.ending.is_none() {
            self.saved = true;
            self.just_saved = Some(self.node_stream);
        }
    }

    fn hear_verdict(&mut self, question: &Question, outcome: &Outcome) {
        let outcome = outcome.clone();
        match question {
            Question::Adopt(node) => self.projection = Some((*node.clone(), outcome)),
            Question::Assess(observation) => self.assessment = Some((*observation.clone(), outcome)),
            Question::Unwanted(subject) => self.unwanted.insert(*subject.clone(), outcome),
            Question::Render(subject) => self.rendered.insert(*subject.clone(), outcome),
            Question::Pause(_) | Question::Annotate(_) => {}
        }
    }
}

fn hear_object<T: Clone>(
    object: &mut Option<T>,
    said: &mut bool,
    stream: &Stream<T>,
    version: impl Fn(&T) -> (String, i64),
) {
    match stream {
        Stream::Changed(changed) => {
            *said = true;
            // A renewed watch repeats what came after the last bookmark.
            let old = object.as_ref().is_some_and(|known| {
                let ((uid, generation), (other, later)) = (version(changed), version(known));
                uid == other && generation < later
            });
            if !old {
                *object = Some(changed.clone());
            }
        }
        Stream::Deleted => (*object, *said) = (None, false),
        Stream::Bookmark { initial: true, .. } if !*said => *object = None,
        _ => {}
    }
}
