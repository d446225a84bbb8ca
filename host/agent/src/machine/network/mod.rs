//! The machine's links, routes and rules: removes what the agent, or the data plane in its name, has put there, and leaves
//! everything else alone. Something is removed only when the ledger lists it and it carries the agent's [`Marks`]; without
//! a ledger the marks alone decide; what an older agent left without marks has to be listed exactly by the operator.
//!
//! It works in the network namespace of the thread that calls it. Reading needs no capability, removing needs `NET_ADMIN`.

mod find;
mod kernel;
mod marks;
mod plan;

use std::collections::HashMap;
use std::io;

use rtnetlink::Handle;

pub use find::Wanted;
pub use marks::Marks;
pub use plan::{LinkPlan, NetworkPlan, RecordedPlan, RoutePlan, RulePlan};

use find::Judgement;
use kernel::{Everything, Object};

/// What is removed may take others along, or come back; so often it is looked again whether all is gone.
const PASSES: usize = 3;

/// Whether the machine's network is touched at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NetworkAccess {
    /// It is.
    #[default]
    Machine,
    /// It is neither read nor changed: for simulations, whose machine is a folder.
    Untouched,
}

/// What was found of what was looked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// What was, or would be, removed.
    pub own: Vec<String>,
    /// What only looks like it and is left alone, with the reason.
    pub foreign: Vec<String>,
}

/// Why the machine's network isn't as it should be.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// There is no netlink socket.
    #[error("a netlink socket could not be opened")]
    Socket(#[source] io::Error),
    /// The socket failed.
    #[error("the netlink socket failed")]
    Closed,
    /// The kernel doesn't tell.
    #[error("the machine's {what} could not be read")]
    Read {
        /// What.
        what: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// It changes all the time.
    #[error("the machine's {what} change all the time, so that they could not be read as a whole")]
    Restless {
        /// What.
        what: &'static str,
    },
    /// The agent may not.
    #[error(
        "the {what} could not be removed: that needs the capability NET_ADMIN. Add `NET_ADMIN` to \
         `securityContext.capabilities.add` of the agent's container in the DaemonSet"
    )]
    NotPermitted {
        /// What.
        what: String,
    },
    /// The kernel refused.
    #[error("the {what} could not be removed")]
    Remove {
        /// What.
        what: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// It came back.
    #[error("the {what} came back after it was removed: something on this machine puts it there. Stop that first")]
    CameBack {
        /// What.
        what: String,
    },
}

/// Looks for `gone`, apart from what is `kept`, and changes nothing.
///
/// # Errors
/// Where the machine's network can't be read.
pub async fn survey(gone: &Wanted, kept: &Wanted) -> Result<Findings, NetworkError> {
    kernel::with_socket(async |handle| Ok(Survey::make(&handle, gone, kept).await?.findings())).await
}

/// Removes `gone`, apart from what is `kept`: first rules, then routes, then links. May be cut off at any point and called
/// again; what is gone already is fine.
///
/// # Errors
/// Where the machine's network can't be read, or something can't be removed; what comes before it is removed then.
pub async fn remove(gone: &Wanted, kept: &Wanted) -> Result<Findings, NetworkError> {
    kernel::with_socket(async |handle| remove_by(&handle, gone, kept).await).await
}

async fn remove_by(handle: &Handle, gone: &Wanted, kept: &Wanted) -> Result<Findings, NetworkError> {
    let mut removed = Vec::new();
    for _ in 0..PASSES {
        let survey = Survey::make(handle, gone, kept).await?;
        if survey.own.is_empty() {
            return Ok(Findings { own: removed, ..survey.findings() });
        }
        for object in &survey.own {
            let what = object.describe(&survey.all.links);
            match kernel::ask(handle, object.removal()).await {
                Ok(()) => {
                    if !removed.contains(&what) {
                        removed.push(what);
                    }
                }
                // It went with another one, or somebody else was quicker.
                Err(error) if is_gone(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(NetworkError::NotPermitted { what });
                }
                Err(source) => return Err(NetworkError::Remove { what, source }),
            }
        }
    }
    let survey = Survey::make(handle, gone, kept).await?;
    match survey.own.first() {
        None => Ok(Findings { own: removed, ..survey.findings() }),
        Some(object) => Err(NetworkError::CameBack { what: object.describe(&survey.all.links) }),
    }
}

fn is_gone(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::SRCH | Errno::NODEV | Errno::ADDRNOTAVAIL))
}

/// What is there of what is looked for.
struct Survey {
    all: Everything,
    own: Vec<Object>,
    foreign: Vec<String>,
}

impl Survey {
    async fn make(handle: &Handle, gone: &Wanted, kept: &Wanted) -> Result<Self, NetworkError> {
        let all = Everything::read(handle).await?;
        let links: Vec<_> = all.links.iter().cloned().map(Object::Link).collect();
        let (mut own, mut foreign) = (Vec::new(), Vec::new());
        // In the order of removal. Each kind by itself: the kernel looks for a rule among rules.
        for objects in [&all.rules, &all.routes, &links] {
            let mut others: HashMap<_, Vec<&Object>> = HashMap::new();
            for object in objects {
                let what = || object.describe(&all.links);
                let before = others.entry(object.place()).or_default();
                match gone.judge(object, &all.links) {
                    Judgement::Own if kept.judge(object, &all.links) == Judgement::Own => {}
                    Judgement::Own => {
                        let hidden_by = before.iter().find(|other| other.is_covered_by_removal_of(object));
                        match hidden_by {
                            None => {
                                own.push(object.clone());
                                continue;
                            }
                            Some(other) => foreign.push(format!(
                                "{}: the kernel would take {} for it",
                                what(),
                                other.describe(&all.links)
                            )),
                        }
                    }
                    Judgement::Foreign(why) => foreign.push(format!("{}: {why}", what())),
                    Judgement::Unrelated => {}
                }
                before.push(object);
            }
        }
        Ok(Self { all, own, foreign })
    }

    fn findings(self) -> Findings {
        let own = self.own.iter().map(|object| object.describe(&self.all.links)).collect();
        Findings { own, foreign: self.foreign }
    }
}

#[cfg(test)]
mod tests;
