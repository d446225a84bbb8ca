//! A toy agent, and scenarios around it.

use std::path::PathBuf;

use moorline_sim::scenario::{self, Ended, Launch, Launcher, LoadError, Process, Readiness, Report};
use serde_json::{Map, Value, json};

/// A Node, a Pod and the agent: what every scenario needs. Steps and expectations follow.
pub(crate) const BASE: &str = r"name: toy
description: A toy.
objects:
- {apiVersion: v1, kind: Node, metadata: {name: n1, uid: u1, labels: {a: b}}}
- {apiVersion: v1, kind: Pod, metadata: {name: p1, namespace: ns, uid: up1}, spec: {containers: [{name: c}]}}
agent:
  node: n1
  pod: {namespace: ns, name: p1}
";

/// A process that reads its Node every second, notes its labels on its Pod, writes a file, and ends when it is told to:
/// by SIGTERM, or by a label `end` with the exit code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Toy;

impl Launcher for Toy {
    fn launch(&self, launch: Launch) -> Process {
        let ready = Readiness { ready: true, text: format!("process {}", launch.number) };
        Process { life: Box::pin(live(launch)), readiness: Box::new(move || ready.clone()) }
    }
}

async fn live(launch: Launch) -> Ended {
    let say = |kind: &str, text: &str, fields: Value| {
        launch.journal.entry(kind, text, fields.as_object().cloned().unwrap_or_default());
    };
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(launch.client.clone());
    std::fs::write(launch.machine.join("seen"), format!("process {}", launch.number)).unwrap();
    say("adopted", "adopted", json!({"assignment": {"site": "s", "pool": null}}));
    say("entered", "settled", json!({"state": "settled"}));
    let mut terminate = launch.terminate.clone();
    loop {
        let read = nodes.get(&launch.node).await;
        say("read", if read.is_ok() { "ok" } else { "failed" }, json!(Map::new()));
        let labels = read.ok().and_then(|node| node.metadata.labels).unwrap_or_default();
        if let Some(code) = labels.get("end").and_then(|code| code.parse().ok()) {
            return Ended { code, reason: "the label says so".into() };
        }
        let deaf = labels.contains_key("deaf");
        tokio::select! {
            _ = terminate.wait_for(|asked| *asked), if !deaf => return Ended { code: 0, reason: "SIGTERM".into() },
            () = tokio::time::sleep(std::time::Duration::from_secs(1)) => {}
        }
    }
}

/// Loads a scenario that is the base and this.
pub(crate) fn load(rest: &str) -> Result<scenario::Loaded, LoadError> {
    load_text(&format!("{BASE}{rest}")).1
}

/// Loads a scenario, and says which file it was in.
pub(crate) fn load_text(text: &str) -> (PathBuf, Result<scenario::Loaded, LoadError>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("toy.yaml");
    std::fs::write(&path, text).unwrap();
    (path.clone(), scenario::load(&path))
}

/// Runs a scenario that is the base and this.
pub(crate) fn run(rest: &str) -> Report {
    let loaded = load(rest).unwrap_or_else(|error| panic!("{error}"));
    scenario::run(&loaded, &Toy).unwrap()
}

/// The names of what failed.
pub(crate) fn failed(report: &Report) -> Vec<&str> {
    report.expectations.iter().filter(|result| !result.passed).map(|result| result.name.as_str()).collect()
}
