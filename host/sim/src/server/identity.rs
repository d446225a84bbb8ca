//! Who calls, and what RBAC lets them do.

use std::{fmt, sync::Arc};

use super::{Attributes, Verb};

/// A caller: the user name that audit records and RBAC messages show, and the rights of that user.
#[derive(Clone)]
pub struct Identity {
    name: Arc<str>,
    access: Access,
}

#[derive(Clone)]
enum Access {
    Unauthenticated,
    Rights(Arc<dyn Fn(&Attributes) -> bool + Send + Sync>),
}

impl Identity {
    /// A user with the rights that `rights` grants.
    pub fn new(name: impl Into<Arc<str>>, rights: impl Fn(&Attributes) -> bool + Send + Sync + 'static) -> Self {
        Self { name: name.into(), access: Access::Rights(Arc::new(rights)) }
    }

    /// A user who may do everything.
    pub fn admin(name: impl Into<Arc<str>>) -> Self {
        Self::new(name, |_| true)
    }

    /// A node agent whose own Pod lives in `namespace`, with exactly the rights that the agent is deployed with: nodes
    /// get, watch and patch; pods of that namespace get and patch; Sites and `GatewayPools` get and watch;
    /// `gatewaypoolnodes` get; their status get and patch; events of the namespace `default` create.
    pub fn agent(name: impl Into<Arc<str>>, namespace: impl Into<String>) -> Self {
        let namespace = namespace.into();
        Self::new(name, move |request| agent_may(request, &namespace))
    }

    /// A caller whose token is not (or no longer) accepted: every request is answered with 401.
    pub fn unauthenticated(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), access: Access::Unauthenticated }
    }

    /// A caller without a token: known as `system:anonymous`, with no rights.
    pub fn anonymous() -> Self {
        Self::new("system:anonymous", |_| false)
    }

    /// The user name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn authenticated(&self) -> bool {
        !matches!(self.access, Access::Unauthenticated)
    }

    /// Whether this identity has the right to make this request.
    pub fn may(&self, request: &Attributes) -> bool {
        match &self.access {
            Access::Unauthenticated => false,
            Access::Rights(rights) => rights(request),
        }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("name", &self.name).finish_non_exhaustive()
    }
}

fn agent_may(request: &Attributes, namespace: &str) -> bool {
    use Verb::{Create, Get, Patch, Watch};
    let Some(verb) = request.verb else { return false };
    let allowed: &[Verb] = match (request.group.as_str(), request.resource.as_str(), request.subresource.as_str()) {
        ("", "nodes", "") => &[Get, Watch, Patch],
        ("", "pods", "") if request.namespace == namespace => &[Get, Patch],
        ("", "events", "") if request.namespace == "default" => &[Create],
        ("unbounded-cloud.io" | "net.unbounded-cloud.io", "sites", "")
        | ("net.unbounded-cloud.io", "gatewaypools", "") => &[Get, Watch],
        ("net.unbounded-cloud.io", "gatewaypoolnodes", "") => &[Get],
        ("net.unbounded-cloud.io", "gatewaypoolnodes", "status") => &[Get, Patch],
        _ => &[],
    };
    allowed.contains(&verb)
}
