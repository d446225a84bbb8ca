//! `moorline simulate`: the real agent, asking real policies, in scenarios of `moorline-sim`. Here the two are joined; what
//! a scenario is and how it is judged is not known here, and nothing of the cluster or of this machine is touched.

mod command;
mod progress;
mod story;

use std::convert::Infallible;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use moorline_policy::{CompileCache, Loader, Policy, PolicySet, SetOptions};
use moorline_sim::scenario::{self, Ended, Launch, Loaded, Process, Readiness};
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::chain;
use crate::config::{self, Config, Flag, Origin, Problem, Problems, Sources};
use crate::driver::Agent;
use crate::health::{Health, Pages, respond};
use crate::journal::Journal;
use crate::machine::files::Disk;
use crate::machine::network::NetworkAccess;
use story::Story;

pub use command::{Format, SimulateCommand};

/// Starts real agents in scenarios. The policies of the volume are loaded by every process anew.
#[derive(Clone)]
pub struct Launcher {
    /// Loads policies.
    pub loader: Loader,
    /// The policy that is asked after all others.
    pub default_policy: Policy,
    /// Hears what every process tells, beside the timeline: a [`crate::trace::Recorder`], for one.
    pub journal: Option<Arc<dyn Journal>>,
}

impl Launcher {
    /// Keeps compiled policies in this folder; where it isn't private, every process compiles them anew.
    #[must_use]
    pub fn with_cache(self, folder: &Path) -> Self {
        match CompileCache::open(folder) {
            Ok(cache) => Self { loader: self.loader.with_cache(cache), ..self },
            Err(_) => self,
        }
    }

    /// Judges what a scenario gives the agent, its configuration and its policies, before it is run.
    ///
    /// # Errors
    /// Everything that is wrong with it, each as one line that begins with the scenario's file.
    pub fn check(&self, scenario: &Loaded) -> Result<(), Vec<String>> {
        let file = scenario.path.display();
        let agent = &scenario.scenario.agent;
        let mut wrong = Vec::new();
        if let Err(problems) = configuration(&agent.config, Vec::new()) {
            let said = problems.0.iter().map(|Problem { key, message, way_out, .. }| {
                format!("{file}: agent.config: `{key}` {message}. {way_out}.")
            });
            wrong.extend(said);
        }
        if let Some(spec) = agent.policies.as_ref().filter(|spec| !spec.value.may_be_refused) {
            let place = format!("{file}:{}: agent.policies", spec.defined.line());
            wrong.extend(self.refusals(scenario).into_iter().map(|refusal| format!("{place}: {refusal}")));
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// Why the agent would not take the scenario's policies, or not all of them.
    fn refusals(&self, scenario: &Loaded) -> Vec<String> {
        let folder = match tempfile::tempdir() {
            Ok(folder) => folder,
            Err(error) => return vec![format!("there is no temporary folder: {error}")],
        };
        let options = || SetOptions { default: Some(self.default_policy.clone()), ..SetOptions::default() };
        match scenario.policy_volume(folder.path()) {
            Err(error) => vec![format!("the policy volume can't be read: {error}")],
            Ok(volume) => match PolicySet::load(&self.loader, volume.as_deref(), options()) {
                Err(error) => vec![chain(&error)],
                Ok(set) => {
                    let mut refusals: Vec<_> = set.refusals().map(|(_, error)| chain(&**error)).collect();
                    refusals.dedup();
                    refusals
                }
            },
        }
    }
}

impl scenario::Launcher for Launcher {
    fn launch(&self, launch: Launch) -> Process {
        let (health, seen) = watch::channel(Health::default());
        let terminate = CancellationToken::new();
        let config = configuration(&launch.config, flags(&launch));
        let story: Arc<dyn Journal> = Arc::new(Story::new(launch.journal));
        let journal = Arc::new(Vec::from_iter([story].into_iter().chain(self.journal.clone())));
        let agent = config.map(|config| Agent {
            config,
            client: launch.client,
            loader: self.loader.clone(),
            default_policy: self.default_policy.clone().into(),
            data_plane: None,
            files: Arc::new(Disk),
            network: NetworkAccess::Untouched,
            journal: Some(journal),
            health,
            reload: Arc::default(),
            terminate: terminate.clone(),
            wall: launch.wall,
            seed: launch.seed,
        });
        let life = async move {
            match agent {
                Ok(agent) => {
                    let exit = tokio::select! {
                        exit = agent.run() => exit,
                        never = forward(launch.terminate, terminate) => match never {},
                    };
                    Ended { code: exit.code.number(), reason: exit.reason }
                }
                Err(problems) => {
                    let code = moorline_lifecycle::ExitCode::Configuration.number();
                    Ended { code, reason: problems.to_string() }
                }
            }
        };
        Process { life: Box::pin(life), readiness: Box::new(move || readiness(&seen.borrow())) }
    }
}

/// Passes SIGTERM on. Never ends.
async fn forward(mut asked: watch::Receiver<bool>, terminate: CancellationToken) -> Infallible {
    if asked.wait_for(|asked| *asked).await.is_ok() {
        terminate.cancel();
    }
    std::future::pending().await
}

/// What `/readyz` says, by the code that serves it.
fn readiness(health: &Health) -> Readiness {
    let registry = Registry::default();
    let answer = respond(Pages::All, &http::Method::GET, "/readyz", health, &registry, Instant::now());
    let ready = answer.status().is_success();
    let body = answer.into_body().collect().now_or_never();
    let bytes = body.and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
    Readiness { ready, text: String::from_utf8_lossy(&bytes).into_owned() }
}

/// The configuration of a scenario over the defaults, and the flags over both.
fn configuration(overlay: &Value, flags: Vec<Flag>) -> Result<Config, Problems> {
    let mut sources = Sources { flags, ..Sources::default() };
    // As a file, so that it is judged as one: every mistake is told. JSON is YAML.
    let file = (!overlay.is_null()).then(|| written(&format!("{overlay:#}"))).transpose();
    let file = file.map_err(|error| Problems(vec![unwritable(&error)]))?;
    sources.file = file.as_ref().map(|file| file.path().to_owned());
    config::load(&sources).map(|loaded| loaded.config)
}

fn written(text: &str) -> std::io::Result<tempfile::NamedTempFile> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}

fn unwritable(error: &std::io::Error) -> Problem {
    Problem {
        origin: Origin::Default,
        key: String::new(),
        message: format!("a temporary file for the agent's configuration can't be written ({error})"),
        way_out: "Make room in the folder for temporary files, or name another one with TMPDIR".to_owned(),
    }
}

/// Where the process is, in the words of the configuration.
fn flags(launch: &Launch) -> Vec<Flag> {
    let at = |path: &str| launch.machine.join(path).display().to_string();
    let policies = launch.policies.as_ref().map(|folder: &PathBuf| folder.display().to_string());
    let all = [
        ("node.name", Some(launch.node.clone())),
        ("pod.name", Some(launch.pod.name.clone())),
        ("pod.namespace", Some(launch.pod.namespace.clone())),
        ("pod.uid", Some(launch.pod.uid.clone())),
        ("pod.tokenFile", Some(at("var/run/secrets/token"))),
        ("pod.terminationLog", Some(at("dev/termination-log"))),
        ("machine.cniDirectory", Some(at("etc/cni/net.d"))),
        ("machine.stateDirectory", Some(at("var/lib/moorline"))),
        ("machine.cacheDirectory", Some(at("var/cache/moorline"))),
        ("policies.directory", policies),
        // Any free port: nobody asks there, and several scenarios may run at once.
        ("health.address", Some("127.0.0.1:0".to_owned())),
    ];
    let flag = |(key, value): (&str, Option<String>)| {
        value.map(|value| Flag { name: "simulate".to_owned(), key: key.to_owned(), value })
    };
    all.into_iter().filter_map(flag).collect()
}
