//! The host's own record says enough: annotations are added only where the settings ask for them.

use std::collections::BTreeMap;

use moorline_policy_sdk::{
    PolicyError, Problems, Settings,
    acknowledgment::{Hook, Subject, Verdict},
    pointer_key,
};
use serde::Deserialize;

use crate::{DefaultPolicy, DefaultSettings, names::check_key};

/// What the acknowledgment says beside the host's record.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct AcknowledgmentSettings {
    /// Annotations by key. In a value, `{site}`, `{pool}`, `{node}` and `{node-uid}` stand for what was adopted; one that names
    /// the pool is left out on a worker.
    pub annotations: BTreeMap<String, String>,
}

const FIELDS: [&str; 4] = ["{site}", "{pool}", "{node}", "{node-uid}"];

impl Settings for AcknowledgmentSettings {
    fn check(&self, problems: &mut Problems) {
        for (key, template) in &self.annotations {
            let path = format!("/annotations/{}", pointer_key(key));
            check_key(problems, &path, key);
            let rest = FIELDS.iter().fold(template.clone(), |rest, field| rest.replace(field, ""));
            if rest.contains(['{', '}']) {
                problems.add(path, format!("braces may only hold a field, one of {}", FIELDS.join(", ")));
            }
        }
    }
}

impl Hook for DefaultPolicy {
    fn annotate(subject: Subject, settings: DefaultSettings) -> Result<Verdict, PolicyError> {
        let settings = settings.acknowledgment;
        let Subject { adopted, node, .. } = subject;
        let filled = |template: String| match &adopted.pool {
            None if template.contains("{pool}") => None,
            pool => Some(
                template
                    .replace("{site}", &adopted.site)
                    .replace("{pool}", pool.as_deref().unwrap_or_default())
                    .replace("{node}", &node.name)
                    .replace("{node-uid}", &adopted.node_uid),
            ),
        };
        let annotations: Vec<_> =
            settings.annotations.into_iter().filter_map(|(key, template)| Some((key, filled(template)?))).collect();
        let keys: Vec<_> = annotations.iter().map(|(key, _)| key.as_str()).collect();
        let reason = if keys.is_empty() {
            "the host's own record says enough".to_owned()
        } else {
            format!("the settings add {}", keys.join(", "))
        };
        Ok(Verdict { annotations, reason })
    }
}
