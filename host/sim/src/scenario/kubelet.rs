//! What a kubelet and a DaemonSet do for the agent: its container is started, ended and started again, and its Pod is
//! replaced when a step wants that. It decides nothing about the agent itself.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::time::sleep;

use super::format::{AgentSpec, KubeletSpec};
use super::launcher::{Ended, Launch, Launcher, PodIdentity, Process, Readiness};
use super::load::replace;
use super::step::AgentStep;
use super::timeline::{Log, Source};
use super::wire;
use crate::server::{Identity, ObjectName, Server};

/// The time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(30);
/// The exit code of a killed process.
const KILLED: i32 = 137;

/// The kubelet, as far as the agent needs one.
pub(crate) struct Kubelet<'a> {
    pub(crate) launcher: &'a dyn Launcher,
    pub(crate) server: Server,
    pub(crate) log: Log,
    pub(crate) spec: KubeletSpec,
    pub(crate) agent: &'a AgentSpec,
    pub(crate) machine: PathBuf,
    pub(crate) policies: Option<PathBuf>,
    pub(crate) seed: u64,
    pub(crate) latency: Duration,
    pub(crate) running: &'a Running,
}

/// What others may see of the agent that runs.
pub(crate) struct Running {
    pod: RefCell<PodIdentity>,
    number: Cell<u32>,
    readiness: RefCell<Option<Box<dyn Fn() -> Readiness>>>,
}

impl Running {
    pub(crate) fn new(pod: PodIdentity) -> Self {
        Self { pod: RefCell::new(pod), number: Cell::new(0), readiness: RefCell::new(None) }
    }

    /// The Pod of the process that runs, or ran last.
    pub(crate) fn pod(&self) -> PodIdentity {
        self.pod.borrow().clone()
    }

    /// The number of the process that runs, or ran last.
    pub(crate) fn number(&self) -> u32 {
        self.number.get()
    }

    /// What `/readyz` says; none while no process runs.
    pub(crate) fn readiness(&self) -> Option<Readiness> {
        self.readiness.borrow().as_ref().map(|readiness| readiness())
    }
}

/// What comes after a process.
enum Next {
    Restart,
    NewPod,
}

impl Kubelet<'_> {
    /// Keeps the agent running. Never ends by itself.
    pub(crate) async fn run(&self, mut orders: UnboundedReceiver<AgentStep>) {
        let mut restarts = 0;
        loop {
            let started = self.log.now();
            let next = self.run_once(&mut orders).await;
            if matches!(next, Next::NewPod) {
                self.replace_pod();
                restarts = 0;
                continue;
            }
            if self.log.now() - started >= self.spec.forget.0 {
                restarts = 0;
            }
            let wait = backoff(&self.spec, restarts);
            restarts += 1;
            if wait.is_zero() {
                continue;
            }
            self.tell("back-off", format!("restart in {} s (back-off)", wait.as_secs_f64()), Map::new());
            let mut rest = std::pin::pin!(sleep(wait));
            loop {
                tokio::select! {
                    () = &mut rest => break,
                    order = orders.recv() => match order {
                        Some(AgentStep::ReplacePod) => {
                            self.replace_pod();
                            restarts = 0;
                            break;
                        }
                        // There is nothing to kill or to terminate.
                        Some(_) => {}
                        None => return std::future::pending().await,
                    },
                }
            }
        }
    }

    /// Runs one process from its start to its end.
    async fn run_once(&self, orders: &mut UnboundedReceiver<AgentStep>) -> Next {
        let (terminate, terminated) = watch::channel(false);
        let Process { mut life, readiness } = self.start(terminated);
        *self.running.readiness.borrow_mut() = Some(readiness);
        let mut next = Next::Restart;
        let mut grace: Option<std::pin::Pin<Box<tokio::time::Sleep>>> = None;
        let ended = loop {
            let patience = async {
                match &mut grace {
                    Some(grace) => grace.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // Orders first: what is killed does nothing more.
                biased;
                Some(order) = orders.recv() => match order {
                    AgentStep::Kill => break None,
                    AgentStep::Terminate | AgentStep::ReplacePod => {
                        if order == AgentStep::ReplacePod {
                            next = Next::NewPod;
                        }
                        terminate.send_replace(true);
                        grace.get_or_insert_with(|| Box::pin(sleep(GRACE)));
                    }
                },
                () = patience => break None,
                ended = &mut life => break Some(ended),
            }
        };
        drop(life);
        *self.running.readiness.borrow_mut() = None;
        // Work that was under way on another thread is over before virtual time goes on, and so before the next start.
        sleep(Duration::from_millis(1)).await;
        let (code, text) = match ended {
            Some(Ended { code, reason }) => (i32::from(code), format!("exited with code {code}: {reason}")),
            None => (KILLED, format!("killed (exit code {KILLED})")),
        };
        self.tell("exited", text, Map::from_iter([("code".to_owned(), json!(code))]));
        next
    }

    fn start(&self, terminate: watch::Receiver<bool>) -> Process {
        let number = self.running.number.get() + 1;
        self.running.number.set(number);
        let pod = self.running.pod();
        let journal = self.log.journal(number);
        self.tell("started", format!("container started in Pod {}", pod.name), Map::new());
        let account = format!("system:serviceaccount:{}:moorline", pod.namespace);
        let identity = Identity::agent(account, pod.namespace.clone());
        let now = self.server.now();
        let mut config = self.agent.config.clone();
        replace(&mut config, "${machine}", &self.machine.display().to_string());
        self.launcher.launch(Launch {
            number,
            client: wire::client(self.server.connect(identity), self.latency),
            node: self.agent.node.clone(),
            pod,
            container_start: now,
            machine: self.machine.clone(),
            config,
            policies: self.policies.clone(),
            journal,
            terminate,
            seed: self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(u64::from(number)),
            wall: now,
        })
    }

    /// A Pod like the one that the scenario began with, under another name.
    fn replace_pod(&self) {
        let old = self.running.pod();
        let at = |name: &str| ObjectName::new("pods", name).namespace(&old.namespace);
        let first = &self.agent.pod.name;
        let name = format!("{first}-{}", self.running.number.get() + 1);
        let replaced = self.server.get(&at(&old.name)).and_then(|mut pod| {
            self.server.delete(&at(&old.name))?;
            if let Some(meta) = pod["metadata"].as_object_mut() {
                for field in ["uid", "annotations", "creationTimestamp", "managedFields", "deletionTimestamp"] {
                    meta.remove(field);
                }
                meta.insert("name".to_owned(), Value::String(name.clone()));
            }
            self.server.apply(pod)
        });
        match replaced {
            Ok(pod) => {
                let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
                self.tell("pod-replaced", format!("Pod {} takes the place of Pod {}", name, old.name), Map::new());
                *self.running.pod.borrow_mut() = PodIdentity { namespace: old.namespace, name, uid };
            }
            Err(status) => self.tell("trouble", format!("the Pod can't be replaced: {}", status.message), Map::new()),
        }
    }

    fn tell(&self, kind: &str, text: impl Into<String>, fields: Map<String, Value>) {
        let number = Some(self.running.number.get()).filter(|number| *number > 0);
        self.log.push(Source::Kubelet, number, kind, text, fields);
    }
}

/// The wait before a restart, after so many earlier ones.
fn backoff(spec: &KubeletSpec, restarts: u32) -> Duration {
    match restarts {
        0 => Duration::ZERO,
        _ => spec.backoff.0.saturating_mul(2_u32.saturating_pow((restarts - 1).min(16))).min(spec.longest.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_restart_is_at_once_and_the_waits_double_up_to_the_longest() {
        let spec = KubeletSpec::default();
        let waits: Vec<u64> = (0..8).map(|restarts| backoff(&spec, restarts).as_secs()).collect();
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
    }
}
