//! The floor of the acknowledgment hook: the host's own record, and what a policy may put beside it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::boot::AgentIdentity;
use crate::objects::Assignment;

/// The annotation that holds the host's own record.
pub const ACKNOWLEDGMENT_KEY: &str = "moorline.dev/acknowledgment";

/// The most that a policy's annotations may be together, in bytes: far below the API server's 256 KiB for all of a Pod's.
const LARGEST_ANNOTATIONS: usize = 16 * 1024;
/// The longest name part of a key (Kubernetes: qualified names).
const LONGEST_KEY_NAME: usize = 63;

/// What the host's own record says.
pub(crate) struct Record<'a> {
    pub(crate) assignment: &'a Assignment,
    pub(crate) pod_uid: &'a str,
    pub(crate) identity: &'a AgentIdentity,
    pub(crate) started_ms: i64,
    pub(crate) acknowledged_ms: i64,
    /// With tolerated drift: the projection that is tolerated.
    pub(crate) tolerated: Option<Option<&'a Assignment>>,
    pub(crate) adoption_reason: &'a str,
}

/// The host's own record as the annotation's value: one JSON object.
pub(crate) fn record(record: &Record<'_>) -> String {
    let assignment = record.assignment;
    let policies: BTreeMap<_, _> = record.identity.policies.iter().cloned().collect();
    let mut value = json!({
        "nodeUID": assignment.node_uid,
        "site": assignment.site,
        "pool": assignment.pool,
        "podUID": record.pod_uid,
        "containerStart": timestamp(record.started_ms),
        "agentVersion": record.identity.version,
        "policies": policies,
        "reason": record.adoption_reason,
        "time": timestamp(record.acknowledged_ms),
    });
    if let (Some(projection), Some(fields)) = (record.tolerated, value.as_object_mut()) {
        fields.insert("tolerated".into(), true.into());
        let projection = projection.map(|p| json!({"nodeUID": p.node_uid, "site": p.site, "pool": p.pool}));
        fields.insert("projection".into(), projection.unwrap_or_default());
    }
    value.to_string()
}

/// The assignment in a record that an earlier process left, if it can be read.
pub(crate) fn recorded_assignment(record: &str) -> Option<Assignment> {
    let value: serde_json::Value = serde_json::from_str(record).ok()?;
    let text = |key: &str| value.get(key).and_then(|value| value.as_str()).map(ToOwned::to_owned);
    Some(Assignment { node_uid: text("nodeUID")?, site: text("site")?, pool: text("pool") })
}

fn timestamp(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}

/// What is wrong with a policy's annotations: keys have to be qualified names under one of the operator's prefixes and not
/// the host's own, and together they have to stay small.
pub(crate) fn annotations_problem(
    annotations: &BTreeMap<String, String>,
    prefixes: &BTreeSet<String>,
) -> Option<String> {
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > LARGEST_ANNOTATIONS {
        return Some(format!("The annotations are {size} bytes together, and {LARGEST_ANNOTATIONS} are allowed."));
    }
    for key in annotations.keys() {
        if key == ACKNOWLEDGMENT_KEY {
            return Some(format!("The annotation {key} is the host's own."));
        }
        let Some(name) = prefixes.iter().find_map(|prefix| key.strip_prefix(prefix.as_str())) else {
            let prefixes: Vec<_> = prefixes.iter().map(String::as_str).collect();
            return Some(format!("The annotation {key:?} is not under one of the prefixes {}.", prefixes.join(", ")));
        };
        let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        if name.len() > LONGEST_KEY_NAME
            || !name.chars().all(inner)
            || !edge(name.chars().next())
            || !edge(name.chars().last())
        {
            return Some(format!("The annotation {key:?} is no valid key."));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_keys_under_the_prefixes_and_never_the_hosts_own() {
        let prefixes = BTreeSet::from(["moorline.dev/".to_owned()]);
        let problem = |key: &str| annotations_problem(&BTreeMap::from([(key.to_owned(), String::new())]), &prefixes);
        assert_eq!(problem("moorline.dev/rack"), None);
        for bad in
            [ACKNOWLEDGMENT_KEY, "rack", "example.com/rack", "moorline.dev/", "moorline.dev/-a", "moorline.dev/a b"]
        {
            assert!(problem(bad).is_some(), "{bad}");
        }
        let name = |length| format!("moorline.dev/{}", "a".repeat(length));
        assert!(problem(&name(63)).is_none() && problem(&name(64)).is_some());
    }

    #[test]
    fn a_policys_annotations_are_16_kib_together_at_most() {
        let prefixes = BTreeSet::from(["moorline.dev/".to_owned()]);
        let key = "moorline.dev/a".to_owned();
        let value = |size: usize| BTreeMap::from([(key.clone(), "x".repeat(size - key.len()))]);
        assert_eq!(annotations_problem(&value(16_384), &prefixes), None);
        assert!(annotations_problem(&value(16_385), &prefixes).is_some());
    }

    #[test]
    fn a_record_tells_the_assignment_that_it_was_made_of() {
        let assignment = Assignment { node_uid: "u".into(), site: "s".into(), pool: None };
        let identity = AgentIdentity { version: "1".into(), policies: vec![("default".into(), "abc".into())] };
        let text = record(&Record {
            assignment: &assignment,
            pod_uid: "p",
            identity: &identity,
            started_ms: 0,
            acknowledged_ms: 1500,
            tolerated: None,
            adoption_reason: "because",
        });
        assert_eq!(recorded_assignment(&text), Some(assignment));
        assert!(text.contains(r#""pool":null"#) && text.contains(r#""time":"1970-01-01T00:00:01.5Z""#), "{text}");
    }
}
