//! The binary itself: flags, environment, log, signals, exit code, termination message. In real time, against a socket.

use std::io::{BufRead as _, BufReader, Read as _};

use moorline_sim::server::Identity;
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinHandle;

use super::stage::{self, Machine};

/// A process of the agent on this machine, with more arguments.
struct Running {
    machine: Machine,
    /// Its exit code and the lines of its log.
    ended: JoinHandle<(Option<i32>, Vec<String>)>,
}

/// Runs the agent against an API server until it has settled, and sends it SIGTERM then.
async fn settles_and_is_asked_to_end(more: &'static [&'static str]) -> Running {
    let (server, machine) = (stage::server(), Machine::new());
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
            let settled = line.contains("State settled");
            log.push(line);
            if settled {
                kill_process(Pid::from_child(&agent), Signal::TERM).unwrap();
            }
        }
        (agent.wait().unwrap().code(), log)
    });
    Running { machine, ended }
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
