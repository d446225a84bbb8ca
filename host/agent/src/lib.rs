//! The Moorline agent as a library: effectors around the pure life of `moorline-lifecycle`, and the driver that connects
//! them. It takes no global state: no tracing subscriber, no metrics registry, no signal handler (but [`cli`], which is
//! the binary's).
//!
//! An agent with a data plane of its own is an [`Agent`](driver::Agent) that is given one; this one lives against the
//! embedded API server, in virtual time:
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use moorline::{config::{self, Flag, Sources}, dataplane::NoDataPlane, driver::{Agent, DefaultPolicy}, health::Health};
//! use moorline::machine::{files::Disk, network::NetworkAccess};
//! use moorline_policy::{Engine, EngineConfig, Loader};
//! use moorline_sim::server::{Identity, Options, Server};
//! use serde_json::json;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?.block_on(async {
//! let server = Server::new(Options::default());
//! server.apply(json!({"apiVersion": "v1", "kind": "Node",
//!     "metadata": {"name": "n1", "labels": {"unbounded-cloud.io/site": "east"}}, "spec": {"podCIDRs": ["10.0.0.0/24"]}}))?;
//! server.apply(json!({"apiVersion": "unbounded-cloud.io/v1alpha3", "kind": "Site", "metadata": {"name": "east"},
//!     "spec": {"nodeCidrs": ["10.9.0.0/16"], "podCidrAssignments": [{"cidrBlocks": ["10.0.0.0/8"]}]}}))?;
//! server.apply(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default", "uid": "u1"},
//!     "spec": {"containers": [{"name": "c", "image": "i"}]}}))?;
//!
//! let machine = tempfile::tempdir()?;
//! let at = |path: &str| machine.path().join(path).display().to_string();
//! let flags = [
//!     ("node.name", "n1".to_owned()), ("pod.name", "a".to_owned()), ("pod.namespace", "default".to_owned()),
//!     ("pod.uid", "u1".to_owned()), ("pod.tokenFile", at("token")), ("health.address", "127.0.0.1:0".to_owned()),
//!     ("machine.cniDirectory", at("cni")), ("machine.stateDirectory", at("state")),
//! ];
//! let flags = flags.map(|(key, value)| Flag { name: "example".into(), key: key.into(), value });
//! let config = config::load(&Sources { flags: flags.into(), ..Sources::default() })?.config;
//!
//! let (health, mut seen) = tokio::sync::watch::channel(Health::default());
//! let agent = Agent {
//!     config,
//!     client: server.client(Identity::agent("agent", "default")),
//!     loader: Loader::new(&Engine::new(&EngineConfig::default())?),
//!     default_policy: DefaultPolicy::Component(moorline::DEFAULT_POLICY.into()),
//!     data_plane: Some(Arc::new(NoDataPlane)),
//!     files: Arc::new(Disk),
//!     network: NetworkAccess::Untouched,
//!     journal: None,
//!     health,
//!     reload: Arc::default(),
//!     terminate: Default::default(),
//!     wall: server.now(),
//!     seed: 7,
//! };
//! tokio::select! {
//!     exit = agent.run() => panic!("{exit:?}"),
//!     settled = seen.wait_for(|health| health.ready) => drop(settled?),
//! }
//! assert!(machine.path().join("cni/10-unbounded.conflist").exists());
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
#![deny(missing_docs)]

pub mod cli;
pub mod cluster;
pub mod config;
pub mod dataplane;
pub mod driver;
pub mod health;
pub mod journal;
pub mod machine;
pub mod simulate;
pub mod trace;

/// The default policy, which answers every hook as the documentation says: asked after all others.
pub const DEFAULT_POLICY: &[u8] = include_bytes!("../../../policies/default/default.wasm");

/// An error with all of its causes on one line. Where an error's text repeats that of its cause, it is said once.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
