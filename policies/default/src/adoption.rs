//! Which assignment a Node has: its Site from the first label that says so, its pool from another.
//! Whether the values are valid names is the host's to check.

use moorline_policy_sdk::{
    Entry, Node, PolicyError, Problems, Settings,
    adoption::{Assigned, Hook, Verdict},
    entry,
};
use serde::Deserialize;

use crate::{DefaultPolicy, DefaultSettings, names::check_key};

/// Which labels make an assignment.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct AdoptionSettings {
    /// Labels that name the Site; the first with a value decides.
    pub site_labels: Vec<String>,
    /// The label that names the GatewayPool and makes the Node a gateway.
    pub pool_label: String,
}

impl Default for AdoptionSettings {
    fn default() -> Self {
        Self {
            site_labels: vec!["unbounded-cloud.io/site".to_owned(), "net.unbounded-cloud.io/site".to_owned()],
            pool_label: "net.unbounded-cloud.io/gateway-pool".to_owned(),
        }
    }
}

impl Settings for AdoptionSettings {
    fn check(&self, problems: &mut Problems) {
        if self.site_labels.is_empty() {
            problems.add("/site-labels", "at least one label has to name the Site");
        }
        for (index, label) in self.site_labels.iter().enumerate() {
            check_key(problems, &format!("/site-labels/{index}"), label);
        }
        check_key(problems, "/pool-label", &self.pool_label);
    }
}

impl Hook for DefaultPolicy {
    fn adopt(node: Node, settings: DefaultSettings) -> Result<Verdict, PolicyError> {
        let settings = settings.adoption;
        let said = |label: &'_ String| value(&node.labels, label).map(|site| (label.clone(), site.to_owned()));
        let mut sites = settings.site_labels.iter().filter_map(said);
        let Some((label, site)) = sites.next() else {
            return Ok(Verdict::Wait(no_site(&node.labels, &settings.site_labels)));
        };
        let mut reason = format!("label {label} is \"{site}\"");
        for (other, differs) in sites.filter(|(_, other)| *other != site) {
            reason.push_str(&format!("; label {other} says \"{differs}\" and is ignored"));
        }
        let pool_label = &settings.pool_label;
        let pool = value(&node.labels, pool_label).map(str::to_owned);
        reason.push_str(&match (&pool, entry(&node.labels, pool_label)) {
            (Some(pool), _) => format!("; label {pool_label} is \"{pool}\", so this Node is a gateway"),
            (None, Some(_)) => format!("; label {pool_label} is empty, so this Node is a worker"),
            (None, None) => "; no gateway-pool label, so this Node is a worker".to_owned(),
        });
        Ok(Verdict::Assigned(Assigned { site, pool, reason }))
    }
}

/// A label's value; an empty one says nothing.
fn value<'a>(labels: &'a [Entry], label: &str) -> Option<&'a str> {
    entry(labels, label).filter(|value| !value.is_empty())
}

fn no_site(labels: &[Entry], site_labels: &[String]) -> String {
    let said = site_labels.iter().map(|label| match entry(labels, label) {
        Some(_) => format!("label {label} is empty"),
        None => format!("no label {label}"),
    });
    format!("{}, so this Node has no Site yet", said.collect::<Vec<_>>().join("; "))
}
