//! The data plane puts an assignment into effect on this machine. Here are the trait for an agent with one of its own,
//! and the two that are built in. A data plane never talks about the cluster's objects: the routes that it wants
//! advertised are its answer, and someone else writes them.

mod command;
mod network;
mod process;

use std::collections::BTreeMap;
use std::process::ExitStatus;
use std::time::Duration;

use futures_util::future::BoxFuture;
use moorline_lifecycle::{Desired, Routes};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub use command::Command;
pub use network::{Networked, Start};

use crate::config::{Config, DataPlaneKind};

/// A data plane.
///
/// Every operation may come again after a crash at any point, so each is idempotent. When `cancel` is cancelled, an
/// operation stops what it has started and answers soon, with [`DataPlaneError::Cancelled`] where it did not get to its
/// end; nothing of it may go on after [`DataPlane::join`] has answered.
pub trait DataPlane: Send + Sync {
    /// Its name, for logs.
    fn name(&self) -> &str;

    /// What [`DataPlane::apply`] would put where. It goes into the ledger before anything is put there, and comes back to
    /// [`DataPlane::teardown`], so it has to say everything that undoing needs. A field `network` of it is a
    /// [`NetworkPlan`](crate::machine::network::NetworkPlan): what of it is left after the teardown, and carries the
    /// [`Marks`](crate::machine::network::Marks) of the assignment, is removed by the agent. In the ledger, and so at the
    /// teardown, the field is a [`RecordedPlan`](crate::machine::network::RecordedPlan).
    fn plan<'a>(&'a self, desired: &'a Desired, cancel: CancellationToken) -> Answer<'a, Value>;

    /// Makes this machine match the desired state, and says which routes are to be advertised.
    fn apply<'a>(&'a self, desired: &'a Desired, cancel: CancellationToken) -> Answer<'a, Routes>;

    /// Undoes what a plan lists, and only that.
    fn teardown<'a>(&'a self, plan: &'a Value, cancel: CancellationToken) -> Answer<'a, ()>;

    /// Answers when no worker is left, so that nothing on this machine changes any more. The caller bounds the wait.
    fn join(&self) -> BoxFuture<'_, ()>;

    /// The names of the workers that are still there.
    fn workers(&self) -> Vec<String>;
}

/// The answer of a data plane, to come.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, DataPlaneError>>;

/// How a data plane failed.
#[derive(Debug, thiserror::Error)]
pub enum DataPlaneError {
    /// It was cancelled before its end.
    #[error("the data plane's {action} was cancelled")]
    Cancelled {
        /// What it was doing.
        action: &'static str,
    },
    /// The command could not be started.
    #[error(
        "the data plane command {command} could not be started. Correct `dataPlane.command`, or mount what it names"
    )]
    Start {
        /// The executable.
        command: String,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// The command took too long, and it and what it had started was ended.
    #[error(
        "the data plane command {command} was ended after {limit:?}, during {action}. Give it more time by \
         `dataPlane.timeLimit`{}",
        said(stderr)
    )]
    TimedOut {
        /// The executable.
        command: String,
        /// What it was doing.
        action: &'static str,
        /// The time that it had.
        limit: Duration,
        /// The first lines of what it wrote to standard error.
        stderr: String,
    },
    /// The command said that it failed.
    #[error("the data plane command {command} failed at {action} with {status}{}", said(stderr))]
    Failed {
        /// The executable.
        command: String,
        /// What it was doing.
        action: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// The first lines of what it wrote to standard error.
        stderr: String,
    },
    /// The command wrote too much to standard output.
    #[error(
        "the data plane command {command} answered {action} with more than {limit} bytes. Raise `dataPlane.outputLimit`"
    )]
    TooMuchOutput {
        /// The executable.
        command: String,
        /// What it was doing.
        action: &'static str,
        /// The cap, in bytes.
        limit: usize,
    },
    /// Something that the command left behind, outside of its process group, still holds its output open.
    #[error(
        "the data plane command {command} has ended, but a process that it left behind holds its output open. Let it \
         close standard output and error of what it leaves behind"
    )]
    HeldOpen {
        /// The executable.
        command: String,
    },
    /// The command's answer makes no sense.
    #[error(
        "the data plane command {command} answered {action} with something else than the JSON that is expected: {problem}"
    )]
    Answer {
        /// The executable.
        command: String,
        /// What it was doing.
        action: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// What it plans for the machine's network can't be used.
    #[error("the plan of the data plane {data_plane} can't be used: {problem}")]
    Network {
        /// The data plane.
        data_plane: String,
        /// What is wrong with it, and where.
        problem: String,
    },
    /// For data planes of an embedder's own.
    #[error(transparent)]
    Other(#[from] Box<dyn std::error::Error + Send + Sync>),
}

fn said(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!(". It said: {stderr}") }
}

/// Makes the data plane of an agent on the Node of this name: [`from_config`], or a program's own.
pub type Choice = fn(config: &Config, node_name: &str) -> Box<dyn DataPlane>;

/// The data plane that the configuration names.
pub fn from_config(config: &Config, node_name: &str) -> Box<dyn DataPlane> {
    match config.data_plane.kind {
        DataPlaneKind::None => Box::new(NoDataPlane),
        DataPlaneKind::Command => {
            Box::new(Command::new(config.data_plane.clone(), config.machine.network.clone(), node_name))
        }
    }
}

/// The data plane that does nothing and advertises nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoDataPlane;

impl DataPlane for NoDataPlane {
    fn name(&self) -> &str {
        "none"
    }

    fn plan<'a>(&'a self, _: &'a Desired, _: CancellationToken) -> Answer<'a, Value> {
        Box::pin(async { Ok(Value::Null) })
    }

    fn apply<'a>(&'a self, _: &'a Desired, _: CancellationToken) -> Answer<'a, Routes> {
        Box::pin(async { Ok(Routes::NotMine) })
    }

    fn teardown<'a>(&'a self, _: &'a Value, _: CancellationToken) -> Answer<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn join(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn workers(&self) -> Vec<String> {
        Vec::new()
    }
}

/// So many routes a GatewayPoolNode may have.
const MOST_ROUTES: usize = 1000;

/// Checks routes as the API server would, so that a wrong one is told to whoever made it.
fn check_routes(routes: &BTreeMap<String, Value>) -> Result<(), String> {
    if routes.len() > MOST_ROUTES {
        return Err(format!("it has {} routes, and a GatewayPoolNode may have {MOST_ROUTES}", routes.len()));
    }
    for (cidr, route) in routes {
        if cidr.parse::<ipnet::IpNet>().is_err() {
            return Err(format!("the route {cidr:?} isn't named after a CIDR such as 10.0.0.0/24"));
        }
        if !route.is_object() {
            return Err(format!("the route {cidr:?} is no JSON object"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
