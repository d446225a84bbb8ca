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

use moorline_policy_sdk::{Description, Policy, describe};

pub use acknowledgment::AcknowledgmentSettings;
pub use adoption::AdoptionSettings;
pub use cni::{CniSettings, CniVersion};
pub use retry::{Backoff, Override, RetrySettings};
pub use taints::TaintsSettings;

/// Answers all six hooks.
#[derive(Debug)]
pub struct DefaultPolicy;

impl Policy for DefaultPolicy {
    fn describe() -> Description {
        describe!(
            "Site and pool from labels, capped backoff with full jitter, the gateway taint, a bridge CNI configuration.",
            Some(include_str!("../settings.schema.json"))
        )
    }
}

moorline_policy_sdk::export!(DefaultPolicy: adoption, drift, retry, taints, cni, acknowledgment);
