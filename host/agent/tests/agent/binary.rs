//! The binary itself: flags, environment, log, signals, exit code, termination message. In real time, against a socket.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use moorline_sim::server::Identity;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::task::JoinHandle;

use super::guests::{SAME, drift};
use super::stage::{self, Machine};

/// A process of the agent on this machine, with more arguments.
struct Running {
    machine: Machine,
    /// Its exit code and the lines of its log.
    ended: JoinHandle<(Option<i32>, Vec<String>)>,
}

/// Runs the agent against an API server; `hear` gets each line of its log.
async fn start(machine: Machine, more: &[&str], mut hear: impl FnMut(&str, Pid) + Send + 'static) -> Running {
    let server = stage::server();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let kubeconfig = stage::kubeconfig(machine.root.path(), &format!("http://{}", listener.local_addr().unwrap()));
    tokio::spawn(async move { server.serve(listener, |_token| Identity::admin("agent")).await });
    std::fs::write(machine.path("termination-log"), "").unwrap();

    let mut command = stage::run(&machine, &kubeconfig);
    command.args(more);
    let mut agent = command.current_dir(machine.root.path()).spawn().unwrap();
    let ended = tokio::task::spawn_blocking(move || {
        let mut log = Vec::new();
        for line in BufReader::new(agent.stderr.take().unwrap()).lines() {
            let line = line.unwrap();
            hear(&line, Pid::from_child(&agent));
            log.push(line);
        }
        (agent.wait().unwrap().code(), log)
    });
    Running { machine, ended }
}

/// Sends SIGTERM to an agent that has settled.
fn end_when_settled(line: &str, agent: Pid) {
    if line.contains("State settled") {
        kill_process(agent, Signal::TERM).unwrap();
    }
}

/// Runs the agent until it has settled, and sends it SIGTERM then.
async fn settles_and_is_asked_to_end(more: &[&str]) -> Running {
    start(Machine::new(), more, end_when_settled).await
}

/// Puts a drift policy where `--set policies.directory=policies` has it found.
fn put_policy(folder: &Path, module: &[u8]) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("mine.wasm"), module).unwrap();
    let text = "modules:\n  mine: {file: mine.wasm}\nbindings:\n  drift:\n    - {name: mine, module: mine, on-failure: fall-through}\n";
    std::fs::write(folder.join("policies.yaml"), text).unwrap();
}

#[tokio::test]
async fn an_agent_settles_and_ends_with_0_when_it_is_asked_to() {
    let Running { machine, ended } = settles_and_is_asked_to_end(&["--record", "trace"]).await;
    let (code, log) = ended.await.unwrap();
    assert_eq!(code, Some(0), "{log:#?}");
    for line in &log {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "not JSON: {line}");
    }
    let message = std::fs::read_to_string(machine.path("termination-log")).unwrap();
    assert!(message.starts_with("SIGTERM"), "{message}");
    assert!(machine.path("cni/10-unbounded.conflist").exists());
    let cached = std::fs::read_dir(machine.path("cache")).unwrap().count();
    assert!(cached > 0, "the compiled default policy is kept for the next start");

    let replay = stage::moorline().arg("replay").arg(machine.path("trace")).output().unwrap();
    let said = String::from_utf8(replay.stdout).unwrap();
    assert!(replay.status.success() && said.contains("all the same as recorded"), "{said}");
}

#[tokio::test]
async fn an_observing_process_says_what_it_would_do_and_leaves_no_file() {
    let Running { machine, ended } = settles_and_is_asked_to_end(&["--observe"]).await;
    let (code, log) = ended.await.unwrap();
    assert_eq!(code, Some(0), "{log:#?}");
    for part in ["This process observes", "The hook adoption is answered by default", "Would patch the annotations"] {
        assert!(log.iter().any(|line| line.contains(part)), "{part:?} is not in {log:#?}");
    }
    assert_eq!(std::fs::read_to_string(machine.path("termination-log")).unwrap(), "");
    for folder in ["cni", "state", "cache"] {
        assert!(!machine.path(folder).exists(), "{folder}");
    }
}

/// Exit code and what was said on standard error.
fn fails(arguments: &[&str]) -> (Option<i32>, String) {
    let mut child = stage::moorline().args(arguments).spawn().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (child.wait().unwrap().code(), said)
}

#[test]
fn whatever_is_wrong_before_the_start_ends_with_2() {
    for (arguments, part) in [
        (["run", "--config", "/nowhere/config.yaml"].as_slice(), "/nowhere/config.yaml"),
        (&["run", "--set", "logg.format=json"], "logg"),
        (&["policy", "check", "/nowhere/policy.wasm"], "/nowhere/policy.wasm"),
        (&["simulate", "/nowhere/scenario.yaml"], "/nowhere/scenario.yaml"),
        (&["sail"], "sail"),
    ] {
        let (code, said) = fails(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {said}");
        assert!(said.contains(part), "{arguments:?}: {said}");
    }
}

#[test]
fn missing_credentials_end_with_3() {
    let machine = Machine::new();
    let at = |key: &str, path: &str| format!("{key}={}", machine.path(path).display());
    let (code, said) = fails(&[
        "run",
        "--set=node.name=n1",
        "--set=pod.name=agent",
        "--set=pod.namespace=kube-system",
        "--set=pod.uid=u",
        "--set=health.address=127.0.0.1:0",
        "--set",
        &at("machine.cacheDirectory", "cache"),
        "--set",
        &at("cluster.kubeconfig", "absent"),
    ]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("absent"), "{said}");
}

#[tokio::test]
async fn policies_are_compiled_in_another_process_and_a_hangup_loads_the_folder_anew() {
    let machine = Machine::new();
    let policies = machine.path("policies");
    put_policy(&policies, &drift(SAME));
    let set = format!("policies.directory={}", policies.display());
    let hear = move |line: &str, agent| {
        if line.contains("State settled") {
            put_policy(&policies, &drift(&format!("(nop) {SAME}")));
            kill_process(agent, Signal::HUP).unwrap();
        } else if line.contains("Another policy set is in use") {
            kill_process(agent, Signal::TERM).unwrap();
        }
    };
    let running = start(machine, &["--set", &set, "--set", "log.filter=info,moorline_policy=debug"], hear).await;
    let (code, log) = running.ended.await.unwrap();
    assert_eq!(code, Some(0), "{log:#?}");
    let compiled = log.iter().filter(|line| line.contains("compiled in a process of its own")).count();
    assert_eq!(compiled, 3, "the default policy and two of the folder's: {log:#?}");
}

/// What health answers on this page, and how long that took.
fn probe(address: SocketAddr, page: &str) -> (String, Duration) {
    let started = Instant::now();
    let mut server = TcpStream::connect(address).unwrap();
    write!(server, "GET {page} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    server.read_to_string(&mut answer).unwrap();
    (answer, started.elapsed())
}

fn median(mut of: Vec<Duration>) -> Duration {
    of.sort_unstable();
    of[of.len() / 2]
}

#[tokio::test]
async fn health_answers_while_a_policy_loops_until_its_deadline() {
    let (up, health) = std::sync::mpsc::channel();
    let prober = tokio::task::spawn_blocking(move || {
        let (address, agent): (SocketAddr, Pid) = health.recv().unwrap();
        let (mut during, mut after) = (Vec::new(), Vec::new());
        loop {
            let page = probe(address, "/status").0;
            let status: Value = serde_json::from_str(page.split_once("\r\n\r\n").unwrap().1).unwrap();
            let (answer, took) = probe(address, "/healthz");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            // Once there is an assignment, drift is the next to be asked, and until it has answered the guest loops.
            match (&status["lastVerdicts"]["adoption"], &status["lastVerdicts"]["drift"]) {
                (Value::Null, _) => {}
                (_, Value::Null) => during.push(took),
                _ => after.push(took),
            }
            if after.len() > 100 {
                kill_process(agent, Signal::TERM).unwrap();
                return (during, after);
            }
        }
    });
    let machine = Machine::new();
    put_policy(&machine.path("policies"), &drift("(loop $l (br $l)) unreachable"));
    let set = [
        format!("policies.directory={}", machine.path("policies").display()),
        "policies.grants={mine: {limits: {fuel: 100000000000, deadline: 5s}}}".to_owned(),
    ];
    let more: Vec<_> = set.iter().flat_map(|set| ["--set", set.as_str()]).collect();
    let hear = move |line: &str, agent| {
        if let Some((_, address)) = line.split_once("Health is served on ") {
            let address = address.split_once(".\"").unwrap().0.parse().unwrap();
            up.send((address, agent)).unwrap();
        }
    };
    let (code, log) = start(machine, &more, hear).await.ended.await.unwrap();
    assert_eq!(code, Some(0), "{log:#?}");
    assert!(log.iter().any(|line| line.contains("`limits.deadline`")), "{log:#?}");
    let (during, after) = prober.await.unwrap();
    println!("{} answers while it loops; they take {:.2} times as long as afterwards", during.len(), {
        median(during.clone()).as_secs_f64() / median(after).as_secs_f64()
    });
    // Thousands on an idle machine; an agent that waits for its policy has none but those right before and after.
    assert!(during.len() > 100, "{}", during.len());
}
