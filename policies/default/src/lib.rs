//! Moorline's default policy: what a cluster with Sites and GatewayPools expects of the agent, one module for each hook.
//! Every constant is a setting; `settings.schema.json` documents them. Nothing here panics, whatever the input.
#![deny(missing_docs)]

mod acknowledgment;
mod adoption;
mod cni;
mod drift;
mod names;
mod retry;
mod taints;
#[cfg(test)]
mod tests;

use moorline_policy_sdk::{Description, Policy, Problems, Settings, describe};
use serde::Deserialize;

pub use acknowledgment::AcknowledgmentSettings;
pub use adoption::AdoptionSettings;
pub use cni::{CniSettings, CniVersion};
pub use retry::{Backoff, Override, RetrySettings};
pub use taints::TaintsSettings;

/// Answers all six hooks.
#[derive(Debug)]
pub struct DefaultPolicy;

/// What an operator may set, by hook. There is nothing to set for drift.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DefaultSettings {
    /// Which labels make an assignment.
    pub adoption: AdoptionSettings,
    /// How failures are spaced.
    pub retry: RetrySettings,
    /// Which taints a worker doesn't want.
    pub taints: TaintsSettings,
    /// What the CNI configuration says.
    pub cni: CniSettings,
    /// What the acknowledgment says beside the host's record.
    pub acknowledgment: AcknowledgmentSettings,
}

impl Settings for DefaultSettings {
    fn check(&self, problems: &mut Problems) {
        problems.within("/adoption", &self.adoption);
        problems.within("/retry", &self.retry);
        problems.within("/taints", &self.taints);
        problems.within("/cni", &self.cni);
        problems.within("/acknowledgment", &self.acknowledgment);
    }
}

impl Policy for DefaultPolicy {
    type Settings = DefaultSettings;

    fn describe() -> Description {
        describe!(
            "Site and pool from labels, capped backoff with full jitter, the gateway taint, a bridge CNI configuration.",
            include_str!("../settings.schema.json")
        )
    }
}

moorline_policy_sdk::export!(DefaultPolicy: adoption, drift, retry, taints, cni, acknowledgment);
