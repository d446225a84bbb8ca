//! A policy that does what the tests of the SDK want to see: it logs, passes the question on, or panics, as a label says.
//! It answers two hooks of six.
#![allow(clippy::panic, reason = "what becomes of a panic is what is tested")]

use moorline_policy_sdk::{
    Description, NoSettings, Policy, PolicyError, debug, describe, drift, entry, error, info, taints, trace, warn,
};

/// What the tests of the SDK ask.
#[derive(Debug)]
pub struct Guest;

impl Policy for Guest {
    type Settings = NoSettings;

    fn describe() -> Description {
        describe!("Does as a label says.")
    }
}

impl drift::Hook for Guest {
    fn assess(observation: drift::Observation, _: NoSettings) -> Result<drift::Verdict, PolicyError> {
        let node = observation.observed;
        match entry(&node.labels, "do") {
            Some("log") => {
                trace!("{} at trace", node.name);
                debug!("{} at debug", node.name);
                info!("{} at info", node.name);
                warn!("{} at warn", node.name);
                error!("{} at error", node.name);
            }
            Some("pass") => return Err(PolicyError::NotApplicable),
            Some("panic") => panic!("{} is not what it was", node.name),
            Some("index") => return Ok(drift::Verdict::Drifted(node.pod_cidrs[node.labels.len()].clone())),
            _ => {}
        }
        Ok(drift::Verdict::Same("as it was".to_owned()))
    }
}

impl taints::Hook for Guest {
    fn unwanted(subject: taints::Subject, _: NoSettings) -> Result<taints::Verdict, PolicyError> {
        let removal = |taint: moorline_policy_sdk::Taint| taints::Removal { key: taint.key, effect: taint.effect };
        let unwanted = subject.node.taints.into_iter().map(removal).collect();
        Ok(taints::Verdict { unwanted, reason: "all of them".to_owned() })
    }
}

moorline_policy_sdk::export!(Guest: drift, taints);
