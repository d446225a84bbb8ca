//! The agent of this program lives against the embedded API server: its data plane takes effect, and is undone.
#![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

use std::{fs, path::Path, process::Command, sync::Arc};

use embed_agent::DesiredFile;
use moorline::config::{self, Config, Flag, Sources};
use moorline::driver::{Agent, DefaultPolicy};
use moorline::health::Health;
use moorline::machine::{files::Disk, network::NetworkAccess};
use moorline_policy::{Engine, EngineConfig, Loader};
use moorline_sim::server::{Identity, Options, Server};
use serde_json::{Value, json};
use tokio::sync::watch;

fn server() -> Server {
    let server = Server::new(Options::default());
    for object in [
        json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n1", "labels": {"unbounded-cloud.io/site": "east"}}, "spec": {"podCIDRs": ["10.0.0.0/24"]}}),
        json!({"apiVersion": "unbounded-cloud.io/v1alpha3", "kind": "Site", "metadata": {"name": "east"},
            "spec": {"nodeCidrs": ["10.9.0.0/16"], "podCidrAssignments": [{"cidrBlocks": ["10.0.0.0/8"]}]}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default", "uid": "u1"},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}),
    ] {
        server.apply(object).unwrap();
    }
    server
}

fn settings(machine: &Path) -> Vec<(&'static str, String)> {
    let at = |path: &str| machine.join(path).display().to_string();
    vec![
        ("node.name", "n1".to_owned()),
        ("pod.name", "a".to_owned()),
        ("pod.namespace", "default".to_owned()),
        ("pod.uid", "u1".to_owned()),
        ("pod.tokenFile", at("token")),
        ("health.address", "127.0.0.1:0".to_owned()),
        ("machine.cniDirectory", at("cni")),
        ("machine.stateDirectory", at("state")),
    ]
}

fn config(machine: &Path) -> Config {
    let flags = settings(machine).into_iter().map(|(key, value)| Flag { name: "test".into(), key: key.into(), value });
    config::load(&Sources { flags: flags.collect(), ..Sources::default() }).unwrap().config
}

fn agent(server: &Server, machine: &Path) -> (Agent, watch::Receiver<Health>) {
    let config = config(machine);
    let (health, seen) = watch::channel(Health::default());
    let agent = Agent {
        data_plane: Some(DesiredFile::choose(&config, "n1").into()),
        config,
        client: server.client(Identity::agent("agent", "default")),
        loader: Loader::new(&Engine::new(&EngineConfig::default()).unwrap()),
        default_policy: DefaultPolicy::Component(moorline::DEFAULT_POLICY.into()),
        files: Arc::new(Disk),
        network: NetworkAccess::Untouched,
        journal: None,
        health,
        reload: Arc::default(),
        terminate: Default::default(),
        wall: server.now(),
        seed: 7,
    };
    (agent, seen)
}

#[tokio::test(start_paused = true)]
async fn the_file_is_written_by_the_agent_and_removed_by_cleanup() {
    let (server, machine) = (server(), tempfile::tempdir().unwrap());
    let file = machine.path().join("state/desired.json");
    let (agent, mut seen) = agent(&server, machine.path());
    let mut life = Box::pin(agent.run());
    tokio::select! {
        exit = &mut life => panic!("{exit:?}"),
        settled = seen.wait_for(|health| health.ready) => drop(settled.unwrap()),
    }
    let desired: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(desired["assignment"]["site"], "east");
    assert_eq!(desired["podCidrs"], json!(["10.0.0.0/24"]));
    // As SIGKILL would.
    drop(life);

    let mut command = Command::new(env!("CARGO_BIN_EXE_embed-agent"));
    command.arg("cleanup");
    for (key, value) in settings(machine.path()) {
        command.arg("--set").arg(format!("{key}={value}"));
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("data plane desired-file"), "{text}");
    assert!(!file.exists());
}
