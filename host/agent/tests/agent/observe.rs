//! `run --observe`: everything is asked and told, nothing is changed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use moorline::driver::Agent;
use moorline::health::Health;
use moorline_lifecycle::ExitCode;
use moorline_sim::server::{ObjectName, Server};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::stage::{self, Machine, live, requests};

const A_WHILE: Duration = Duration::from_secs(60);

/// Every file below a folder, with its content and the time of its last change.
fn files(folder: &Path) -> BTreeMap<String, (Vec<u8>, SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        let name = path.display().to_string();
        if entry.file_type().unwrap().is_dir() {
            found.insert(name, (Vec::new(), SystemTime::UNIX_EPOCH));
            found.extend(files(&path));
        } else {
            found.insert(name, (std::fs::read(&path).unwrap(), entry.metadata().unwrap().modified().unwrap()));
        }
    }
    found
}

fn node_and_pod(server: &Server) -> [Value; 2] {
    let pod = ObjectName::new("pods", "agent").namespace("kube-system");
    [ObjectName::new("nodes", "n1"), pod].map(|object| server.get(&object).unwrap())
}

/// Observes for a while, and is asked to end then. Gives the requests that were made.
async fn observes((agent, health): (Agent, watch::Receiver<Health>), ready: bool, server: &Server) -> Vec<String> {
    let before = requests(server).len();
    let terminate = agent.terminate.clone();
    let mut life = Box::pin(agent.observe());
    live(&mut life, A_WHILE).await;
    assert_eq!(health.borrow().ready, ready, "{:?}", health.borrow().missing);
    terminate.cancel();
    assert_eq!(life.await.code, ExitCode::Asked);
    requests(server).split_off(before)
}

fn assert_reads_only(made: &[String]) {
    let reads = made.iter().all(|request| request.starts_with("get ") || request.starts_with("watch "));
    assert!(reads && !made.is_empty(), "{made:?}");
}

#[tokio::test(start_paused = true)]
async fn on_a_fresh_machine_every_intent_is_told_and_nothing_is_touched() {
    let (server, machine) = (stage::server(), Machine::new());
    let before = node_and_pod(&server);
    // It goes on as if all that it told had been done.
    let made = observes(machine.agent(&server), true, &server).await;
    assert_reads_only(&made);
    assert_eq!(node_and_pod(&server), before);
    assert!(files(machine.root.path()).is_empty(), "{:?}", files(machine.root.path()).keys());
    for intent in [
        "Would save the ledger",
        "Would have this CNI configuration in place",
        "Would remove these taints from the own Node: net.unbounded-cloud.io/gateway-node:NoSchedule",
        "Would patch the annotations of the own Pod",
    ] {
        assert!(machine.told.has(intent), "{intent:?} is not in {:#?}", machine.told.lines());
    }
    for hook in ["adoption", "taints", "cni", "acknowledgment"] {
        assert!(machine.told.has(&format!("Policy(PolicyCall {{ hook: \"{hook}\"")), "{hook}");
    }
    let node_watches = made.iter().filter(|request| request.starts_with("watch nodes")).count();
    assert_eq!(node_watches, 1, "the startup watch closes where it would have acknowledged: {made:?}");
}

#[tokio::test(start_paused = true)]
async fn beside_the_agent_in_use_it_shows_the_handoff_to_come_and_leaves_all_as_it_is() {
    let (server, machine) = (stage::server(), Machine::new());
    let mut west = stage::site();
    west["metadata"]["name"] = json!("west");
    server.apply(west).unwrap();
    let (agent, in_use) = machine.agent(&server);
    let mut life = Box::pin(agent.run());
    live(&mut life, A_WHILE).await;
    server.label(&ObjectName::new("nodes", "n1"), "unbounded-cloud.io/site", Some("west")).unwrap();

    let (files_before, objects_before) = (files(machine.root.path()), node_and_pod(&server));
    let observed = tokio::select! {
        made = observes(machine.agent(&server), true, &server) => made,
        exit = &mut life => panic!("{exit:?}"),
    };
    assert_reads_only(&observed);
    assert_eq!(files(machine.root.path()), files_before);
    assert_eq!(node_and_pod(&server), objects_before);
    for intent in ["Would disable the agent's CNI configuration", r#"moorline.dev/acknowledgment\":null"#, "west"] {
        assert!(machine.told.has(intent), "{intent:?} is not in {:#?}", machine.told.lines());
    }
    assert!(in_use.borrow().ready);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_cni_file_is_told_as_the_agent_in_use_would_tell_it() {
    let (server, machine) = (stage::server(), Machine::new());
    std::fs::create_dir(machine.path("cni")).unwrap();
    std::fs::write(machine.path("cni/10-unbounded.conflist"), "{}").unwrap();
    std::fs::create_dir(machine.path("state")).unwrap();
    std::fs::write(machine.path("state/ledger.json"), "{torn").unwrap();
    let before = files(machine.root.path());
    assert_reads_only(&observes(machine.agent(&server), false, &server).await);
    assert_eq!(files(machine.root.path()), before, "not even a damaged ledger is set aside");
    assert!(machine.told.has("Would write the Event CniBlocked"), "{:#?}", machine.told.lines());
}
