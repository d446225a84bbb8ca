//! Any data plane, with the machine's network looked after: the `network` of its plan is checked and recorded with the
//! agent's marks, and what is left of a plan after the data plane's own teardown is removed. Where no plan has a network
//! and no older agent's is listed, the machine's network isn't even read.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use moorline_lifecycle::{Desired, Routes};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::{Answer, DataPlane, DataPlaneError};
use crate::config::NetworkConfig;
use crate::machine::network::{self, Marks, NetworkAccess, NetworkError, NetworkPlan, RecordedPlan, Wanted};

/// What it has at the start of a process.
#[derive(Debug, Clone, Default)]
pub struct Start {
    /// The marks, and what an older agent left.
    pub config: NetworkConfig,
    /// Whether the network is touched at all.
    pub access: NetworkAccess,
    /// The boot id of this machine.
    pub boot_id: Option<String>,
    /// The data plane's plans in the ledger.
    pub plans: Vec<Value>,
    /// There is no ledger, or it began after another was lost and no plan has come into effect since: the marks decide, too.
    pub incomplete: bool,
}

/// A data plane, with the machine's network looked after.
pub struct Networked {
    inner: Arc<dyn DataPlane>,
    config: NetworkConfig,
    access: NetworkAccess,
    boot_id: Option<String>,
    /// Held by whatever works on the network.
    state: Mutex<State>,
}

struct State {
    /// What is, or may be, there by earlier plans.
    earlier: Vec<RecordedPlan>,
    /// The plan in the making.
    planned: Option<(Desired, Option<RecordedPlan>)>,
    /// No ledger says all of what is the agent's own.
    incomplete: bool,
    /// What an older agent left is still to be looked for.
    legacy_due: bool,
}

impl Networked {
    /// Looks after the network of a data plane.
    pub fn new(inner: Arc<dyn DataPlane>, start: Start) -> Self {
        let Start { config, access, boot_id, plans, incomplete } = start;
        // One that makes no sense is told at its teardown.
        let earlier = plans.iter().filter_map(|plan| RecordedPlan::of(plan).ok().flatten()).collect();
        let state = Mutex::new(State { earlier, planned: None, incomplete, legacy_due: true });
        Self { inner, config, access, boot_id, state }
    }

    async fn planned(&self, desired: &Desired, cancel: CancellationToken) -> Result<Value, DataPlaneError> {
        let mut plan = self.inner.plan(desired, cancel).await?;
        let network = NetworkPlan::of(&plan)
            .map_err(|problem| DataPlaneError::Network { data_plane: self.name().to_owned(), problem })?;
        let recorded = network.map(|plan| RecordedPlan {
            marks: Marks::new(&self.config, &desired.assignment),
            boot_id: self.boot_id.clone(),
            plan,
        });
        if let Some(recorded) = &recorded {
            recorded.record(&mut plan).map_err(|error| DataPlaneError::Other(error.into()))?;
        }
        self.state.lock().await.planned = Some((desired.clone(), recorded));
        Ok(plan)
    }

    /// The plan that belongs to what is desired.
    async fn plan_of(
        &self,
        desired: &Desired,
        cancel: &CancellationToken,
    ) -> Result<Option<RecordedPlan>, DataPlaneError> {
        if let Some((planned, recorded)) = &self.state.lock().await.planned
            && planned == desired
        {
            return Ok(recorded.clone());
        }
        self.planned(desired, cancel.clone()).await?;
        Ok(self.state.lock().await.planned.as_ref().and_then(|(_, recorded)| recorded.clone()))
    }

    fn wanted<'a>(&self, plans: impl IntoIterator<Item = &'a RecordedPlan>) -> Wanted {
        Wanted::of(plans, self.boot_id.as_deref())
    }

    async fn remove_legacy(
        &self,
        current: &Option<RecordedPlan>,
        cancel: &CancellationToken,
    ) -> Result<(), DataPlaneError> {
        let mut state = self.state.lock().await;
        if state.legacy_due {
            self.remove("what an older agent left", &Wanted::legacy(&self.config), &self.wanted(current), cancel)
                .await?;
            state.legacy_due = false;
        }
        Ok(())
    }

    /// What earlier plans list and this one doesn't; without a ledger, all that is marked and not in this plan.
    async fn remove_stale(
        &self,
        current: Option<RecordedPlan>,
        cancel: &CancellationToken,
    ) -> Result<(), DataPlaneError> {
        let mut state = self.state.lock().await;
        let kept = self.wanted(&current);
        if state.incomplete && current.is_some() {
            self.remove(
                "what carries the agent's marks, without a ledger",
                &Wanted::marked(&self.config),
                &kept,
                cancel,
            )
            .await?;
        }
        state.incomplete = false;
        let stale: Vec<_> = state.earlier.iter().filter(|plan| Some(*plan) != current.as_ref()).collect();
        self.remove("what an earlier plan lists", &self.wanted(stale), &kept, cancel).await?;
        state.earlier = current.into_iter().collect();
        Ok(())
    }

    async fn remove(
        &self,
        which: &str,
        gone: &Wanted,
        kept: &Wanted,
        cancel: &CancellationToken,
    ) -> Result<(), DataPlaneError> {
        let cancelled = || DataPlaneError::Cancelled { action: "network cleanup" };
        if cancel.is_cancelled() {
            return Err(cancelled());
        }
        if gone.is_empty() || self.access == NetworkAccess::Untouched {
            return Ok(());
        }
        let findings = tokio::select! {
            done = network::remove(gone, kept) => done?,
            () = cancel.cancelled() => return Err(cancelled()),
        };
        for what in &findings.own {
            tracing::info!("Of {which}, the {what} was removed.");
        }
        for what in &findings.foreign {
            tracing::warn!("Not the agent's, and left alone: {what}.");
        }
        Ok(())
    }
}

impl From<NetworkError> for DataPlaneError {
    fn from(error: NetworkError) -> Self {
        Self::Other(error.into())
    }
}

impl DataPlane for Networked {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn plan<'a>(&'a self, desired: &'a Desired, cancel: CancellationToken) -> Answer<'a, Value> {
        Box::pin(self.planned(desired, cancel))
    }

    fn apply<'a>(&'a self, desired: &'a Desired, cancel: CancellationToken) -> Answer<'a, Routes> {
        Box::pin(async move {
            let current = self.plan_of(desired, &cancel).await?;
            self.remove_legacy(&current, &cancel).await?;
            let routes = self.inner.apply(desired, cancel.clone()).await?;
            self.remove_stale(current, &cancel).await?;
            Ok(routes)
        })
    }

    fn teardown<'a>(&'a self, plan: &'a Value, cancel: CancellationToken) -> Answer<'a, ()> {
        Box::pin(async move {
            let recorded = RecordedPlan::of(plan).map_err(|error| DataPlaneError::Network {
                data_plane: self.name().to_owned(),
                problem: format!("the ledger's `network` makes no sense: {error}"),
            })?;
            self.inner.teardown(plan, cancel.clone()).await?;
            let mut state = self.state.lock().await;
            self.remove("what the plan lists", &self.wanted(&recorded), &Wanted::nothing(), &cancel).await?;
            state.earlier.retain(|earlier| Some(earlier) != recorded.as_ref());
            state.legacy_due = true;
            Ok(())
        })
    }

    fn join(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.inner.join().await;
            // Whoever works on the network has been cancelled, and nobody begins to.
            drop(self.state.lock().await);
        })
    }

    fn workers(&self) -> Vec<String> {
        let mut workers = self.inner.workers();
        if self.state.try_lock().is_err() {
            workers.push("network cleanup".into());
        }
        workers
    }
}

#[cfg(test)]
mod tests;
