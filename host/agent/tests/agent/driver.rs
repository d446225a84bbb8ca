//! The agent as a whole: what happens before the life, what ends it, and what is left when it is cut off.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use moorline::dataplane::{Answer, DataPlane};
use moorline_lifecycle::{Desired, ExitCode, Routes};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::stage::{self, Machine, live, requests};

const A_WHILE: Duration = Duration::from_secs(30);
const QUIET_START: [&str; 5] =
    ["get nodes 200", "get pods 200", "watch nodes 200", "watch sites 200", "patch nodes 200"];

#[tokio::test(start_paused = true)]
async fn a_worker_settles_and_ends_as_asked_with_everything_left_in_place() {
    let (server, machine) = (stage::server(), Machine::new());
    let (agent, health) = machine.agent(&server);
    let terminate = agent.terminate.clone();
    let mut life = Box::pin(agent.run());
    live(&mut life, A_WHILE).await;
    assert!(health.borrow().ready, "{:?}", health.borrow().missing);
    let made = requests(&server);
    assert_eq!(made[..5], QUIET_START, "{made:?}");
    assert_eq!(made[5..], ["patch pods 200"], "{made:?}");
    let cni = std::fs::read_to_string(machine.path("cni/10-unbounded.conflist")).unwrap();
    assert!(cni.contains("10.0.0.0/24"));

    terminate.cancel();
    let exit = life.await;
    assert_eq!(exit.code, ExitCode::Asked, "{exit:?}");
    assert!(machine.path("cni/10-unbounded.conflist").exists());
    assert_eq!(requests(&server).len(), made.len());
}

#[tokio::test(start_paused = true)]
async fn a_second_agent_waits_for_the_lock_and_asks_nobody_anything() {
    let (server, machine) = (stage::server(), Machine::new());
    let lock = stage::lock(&machine.path("state"));
    let (agent, health) = machine.agent(&server);
    let mut life = Box::pin(agent.run());
    live(&mut life, A_WHILE).await;
    assert!(requests(&server).is_empty());
    assert!(!health.borrow().ready);
    assert_eq!(health.borrow().missing[0].what, "lock");
    assert_eq!(machine.told.lines().iter().filter(|line| line.contains("Waiting")).count(), 1);

    drop(lock);
    live(&mut life, A_WHILE).await;
    assert!(health.borrow().ready);
}

#[tokio::test(start_paused = true)]
async fn a_taken_health_port_is_waited_for_before_anything_else() {
    let (server, machine) = (stage::server(), Machine::new());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut agent, health) = machine.agent(&server);
    agent.config.health.address = Some(taken.local_addr().unwrap());
    let mut life = Box::pin(agent.run());
    live(&mut life, A_WHILE).await;
    assert!(requests(&server).is_empty());
    assert!(!machine.path("state").exists(), "nothing is touched before health is served");
    drop(taken);
    live(&mut life, A_WHILE).await;
    assert!(health.borrow().ready);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_is_asked_for_ends_a_wait() {
    let (server, machine) = (stage::server(), Machine::new());
    let _lock = stage::lock(&machine.path("state"));
    let (agent, _health) = machine.agent(&server);
    let terminate = agent.terminate.clone();
    let mut life = Box::pin(agent.run());
    live(&mut life, A_WHILE).await;
    terminate.cancel();
    let exit = life.await;
    assert_eq!(exit.code, ExitCode::Asked);
    assert!(exit.reason.contains("lock"), "{}", exit.reason);
}

#[tokio::test(start_paused = true)]
async fn health_is_up_before_policies_are_loaded_and_both_before_the_first_request() {
    let (server, machine) = (stage::server(), Machine::new());
    let (agent, _health) = machine.agent(&server);
    let mut life = Box::pin(agent.run());
    live(&mut life, A_WHILE).await;
    let lines = machine.told.lines();
    let at = |part: &str| lines.iter().position(|line| line.contains(part)).unwrap();
    assert!(at("HealthUp") < at("Locked") && at("Locked") < at("Policies {") && at("Policies {") < at("ReadNode"));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_cut_off_leaves_no_watch_no_request_and_no_lock() {
    let (server, machine) = (stage::server(), Machine::new());
    let (agent, _health) = machine.agent(&server);
    let mut life = Box::pin(agent.run());
    live(&mut life, A_WHILE).await;
    let before = requests(&server).len();
    drop(life);
    tokio::time::sleep(Duration::from_secs(7200)).await;
    assert_eq!(requests(&server).len(), before);
    assert!(server.audit().iter().all(|record| record.completed.is_some()));
    drop(stage::lock(&machine.path("state")));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_for_another_pod_ends_with_3_before_anything_is_asked() {
    use base64::Engine as _;
    let (server, machine) = (stage::server(), Machine::new());
    let claims = json!({"kubernetes.io": {"namespace": "kube-system", "pod": {"name": "other", "uid": "uid-other"}}});
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(claims.to_string());
    std::fs::write(machine.path("token"), format!("e30.{claims}.sig")).unwrap();
    let (agent, _health) = machine.agent(&server);
    let exit = agent.run().await;
    assert_eq!(exit.code, ExitCode::Environment);
    assert!(exit.reason.contains("uid-other"), "{}", exit.reason);
    assert!(requests(&server).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_policy_set_with_mistakes_ends_with_2_and_names_the_line() {
    let (server, machine) = (stage::server(), Machine::new());
    std::fs::create_dir(machine.path("policies")).unwrap();
    std::fs::write(machine.path("policies/policies.yaml"), "modules: {}\nbindngs: {}\n").unwrap();
    let (mut agent, _health) = machine.agent(&server);
    agent.config = machine.config(&[("policies.directory", machine.path("policies").to_str().unwrap())]);
    let exit = agent.run().await;
    assert_eq!(exit.code, ExitCode::Configuration);
    assert!(exit.reason.contains("policies.yaml") && exit.reason.contains("line 2"), "{}", exit.reason);
    assert!(requests(&server).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_refused_policy_is_told_and_stops_no_other() {
    let (server, machine) = (stage::server(), Machine::new());
    std::fs::create_dir(machine.path("policies")).unwrap();
    std::fs::write(machine.path("policies/broken.wasm"), "not wasm").unwrap();
    let set = "modules: {broken: {file: broken.wasm}}\nbindings: {retry: [{name: broken, module: broken}]}\n";
    std::fs::write(machine.path("policies/policies.yaml"), set).unwrap();
    let (mut agent, health) = machine.agent(&server);
    agent.config = machine.config(&[("policies.directory", machine.path("policies").to_str().unwrap())]);
    let mut life = Box::pin(agent.run());
    live(&mut life, A_WHILE).await;
    assert!(health.borrow().ready);
    assert!(machine.told.has("PolicyRefused"), "{:#?}", machine.told.lines());
    assert!(requests(&server).contains(&"create events 201".to_owned()));
}

/// A data plane of an embedder's own: counts what it is asked, and panics where it is told to.
#[derive(Default)]
struct Counting {
    asked: [AtomicUsize; 4],
    panics: bool,
}

impl Counting {
    fn count(&self, what: usize) {
        self.asked[what].fetch_add(1, Ordering::Relaxed);
    }
}

impl DataPlane for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn plan<'a>(&'a self, desired: &'a Desired, _: CancellationToken) -> Answer<'a, Value> {
        self.count(0);
        Box::pin(async { Ok(json!({"site": desired.site.name})) })
    }

    fn apply<'a>(&'a self, _: &'a Desired, _: CancellationToken) -> Answer<'a, Routes> {
        self.count(1);
        assert!(!self.panics, "told to");
        Box::pin(async { Ok(Routes::NotMine) })
    }

    fn teardown<'a>(&'a self, _: &'a Value, _: CancellationToken) -> Answer<'a, ()> {
        self.count(2);
        Box::pin(async { Ok(()) })
    }

    fn join(&self) -> BoxFuture<'_, ()> {
        self.count(3);
        Box::pin(async {})
    }

    fn workers(&self) -> Vec<String> {
        Vec::new()
    }
}

#[tokio::test(start_paused = true)]
async fn a_data_plane_of_an_embedders_own_is_planned_applied_and_joined() {
    let (server, machine) = (stage::server(), Machine::new());
    let plane = Arc::new(Counting::default());
    let (mut agent, health) = machine.agent(&server);
    agent.data_plane = Some(plane.clone());
    let terminate = agent.terminate.clone();
    let mut life = Box::pin(agent.run());
    live(&mut life, A_WHILE).await;
    assert!(health.borrow().ready);
    let ledger = std::fs::read_to_string(machine.path("state/ledger.json")).unwrap();
    assert!(ledger.contains("{\"site\":\"east\"}"), "{ledger}");
    terminate.cancel();
    life.await;
    assert_eq!(plane.asked.each_ref().map(|asked| asked.load(Ordering::Relaxed)), [1, 1, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn an_effector_that_panics_ends_the_process_instead_of_leaving_it_waiting() {
    let (server, machine) = (stage::server(), Machine::new());
    let (mut agent, _health) = machine.agent(&server);
    agent.data_plane = Some(Arc::new(Counting { panics: true, ..Counting::default() }));
    let exit = tokio::time::timeout(A_WHILE, agent.run()).await.unwrap();
    assert_eq!(exit.code, ExitCode::Failed);
    assert!(!requests(&server).contains(&"patch pods 200".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn probes_status_and_metrics_are_served_over_http() {
    let (server, machine) = (stage::server(), Machine::new());
    let (agent, _health) = machine.agent(&server);
    let mut life = Box::pin(agent.run());
    live(&mut life, A_WHILE).await;
    let address = machine.told.lines().iter().find_map(|line| {
        let (_, rest) = line.split_once("HealthUp(")?;
        rest.split_once(')')?.0.parse::<SocketAddr>().ok()
    });
    let address = address.unwrap();
    let get = |path: &'static str| {
        // On a thread that holds virtual time back, while the agent's own thread answers.
        tokio::task::spawn_blocking(move || {
            use std::io::{Read as _, Write as _};
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        })
    };
    for (path, expected) in [
        ("/healthz", "ok"),
        ("/readyz", "ready"),
        ("/status", "\"state\": \"settled\""),
        ("/metrics", "moorline_requests_total{verb=\"get\",resource=\"nodes\",code=\"200\"} 1"),
        ("/metrics", "moorline_state{state=\"settled\"} 1"),
        ("/metrics", "moorline_policy_calls_total{hook=\"adoption\",binding=\"default\",outcome=\"decided\"} 2"),
        ("/metrics", "moorline_cni_writes_total{outcome=\"ok\"} 1"),
    ] {
        let answer = tokio::select! {
            answer = get(path) => answer.unwrap(),
            exit = &mut life => panic!("{exit:?}"),
        };
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
        assert!(answer.contains(expected), "{path}: {answer}");
    }
}
