//! What is asked of the API server: a verb and one object, and how both read in a URL and in a sentence.
//! Nothing here sends anything.

use std::fmt;
use std::str::FromStr;

use super::Names;

/// Group and version of an API, such as `net.unbounded-cloud.io/v1alpha1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupVersion {
    /// The group; empty for the core API.
    pub group: String,
    /// The version.
    pub version: String,
}

/// A text that is no group and version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no API version; write it as group/version, such as net.unbounded-cloud.io/v1alpha1")]
pub struct NoGroupVersion(String);

impl FromStr for GroupVersion {
    type Err = NoGroupVersion;

    fn from_str(text: &str) -> Result<Self, NoGroupVersion> {
        let plain =
            |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
        match text.split_once('/') {
            Some((group, version)) if plain(group) && plain(version) => {
                Ok(Self { group: group.into(), version: version.into() })
            }
            _ => Err(NoGroupVersion(text.into())),
        }
    }
}

/// What is done with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Watch,
    Patch,
    Create,
}

impl Verb {
    /// Whether it changes something, so that a lost answer leaves the effect unknown.
    pub(super) fn writes(self) -> bool {
        matches!(self, Self::Patch | Self::Create)
    }

    /// Its word in RBAC and in metrics.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Watch => "watch",
            Self::Patch => "patch",
            Self::Create => "create",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.word().to_ascii_uppercase())
    }
}

/// One object and where the API server keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) kind: &'static str,
    pub(super) group: String,
    version: String,
    pub(super) plural: &'static str,
    namespace: Option<String>,
    pub(super) name: String,
    is_status: bool,
}

impl Target {
    fn new(kind: &'static str, plural: &'static str, api: Option<&GroupVersion>, name: &str) -> Self {
        let core = GroupVersion { group: String::new(), version: "v1".into() };
        let GroupVersion { group, version } = api.unwrap_or(&core).clone();
        Self { kind, group, version, plural, namespace: None, name: name.into(), is_status: false }
    }

    pub(super) fn node(names: &Names) -> Self {
        Self::new("Node", "nodes", None, &names.node)
    }

    pub(super) fn pod(names: &Names) -> Self {
        Self { namespace: Some(names.namespace.clone()), ..Self::new("Pod", "pods", None, &names.pod) }
    }

    /// An Event about the own Node: those about objects without a namespace live in `default`.
    pub(super) fn event(name: &str) -> Self {
        Self { namespace: Some("default".into()), ..Self::new("Event", "events", None, name) }
    }

    pub(super) fn site(names: &Names, name: &str) -> Self {
        Self::new("Site", "sites", Some(&names.site_api), name)
    }

    pub(super) fn pool(names: &Names, name: &str) -> Self {
        Self::new("GatewayPool", "gatewaypools", Some(&names.gateway_api), name)
    }

    pub(super) fn gateway_pool_node(names: &Names) -> Self {
        Self::new("GatewayPoolNode", "gatewaypoolnodes", Some(&names.gateway_api), &names.node)
    }

    /// The status of the own GatewayPoolNode.
    pub(super) fn routes(names: &Names) -> Self {
        Self { is_status: true, ..Self::gateway_pool_node(names) }
    }

    /// The resource with its subresource. Of the resources here only one has a status that is written.
    pub(super) fn resource(&self) -> &'static str {
        if self.is_status { "gatewaypoolnodes/status" } else { self.plural }
    }

    /// Group and version as an object spells them.
    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The path of all objects of its kind, in its namespace where it has one.
    pub(super) fn collection(&self) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let namespace = self.namespace.as_ref().map(|name| format!("/namespaces/{}", encoded(name)));
        format!("{root}/{}{}/{}", self.api_version(), namespace.unwrap_or_default(), self.plural)
    }

    /// The path of the object itself.
    pub(super) fn path(&self) -> String {
        let subresource = if self.is_status { "/status" } else { "" };
        format!("{}/{}{subresource}", self.collection(), encoded(&self.name))
    }

    /// Path and query of a watch on this object alone: from a resourceVersion, or with what there is at first.
    pub(super) fn watch(&self, from: Option<&str>, seconds: u64) -> String {
        let start = match from {
            Some(version) => format!("resourceVersion={}", encoded(version)),
            None => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".into(),
        };
        format!(
            "{}?watch=true&allowWatchBookmarks=true&fieldSelector=metadata.name%3D{}&timeoutSeconds={seconds}&{start}",
            self.collection(),
            encoded(&self.name),
        )
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_status {
            f.write_str("the status of ")?;
        }
        write!(f, "{} ", self.kind)?;
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Percent-encodes everything that has a meaning in a URL, so that no name reaches another path.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

    use super::*;
    use crate::cluster::tests::names;

    #[test]
    fn paths_are_those_of_the_api_server() {
        let names = names();
        assert_eq!(Target::node(&names).path(), "/api/v1/nodes/n1");
        assert_eq!(Target::pod(&names).path(), "/api/v1/namespaces/kube-system/pods/agent");
        assert_eq!(Target::event("n1.1").collection(), "/api/v1/namespaces/default/events");
        assert_eq!(Target::site(&names, "east").path(), "/apis/unbounded-cloud.io/v1alpha3/sites/east");
        assert_eq!(Target::routes(&names).path(), "/apis/net.unbounded-cloud.io/v1alpha1/gatewaypoolnodes/n1/status");
    }

    #[test]
    fn a_watch_is_about_one_object() {
        let names = names();
        assert_eq!(
            Target::node(&names).watch(Some("17"), 1800),
            "/api/v1/nodes?watch=true&allowWatchBookmarks=true&fieldSelector=metadata.name%3Dn1&timeoutSeconds=1800&resourceVersion=17"
        );
        assert!(
            Target::pool(&names, "edge")
                .watch(None, 60)
                .ends_with("&timeoutSeconds=60&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
        );
    }

    #[test]
    fn no_name_reaches_another_path() {
        let hostile = Target::site(&names(), "../nodes/n2?x=y#é");
        assert_eq!(hostile.path(), "/apis/unbounded-cloud.io/v1alpha3/sites/..%2Fnodes%2Fn2%3Fx%3Dy%23%C3%A9");
    }

    #[test]
    fn a_sentence_names_kind_and_object() {
        let names = names();
        assert_eq!(Target::pod(&names).to_string(), "Pod kube-system/agent");
        assert_eq!(Target::routes(&names).to_string(), "the status of GatewayPoolNode n1");
    }

    #[test]
    fn an_api_version_needs_group_and_version() {
        for bad in ["v1", "/v1", "a/", "a/b/c", "a b/v1"] {
            assert!(bad.parse::<GroupVersion>().is_err(), "{bad}");
        }
    }
}
