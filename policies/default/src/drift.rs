//! Another Node UID, Site or GatewayPool is drift, and nothing else is. (Deletion is the host's to see.)

use moorline_policy_sdk::{
    PolicyError,
    drift::{Hook, Observation, Verdict},
};

use crate::{DefaultPolicy, DefaultSettings};

impl Hook for DefaultPolicy {
    fn assess(observation: Observation, _: DefaultSettings) -> Result<Verdict, PolicyError> {
        let changes = changes(&observation);
        Ok(if changes.is_empty() {
            Verdict::Same("Node UID, Site and GatewayPool are as adopted".to_owned())
        } else {
            Verdict::Drifted(changes.join("; "))
        })
    }
}

/// What of the assignment differs, from what to what.
fn changes(observation: &Observation) -> Vec<String> {
    let Observation { adopted, observed, projected, .. } = observation;
    let mut changes = Vec::new();
    if adopted.node_uid != observed.uid {
        changes.push(format!("Node UID changed from {} to {}", quoted(&adopted.node_uid), quoted(&observed.uid)));
    }
    let Some(projected) = projected else {
        changes.push(format!("the Node has no assignment any more; it was adopted for Site {}", quoted(&adopted.site)));
        return changes;
    };
    if adopted.site != projected.site {
        changes.push(format!("Site changed from {} to {}", quoted(&adopted.site), quoted(&projected.site)));
    }
    if adopted.pool != projected.pool {
        changes.push(format!(
            "GatewayPool changed from {} to {}",
            name(adopted.pool.as_deref()),
            name(projected.pool.as_deref())
        ));
    }
    changes
}

fn name(pool: Option<&str>) -> String {
    pool.map_or_else(|| "none".to_owned(), quoted)
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}
