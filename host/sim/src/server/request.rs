//! From an HTTP request to what it asks for: path, verb and query, as the API server reads them.

use std::time::Duration;

use http::{Method, Uri};

use super::{
    Attributes, Verb,
    resource::{self, RESOURCES},
    status::{self, FieldError, Refusal},
};

/// What a request asks for.
#[derive(Debug)]
pub(crate) struct Ask {
    /// `None` for a path that this server doesn't have.
    pub(crate) table: Option<usize>,
    pub(crate) attributes: Attributes,
    pub(crate) query: Query,
    /// The verb as RBAC prints it, also where this server doesn't have it.
    pub(crate) action: &'static str,
}

/// What the query says.
#[derive(Debug, Default)]
pub(crate) struct Query {
    pub(crate) resource_version: String,
    pub(crate) resource_version_match: String,
    pub(crate) send_initial_events: bool,
    pub(crate) bookmarks: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) dry_run: bool,
    watch: bool,
    field_selector: String,
    label_selector: String,
}

impl Ask {
    pub(crate) fn parse(method: &Method, uri: &Uri, identity: &str) -> Self {
        let query = Query::parse(uri.query().unwrap_or_default());
        let path = Path::parse(uri.path()).unwrap_or_default();
        let one = !path.name.is_empty();
        let (verb, action) = match (method, one) {
            (&Method::GET, true) => (Some(Verb::Get), "get"),
            (&Method::GET, false) if query.watch => (Some(Verb::Watch), "watch"),
            (&Method::GET, false) => (Some(Verb::List), "list"),
            (&Method::POST, false) => (Some(Verb::Create), "create"),
            (&Method::PUT, true) => (Some(Verb::Update), "update"),
            (&Method::PATCH, true) => (Some(Verb::Patch), "patch"),
            (&Method::DELETE, true) if path.subresource.is_empty() => (Some(Verb::Delete), "delete"),
            (&Method::DELETE, false) => (None, "deletecollection"),
            (&Method::POST, true) => (None, "create"),
            _ => (None, "unknown"),
        };
        // RBAC, audit and faults see the name that a list or watch selects, as if it were in the path.
        let name = if one { path.name.to_owned() } else { query.selected_name().unwrap_or_default() };
        let attributes = Attributes {
            verb: verb.filter(|_| !path.plural.is_empty()),
            group: path.group.to_owned(),
            resource: path.plural.to_owned(),
            subresource: path.subresource.to_owned(),
            namespace: path.namespace.to_owned(),
            name,
            identity: identity.to_owned(),
        };
        Self { table: path.table(), attributes, query, action }
    }

    /// What a list or watch can't be asked for; checked after authorization.
    pub(crate) fn check_selection(&self) -> Result<(), Refusal> {
        let options = &self.query;
        let known = options.field_selector.is_empty() || options.selected_name().is_some();
        if !known {
            return Err(status::bad_request(format!(
                "field label not supported: this server selects by metadata.name alone, not by {:?}",
                options.field_selector
            )));
        }
        if !options.label_selector.is_empty() {
            return Err(status::bad_request(format!(
                "label selectors are not supported by this server (asked for {:?})",
                options.label_selector
            )));
        }
        let mut errors = Vec::new();
        let (version, matching) = (options.resource_version.as_str(), options.resource_version_match.as_str());
        let forbidden = |detail: &str| FieldError::forbidden("resourceVersionMatch", detail);
        if self.attributes.verb == Some(Verb::Watch) {
            if options.send_initial_events && matching != "NotOlderThan" {
                errors.push(forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
            }
            if !options.send_initial_events && !matching.is_empty() {
                errors.push(forbidden(
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ));
            }
            if !matching.is_empty() && matching != "NotOlderThan" {
                errors.push(FieldError::not_supported("resourceVersionMatch", matching, &["NotOlderThan"]));
            }
        } else {
            if !matching.is_empty() && version.is_empty() {
                errors.push(forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"));
            }
            if !["", "Exact", "NotOlderThan"].contains(&matching) {
                let supported = ["Exact", "NotOlderThan", ""];
                errors.push(FieldError::not_supported("resourceVersionMatch", matching, &supported));
            }
            if matching == "Exact" && version == "0" {
                errors.push(forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
            }
            if options.send_initial_events {
                let detail = "sendInitialEvents is forbidden for list";
                errors.push(FieldError::forbidden("sendInitialEvents", detail));
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(status::invalid("meta.k8s.io", "ListOptions", "", &errors)) }
    }

    /// The resourceVersion that was asked for; 0 where none was.
    pub(crate) fn version(&self) -> Result<u64, Refusal> {
        let version = self.query.resource_version.as_str();
        if version.is_empty() {
            return Ok(0);
        }
        version.parse().map_err(|_| {
            let detail = format!("strconv.ParseUint: parsing {version:?}: invalid syntax");
            status::invalid("", "", "", &[FieldError::invalid("resourceVersion", version, detail)])
        })
    }
}

impl Query {
    fn parse(query: &str) -> Self {
        let mut options = Self::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            let yes = || matches!(&*value, "true" | "1");
            match &*key {
                "watch" => options.watch = yes(),
                "fieldSelector" => options.field_selector = value.into_owned(),
                "labelSelector" => options.label_selector = value.into_owned(),
                "resourceVersion" => options.resource_version = value.into_owned(),
                "resourceVersionMatch" => options.resource_version_match = value.into_owned(),
                "sendInitialEvents" => options.send_initial_events = yes(),
                "allowWatchBookmarks" => options.bookmarks = yes(),
                "timeoutSeconds" => options.timeout = value.parse().ok().filter(|s| *s > 0).map(Duration::from_secs),
                "dryRun" => options.dry_run = &*value == "All",
                _ => {}
            }
        }
        options
    }

    fn selected_name(&self) -> Option<String> {
        let name = self.field_selector.strip_prefix("metadata.name=")?;
        let name = name.strip_prefix('=').unwrap_or(name);
        (!name.is_empty() && !name.contains([',', '='])).then(|| name.to_owned())
    }
}

/// The parts of `/api/v1/…` or `/apis/<group>/<version>/…`.
#[derive(Debug, Default)]
struct Path<'a> {
    group: &'a str,
    version: &'a str,
    namespace: &'a str,
    plural: &'a str,
    name: &'a str,
    subresource: &'a str,
}

impl<'a> Path<'a> {
    fn parse(path: &'a str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/');
        let (group, version) = match parts.next()? {
            "api" => ("", parts.next()?),
            "apis" => (parts.next()?, parts.next()?),
            _ => return None,
        };
        let mut rest: Vec<&str> = parts.collect();
        let mut namespace = "";
        if let ["namespaces", ns, _, ..] = rest[..] {
            namespace = ns;
            rest.drain(..2);
        }
        let (plural, name, subresource) = match rest[..] {
            [plural] => (plural, "", ""),
            [plural, name] => (plural, name, ""),
            [plural, name, subresource] => (plural, name, subresource),
            _ => return None,
        };
        Some(Self { group, version, namespace, plural, name, subresource })
    }

    fn table(&self) -> Option<usize> {
        let table = resource::at_path(self.group, self.version, self.plural)?;
        let resource = &RESOURCES[table];
        let placed = match (resource.namespaced, self.namespace.is_empty()) {
            (true, false) | (false, true) => true,
            // All namespaces at once: only as a collection.
            (true, true) => self.name.is_empty(),
            (false, false) => false,
        };
        let part = self.subresource.is_empty() || (self.subresource == "status" && resource.has_status());
        (placed && part).then_some(table)
    }
}
