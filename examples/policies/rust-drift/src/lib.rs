//! An example: a Node may move to another GatewayPool, or leave one, while it is labelled as under maintenance.
//! Everything else is drift as by the default policy: another Node UID, another Site, no assignment.

use moorline_policy_sdk::{
    Description, Policy, PolicyError, Problems, Settings, describe,
    drift::{Hook, Observation, Verdict},
    entry,
};
use serde::Deserialize;

/// Which label means maintenance.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Maintenance {
    /// The Node is under maintenance while it has this label, whatever its value.
    pub maintenance_label: String,
}

impl Default for Maintenance {
    fn default() -> Self {
        Self { maintenance_label: "moorline.dev/maintenance".to_owned() }
    }
}

impl Settings for Maintenance {
    fn check(&self, problems: &mut Problems) {
        if self.maintenance_label.is_empty() {
            problems.add("/maintenance-label", "a label's key is needed");
        }
    }
}

/// Tolerates a changed pool during maintenance.
#[derive(Debug)]
pub struct ToleratePoolChange;

impl Policy for ToleratePoolChange {
    type Settings = Maintenance;

    fn describe() -> Description {
        describe!(
            "A pool change is tolerated while the Node is under maintenance.",
            include_str!("../settings.schema.json")
        )
    }
}

impl Hook for ToleratePoolChange {
    fn assess(observation: Observation, settings: Maintenance) -> Result<Verdict, PolicyError> {
        let Observation { adopted, observed, projected, .. } = observation;
        let Some(projected) = projected else {
            return Ok(Verdict::Drifted(format!(
                "the Node has no assignment any more; its Site was \"{}\"",
                adopted.site
            )));
        };
        if observed.uid != adopted.node_uid {
            return Ok(Verdict::Drifted(format!(
                "Node UID changed from \"{}\" to \"{}\"",
                adopted.node_uid, observed.uid
            )));
        }
        if projected.site != adopted.site {
            return Ok(Verdict::Drifted(format!("Site changed from \"{}\" to \"{}\"", adopted.site, projected.site)));
        }
        if projected.pool == adopted.pool {
            return Ok(Verdict::Same("Node UID, Site and GatewayPool are as adopted".to_owned()));
        }
        let change = format!("GatewayPool changed from {} to {}", name(adopted.pool), name(projected.pool));
        let label = &settings.maintenance_label;
        Ok(match entry(&observed.labels, label) {
            Some(_) => Verdict::Same(format!("{change}; tolerated during maintenance (label {label})")),
            None => Verdict::Drifted(change),
        })
    }
}

fn name(pool: Option<String>) -> String {
    pool.map_or_else(|| "none".to_owned(), |pool| format!("\"{pool}\""))
}

moorline_policy_sdk::export!(ToleratePoolChange: drift);
