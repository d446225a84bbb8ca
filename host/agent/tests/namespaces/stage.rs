//! What the tests share: namespaces, `ip`, and a picture of a network that two moments can be compared by.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, OnceLock};

use moorline::config::{self, Flag, NetworkConfig, Sources};
use moorline::driver::{Agent, DefaultPolicy};
use moorline::health::Health;
use moorline::machine::files::Disk;
use moorline::machine::network::{Marks, NetworkAccess, NetworkPlan, RecordedPlan};
use moorline_lifecycle::Assignment;
use moorline_policy::{Engine, EngineConfig, Loader};
use moorline_sim::server::{Identity, ObjectName, Options, Server};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};

/// Puts this process, which has no other thread yet, into namespaces of its own.
pub(crate) fn enter() {
    let outside = std::fs::read_link("/proc/self/ns/net").unwrap();
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).unwrap();
    assert_ne!(std::fs::read_link("/proc/self/ns/net").unwrap(), outside);
    // What is mounted here is mounted nowhere else, and `/sys` and `/run` are this network's.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
    for folder in ["/var/lib", "/run"] {
        mount(Some("tmpfs"), folder, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
    }
    ip("link set lo up");
}

pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Runs `ip` with these words; `\alias` and `\proto` stand for the agent's marks.
pub(crate) fn ip(words: &str) -> String {
    let marks = marks();
    let words = words.replace("\\alias", &marks.link_alias).replace("\\proto", &marks.route_protocol.to_string());
    let output = run(Command::new("ip").args(words.split(' ').filter(|word| !word.is_empty())));
    String::from_utf8(output.stdout).unwrap()
}

/// Each line as the words of one `ip`.
pub(crate) fn ips(lines: &str) {
    lines.lines().map(str::trim).filter(|line| !line.is_empty()).for_each(|line| drop(ip(line)));
}

pub(crate) fn assignment() -> Assignment {
    Assignment { node_uid: "uid-n1".into(), site: "east".into(), pool: None }
}

pub(crate) fn marks() -> &'static Marks {
    static MARKS: OnceLock<Marks> = OnceLock::new();
    MARKS.get_or_init(|| Marks::new(&NetworkConfig::default(), &assignment()))
}

/// A plan as the ledger keeps it.
pub(crate) fn recorded(network: Value, boot_id: Option<&str>) -> RecordedPlan {
    let plan = NetworkPlan::of(&json!({ "network": network })).unwrap().unwrap();
    RecordedPlan { marks: marks().clone(), boot_id: boot_id.map(str::to_owned), plan }
}

/// Links with name, kind and alias, routes and rules, each on a line; without what the kernel adds to addresses.
pub(crate) fn picture() -> String {
    let links = ip("-o -d link").replace("\\", " ");
    // The number of a multicast group's members and timers of bridges change by themselves.
    let links = links.lines().map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let alias = words.iter().position(|word| *word == "alias").map(|at| words[at + 1..].join(" "));
        format!("{} {} {}", words[0], words[1], alias.unwrap_or_default())
    });
    let routes = ["-4 route show table all", "-6 route show table all"].map(ip).concat();
    let routes = routes.lines().filter(|line| !line.contains("proto kernel")).map(|line| line.trim().to_owned());
    let rules = ["-4 rule", "-6 rule"].map(ip).concat();
    let mut lines: Vec<_> = links.chain(routes).chain(rules.lines().map(str::to_owned)).collect();
    lines.sort();
    lines.join("\n")
}

pub(crate) fn index(link: &str) -> u32 {
    ip(&format!("-o link show {link}")).split(':').next().unwrap().parse().unwrap()
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// A machine with its Node in a cluster, on which real agents with real policies live one after the other.
pub(crate) struct Machine {
    folder: tempfile::TempDir,
    server: Server,
}

impl Machine {
    pub(crate) fn new(pod_cidrs: &[&str]) -> Self {
        let server = Server::new(Options::default());
        let site = |name: &str| {
            json!({"apiVersion": "unbounded-cloud.io/v1alpha3", "kind": "Site", "metadata": {"name": name},
                "spec": {"nodeCidrs": ["192.168.0.0/16"], "podCidrAssignments": [{"cidrBlocks": pod_cidrs}]}})
        };
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default", "uid": "u1"},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let node = json!({"apiVersion": "v1", "kind": "Node", "spec": {"podCIDRs": pod_cidrs},
            "metadata": {"name": "n1", "uid": "uid-n1", "labels": {"unbounded-cloud.io/site": "east"}}});
        for object in [site("east"), site("west"), pod, node] {
            server.apply(object).unwrap();
        }
        Self { folder: tempfile::tempdir().unwrap(), server }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Moves the Node to another Site.
    pub(crate) fn relabel(&self, site: &str) {
        self.server.label(&ObjectName::new("nodes", "n1"), "unbounded-cloud.io/site", Some(site)).unwrap();
    }

    /// Lets an agent live until it is settled, and ends it as a crash does.
    pub(crate) fn settle(&self, more: &[(&str, &str)]) {
        let at = |path: &str| self.path(path).display().to_string();
        let usual = [
            ("node.name", "n1".to_owned()),
            ("pod.name", "a".to_owned()),
            ("pod.namespace", "default".to_owned()),
            ("pod.uid", "u1".to_owned()),
            ("pod.tokenFile", at("token")),
            ("health.address", "127.0.0.1:0".to_owned()),
            ("machine.cniDirectory", at("cni")),
            ("machine.stateDirectory", at("state")),
        ];
        let keys = usual.into_iter().chain(more.iter().map(|(key, value)| (*key, (*value).to_owned())));
        let flags = keys.map(|(key, value)| Flag { name: "test".into(), key: key.into(), value }).collect();
        let config = config::load(&Sources { flags, ..Sources::default() }).unwrap().config;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (health, mut seen) = tokio::sync::watch::channel(Health::default());
            let agent = Agent {
                config,
                client: self.server.client(Identity::agent("agent", "default")),
                loader: Loader::new(&Engine::new(&EngineConfig::default()).unwrap()),
                default_policy: DefaultPolicy::Component(moorline::DEFAULT_POLICY.into()),
                data_plane: None,
                files: Arc::new(Disk),
                network: NetworkAccess::Machine,
                journal: None,
                health,
                reload: Arc::default(),
                terminate: Default::default(),
                wall: self.server.now(),
                seed: 7,
            };
            tokio::select! {
                exit = agent.run() => panic!("{exit:?}"),
                settled = seen.wait_for(|health| health.ready) => drop(settled.unwrap()),
            }
        });
    }
}
