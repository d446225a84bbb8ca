//! What the tests share: an API server with one Node, its Site and its Pod, a machine, and an agent on it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use moorline::config::{self, Config, Flag, Sources};
use moorline::driver::Agent;
use moorline::health::Health;
use moorline::journal::{Entry, Journal};
use moorline::machine::files::Disk;
use moorline::machine::network::NetworkAccess;
use moorline_policy::{Engine, EngineConfig, Loader, Policy};
use moorline_sim::server::{AuditRecord, Identity, Options, Server};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The default policy is compiled once for all tests.
fn policies() -> (Loader, Policy) {
    static LOADED: OnceLock<(Loader, Policy)> = OnceLock::new();
    let load = || {
        let loader = Loader::new(&Engine::new(&EngineConfig::default()).unwrap());
        let policy = loader.load("default", moorline::DEFAULT_POLICY).unwrap();
        (loader, policy)
    };
    LOADED.get_or_init(load).clone()
}

pub(crate) fn node() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "uid": "uid-n1", "labels": {"unbounded-cloud.io/site": "east"}},
        "spec": {
            "podCIDRs": ["10.0.0.0/24"],
            "taints": [{"key": "net.unbounded-cloud.io/gateway-node", "value": "true", "effect": "NoSchedule"}],
        },
    })
}

pub(crate) fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "agent", "namespace": "kube-system", "uid": "uid-agent"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
    })
}

pub(crate) fn site() -> Value {
    json!({
        "apiVersion": "unbounded-cloud.io/v1alpha3", "kind": "Site", "metadata": {"name": "east"},
        "spec": {
            "manageCniPlugin": true, "nodeCidrs": ["192.168.0.0/16"],
            "podCidrAssignments": [{"cidrBlocks": ["10.0.0.0/8"]}],
        },
    })
}

pub(crate) fn gateway_pool_node() -> Value {
    json!({
        "apiVersion": "net.unbounded-cloud.io/v1alpha1", "kind": "GatewayPoolNode", "metadata": {"name": "n1"},
        "spec": {"nodeName": "n1", "gatewayPool": "edge"},
        "status": {"routes": {"10.1.0.0/16": {"type": "PodCidr"}, "10.2.0.0/16": {"type": "PodCidr"}}},
    })
}

/// An API server with all that a worker needs.
pub(crate) fn server() -> Server {
    let server = Server::new(Options::default());
    for object in [node(), pod(), site()] {
        server.apply(object).unwrap();
    }
    server
}

pub(crate) fn client(server: &Server) -> kube::Client {
    server.client(Identity::agent("system:serviceaccount:kube-system:moorline", "kube-system"))
}

/// A machine, and what agents on it tell.
pub(crate) struct Machine {
    pub(crate) root: TempDir,
    pub(crate) told: Arc<Told>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap(), told: Arc::default() }
    }

    pub(crate) fn path(&self, path: &str) -> std::path::PathBuf {
        self.root.path().join(path)
    }

    /// The configuration of an agent on this machine, with more keys.
    pub(crate) fn config(&self, more: &[(&str, &str)]) -> Config {
        config_at(self.root.path(), more)
    }

    /// An agent on this machine.
    pub(crate) fn agent(&self, server: &Server) -> (Agent, watch::Receiver<Health>) {
        let (loader, default_policy) = policies();
        let (health, seen) = watch::channel(Health::default());
        let agent = Agent {
            config: self.config(&[]),
            client: client(server),
            loader,
            default_policy: default_policy.into(),
            data_plane: None,
            files: Arc::new(Disk),
            network: NetworkAccess::Untouched,
            journal: Some(self.told.clone()),
            health,
            reload: Arc::default(),
            terminate: CancellationToken::new(),
            wall: server.now(),
            seed: 1,
        };
        (agent, seen)
    }
}

/// The configuration of an agent whose machine is this folder, with more keys.
pub(crate) fn config_at(root: &Path, more: &[(&str, &str)]) -> Config {
    let at = |path: &str| root.join(path).display().to_string();
    let usual = [
        ("node.name", "n1".to_owned()),
        ("pod.name", "agent".to_owned()),
        ("pod.namespace", "kube-system".to_owned()),
        ("pod.uid", "uid-agent".to_owned()),
        ("pod.tokenFile", at("token")),
        ("machine.cniDirectory", at("cni")),
        ("machine.stateDirectory", at("state")),
        ("machine.cacheDirectory", at("cache")),
        ("health.address", "127.0.0.1:0".to_owned()),
    ];
    let more = more.iter().map(|(key, value)| (*key, (*value).to_owned()));
    let flag = |(key, value): (&str, String)| Flag { name: "test".into(), key: key.into(), value };
    let flags = usual.into_iter().chain(more).map(flag).collect();
    config::load(&Sources { flags, ..Sources::default() }).unwrap().config
}

/// Writes a kubeconfig for a server without certificates into this folder, and says where.
pub(crate) fn kubeconfig(folder: &Path, server: &str) -> std::path::PathBuf {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: \"{server}\"}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n"
    );
    let path = folder.join("kubeconfig");
    std::fs::write(&path, text).unwrap();
    path
}

/// The binary, with nothing of this process's environment.
pub(crate) fn moorline() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moorline"));
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `moorline run` on this machine, at this cluster.
pub(crate) fn run(machine: &Machine, kubeconfig: &Path) -> Command {
    let mut command = moorline();
    command.arg("run");
    for (name, value) in [("NODE_NAME", "n1"), ("POD_NAME", "agent"), ("POD_NAMESPACE", "kube-system")] {
        command.env(name, value);
    }
    command.env("POD_UID", "uid-agent").env("MOORLINE_HEALTH__ADDRESS", "127.0.0.1:0");
    let at = |path: &str| machine.path(path).display().to_string();
    for (key, value) in [
        ("cluster.kubeconfig", kubeconfig.display().to_string()),
        ("pod.tokenFile", at("token")),
        ("pod.terminationLog", at("termination-log")),
        ("machine.cniDirectory", at("cni")),
        ("machine.stateDirectory", at("state")),
        ("machine.cacheDirectory", at("cache")),
    ] {
        command.arg("--set").arg(format!("{key}={value}"));
    }
    command
}

/// A journal that keeps lines.
#[derive(Default)]
pub(crate) struct Told(Mutex<Vec<String>>);

impl Told {
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn has(&self, part: &str) -> bool {
        self.lines().iter().any(|line| line.contains(part))
    }
}

impl Journal for Told {
    fn tell(&self, _at: Duration, entry: &Entry<'_>) {
        if !matches!(entry, Entry::Event(_) | Entry::Born(_)) {
            self.0.lock().unwrap().push(format!("{entry:?}"));
        }
    }
}

/// Polls the agent for so much virtual time. It must not end meanwhile.
pub(crate) async fn live<T: std::fmt::Debug>(agent: &mut (impl Future<Output = T> + Unpin), time: Duration) {
    if let Ok(end) = tokio::time::timeout(time, agent).await {
        panic!("the agent ended: {end:?}");
    }
}

/// Requests as `get nodes 200`, in the order of their arrival.
pub(crate) fn requests(server: &Server) -> Vec<String> {
    let line = |record: &Arc<AuditRecord>| {
        let code = record.code.map_or_else(|| "-".to_owned(), |code| code.to_string());
        format!("{} {} {code}", record.verb(), record.request.resource)
    };
    server.audit().iter().map(line).collect()
}

/// Takes the lock of a machine as another process would.
pub(crate) fn lock(folder: &Path) -> moorline::machine::lock::StateLock {
    moorline::machine::lock::StateLock::try_acquire(folder, jiff::Timestamp::UNIX_EPOCH).unwrap()
}
