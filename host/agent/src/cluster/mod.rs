//! Everything that talks to the Kubernetes API: one method per request of the life, and its watches. It makes every
//! request exactly once, says truthfully what came of it, and decides nothing.

mod classify;
mod connect;
mod objects;
mod target;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, header};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use moorline_lifecycle::{
    Failure, FailureKind, GatewayPoolNode, Node, Pod, Pool, Site, Stream, Taint, Trouble, TroubleReason,
};
use serde_json::{Value, json};

pub use self::connect::{Access, ConnectError, connect};
use self::objects::{Wire, WireTaint};
pub use self::target::{GroupVersion, NoGroupVersion};
use self::target::{Target, Verb};
use crate::chain;

/// No answer and no event may be longer: an object has at most 1.5 MiB in etcd.
const ANSWER_CAP: usize = 4 * 1024 * 1024;
/// The API server takes Events with messages up to so many bytes.
const EVENT_MESSAGE_CAP: usize = 1024;

/// The names of what the agent may touch. All of them were checked when the configuration was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// The own Node.
    pub node: String,
    /// The own Pod.
    pub pod: String,
    /// The own Pod's namespace.
    pub namespace: String,
    /// Group and version of Site.
    pub site_api: GroupVersion,
    /// Group and version of GatewayPool and GatewayPoolNode.
    pub gateway_api: GroupVersion,
}

/// How long the agent waits for the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For the whole of an answer; for a watch, for its beginning.
    pub request: Duration,
    /// Between two lines of a watch, bookmarks included.
    pub idle: Duration,
}

/// The API server as the agent knows it. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    client: kube::Client,
    names: Arc<Names>,
    timeouts: Timeouts,
    hear: Option<Arc<dyn Fn(Heard) + Send + Sync>>,
}

/// A request that was answered, or was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// `get`, `watch`, `patch` or `create`.
    pub verb: &'static str,
    /// The resource with its subresource, such as `gatewaypoolnodes/status`.
    pub resource: &'static str,
    /// The status code; 0 where no answer came.
    pub code: u16,
}

impl Cluster {
    /// Works through this client, which has to make each request once: [`connect`] makes such a client.
    pub fn new(client: kube::Client, names: Names, timeouts: Timeouts) -> Self {
        Self { client, names: Arc::new(names), timeouts, hear: None }
    }

    /// The same, and `hear` is told of every answer, the beginning of a watch included.
    #[must_use]
    pub fn heard_by(self, hear: impl Fn(Heard) + Send + Sync + 'static) -> Self {
        Self { hear: Some(Arc::new(hear)), ..self }
    }

    /// GET of the own Node.
    ///
    /// # Errors
    /// As all requests: what the failure means is in its kind, who said what in its message.
    pub async fn read_node(&self) -> Result<Node, Failure> {
        let target = Target::node(&self.names);
        self.object(Verb::Get, &target, None).await
    }

    /// Makes the own Node's taints exactly these, if it is still this Node in this version.
    ///
    /// # Errors
    /// See [`Cluster::read_node`].
    pub async fn patch_taints(&self, uid: &str, resource_version: &str, taints: Vec<Taint>) -> Result<Node, Failure> {
        let taints: Vec<WireTaint> = taints.into_iter().map(WireTaint::from).collect();
        let patch = json!({"metadata": {"uid": uid, "resourceVersion": resource_version}, "spec": {"taints": taints}});
        self.object(Verb::Patch, &Target::node(&self.names), Some(patch)).await
    }

    /// GET of the own Pod.
    ///
    /// # Errors
    /// See [`Cluster::read_node`].
    pub async fn read_pod(&self) -> Result<Pod, Failure> {
        self.object(Verb::Get, &Target::pod(&self.names), None).await
    }

    /// Sets these annotations of the own Pod, if it is still the Pod with this UID; none removes a key.
    ///
    /// # Errors
    /// See [`Cluster::read_node`].
    pub async fn patch_pod(&self, uid: &str, annotations: BTreeMap<String, Option<String>>) -> Result<Pod, Failure> {
        let patch = json!({"metadata": {"uid": uid, "annotations": annotations}});
        self.object(Verb::Patch, &Target::pod(&self.names), Some(patch)).await
    }

    /// GET of the own GatewayPoolNode; none when it does not exist.
    ///
    /// # Errors
    /// See [`Cluster::read_node`].
    pub async fn read_routes(&self) -> Result<Option<GatewayPoolNode>, Failure> {
        absent_is_none(self.object(Verb::Get, &Target::gateway_pool_node(&self.names), None).await)
    }

    /// Sets these routes in the status of the own GatewayPoolNode, if it is still in this version; none removes an entry.
    /// None when the object does not exist.
    ///
    /// # Errors
    /// See [`Cluster::read_node`].
    pub async fn patch_routes(
        &self,
        resource_version: &str,
        routes: BTreeMap<String, Option<Value>>,
    ) -> Result<Option<GatewayPoolNode>, Failure> {
        let patch = json!({"metadata": {"resourceVersion": resource_version}, "status": {"routes": routes}});
        absent_is_none(self.object(Verb::Patch, &Target::routes(&self.names), Some(patch)).await)
    }

    /// Writes an Event about the own Node, stamped with this wall clock (milliseconds since the Unix epoch).
    ///
    /// # Errors
    /// See [`Cluster::read_node`].
    pub async fn write_event(&self, trouble: Trouble, wall_ms: i64) -> Result<(), Failure> {
        let node = &self.names.node;
        // Names are unique by their time, as client-go's are; a long Node name makes room for it.
        let prefix = node[..node.floor_char_boundary(200)].trim_end_matches(['.', '-']);
        let target = Target::event(&format!("{prefix}.{wall_ms:x}"));
        let time =
            jiff::Timestamp::from_millisecond(wall_ms).unwrap_or_default().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let message = &trouble.message[..trouble.message.floor_char_boundary(EVENT_MESSAGE_CAP)];
        let event = json!({
            "apiVersion": target.api_version(),
            "kind": target.kind,
            "metadata": {"name": target.name, "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": trouble.node_uid},
            "reason": trouble.reason.as_str(),
            "message": message,
            "type": if trouble.reason == TroubleReason::AssignmentChanged { "Normal" } else { "Warning" },
            "source": {"component": "moorline", "host": node},
            "reportingComponent": "moorline",
            "reportingInstance": node,
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        });
        self.call(Verb::Create, &target, Some(event)).await.map(|_| ())
    }

    /// Watches the own Node from a resourceVersion on, for `lifetime` at most. `tell` hears everything, the end last.
    pub async fn watch_node(&self, from: String, lifetime: Duration, tell: impl FnMut(Stream<Node>)) {
        self.watch(Target::node(&self.names), Some(from), lifetime, tell).await;
    }

    /// Watches the Site of this name, from a resourceVersion on or beginning with what there is.
    pub async fn watch_site(
        &self,
        name: &str,
        from: Option<String>,
        lifetime: Duration,
        tell: impl FnMut(Stream<Site>),
    ) {
        self.watch(Target::site(&self.names, name), from, lifetime, tell).await;
    }

    /// Watches the GatewayPool of this name, from a resourceVersion on or beginning with what there is.
    pub async fn watch_pool(
        &self,
        name: &str,
        from: Option<String>,
        lifetime: Duration,
        tell: impl FnMut(Stream<Pool>),
    ) {
        self.watch(Target::pool(&self.names, name), from, lifetime, tell).await;
    }

    async fn object<T: Wire>(&self, verb: Verb, target: &Target, body: Option<Value>) -> Result<T, Failure> {
        let answer = self.call(verb, target, body).await?;
        objects::read(target, answer).map_err(|what| classify::nonsense(verb, target, &what))
    }

    /// One request and the whole of its answer, within the limit of time.
    async fn call(&self, verb: Verb, target: &Target, body: Option<Value>) -> Result<Value, Failure> {
        let path = if verb == Verb::Create { target.collection() } else { target.path() };
        let exchange = async {
            let response = self.open(verb, target, &path, body).await?;
            let whole = whole(response).await.map_err(|what| classify::unanswered(verb, target, true, &what))?;
            serde_json::from_slice(&whole).map_err(|error| classify::nonsense(verb, target, &error.to_string()))
        };
        let limit = self.timeouts.request;
        tokio::time::timeout(limit, exchange).await.unwrap_or_else(|_| Err(classify::late(verb, target, limit)))
    }

    /// One request and the beginning of its answer, if that says success.
    async fn open(
        &self,
        verb: Verb,
        target: &Target,
        path: &str,
        body: Option<Value>,
    ) -> Result<Response<Body>, Failure> {
        let (method, content) = match verb {
            Verb::Get | Verb::Watch => (http::Method::GET, None),
            Verb::Patch => (http::Method::PATCH, Some("application/merge-patch+json")),
            Verb::Create => (http::Method::POST, Some("application/json")),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, concat!("moorline/", env!("CARGO_PKG_VERSION")));
        if let Some(content) = content {
            request = request.header(header::CONTENT_TYPE, content);
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string().into_bytes()));
        let request =
            request.body(body).map_err(|error| classify::unanswered(verb, target, false, &error.to_string()))?;
        let limit = self.timeouts.request;
        let exchange = async {
            let response = match self.client.send(request).await {
                Ok(response) => response,
                Err(error) => {
                    self.heard(verb, target, 0);
                    return Err(classify::unanswered(verb, target, !never_left(&error), &chain(&error)));
                }
            };
            self.heard(verb, target, response.status().as_u16());
            if response.status().is_success() {
                return Ok(response);
            }
            let code = response.status().as_u16();
            let retry_after = retry_after(response.headers());
            // A body that can't be read takes nothing from what the code says.
            let body = whole(response).await.unwrap_or_default();
            Err(classify::answered(verb, target, code, retry_after, &body))
        };
        tokio::time::timeout(limit, exchange).await.unwrap_or_else(|_| {
            self.heard(verb, target, 0);
            Err(classify::late(verb, target, limit))
        })
    }

    fn heard(&self, verb: Verb, target: &Target, code: u16) {
        if let Some(hear) = &self.hear {
            hear(Heard { verb: verb.word(), resource: target.resource(), code });
        }
    }
}

fn absent_is_none<T>(result: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match result {
        Ok(object) => Ok(Some(object)),
        Err(failure) if failure.kind == FailureKind::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}

async fn whole(response: Response<Body>) -> Result<bytes::Bytes, String> {
    match Limited::new(response.into_body(), ANSWER_CAP).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) => Err(chain(&*error)),
    }
}

/// Retry-After in seconds, or as a date, which is taken against the answer's own Date: no clock of ours is asked.
fn retry_after(headers: &http::HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let value = text(header::RETRY_AFTER)?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = |text| jiff::fmt::rfc2822::parse(text).ok().map(|time| time.timestamp());
    let (until, now) = (at(value)?, at(text(header::DATE)?)?);
    until.duration_since(now).try_into().ok()
}

/// Whether the request can't have reached the server: no connection came about, or no credentials for it.
fn never_left(error: &kube::Error) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if error.downcast_ref::<hyper_util::client::legacy::Error>().is_some_and(|error| error.is_connect())
            || error.is::<kube::client::AuthError>()
        {
            return true;
        }
        source = error.source();
    }
    false
}
