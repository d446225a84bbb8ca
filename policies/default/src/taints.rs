//! On a worker the gateway taint has to go; on a gateway every taint may stay.

use moorline_policy_sdk::{
    PolicyError, Problems, Settings,
    taints::{Hook, Removal, Subject, Verdict},
};
use serde::Deserialize;

use crate::{DefaultPolicy, DefaultSettings, names::check_key};

/// Which taints a worker doesn't want.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TaintsSettings {
    /// Keys of taints that have to go from a worker, whatever their effect.
    pub worker_unwanted: Vec<String>,
}

impl Default for TaintsSettings {
    fn default() -> Self {
        Self { worker_unwanted: vec!["net.unbounded-cloud.io/gateway-node".to_owned()] }
    }
}

impl Settings for TaintsSettings {
    fn check(&self, problems: &mut Problems) {
        for (index, key) in self.worker_unwanted.iter().enumerate() {
            check_key(problems, &format!("/worker-unwanted/{index}"), key);
        }
    }
}

impl Hook for DefaultPolicy {
    fn unwanted(subject: Subject, settings: DefaultSettings) -> Result<Verdict, PolicyError> {
        let settings = settings.taints;
        if let Some(pool) = subject.adopted.pool {
            let reason = format!("a gateway of pool \"{pool}\" keeps its taints");
            return Ok(Verdict { unwanted: Vec::new(), reason });
        }
        let unwanted: Vec<Removal> = subject
            .node
            .taints
            .into_iter()
            .filter(|taint| settings.worker_unwanted.contains(&taint.key))
            .map(|taint| Removal { key: taint.key, effect: taint.effect })
            .collect();
        let names: Vec<_> = unwanted.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect();
        let reason = if names.is_empty() {
            "this worker has no unwanted taint".to_owned()
        } else {
            format!("a worker doesn't want {}", names.join(", "))
        };
        Ok(Verdict { unwanted, reason })
    }
}
