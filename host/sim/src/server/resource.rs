//! The table of resources that this server has. Adding one is one line here (and a schema, for a custom one).

use serde_json::Value;

use super::{
    schema,
    status::FieldError,
    validate::{self, Change},
};

/// One row of the table.
pub(crate) struct Resource {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    /// Other words for it, as kubectl knows them.
    pub(crate) short: &'static [&'static str],
    pub(crate) namespaced: bool,
    /// A custom resource has a schema; a built-in type has none here.
    pub(crate) schema: Option<fn() -> &'static Value>,
    /// `metadata.generation` is kept.
    pub(crate) generation: bool,
    /// What is checked beyond metadata and schema.
    pub(crate) check: fn(&Change<'_>) -> Vec<FieldError>,
}

/// Every resource has a status subresource, except events.
pub(crate) static RESOURCES: &[Resource] = &[
    built_in("nodes", "Node", &["no"]).checked(validate::node),
    built_in("pods", "Pod", &["po"]).namespaced().with_generation(),
    built_in("events", "Event", &["ev"]).namespaced().checked(validate::event),
    custom("unbounded-cloud.io", "v1alpha3", "sites", "Site", &["st"], schema::site),
    custom("net.unbounded-cloud.io", "v1alpha1", "sites", "Site", &["st"], schema::site),
    custom("net.unbounded-cloud.io", "v1alpha1", "gatewaypools", "GatewayPool", &["gp"], schema::gateway_pool),
    custom(
        "net.unbounded-cloud.io",
        "v1alpha1",
        "gatewaypoolnodes",
        "GatewayPoolNode",
        &["gpn"],
        schema::gateway_pool_node,
    ),
];

const fn built_in(plural: &'static str, kind: &'static str, short: &'static [&'static str]) -> Resource {
    Resource {
        group: "",
        version: "v1",
        plural,
        kind,
        short,
        namespaced: false,
        schema: None,
        generation: false,
        check: validate::nothing,
    }
}

const fn custom(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    short: &'static [&'static str],
    schema: fn() -> &'static Value,
) -> Resource {
    Resource {
        group,
        version,
        plural,
        kind,
        short,
        namespaced: false,
        schema: Some(schema),
        generation: true,
        check: validate::nothing,
    }
}

impl Resource {
    const fn namespaced(self) -> Self {
        Self { namespaced: true, ..self }
    }

    const fn with_generation(self) -> Self {
        Self { generation: true, ..self }
    }

    const fn checked(self, check: fn(&Change<'_>) -> Vec<FieldError>) -> Self {
        Self { check, ..self }
    }

    pub(crate) fn is_custom(&self) -> bool {
        self.schema.is_some()
    }

    pub(crate) fn has_status(&self) -> bool {
        self.plural != "events"
    }

    /// `v1` or `group/version`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `nodes` or `sites.unbounded-cloud.io`.
    pub(crate) fn qualified(&self) -> String {
        self.with_group(self.plural)
    }

    pub(crate) fn with_group(&self, word: &str) -> String {
        if self.group.is_empty() { word.to_owned() } else { format!("{word}.{}", self.group) }
    }

    /// The media types that a PATCH may have; the server of this crate knows no strategic merge and no apply.
    pub(crate) fn patch_types(&self) -> &'static [&'static str] {
        if self.is_custom() {
            &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"]
        } else {
            &[
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
                "application/apply-patch+yaml",
            ]
        }
    }

    /// The folder in which a real API server keeps the objects.
    pub(crate) fn path(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}/{}", self.group, self.plural) }
    }

    fn is_called(&self, word: &str) -> bool {
        self.plural.eq_ignore_ascii_case(word) || self.kind.eq_ignore_ascii_case(word) || self.short.contains(&word)
    }
}

/// The place of a resource in the table, by its path.
pub(crate) fn at_path(group: &str, version: &str, plural: &str) -> Option<usize> {
    RESOURCES.iter().position(|r| r.group == group && r.version == version && r.plural == plural)
}

/// The place of a resource in the table, by what an object says of itself.
pub(crate) fn of_object(api_version: &str, kind: &str) -> Option<usize> {
    RESOURCES.iter().position(|r| r.kind == kind && r.api_version() == api_version)
}

/// The place of a resource in the table, by a word that a person would use: `nodes`, `Node`, `no`, `sites.net.unbounded-cloud.io`.
/// Without a group the first in the table is meant.
pub(crate) fn called(word: &str) -> Option<usize> {
    match word.split_once('.') {
        None => RESOURCES.iter().position(|r| r.is_called(word)),
        Some((word, group)) => RESOURCES.iter().position(|r| r.group == group && r.is_called(word)),
    }
}
