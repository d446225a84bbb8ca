//! Which requests a fault, an admission rule or an interruption is meant for.

use std::{fmt, str::FromStr};

/// What a request does, in the words of Kubernetes RBAC and audit logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads a collection.
    List,
    /// Opens a stream of changes.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one object.
    Delete,
}

impl Verb {
    /// Every verb.
    pub const ALL: [Self; 7] =
        [Self::Get, Self::List, Self::Watch, Self::Create, Self::Update, Self::Patch, Self::Delete];

    /// The word that RBAC uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }

    /// Whether the request may change an object.
    pub fn writes(self) -> bool {
        matches!(self, Self::Create | Self::Update | Self::Patch | Self::Delete)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Verb {
    type Err = UnknownVerb;

    fn from_str(word: &str) -> Result<Self, UnknownVerb> {
        Self::ALL.into_iter().find(|verb| verb.as_str() == word).ok_or_else(|| UnknownVerb(word.to_owned()))
    }
}

/// A word that is no verb.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no verb; the verbs are get, list, watch, create, update, patch and delete")]
pub struct UnknownVerb(String);

/// What a request asks for and who asks: what RBAC decides on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// `None` for a path that is no resource of this server.
    pub verb: Option<Verb>,
    /// The API group, empty for the core group.
    pub group: String,
    /// The plural, for example `nodes`; empty for a path that is no resource of this server.
    pub resource: String,
    /// `status`, or empty for the object itself.
    pub subresource: String,
    /// Empty for cluster-scoped resources.
    pub namespace: String,
    /// Empty for collections, except where a watch or list names one object in its field selector.
    pub name: String,
    /// Who asks.
    pub identity: String,
}

/// A pattern over [`Attributes`]: `None` matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matching {
    /// Only requests with this verb.
    pub verb: Option<Verb>,
    /// Only this resource: a plural (`sites`), or with its group (`sites.net.unbounded-cloud.io`).
    pub resource: Option<String>,
    /// Only this subresource; `Some("")` means the object itself.
    pub subresource: Option<String>,
    /// Only this namespace.
    pub namespace: Option<String>,
    /// Only this object.
    pub name: Option<String>,
    /// Only requests of this identity.
    pub identity: Option<String>,
}

impl Matching {
    /// Everything.
    pub fn any() -> Self {
        Self::default()
    }

    /// Requests with this verb on this resource.
    pub fn new(verb: Verb, resource: impl Into<String>) -> Self {
        Self { verb: Some(verb), resource: Some(resource.into()), ..Self::default() }
    }

    /// Only this object.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Only this subresource.
    #[must_use]
    pub fn subresource(self, subresource: impl Into<String>) -> Self {
        Self { subresource: Some(subresource.into()), ..self }
    }

    /// Only this identity.
    #[must_use]
    pub fn identity(self, identity: impl Into<String>) -> Self {
        Self { identity: Some(identity.into()), ..self }
    }

    /// Whether a request is meant.
    pub fn matches(&self, request: &Attributes) -> bool {
        fn is(wanted: Option<&String>, found: &str) -> bool {
            wanted.is_none_or(|wanted| wanted == found)
        }
        self.verb.is_none_or(|verb| request.verb == Some(verb))
            && self.resource.as_deref().is_none_or(|wanted| names(wanted, request))
            && is(self.subresource.as_ref(), &request.subresource)
            && is(self.namespace.as_ref(), &request.namespace)
            && is(self.name.as_ref(), &request.name)
            && is(self.identity.as_ref(), &request.identity)
    }
}

fn names(wanted: &str, request: &Attributes) -> bool {
    match wanted.split_once('.') {
        None => wanted == request.resource,
        Some((plural, group)) => plural == request.resource && group == request.group,
    }
}
