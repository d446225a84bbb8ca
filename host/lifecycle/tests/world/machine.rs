//! The model of a machine: a ledger as bytes on a disk, one CNI file, and what a data plane has put there. What a cancelled
//! or a failed operation leaves half done, it leaves half done.

use std::collections::BTreeSet;

use moorline_lifecycle::{Action, Answer, Desired, Ledger, MachineFailure, Routes};
use serde_json::{Value, json};

#[derive(Debug, Clone, Default, Hash)]
pub struct Machine {
    /// The ledger's bytes, and what is read from them.
    ledger: Option<(String, Ledger)>,
    /// The content of the agent's CNI file.
    pub cni: Option<String>,
    /// The file that it was renamed to.
    pub disabled: Option<String>,
    /// What the data plane has put here.
    pub items: BTreeSet<String>,
    /// Whether the data plane advertises.
    pub advertises: bool,
    /// What was here when the ledger was lost: no ledger can list it.
    pub forgotten: BTreeSet<String>,
}

/// How far an operation gets that does not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    Nothing,
    Everything,
}

fn blocked() -> MachineFailure {
    MachineFailure { blocked: true, message: "A foreign file is in the way.".into() }
}

pub fn foreign(content: &str) -> bool {
    content.starts_with("foreign")
}

impl Machine {
    /// The ledger as the next process finds it.
    pub fn durable(&self) -> Option<&Ledger> {
        self.ledger.as_ref().map(|(_, ledger)| ledger)
    }

    pub fn save(&mut self, ledger: &Ledger) {
        let text = serde_json::to_string(ledger).unwrap();
        let read = serde_json::from_str(&text).unwrap();
        self.ledger = Some((text, read));
    }

    pub fn lose_ledger(&mut self) {
        self.ledger = None;
        self.forgotten.extend(self.items.iter().cloned());
        self.forgotten.extend(self.cni.iter().cloned());
    }

    /// What a data plane would put where: something for the Site, something for its version, something for the pool.
    pub fn plan(desired: &Desired) -> Value {
        let Desired { site, pool, .. } = desired;
        let mut items = vec![format!("link-{}", site.name), format!("route-{}-{}", site.uid, site.generation)];
        items.extend(pool.iter().map(|pool| format!("tunnel-{}-{}", pool.name, pool.generation)));
        json!({ "items": items })
    }

    pub fn items(plan: &Value) -> BTreeSet<String> {
        plan["items"].as_array().unwrap().iter().map(|item| item.as_str().unwrap().to_owned()).collect()
    }

    pub fn routes(&self, desired: &Desired) -> Routes {
        match (&desired.pool, self.advertises) {
            (_, false) => Routes::NotMine,
            (None, true) => Routes::Map([].into()),
            (Some(pool), true) => Routes::Map(
                [("10.9.0.0/16".to_owned(), json!({ "source": format!("{}-{}", pool.name, pool.generation) }))].into(),
            ),
        }
    }

    /// Does what is asked; none for what is not this machine's.
    pub fn serve(&mut self, action: &Action) -> Option<Answer> {
        Some(match action {
            Action::SaveLedger(_, ledger) => {
                self.save(ledger);
                Answer::Done(Ok(()))
            }
            // Whatever the ledger does not list is someone else's.
            Action::WriteCni(_, content, own) => {
                let may_go = self.cni.as_ref().is_none_or(|here| here == content || own.contains(here));
                Answer::Done(may_go.then(|| self.cni = Some(content.clone())).ok_or_else(blocked))
            }
            Action::DisableCni(_, own) => {
                let may_go = self.cni.as_ref().is_none_or(|here| own.contains(here));
                if may_go && let Some(content) = self.cni.take() {
                    self.disabled = Some(content);
                }
                Answer::Done(may_go.then_some(()).ok_or_else(blocked))
            }
            Action::PlanDataPlane(_, desired) => Answer::Plan(Ok(Self::plan(desired))),
            Action::ApplyDataPlane(_, desired) => {
                let items = Self::items(&Self::plan(desired));
                self.items.retain(|item| items.contains(item) || self.forgotten.contains(item));
                self.items.extend(items);
                Answer::Applied(Ok(self.routes(desired)))
            }
            Action::TearDownDataPlane(_, plan) => {
                for item in Self::items(plan) {
                    self.items.remove(&item);
                }
                Answer::Done(Ok(()))
            }
            Action::JoinWorkers(_) => Answer::Joined(Vec::new()),
            _ => return None,
        })
    }

    /// Fails at what is asked, having got so far. A data plane that breaks off has added and not yet removed.
    pub fn fail(&mut self, action: &Action, reached: Reached) -> Option<Answer> {
        let failure = MachineFailure { blocked: false, message: "The machine failed.".into() };
        match (action, reached) {
            (Action::ApplyDataPlane(_, desired), Reached::Everything) => {
                self.items.extend(Self::items(&Self::plan(desired)));
            }
            (Action::JoinWorkers(_), _) => return Some(Answer::Joined(vec!["worker".into()])),
            (_, Reached::Everything) => drop(self.serve(action)),
            (_, Reached::Nothing) => {}
        }
        Some(match action {
            Action::PlanDataPlane(..) => Answer::Plan(Err(failure)),
            Action::ApplyDataPlane(..) => Answer::Applied(Err(failure)),
            Action::SaveLedger(..) | Action::WriteCni(..) | Action::DisableCni(..) | Action::TearDownDataPlane(..) => {
                Answer::Done(Err(failure))
            }
            _ => return None,
        })
    }
}
