//! Reconciliation: machine and objects are made to match the adopted assignment, in this order: data plane, CNI
//! configuration, taints, advertised routes. A settled agent does the same again when its Site or pool changes, without
//! the taints: it has no current picture of its Node.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{
    Action, Answer, CniSeen, Desired, Failure, FailureKind, MachineFailure, Outcome, Question, TroubleReason, Verdict,
};
use crate::life::Life;
use crate::life::successor::CniWanted;
use crate::note::Note;
use crate::objects::{GatewayPoolNode, Node, Routes, Taint};
use crate::row::Operation;

/// What of reconciliation is done, and for what.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Work {
    /// What the data plane said it would put where.
    planned: Option<(Desired, serde_json::Value)>,
    planning: Option<Desired>,
    /// What it has put there.
    applied: Option<(Desired, Routes)>,
    /// The CNI state on disk.
    cni: Option<CniWanted>,
    writing_cni: Option<CniWanted>,
    /// A file of someone else for which a container runtime may load nothing.
    in_the_way: Option<String>,
    /// The next taint patch needs a fresh read.
    taints_stale: bool,
    /// That read is under way.
    taints_reading: bool,
    /// A taint removal was accepted since the row began: a taint seen again came back.
    taints_removed: bool,
    /// The Node that the patch under way, or the last one, was made from.
    patched: Option<Node>,
    /// The Node whose patch an admission verdict denied: the removal is parked.
    parked: Option<Node>,
    /// The status from which routes are to be written.
    routes_read: Option<GatewayPoolNode>,
    /// The patch that writes them is under way, not the read before it.
    routes_patching: bool,
    /// The routes that an answer has shown.
    advertised: Option<BTreeMap<String, serde_json::Value>>,
    /// Everything has been done at least once, for the note.
    told: bool,
}

impl Work {
    pub(super) fn is_begun(&self) -> bool {
        self.cni.is_some()
    }
}

impl Life {
    pub(super) fn drive_reconciliation(&mut self) {
        if self.cleanup.is_some() || self.earlier_setup() || self.owes_withdrawal() || self.pod_unread {
            return;
        }
        if !self.is_ready(Operation::Reconciliation) {
            return;
        }
        let Some(desired) = self.desired() else { return };
        let Ok(cni) = self.cni_wanted() else { return };
        if self.drive_data_plane(&desired, &cni) && self.drive_cni(&cni) {
            let taints = self.settled() || self.drive_taints();
            if !taints || !self.drive_routes() {
                return;
            }
            self.succeed(Operation::Reconciliation);
            if !self.work.told {
                self.work.told = true;
                self.note(Note::Reconciled { what: "Machine and objects match the assignment.".into() });
            }
        }
    }

    /// Whether everything that the acknowledgment says is done, by the last observation.
    pub(super) fn is_reconciled(&self) -> bool {
        let (Some(desired), Ok(cni)) = (self.desired(), self.cni_wanted()) else { return false };
        let routes = match &self.work.applied {
            Some((applied, Routes::NotMine)) => *applied == desired,
            Some((applied, Routes::Map(map))) => *applied == desired && self.work.advertised.as_ref() == Some(map),
            None => false,
        };
        routes
            && self.cleanup.is_none()
            && !self.earlier_setup()
            && self.work.cni.as_ref() == Some(&cni)
            && matches!(self.unwanted_present(), Ok(present) if present.is_empty())
            && self.gateway_taint_gone()
    }

    /// The floor under every taints verdict: a worker that still has the gateway taint is not acknowledged.
    fn gateway_taint_gone(&self) -> bool {
        let worker = self.adopted.as_ref().is_some_and(|adopted| !adopted.assignment.is_gateway());
        !worker
            || self
                .node
                .observed
                .as_ref()
                .is_some_and(|node| node.taints.iter().all(|taint| taint.key != self.settings.gateway_taint))
    }

    pub(super) fn desired(&self) -> Option<Desired> {
        let assignment = self.adopted.as_ref()?.assignment.clone();
        let pool = if assignment.is_gateway() { Some(self.pool.object.clone()?) } else { None };
        let pod_cidrs = self.node.observed.as_ref()?.pod_cidrs.clone();
        Some(Desired { site: self.site.object.clone()?, pool, pod_cidrs, assignment })
    }

    fn drive_data_plane(&mut self, desired: &Desired, cni: &CniWanted) -> bool {
        let Some((_, plan)) = self.work.planned.clone().filter(|(planned, _)| planned == desired) else {
            let wanted = Box::new(desired.clone());
            if self.local(Operation::DataPlane, |call| Action::PlanDataPlane(call, wanted)).is_some() {
                self.work.planning = Some(desired.clone());
            }
            return false;
        };
        // Recorded before anything is applied, all in one save: whose it is, the plan, the CNI content to come.
        self.ledger.node_name.clone_from(&self.settings.node_name);
        self.ledger.boot_id.clone_from(&self.boot_id);
        self.ledger.assignment = Some(desired.assignment.clone());
        if !self.ledger.data_plane.contains(&plan) {
            // What an earlier plan put there stays listed until this one is in effect.
            self.ledger.data_plane.push(plan);
        }
        if let CniWanted::Managed(content) = cni
            && self.work.cni.as_ref() != Some(cni)
        {
            self.ledger.cni.insert(content.clone());
        }
        if !self.is_durable() {
            return false;
        }
        if self.work.applied.as_ref().is_none_or(|(applied, _)| applied != desired) {
            let wanted = Box::new(desired.clone());
            if self.local(Operation::DataPlane, |call| Action::ApplyDataPlane(call, wanted)).is_some() {
                self.work.applied = None;
            }
            return false;
        }
        true
    }

    pub(super) fn data_plane_answered(&mut self, answer: Answer) {
        let failure = match self.work.planning.take() {
            Some(desired) => match answer.plan() {
                Ok(plan) => {
                    self.work.planned = Some((desired, plan));
                    self.succeed(Operation::DataPlane);
                    return;
                }
                Err(failure) => failure,
            },
            None => match (answer.applied(), self.work.planned.clone()) {
                (Ok(routes), Some((desired, plan))) => {
                    self.ledger.data_plane = vec![plan];
                    self.ledger.incomplete = false;
                    self.work.applied = Some((desired, routes));
                    self.work.advertised = None;
                    self.work.routes_read = None;
                    self.succeed(Operation::DataPlane);
                    self.note(Note::Reconciled { what: "The data plane is set up.".into() });
                    return;
                }
                (Err(failure), _) => failure,
                (Ok(_), None) => return,
            },
        };
        self.fail(Operation::DataPlane, failure.into());
    }

    fn drive_cni(&mut self, wanted: &CniWanted) -> bool {
        if self.work.cni.as_ref() == Some(wanted) {
            return true;
        }
        let own = self.ledger.cni.clone();
        let tried = match wanted {
            CniWanted::Managed(content) => {
                let content = content.clone();
                self.local(Operation::CniWrite, |call| Action::WriteCni(call, content, own))
            }
            CniWanted::Unmanaged => self.local(Operation::CniWrite, |call| Action::DisableCni(call, own)),
        };
        if tried.is_some() {
            // Until the answer says so, nobody knows what is on disk.
            self.work.cni = None;
            self.work.writing_cni = Some(wanted.clone());
        }
        false
    }

    pub(super) fn cni_written(&mut self, answer: Result<(), MachineFailure>) {
        let written = self.work.writing_cni.take();
        match answer {
            Ok(()) => {
                self.succeed(Operation::CniWrite);
                self.ledger.cni = match &written {
                    Some(CniWanted::Managed(content)) => BTreeSet::from([content.clone()]),
                    _ => BTreeSet::new(),
                };
                let what = match &written {
                    Some(CniWanted::Managed(_)) => "The CNI configuration is the Site's.",
                    _ => "CNI is not managed here: no configuration of the agent's own is active.",
                };
                self.work.cni = written;
                self.note(Note::Reconciled { what: what.into() });
            }
            Err(failure) => {
                if failure.blocked {
                    self.trouble(TroubleReason::CniBlocked, failure.message.clone());
                }
                self.fail(Operation::CniWrite, failure.into());
            }
        }
    }

    /// The CNI configuration that was put in place and has to be there still, for who looks from time to time whether it is:
    /// see [`crate::Event::CniSeen`].
    pub fn cni_in_place(&self) -> Option<&str> {
        match &self.work.cni {
            Some(CniWanted::Managed(content)) if self.ending.is_none() => Some(content),
            _ => None,
        }
    }

    /// The file of someone else that was last seen to be in its way, as [`crate::CniSeen`] told it.
    pub fn cni_in_the_way(&self) -> Option<&str> {
        self.work.in_the_way.as_deref()
    }

    pub(super) fn cni_seen(&mut self, seen: CniSeen) {
        if self.cni_in_place().is_none() {
            return;
        }
        if !seen.in_place {
            // What is there now, the next write finds out: a file of someone else is left alone then.
            self.work.cni = None;
            self.note(Note::CniTrouble { what: "The CNI configuration is not in place as it was any more.".into() });
        }
        if let Some(message) = seen.in_the_way.as_ref().filter(|_| seen.in_the_way != self.work.in_the_way) {
            self.note(Note::CniTrouble { what: message.clone() });
            self.trouble(TroubleReason::CniBlocked, message.clone());
        }
        self.work.in_the_way = seen.in_the_way;
    }

    /// The taints that are on the Node and have to go, with the floors applied; or why that is not known.
    pub(super) fn unwanted_present(&self) -> Result<Vec<Taint>, String> {
        let subject = self.subject().ok_or("The own Node is not known.")?;
        match self.taints.outcome(&subject) {
            None => Err("The taints policy has not answered yet.".into()),
            Some(Outcome::NoBinding) => Err("No binding answers the taints hook, so nothing is removed.".into()),
            Some(Outcome::Held(_, error)) => Err(error.clone()),
            Some(Outcome::Decided(Verdict::Unwanted(unwanted, _), _)) => Ok(subject
                .node
                .taints
                .iter()
                .filter(|taint| unwanted.contains(&(taint.key.clone(), taint.effect.clone())) && self.may_remove(taint))
                .cloned()
                .collect()),
            Some(Outcome::Decided(..)) => Err("The taints hook gave a verdict of another hook.".into()),
        }
    }

    /// Only keys on the operator's list, and on a gateway never the gateway taint.
    fn may_remove(&self, taint: &Taint) -> bool {
        let gateway = self.adopted.as_ref().is_some_and(|adopted| adopted.assignment.is_gateway());
        self.settings.allowed_taints.contains(&taint.key) && !(gateway && taint.key == self.settings.gateway_taint)
    }

    fn drive_taints(&mut self) -> bool {
        let Some(subject) = self.subject() else { return false };
        self.ask(|life| &mut life.taints, &subject, Question::Unwanted);
        let Ok(present) = self.unwanted_present() else { return false };
        if present.is_empty() {
            // Nothing to remove, or no longer: a parked removal has succeeded without a patch.
            if !self.is_trying(Operation::TaintRemoval) && self.work.parked.take().is_some() {
                self.abandon(Operation::TaintRemoval);
            }
            return self.gateway_taint_gone();
        }
        if !self.is_trying(Operation::TaintRemoval) {
            self.unpark(&subject.node);
        }
        if self.work.taints_removed && !self.is_trying(Operation::TaintRemoval) {
            self.work.taints_removed = false;
            let message = "A removed taint came back: someone else puts it there.";
            self.fail(Operation::TaintRemoval, Failure::new(FailureKind::Conflict, message));
            return false;
        }
        // A Node that nothing vouches for is read by its own track, at its own interval.
        let Some(node) = self.node.observed.clone().filter(|_| self.node.validated) else { return false };
        if self.work.taints_stale {
            self.work.taints_reading |= self.request(Operation::TaintRemoval, Action::ReadNode).is_some();
        } else {
            let taints = node.taints.iter().filter(|taint| !present.contains(taint)).cloned().collect();
            let from = node.clone();
            let asked = self.request(Operation::TaintRemoval, |call| Action::PatchTaints {
                call,
                uid: node.uid,
                resource_version: node.resource_version,
                taints,
            });
            if asked.is_some() {
                self.work.patched = Some(from);
            }
        }
        false
    }

    /// A removal that was denied is tried again when the Node's taints, labels or UID change.
    fn unpark(&mut self, node: &Node) {
        let changed = self.work.parked.as_ref().is_some_and(|parked| {
            (&parked.taints, &parked.labels, &parked.uid) != (&node.taints, &node.labels, &node.uid)
        });
        if changed {
            self.work.parked = None;
            self.ready(Operation::TaintRemoval);
        }
    }

    pub(super) fn taints_answered(&mut self, answer: Result<Node, Failure>) {
        let reading = std::mem::take(&mut self.work.taints_reading);
        self.work.parked = None;
        match answer {
            Ok(node) if reading => {
                // The fresh read: the patch that is made from it is part of the same try.
                self.work.taints_stale = false;
                self.ready(Operation::TaintRemoval);
                self.observe(node);
            }
            Ok(node) => {
                self.work.taints_removed = true;
                self.ready(Operation::TaintRemoval);
                self.observe(node);
                self.note(Note::Reconciled { what: "Unwanted taints were removed from the Node.".into() });
            }
            Err(failure) => {
                self.work.taints_stale = true;
                if failure.denied {
                    self.work.parked = self.work.patched.take();
                    self.trouble(TroubleReason::TaintRemovalDenied, failure.message.clone());
                }
                self.fail(Operation::TaintRemoval, failure);
            }
        }
    }

    fn drive_routes(&mut self) -> bool {
        let Some((_, Routes::Map(wanted))) = self.work.applied.clone() else { return self.work.applied.is_some() };
        if self.work.advertised.as_ref() == Some(&wanted) {
            return true;
        }
        if !wanted.is_empty() && !self.ledger.advertised {
            self.ledger.advertised = true;
        }
        if !self.is_durable() {
            return false;
        }
        match self.work.routes_read.take() {
            None => {
                self.request(Operation::Advertisement, Action::ReadRoutes);
            }
            Some(object) => {
                let mut patch: BTreeMap<_, _> = object
                    .routes
                    .keys()
                    .filter(|key| !wanted.contains_key(*key))
                    .map(|key| (key.clone(), None))
                    .collect();
                patch.extend(wanted.into_iter().map(|(key, route)| (key, Some(route))));
                let version = object.resource_version.clone();
                let asked = self.request(Operation::Advertisement, |call| Action::PatchRoutes(call, version, patch));
                self.work.routes_patching |= asked.is_some();
                self.work.routes_read = asked.is_none().then_some(object);
            }
        }
        false
    }

    pub(super) fn routes_answered(&mut self, answer: Result<Option<GatewayPoolNode>, Failure>) {
        let patching = std::mem::take(&mut self.work.routes_patching);
        let Some((_, Routes::Map(wanted))) = &self.work.applied else {
            self.succeed(Operation::Advertisement);
            return;
        };
        match answer {
            Ok(object) => {
                let shown = object.as_ref().map(|object| &object.routes);
                if shown == Some(wanted) || (shown.is_none() && wanted.is_empty()) {
                    let wanted = wanted.clone();
                    self.succeed(Operation::Advertisement);
                    self.ledger.advertised = !wanted.is_empty();
                    self.note(Note::Reconciled { what: format!("{} routes are advertised.", wanted.len()) });
                    self.work.advertised = Some(wanted);
                } else if object.is_some() && patching {
                    let message = "The API server took the routes and answered with a status that does not show them.";
                    self.fail(Operation::Advertisement, Failure::new(FailureKind::Other, message));
                } else if object.is_some() {
                    self.ready(Operation::Advertisement);
                    self.work.routes_read = object;
                } else {
                    let message = format!(
                        "GatewayPoolNode {} does not exist yet, so its routes can't be advertised.",
                        self.settings.node_name
                    );
                    self.fail(Operation::Advertisement, Failure::new(FailureKind::NotFound, message));
                }
            }
            Err(failure) => self.fail(Operation::Advertisement, failure),
        }
    }
}
