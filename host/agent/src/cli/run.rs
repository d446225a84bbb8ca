//! `moorline run`: the agent on its Node. Everything that an agent needs is put together here, and its end is made known;
//! how it lives is the driver's.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use moorline_lifecycle::{Exit, ExitCode};
use moorline_policy::{ChildProcess, CompileCache, Engine, EngineConfig, EngineError, Loader};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::config::ConfigFlags;
use crate::cluster::{Access, connect};
use crate::config::{self, Config, LogConfig};
use crate::dataplane::Choice;
use crate::driver::{Agent, DefaultPolicy};
use crate::health::Health;
use crate::journal::{Boot, Entry, Journal};
use crate::machine::files::Disk;
use crate::machine::network::NetworkAccess;
use crate::trace::Recorder;
use crate::{DEFAULT_POLICY, chain, simulate};

/// Where Kubernetes mounts what a Pod is to the API server.
const SERVICE_ACCOUNT_CA: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
/// Work that goes on after the end is given so long.
const LINGER: Duration = Duration::from_secs(1);

/// Run the agent on this Node.
#[derive(Debug, Clone, Args)]
pub struct RunCommand {
    /// The flags of every command that reads the configuration.
    #[command(flatten)]
    pub flags: ConfigFlags,
    /// Ask every policy, say every verdict and what would be done, and change nothing: no lock, no file, no write in the
    /// cluster. Safe beside the agent in use. Ends on SIGTERM or SIGINT, or where the agent would end.
    #[arg(long)]
    pub observe: bool,
    /// Where an observing process serves health, instead of `health.address` and `health.metricsAddress`, which the agent
    /// in use has. Port 0 is any free one; the log says which.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", requires = "observe")]
    pub observe_health: SocketAddr,
    /// Append a trace of the life to this file: what `moorline replay` reads. It holds what the agent saw of its Node, Site
    /// and Pod, and grows with every event.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
}

impl RunCommand {
    /// Lives one life.
    ///
    /// # Errors
    /// Where problems can't be written to `err`.
    pub fn run(
        &self,
        environment: Vec<(String, String)>,
        log: impl FnOnce(&LogConfig) -> Result<(), String>,
        data_plane: Choice,
        err: &mut dyn Write,
    ) -> io::Result<ExitCode> {
        let loaded = config::load(&self.flags.sources(environment))
            .and_then(|loaded| loaded.require_identity().map(|()| loaded.config));
        let mut config = match loaded {
            Ok(config) => config,
            Err(problems) => {
                writeln!(err, "{problems}")?;
                return Ok(ExitCode::Configuration);
            }
        };
        if let Err(problem) = log(&config.log) {
            writeln!(err, "{problem}")?;
            return Ok(ExitCode::Configuration);
        }
        let mut journals: Vec<Arc<dyn Journal>> = Vec::new();
        if let Some(path) = &self.record {
            match Recorder::append(path) {
                Ok(recorder) => journals.push(Arc::new(recorder)),
                Err(error) => {
                    writeln!(err, "The trace {} can't be written: {error}.", path.display())?;
                    return Ok(ExitCode::Configuration);
                }
            }
        }
        let termination = if self.observe {
            config.health.address = Some(self.observe_health);
            config.health.metrics_address = None;
            None
        } else {
            Some(TerminationLog::new(config.pod.termination_log.clone()))
        };
        journals.extend(termination.clone().map(|log| log as Arc<dyn Journal>));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let exit = runtime.block_on(live(config, data_plane, journals, self.observe)).unwrap_or_else(|exit| {
            tracing::error!(code = exit.code.number(), "{}", exit.reason);
            if let Some(termination) = termination {
                termination.write(&exit.reason);
            }
            exit
        });
        runtime.shutdown_timeout(LINGER);
        Ok(exit.code)
    }
}

async fn live(
    config: Config,
    data_plane: Choice,
    journals: Vec<Arc<dyn Journal>>,
    observe: bool,
) -> Result<Exit, Exit> {
    let fail =
        |code| move |error: &(dyn std::error::Error + 'static)| Exit { code, reason: format!("{}.", chain(error)) };
    let terminate = CancellationToken::new();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind).map_err(|error| fail(ExitCode::Failed)(&error))?;
        let terminate = terminate.clone();
        tokio::spawn(async move {
            if signals.recv().await.is_some() {
                terminate.cancel();
            }
        });
    }
    let reload = Arc::new(Notify::new());
    let mut hangups = signal(SignalKind::hangup()).map_err(|error| fail(ExitCode::Failed)(&error))?;
    let asked = reload.clone();
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            tracing::info!("SIGHUP: the policy folder, if there is one, is loaded anew.");
            asked.notify_one();
        }
    });
    let compiler = ChildProcess::this_program([super::COMPILE]);
    let mut loader = loader().map_err(|error| fail(ExitCode::Failed)(&error))?.with_compiler(compiler);
    if !observe {
        match CompileCache::open(&config.machine.cache_directory) {
            Ok(cache) => loader = loader.with_cache(cache),
            // Compiling again at each start costs time, and nothing else.
            Err(error) => tracing::warn!("{} Policies are compiled at every start.", chain(&error)),
        }
    }
    let client = connect(&access(&config)).await.map_err(|error| fail(ExitCode::Environment)(&error))?;
    let agent = Agent {
        client,
        loader,
        default_policy: DefaultPolicy::Component(DEFAULT_POLICY.into()),
        data_plane: Some(data_plane(&config, config.node.name.as_deref().unwrap_or_default()).into()),
        files: Arc::new(Disk),
        network: NetworkAccess::Machine,
        journal: Some(Arc::new(journals)),
        health: watch::Sender::new(Health::default()),
        reload,
        terminate,
        wall: Timestamp::now(),
        seed: RandomState::new().build_hasher().finish(),
        config,
    };
    if observe {
        tracing::info!("This process observes: it changes nothing, and takes what it would do as done.");
        return Ok(agent.observe().await);
    }
    Ok(agent.run().await)
}

fn loader() -> Result<Loader, EngineError> {
    Engine::new(&EngineConfig::default()).map(|engine| Loader::new(&engine))
}

/// What starts agents in scenarios.
pub(super) fn launcher() -> Result<simulate::Launcher, String> {
    let loader = loader().map_err(|error| chain(&error))?;
    let default_policy = loader.load(moorline_policy::DEFAULT, DEFAULT_POLICY).map_err(|error| chain(&error))?;
    Ok(simulate::Launcher { loader, default_policy, journal: None })
}

fn access(config: &Config) -> Access {
    let cluster = &config.cluster;
    match (&cluster.kubeconfig, &cluster.api_server) {
        (Some(path), _) => Access::Kubeconfig(path.clone()),
        (None, Some(url)) => {
            Access::Server { url: url.clone(), token: config.pod.token_file.clone(), ca: SERVICE_ACCOUNT_CA.into() }
        }
        (None, None) => Access::InCluster,
    }
}

/// The message that `kubectl describe pod` shows: why the process ended, or what it was waiting for when it was ended.
struct TerminationLog {
    path: PathBuf,
}

impl TerminationLog {
    fn new(path: PathBuf) -> Arc<Self> {
        Arc::new(Self { path })
    }

    fn write(&self, reason: &str) {
        // Kubernetes puts the file there; where it isn't, nobody reads it.
        if let Ok(mut file) = std::fs::OpenOptions::new().write(true).truncate(true).open(&self.path) {
            let _ = writeln!(file, "{reason}");
        }
    }
}

impl Journal for TerminationLog {
    fn tell(&self, _at: Duration, entry: &Entry<'_>) {
        match entry {
            Entry::Boot(Boot::Waiting(reason)) => self.write(reason),
            Entry::Boot(Boot::Locked) => self.write(""),
            Entry::Exit(exit) => self.write(&exit.reason),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

    use super::*;
    use crate::dataplane::from_config;

    #[test]
    fn the_termination_message_is_the_last_word_and_no_file_is_made_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("termination-log");
        let log = TerminationLog::new(path.clone());
        let exit = Exit { code: ExitCode::AssignmentChanged, reason: "The pool changed.".into() };
        log.tell(Duration::ZERO, &Entry::Exit(&exit));
        assert!(!path.exists());

        std::fs::write(&path, "").unwrap();
        log.tell(Duration::ZERO, &Entry::Boot(Boot::Waiting("The port is taken, which is a long sentence.")));
        log.tell(Duration::ZERO, &Entry::Exit(&exit));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "The pool changed.\n");
    }

    fn run(flags: ConfigFlags) -> RunCommand {
        RunCommand { flags, observe: false, observe_health: ([127, 0, 0, 1], 0).into(), record: None }
    }

    #[test]
    fn what_is_missing_to_run_is_said_at_once_with_exit_code_2() {
        let command = run(ConfigFlags { config: None, set: vec![("log.format".into(), "xml".into())] });
        let mut err = Vec::new();
        let code = command.run(Vec::new(), |_| Ok(()), from_config, &mut err).unwrap();
        assert_eq!(code, ExitCode::Configuration);
        assert!(String::from_utf8(err).unwrap().contains("log.format"));

        let command = run(ConfigFlags::default());
        let mut err = Vec::new();
        assert_eq!(command.run(Vec::new(), |_| Ok(()), from_config, &mut err).unwrap(), ExitCode::Configuration);
        let err = String::from_utf8(err).unwrap();
        for variable in ["NODE_NAME", "POD_NAME", "POD_NAMESPACE", "POD_UID"] {
            assert!(err.contains(variable), "{err}");
        }
    }
}
