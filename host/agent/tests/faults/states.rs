//! SIGTERM and SIGKILL in every state: how each is entered and held there by what really happens to agents, what the end
//! leaves, and that the next start settles.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::time::Duration;

use moorline::driver::Agent;
use moorline::health::Health;
use moorline::machine::lock::StateLock;
use moorline_lifecycle::{Exit, ExitCode, State};
use moorline_sim::server::{Answer, Effect, Fault, Matching, ObjectName, Server, Verb};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::sync::watch;

use crate::stage::{self, Machine};
use crate::world::{self, PATIENCE, SITE_LABEL};

/// Where a process can be when a signal comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the life: the health port is another's.
    PortTaken,
    /// Before the life: the lock is another's.
    LockHeld,
    /// In the life.
    In(State),
}

/// Every place, in the order of the life. A new state does not compile before it has its own.
fn places() -> Vec<Place> {
    fn after(place: Place) -> Option<Place> {
        let state = match place {
            Place::PortTaken => return Some(Place::LockHeld),
            Place::LockHeld => State::Starting,
            Place::In(state) => match state {
                State::Starting => State::Identifying,
                State::Identifying => State::WaitingForAssignment,
                State::WaitingForAssignment => State::NodeAbsent,
                State::NodeAbsent => State::Adopted,
                State::Adopted => State::HandingOff,
                State::HandingOff => State::Reconciling,
                State::Reconciling => State::Acknowledging,
                State::Acknowledging => State::Settled,
                State::Settled => State::Ending,
                State::Ending => State::Ended,
                State::Ended => return None,
            },
        };
        Some(Place::In(state))
    }
    std::iter::successors(Some(Place::PortTaken), |place| after(*place)).collect()
}

/// A process that is kept where it is.
struct Held {
    server: Server,
    machine: Machine,
    /// What the process has to wait for.
    lock: Option<StateLock>,
    port: Option<std::net::TcpListener>,
    /// Another process started here so long ago.
    last_start: Duration,
    /// The Site where it ends when nothing keeps it any more.
    site: &'static str,
}

const LONG_AGO: Duration = Duration::from_secs(3600);

/// Everything around a process that will get to this place, and no further.
async fn hold(place: Place) -> Held {
    let (server, machine) = (stage::server(), Machine::new());
    server.apply(world::site("east", 1400)).unwrap();
    server.apply(world::site("west", 9000)).unwrap();
    let mut held = Held { server, machine, lock: None, port: None, last_start: LONG_AGO, site: "east" };
    let Held { server, machine, .. } = &held;
    let refuse = |verb, resource: &str| {
        let answer = Answer::status(503, "ServiceUnavailable", "not now");
        server.fault(Fault::always(Matching::new(verb, resource), Effect::Answer(answer)));
    };
    let delay = |verb, resource: &str| {
        let slow =
            Fault { before: Duration::from_secs(8), ..Fault::always(Matching::new(verb, resource), Effect::None) };
        server.fault(slow);
    };
    match place {
        Place::PortTaken => held.port = Some(std::net::TcpListener::bind("127.0.0.1:0").unwrap()),
        Place::LockHeld => held.lock = Some(stage::lock(&machine.path("state"))),
        Place::In(State::Starting) => {
            world::settle(machine, server).await;
            held.last_start = Duration::from_secs(5);
        }
        Place::In(State::Identifying) => refuse(Verb::Get, "nodes"),
        Place::In(State::WaitingForAssignment) => {
            server.label(&world::node_name(), SITE_LABEL, None).unwrap();
        }
        Place::In(State::NodeAbsent) => {
            world::settle(machine, server).await;
            server.delete(&world::node_name()).unwrap();
        }
        Place::In(State::Adopted) => server.delete(&ObjectName::new("sites.unbounded-cloud.io", "east")).unwrap(),
        Place::In(State::HandingOff) => {
            world::settle(machine, server).await;
            server.label(&world::node_name(), SITE_LABEL, Some("west")).unwrap();
            refuse(Verb::Patch, "pods");
            held.site = "west";
        }
        Place::In(State::Reconciling) => refuse(Verb::Patch, "nodes"),
        Place::In(State::Acknowledging) => delay(Verb::Patch, "pods"),
        Place::In(State::Settled) => {}
        Place::In(State::Ending) => {
            delay(Verb::Patch, "pods");
            held.site = "west";
        }
        Place::In(State::Ended) => {}
    }
    held
}

type Life = std::pin::Pin<Box<dyn Future<Output = Exit>>>;

impl Held {
    fn agent(&self) -> (Agent, watch::Receiver<Health>) {
        let (mut agent, health) = self.machine.agent(&self.server);
        // Earlier processes here started an hour after the server.
        agent.wall += LONG_AGO + self.last_start;
        if let Some(port) = &self.port {
            agent.config.health.address = Some(port.local_addr().unwrap());
        }
        (agent, health)
    }

    /// Lets the process live until it is at its place, and a moment longer.
    async fn enter(&self, place: Place, life: &mut Life, health: &mut watch::Receiver<Health>) {
        let at = async |state: &str, life: &mut Life, health: &mut watch::Receiver<Health>| {
            let is_there = |health: &Health| match place {
                Place::PortTaken => health.missing.iter().any(|missing| missing.what == "health"),
                Place::LockHeld => health.missing.iter().any(|missing| missing.what == "lock"),
                Place::In(_) => health.status["state"] == state,
            };
            tokio::select! {
                exit = life => panic!("{place:?}: {exit:?}"),
                there = tokio::time::timeout(PATIENCE, health.wait_for(is_there)) => drop(there.unwrap().unwrap()),
            }
        };
        match place {
            Place::In(State::Ending) => {
                at(State::Acknowledging.as_str(), life, health).await;
                self.server.label(&world::node_name(), SITE_LABEL, Some("west")).unwrap();
                at(State::Ending.as_str(), life, health).await;
            }
            Place::In(state) => at(state.as_str(), life, health).await,
            Place::PortTaken | Place::LockHeld => at("", life, health).await,
        }
        stage::live(life, Duration::from_millis(100)).await;
    }

    /// What an end that is asked for may not change.
    fn left(&self) -> (BTreeMap<PathBuf, Vec<u8>>, Value) {
        (world::files(self.machine.root.path()), world::taints(&self.server))
    }

    /// Nothing keeps a process any more, and another one starts.
    async fn heal_and_settle(self) {
        let Self { server, machine, lock, port, site, .. } = self;
        drop((lock, port));
        server.clear_faults();
        if server.get(&world::node_name()).is_err() {
            let mut node = stage::node();
            node["metadata"]["uid"] = "uid-n1-again".into();
            server.apply(node).unwrap();
        }
        server.apply(world::site("east", 1400)).unwrap();
        server.label(&world::node_name(), SITE_LABEL, Some(site)).unwrap();
        world::settle_as(&machine, &server, |agent| Agent { wall: agent.wall + 2 * LONG_AGO, ..agent }).await;
        let cni = world::cni_of(world::site(site, if site == "west" { 9000 } else { 1400 })).await;
        world::assert_settled(&server, machine.root.path(), site, &cni);
    }
}

#[tokio::test(start_paused = true)]
async fn sigterm_in_each_state_ends_with_0_within_the_deadline_and_changes_no_file_and_no_taint() {
    for place in places() {
        let held = hold(place).await;
        let (agent, mut health) = held.agent();
        let (terminate, deadline) = (agent.terminate.clone(), agent.config.deadlines.end.get());
        let mut life: Life = Box::pin(agent.run());
        if place == Place::In(State::Ended) {
            held.enter(Place::In(State::Settled), &mut life, &mut health).await;
            terminate.cancel();
            let exit = life.await;
            assert_eq!((exit.code, &health.borrow().status["state"]), (ExitCode::Asked, &Value::from("ended")));
            continue;
        }
        held.enter(place, &mut life, &mut health).await;
        let before = held.left();
        terminate.cancel();
        let exit = tokio::time::timeout(deadline, life).await;
        let exit = exit.unwrap_or_else(|_| panic!("{place:?}: not within {deadline:?}"));
        assert_eq!(exit.code, ExitCode::Asked, "{place:?}: {exit:?}");
        assert!(exit.reason.contains("SIGTERM"), "{place:?}: {exit:?}");
        assert_eq!(held.left(), before, "{place:?}");
        held.heal_and_settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_sigkill_in_each_state_the_next_start_settles() {
    for place in places() {
        let held = hold(place).await;
        let (agent, mut health) = held.agent();
        let terminate = agent.terminate.clone();
        let mut life: Life = Box::pin(agent.run());
        if place == Place::In(State::Ended) {
            held.enter(Place::In(State::Settled), &mut life, &mut health).await;
            terminate.cancel();
            life.await;
        } else {
            held.enter(place, &mut life, &mut health).await;
            drop(life);
        }
        held.heal_and_settle().await;
    }
}

/// Runs the binary to its place, by its log, and sends the signal. Its exit code, if it has one.
async fn signalled(held: &Held, said: &'static str, signal: Signal) -> Option<i32> {
    let mut command = stage::run(&held.machine, &held.machine.path("kubeconfig"));
    if let Some(port) = &held.port {
        command.env("MOORLINE_HEALTH__ADDRESS", port.local_addr().unwrap().to_string());
    }
    let mut process = command.spawn().unwrap();
    tokio::task::spawn_blocking(move || {
        let (mut log, mut sent) = (Vec::new(), false);
        for line in BufReader::new(process.stderr.take().unwrap()).lines() {
            let line = line.unwrap();
            if line.contains(said) && !sent {
                sent = true;
                kill_process(Pid::from_child(&process), signal).unwrap();
            }
            log.push(line);
        }
        let status = process.wait().unwrap();
        assert!(sent, "{said}: {status} {log:#?}");
        status.code()
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn real_signals_to_the_real_process_in_states_in_which_it_waits() {
    for (place, said) in [
        (Place::PortTaken, "the health address"),
        (Place::LockHeld, "holds the lock"),
        (Place::In(State::Identifying), "not now"),
        (Place::In(State::WaitingForAssignment), "State waiting-for-assignment"),
        (Place::In(State::HandingOff), "State handing-off"),
        (Place::In(State::Settled), "State settled"),
    ] {
        for signal in [Signal::TERM, Signal::KILL] {
            let held = hold(place).await;
            let _serving = world::serve(&held.server, &held.machine).await;
            let code = signalled(&held, said, signal).await;
            assert_eq!(code, (signal == Signal::TERM).then_some(0), "{place:?}");
            held.heal_and_settle().await;
        }
    }
}
