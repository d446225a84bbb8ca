//! What is around an agent, and what can be told of it from outside: objects, files, the acknowledgment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use moorline::driver::Agent;
use moorline::health::Health;
use moorline_lifecycle::Exit;
use moorline_sim::server::{Identity, ObjectName, Options, Server};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::stage::{self, Machine};

pub(crate) const CNI: &str = "cni/10-unbounded.conflist";
pub(crate) const DISABLED: &str = "cni/10-unbounded.conflist.disabled";
pub(crate) const GATEWAY_TAINT: &str = "net.unbounded-cloud.io/gateway-node";
pub(crate) const SITE_LABEL: &str = "unbounded-cloud.io/site";
/// Longer than any wait of an agent that nothing keeps from settling.
pub(crate) const PATIENCE: Duration = Duration::from_secs(900);

pub(crate) fn node_name() -> ObjectName {
    ObjectName::new("nodes", "n1")
}

pub(crate) fn pod_name() -> ObjectName {
    ObjectName::new("pods", "agent").namespace("kube-system")
}

/// A Site with its CNI managed, and this MTU, by which one configuration differs from another.
pub(crate) fn site(name: &str, mtu: u16) -> Value {
    let mut site = stage::site();
    site["metadata"]["name"] = json!(name);
    site["spec"]["tunnelMTU"] = json!(mtu);
    site
}

/// The objects of a server at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Objects(Vec<Value>);

impl Objects {
    pub(crate) fn of(server: &Server) -> Self {
        let kinds = ["nodes", "pods", "sites.unbounded-cloud.io", "gatewaypoolnodes"];
        Self(kinds.iter().flat_map(|kind| server.list(kind).unwrap()).collect())
    }

    /// Another server with the same objects.
    pub(crate) fn serve(&self) -> Server {
        let server = Server::new(Options::default());
        for object in &self.0 {
            server.apply(object.clone()).unwrap();
        }
        server
    }
}

/// The acknowledgment on the agent's Pod.
pub(crate) fn acknowledgment(server: &Server) -> Option<Value> {
    let pod = server.get(&pod_name()).ok()?;
    let record = pod["metadata"]["annotations"]["moorline.dev/acknowledgment"].as_str()?;
    Some(serde_json::from_str(record).unwrap())
}

pub(crate) fn taints(server: &Server) -> Value {
    server.get(&node_name()).map_or(Value::Null, |node| node["spec"]["taints"].clone())
}

/// A server for processes, at the address that is in the machine's kubeconfig.
pub(crate) async fn serve(server: &Server, machine: &Machine) -> AbortOnDropHandle<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    stage::kubeconfig(machine.root.path(), &format!("http://{}", listener.local_addr().unwrap()));
    let server = server.clone();
    AbortOnDropHandle::new(tokio::spawn(async move {
        let served = server.serve(listener, |_token| Identity::agent("agent", "kube-system")).await;
        panic!("{served:?}");
    }))
}

/// Every file below a folder, by its path from there.
pub(crate) fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(folder).unwrap().to_owned(), std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// Puts files back, on another machine perhaps.
pub(crate) fn put(folder: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) {
    for (path, content) in files {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// Lets an agent live until it is ready, as `/readyz` says.
pub(crate) async fn until_ready(life: &mut (impl Future<Output = Exit> + Unpin), health: &mut watch::Receiver<Health>) {
    tokio::select! {
        exit = life => panic!("the agent ended: {exit:?}"),
        waited = tokio::time::timeout(PATIENCE, health.wait_for(|health| health.ready)) => drop(waited.unwrap().unwrap()),
    }
}

/// One start of an agent, an hour later than all that happened on this machine before, up to its end as `kill -9` makes it.
pub(crate) async fn settle(machine: &Machine, server: &Server) {
    settle_as(machine, server, |agent| agent).await;
}

pub(crate) async fn settle_as(machine: &Machine, server: &Server, change: impl FnOnce(Agent) -> Agent) {
    let (mut agent, mut health) = machine.agent(server);
    agent.wall += Duration::from_secs(3600);
    let mut life = Box::pin(change(agent).run());
    until_ready(&mut life, &mut health).await;
    let page = health.borrow().status.clone();
    assert_eq!(page["state"], "settled", "{page:#}");
}

/// Asserts that this server and machine are as a settled agent leaves them, and that nothing of a crash is left.
#[track_caller]
pub(crate) fn assert_settled(server: &Server, root: &Path, site: &str, cni: &[u8]) {
    assert_eq!(acknowledgment(server).unwrap()["site"], site);
    assert!(!taints(server).to_string().contains(GATEWAY_TAINT), "{}", taints(server));
    let files = files(root);
    assert_eq!(String::from_utf8_lossy(&files[Path::new(CNI)]), String::from_utf8_lossy(cni));
    let leftovers: Vec<_> = files.keys().filter(|path| path.to_string_lossy().contains(".moorline-")).collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
    let ledger: Value = serde_json::from_slice(&files[Path::new("state/ledger.json")]).unwrap();
    assert_eq!(ledger["assignment"]["site"], site, "{ledger:#}");
    assert_eq!(ledger["acknowledgment"]["podUid"], "uid-agent", "{ledger:#}");
}

/// The CNI file of a machine that was settled on this Site, and nothing else ever.
pub(crate) async fn cni_of(site: Value) -> Vec<u8> {
    let (server, machine) = (stage::server(), Machine::new());
    let name = site["metadata"]["name"].as_str().unwrap().to_owned();
    server.apply(site).unwrap();
    server.label(&node_name(), SITE_LABEL, Some(&name)).unwrap();
    settle(&machine, &server).await;
    std::fs::read(machine.path(CNI)).unwrap()
}
