//! Handoff: what an earlier assignment set up is left. First the API's part, while the old set-up still works; only then,
//! as local work, workers joined, CNI disabled, data plane torn down. A changed Node UID and a confirmed absence wait for
//! nobody: the local part is done at once, and what the API does not take within its deadline stays in the ledger as owed.

use std::time::Duration;

use crate::event::{Action, Answer, ExitCode, Failure, FailureKind};
use crate::ledger::Ledger;
use crate::life::Life;
use crate::note::Note;
use crate::objects::{GatewayPoolNode, Pod};
use crate::row::Operation;

/// How far transition cleanup is. What there is to do is in the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Cleanup {
    /// The assignment is over, whatever comes: its Node is gone or another.
    forced: bool,
    /// Until when a forced cleanup tries the API's part.
    api_until: Duration,
    step: Step,
    /// The status from which routes are to be cleared.
    routes: Option<GatewayPoolNode>,
    /// The patch that clears them is under way, not the read before it.
    clearing: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Step {
    Join,
    DisableCni,
    TearDown,
    Local,
    Recorded,
}

impl Cleanup {
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.forced.then_some(self.api_until)
    }
}

impl Life {
    /// An acknowledgment that an earlier process owes is withdrawn as the first write.
    pub(super) fn drive_owed(&mut self) {
        if self.owes_withdrawal() {
            self.withdraw();
        }
    }

    pub(super) fn owes_withdrawal(&self) -> bool {
        self.ledger.acknowledgment.as_ref().is_some_and(|ack| ack.owed && ack.pod_uid == self.settings.pod_uid)
    }

    /// Withdraws the acknowledgment that the ledger lists, if it stands on the own Pod.
    pub(super) fn withdraw(&mut self) {
        let Some(acknowledged) = &self.ledger.acknowledgment else { return };
        if acknowledged.pod_uid != self.settings.pod_uid {
            // That Pod is gone, and its record with it.
            self.ledger.acknowledgment = None;
            return;
        }
        let annotations = acknowledged.keys.iter().map(|key| (key.clone(), None)).collect();
        self.request(Operation::Withdrawal, |call| Action::PatchPod(call, annotations));
    }

    pub(super) fn withdrawal_answered(&mut self, answer: Result<Pod, Failure>) {
        match answer {
            Ok(pod) if self.is_listed_on(&pod) => {
                let message = "The API server took the withdrawal and answered with a Pod that still shows the record.";
                self.fail(Operation::Withdrawal, Failure::new(FailureKind::Other, message));
            }
            Ok(_) => {
                self.succeed(Operation::Withdrawal);
                self.ledger.acknowledgment = None;
                self.note(Note::AcknowledgmentWithdrawn);
            }
            Err(failure) if self.is_pod_lost(&failure) => {
                self.succeed(Operation::Withdrawal);
                self.ledger.acknowledgment = None;
                // A forced cleanup goes on: the Pod goes with its Node, and nobody else would clean up here.
                if self.cleanup.as_ref().is_none_or(|cleanup| !cleanup.forced) {
                    self.pod_lost(&failure);
                }
            }
            Err(failure) => self.fail(Operation::Withdrawal, failure),
        }
    }

    /// Whether the Pod shows something of the acknowledgment that the ledger lists.
    fn is_listed_on(&self, pod: &Pod) -> bool {
        self.ledger
            .acknowledgment
            .as_ref()
            .is_some_and(|ack| ack.keys.iter().any(|key| pod.annotations.contains_key(key)))
    }

    /// The own Pod is gone, or another one has its name.
    pub(super) fn is_pod_lost(&self, failure: &Failure) -> bool {
        matches!(failure.kind, FailureKind::NotFound) || (failure.kind == FailureKind::Invalid && !failure.denied)
    }

    pub(super) fn pod_lost(&mut self, failure: &Failure) {
        let (namespace, pod, uid) = (&self.settings.pod_namespace, &self.settings.pod_name, &self.settings.pod_uid);
        let reason = format!(
            "Pod {namespace}/{pod} with UID {uid} is not there any more, so this process is nobody's: {}",
            failure.message
        );
        self.end(ExitCode::Environment, reason);
    }

    /// Whether the ledger lists what belongs to something else than the adopted assignment.
    pub(super) fn earlier_setup(&self) -> bool {
        match (&self.ledger.assignment, &self.adopted) {
            (Some(earlier), Some(adopted)) => *earlier != adopted.assignment,
            (Some(_), None) => false,
            (None, _) => self.ledger.advertised || self.owes_withdrawal(),
        }
    }

    /// Whether the assignment that the ledger lists is over without a successor.
    fn is_over(&self) -> Option<String> {
        let earlier = self.ledger.assignment.as_ref()?;
        if self.node.absent {
            return Some(format!("Node {} is confirmed absent.", self.settings.node_name));
        }
        let node = self.node.observed.as_ref()?;
        (node.uid != earlier.node_uid)
            .then(|| format!("Node {} has UID {} and had {} before.", node.name, node.uid, earlier.node_uid))
    }

    pub(super) fn drive_cleanup(&mut self) {
        if self.cleanup.is_none() {
            let why = match (self.is_over(), &self.adopted) {
                (Some(why), _) => Some((true, why)),
                (None, Some(adopted)) if self.earlier_setup() && self.cni_wanted().is_ok() => Some((
                    false,
                    match &self.ledger.assignment {
                        Some(earlier) => format!("From {earlier} to {}.", adopted.assignment),
                        None => "Something is owed to the API.".into(),
                    },
                )),
                _ => None,
            };
            let Some((forced, what)) = why else { return };
            self.note(Note::HandingOff { what });
            let api_until = self.now + self.settings.cleanup_deadline;
            self.cleanup = Some(Cleanup { forced, api_until, step: Step::Join, routes: None, clearing: false });
        }
        let Some(Cleanup { forced, api_until, step, .. }) = self.cleanup.clone() else { return };
        let given_up = forced && self.now >= api_until;
        if !given_up {
            self.drive_api_part();
        }
        let api_done = forced || step > Step::Join || (!self.is_api_open() && self.is_durable());
        // The successor has to be known at the moment when the old set-up goes; joining workers takes nothing away.
        let may_begin = forced || step > Step::DisableCni || self.cni_wanted().is_ok();
        if api_done && may_begin && step < Step::Local {
            self.drive_local_part(step);
        }
        if step == Step::Local {
            // Nothing of the earlier assignment is on this machine any more.
            self.ledger.assignment = None;
            self.ledger.cni.clear();
            self.ledger.data_plane.clear();
            if let Some(cleanup) = &mut self.cleanup {
                cleanup.step = Step::Recorded;
            }
        }
        let recorded = self.cleanup.as_ref().is_some_and(|cleanup| cleanup.step == Step::Recorded);
        if recorded && (!self.is_api_open() || given_up) {
            if let Some(acknowledged) = &mut self.ledger.acknowledgment {
                // Nobody waits for it any more, but it is still tried.
                acknowledged.owed = true;
                self.drive_owed();
            }
            if self.is_durable() {
                self.finish_cleanup();
            }
        }
    }

    fn finish_cleanup(&mut self) {
        self.cleanup = None;
        self.note(Note::HandingOff { what: "What an earlier assignment set up is gone.".into() });
        // Routes that are still advertised are a handoff of their own, once the successor is known.
        self.drive_cleanup();
    }

    /// Whether something of what the ledger lists is still to be left in the API.
    fn is_api_open(&self) -> bool {
        self.ledger.acknowledgment.is_some() || self.ledger.advertised
    }

    fn drive_api_part(&mut self) {
        self.withdraw();
        if self.ledger.acknowledgment.is_none() && self.ledger.advertised {
            let routes = self.cleanup.as_mut().and_then(|cleanup| cleanup.routes.take());
            if let Some(object) = routes {
                let keep = object.clone();
                let nulls = object.routes.into_keys().map(|key| (key, None)).collect();
                let asked = self
                    .request(Operation::Withdrawal, |call| Action::PatchRoutes(call, object.resource_version, nulls));
                if let Some(cleanup) = &mut self.cleanup {
                    cleanup.clearing = asked.is_some();
                    cleanup.routes = asked.is_none().then_some(keep);
                }
            } else {
                self.request(Operation::Withdrawal, Action::ReadRoutes);
            }
        }
    }

    /// Routes are cleared when an answer shows that there are none: from a read, or from the patch itself.
    pub(super) fn cleared_routes_answered(&mut self, answer: Result<Option<GatewayPoolNode>, Failure>) {
        let clearing = self.cleanup.as_mut().is_some_and(|cleanup| std::mem::take(&mut cleanup.clearing));
        match answer {
            Ok(Some(object)) if clearing && !object.routes.is_empty() => {
                let message = "The API server took the patch and answered with a status that still shows routes.";
                self.fail(Operation::Withdrawal, Failure::new(FailureKind::Other, message));
            }
            Ok(Some(object)) if !object.routes.is_empty() => {
                self.ready(Operation::Withdrawal);
                if let Some(cleanup) = &mut self.cleanup {
                    cleanup.routes = Some(object);
                }
            }
            Ok(_) => {
                self.succeed(Operation::Withdrawal);
                self.ledger.advertised = false;
                self.note(Note::HandingOff { what: "No routes are advertised any more.".into() });
            }
            Err(failure) => self.fail(Operation::Withdrawal, failure),
        }
    }

    fn drive_local_part(&mut self, step: Step) {
        let Ledger { cni, data_plane, .. } = self.ledger.clone();
        match step {
            Step::Join => {
                self.local(Operation::Cleanup, Action::JoinWorkers);
            }
            Step::DisableCni if cni.is_empty() => self.local_part_done(Step::TearDown),
            Step::DisableCni => {
                self.local(Operation::Cleanup, |call| Action::DisableCni(call, cni));
            }
            Step::TearDown => match data_plane.last().cloned() {
                Some(plan) => {
                    self.local(Operation::Cleanup, |call| Action::TearDownDataPlane(call, plan));
                }
                None => self.local_part_done(Step::Local),
            },
            Step::Local | Step::Recorded => {}
        }
    }

    fn local_part_done(&mut self, next: Step) {
        if let Some(cleanup) = &mut self.cleanup {
            cleanup.step = next;
        }
        self.drive_cleanup();
    }

    pub(super) fn cleanup_answered(&mut self, answer: Answer) {
        let Some(Cleanup { step, .. }) = self.cleanup else { return };
        let (done, next) = match step {
            Step::Join => {
                let left = answer.joined();
                let done = if left.is_empty() {
                    Ok(())
                } else {
                    Err(Failure::new(
                        FailureKind::Timeout,
                        format!(
                            "Workers that ignore their cancellation: {}. Nothing that they may touch is cleaned up.",
                            left.join(", ")
                        ),
                    ))
                };
                (done, Step::DisableCni)
            }
            // And one plan after the other.
            _ => (answer.done().map_err(Failure::from), Step::TearDown),
        };
        match done {
            Ok(()) => {
                self.succeed(Operation::Cleanup);
                if step == Step::TearDown {
                    self.ledger.data_plane.pop();
                }
                if let Some(cleanup) = &mut self.cleanup {
                    cleanup.step = next;
                }
            }
            Err(failure) => self.fail(Operation::Cleanup, failure),
        }
    }
}
