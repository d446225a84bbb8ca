//! How the runner starts an agent. The runner knows nothing of the agent but this trait, and the agent nothing of the
//! runner: an adapter between them lives with the agent.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use jiff::Timestamp;
use tokio::sync::watch;

use super::timeline::Journal;

/// Starts processes of an agent.
pub trait Launcher {
    /// Starts one process. It runs while [`Process::life`] is polled; dropping that is `kill -9`, so nothing of the
    /// process may go on in a task that outlives it.
    ///
    /// Virtual time passes whenever nothing is left to do. Real work (a file, a policy, a child process) is waited for
    /// under `spawn_blocking`, which holds the clock back.
    fn launch(&self, launch: Launch) -> Process;
}

/// What one process is started with.
pub struct Launch {
    /// 1 for the first process of the scenario.
    pub number: u32,
    /// The API server, as the agent's service account: each request is made once.
    pub client: kube::Client,
    /// The Node that the process runs on.
    pub node: String,
    /// The Pod that it runs in.
    pub pod: PodIdentity,
    /// When the container started. It differs between processes in one Pod.
    pub container_start: Timestamp,
    /// A folder that stands for the root folder of the machine. It outlives the process.
    pub machine: PathBuf,
    /// The agent's configuration in the scenario, to be laid over its defaults.
    pub config: serde_json::Value,
    /// The policy volume, where the scenario has one.
    pub policies: Option<PathBuf>,
    /// Where the process tells its story.
    pub journal: Journal,
    /// Becomes true when the process is asked to end (SIGTERM).
    pub terminate: watch::Receiver<bool>,
    /// Seeds every jitter of the process.
    pub seed: u64,
    /// The wall clock now; it goes on with tokio's clock.
    pub wall: Timestamp,
}

/// The Pod that a process runs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodIdentity {
    /// The Pod's namespace.
    pub namespace: String,
    /// The Pod's name.
    pub name: String,
    /// The Pod's UID.
    pub uid: String,
}

/// A process that was started.
pub struct Process {
    /// The process itself.
    pub life: Pin<Box<dyn Future<Output = Ended>>>,
    /// What `/readyz` says at this moment.
    pub readiness: Box<dyn Fn() -> Readiness>,
}

/// How a process ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The exit code.
    pub code: u8,
    /// What stands in the termination message.
    pub reason: String,
}

/// What `/readyz` says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Readiness {
    /// Whether the answer is 200.
    pub ready: bool,
    /// The body.
    pub text: String,
}
