//! What comes before the life: health is served, the token is looked at, the lock is held, policies are loaded and the
//! ledger is read, in this order. No request is made here. What can end in time is waited for; the rest is an exit.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use moorline_lifecycle as life;
use moorline_lifecycle::{AgentIdentity, Exit, ExitCode, Ledger, LedgerFound, Life, Missing, State};
use moorline_policy::{PolicySet, Reloader, SetOptions};
use prometheus_client::registry::Registry;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::effects::{Effects, Told};
use super::lane::Lane;
use super::observe::Observer;
use super::questions::{Listener, Policies};
use super::reload::keep_looking;
use super::view::View;
use super::{Agent, DefaultPolicy, Driver, Mode, VERSION, settings};
use crate::chain;
use crate::cluster::{Cluster, Heard};
use crate::config::{Config, PolicyMode};
use crate::dataplane::{self, Networked};
use crate::health::metrics::{Metrics, RequestLabels};
use crate::health::{BindError, HealthServer, Pages};
use crate::journal::{Boot, Entry};
use crate::machine;
use crate::machine::cni::CniFile;
use crate::machine::files::Files;
use crate::machine::ledger::{LedgerStore, Loaded};
use crate::machine::lock::{LockError, StateLock};
use crate::machine::token;

/// Between two looks at a taken port or lock.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Everything up to the life's first event, or the reason why there is no life.
pub(super) async fn boot(agent: Agent, started: Instant, mode: Mode) -> Result<Driver, Exit> {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry, VERSION);
    metrics.enter(State::Starting.as_str(), None);
    let (sender, told) = unbounded_channel();
    let booting = Booting { agent, started, mode, metrics, sender, told };
    let health_servers = booting.serve_health(&Arc::new(registry)).await?;
    booting.check_token()?;
    let lock = match mode {
        Mode::Run => Some(booting.lock().await?),
        Mode::Observe => None,
    };
    let (policies, reloader) = booting.load_policies().await?;
    let ledger = booting.load_ledger().await?;
    let cni_in_place = booting.look_at_cni(&ledger).await?;
    booting.driver(health_servers, lock, policies, reloader, ledger, cni_in_place)
}

struct Booting {
    agent: Agent,
    started: Instant,
    mode: Mode,
    metrics: Metrics,
    sender: UnboundedSender<Told>,
    told: UnboundedReceiver<Told>,
}

impl Booting {
    fn tell(&self, boot: Boot<'_>) {
        match &boot {
            Boot::HealthUp(address) => tracing::info!("Health is served on {address}."),
            Boot::Waiting(reason) => tracing::warn!("{reason}"),
            Boot::Locked => tracing::info!("The lock of the state folder is held."),
            Boot::Policies { loaded, refused, warnings } => {
                tracing::info!(policies = ?loaded, "The policies are loaded.");
                refused.iter().for_each(|refusal| tracing::error!("{refusal}"));
                warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
            }
            Boot::Ledger(what) => tracing::warn!("{what}"),
        }
        if let Some(journal) = &self.agent.journal {
            journal.tell(self.started.elapsed(), &Entry::Boot(boot));
        }
    }

    /// Waits before something is looked at again, with the reason for all to see. An end that is asked for ends the wait.
    async fn wait(&self, what: &str, reason: &str, told: &mut bool) -> Result<(), Exit> {
        if !std::mem::replace(told, true) {
            self.tell(Boot::Waiting(reason));
            let missing = vec![Missing { what: what.to_owned(), reason: reason.to_owned() }];
            self.agent.health.send_modify(|health| health.missing = missing);
        }
        tokio::select! {
            () = self.agent.terminate.cancelled() => Err(exit(
                ExitCode::Asked,
                format!("SIGTERM, while waiting: {reason}"),
            )),
            () = sleep(LOOK_AGAIN) => Ok(()),
        }
    }

    /// Serves health from now on: whatever the boot waits for, probes are answered.
    async fn serve_health(&self, registry: &Arc<Registry>) -> Result<Vec<AbortOnDropHandle<()>>, Exit> {
        let health = &self.agent.config.health;
        let wanted = [(health.address, Pages::All), (health.metrics_address, Pages::Metrics)];
        let mut servers = Vec::new();
        for (address, pages) in wanted {
            if let Some(address) = address {
                let server = self.bind(address, pages).await?;
                let serve = server.serve(self.agent.health.subscribe(), registry.clone(), CancellationToken::new());
                servers.push(AbortOnDropHandle::new(tokio::spawn(serve)));
            }
        }
        Ok(servers)
    }

    async fn bind(&self, address: SocketAddr, pages: Pages) -> Result<HealthServer, Exit> {
        let mut told = false;
        loop {
            match HealthServer::bind(address, pages).await {
                Ok(server) => {
                    self.tell(Boot::HealthUp(server.local_address().unwrap_or(address)));
                    return Ok(server);
                }
                Err(error @ BindError::Taken { .. }) => self.wait("health", &chain(&error), &mut told).await?,
                Err(error) => return Err(exit(ExitCode::Environment, chain(&error))),
            }
        }
    }

    /// A token that is for another Pod or Node is someone else's: nothing may be written with it.
    fn check_token(&self) -> Result<(), Exit> {
        let Config { node, pod, .. } = &self.agent.config;
        let told = token::Identity {
            namespace: pod.namespace.clone(),
            pod_name: pod.name.clone(),
            pod_uid: pod.uid.clone(),
            node_name: node.name.clone(),
        };
        match token::read(&pod.token_file) {
            Ok(Some(claims)) => {
                token::compare(&claims, &told).map_err(|error| exit(ExitCode::Environment, chain(&error)))
            }
            Ok(None) => Ok(()),
            Err(error) => Err(exit(ExitCode::Environment, chain(&error))),
        }
    }

    async fn lock(&self) -> Result<StateLock, Exit> {
        let mut told = false;
        loop {
            let folder = self.agent.config.machine.state_directory.clone();
            let (files, now) = (self.agent.files.clone(), self.wall_now());
            match blocking(move || StateLock::try_acquire_on(&files, &folder, now)).await? {
                Ok(lock) => {
                    self.tell(Boot::Locked);
                    return Ok(lock);
                }
                Err(error @ LockError::Held { .. }) => self.wait("lock", &chain(&error), &mut told).await?,
                Err(error) => return Err(exit(ExitCode::Environment, chain(&error))),
            }
        }
    }

    /// The first set, and what looks for others where there may be some.
    async fn load_policies(&self) -> Result<(Arc<PolicySet>, Option<Reloader>), Exit> {
        let Agent { config, loader, default_policy, .. } = &self.agent;
        let mut options = SetOptions {
            grants: config
                .policies
                .grants
                .iter()
                .map(|(name, grant)| (name.clone(), settings::grants(grant)))
                .collect(),
            observer: Some(Arc::new(Listener(self.sender.clone()))),
            default: None,
        };
        let loader = loader.clone().with_limits(settings::limits(&config.policies.limits));
        let (default_policy, folder) = (default_policy.clone(), config.policies.directory.clone());
        let now = self.started.elapsed();
        let (set, reloader) = blocking(move || {
            let default = match default_policy {
                DefaultPolicy::Component(component) => loader.load(moorline_policy::DEFAULT, &component),
                DefaultPolicy::Loaded(policy) => Ok(policy.with_limits(loader.limits().clone())),
            };
            options.default = Some(default.map_err(|error| exit(ExitCode::Failed, chain(&error)))?);
            let unusable = |error| exit(ExitCode::Configuration, chain(&error));
            match folder {
                Some(folder) => {
                    let reloader = Reloader::load(loader, folder, options, now).map_err(unusable)?;
                    Ok((reloader.current().clone(), Some(reloader)))
                }
                None => PolicySet::load(&loader, None, options).map(|set| (Arc::new(set), None)).map_err(unusable),
            }
        })
        .await??;
        self.tell(Boot::Policies { loaded: &loaded(&set), refused: &refused(&set), warnings: set.warnings() });
        Ok((set, reloader))
    }

    async fn load_ledger(&self) -> Result<LedgerFound, Exit> {
        let (store, mode) = (self.ledger_store(), self.mode);
        let load = move || match mode {
            Mode::Run => store.load::<Ledger>(),
            Mode::Observe => store.look(),
        };
        match blocking(load).await? {
            Ok(Loaded::Found(ledger)) => Ok(LedgerFound::Some(Box::new(ledger))),
            Ok(Loaded::Missing) => Ok(LedgerFound::None),
            Ok(Loaded::Damaged(damaged)) => {
                self.tell(Boot::Ledger(&damaged.message));
                Ok(LedgerFound::None)
            }
            Err(error) => Err(exit(ExitCode::Environment, chain(&error))),
        }
    }

    /// What no ledger says is the agent's own, its form may say.
    async fn look_at_cni(&self, ledger: &LedgerFound) -> Result<Option<String>, Exit> {
        if *ledger != LedgerFound::None {
            return Ok(None);
        }
        let cni = self.cni_file();
        blocking(move || cni.left()).await
    }

    fn driver(
        self,
        health_servers: Vec<AbortOnDropHandle<()>>,
        lock: Option<StateLock>,
        policies: Arc<PolicySet>,
        reloader: Option<Reloader>,
        ledger: LedgerFound,
        cni_in_place: Option<String>,
    ) -> Result<Driver, Exit> {
        let now = self.wall_now();
        let (ledger_store, cni_file) = (self.ledger_store(), self.cni_file());
        let Self { agent, started, mode, metrics, sender, told } = self;
        let Agent { config, client, data_plane, network, journal, health, reload, terminate, wall, seed, .. } = agent;
        let Some(settings) = settings::life(&config) else {
            let reason = "The Node's name and the Pod's name, namespace and UID are needed: set NODE_NAME, POD_NAME, \
                          POD_NAMESPACE and POD_UID from the downward API.";
            return Err(exit(ExitCode::Configuration, reason.into()));
        };
        let requests = metrics.requests.clone();
        let count = move |Heard { verb, resource, code }| {
            requests.get_or_create(&RequestLabels { verb, resource, code }).inc();
        };
        let names = settings::names(&config, &settings);
        let mut tasks = JoinSet::new();
        let (lane, work) = Lane::new();
        tasks.spawn(work);
        if let Some(reloader) = reloader {
            let every = (config.policies.mode == PolicyMode::Live).then(|| config.policies.look_interval.get());
            tasks.spawn(keep_looking(reloader, every, reload, started, sender.clone()));
        }
        let previous_start_ago = lock
            .as_ref()
            .and_then(|lock| lock.previous_start)
            .and_then(|before| Duration::try_from(now.duration_since(before)).ok());
        let boot_id = machine::boot_id();
        let data_plane = data_plane.unwrap_or_else(|| dataplane::from_config(&config, &settings.node_name).into());
        let (plans, incomplete) = match &ledger {
            LedgerFound::Some(ledger) => (ledger.data_plane.clone(), ledger.incomplete),
            LedgerFound::None => (Vec::new(), true),
        };
        let start = dataplane::Start {
            config: config.machine.network.clone(),
            access: network,
            boot_id: boot_id.clone(),
            plans,
            incomplete,
        };
        let effects = Effects {
            cluster: Cluster::new(client, names, settings::timeouts(&config)).heard_by(count),
            pod_uid: settings.pod_uid.clone(),
            policies: Policies { set: policies, adopter: None },
            data_plane: Arc::new(Networked::new(data_plane, start)),
            cni: cni_file,
            takeover: config.machine.takeover,
            ledger: ledger_store,
            join_deadline: config.deadlines.end.get() / 2,
            wall_ms: wall.as_millisecond(),
            told: sender,
            metrics: metrics.clone(),
            lane,
            lock: lock.map(Arc::new),
            observer: (mode == Mode::Observe).then(|| Observer::new(settings.pod_uid.clone())),
            tasks,
            handles: std::collections::BTreeMap::new(),
            workers: CancellationToken::new(),
        };
        let born = life::Boot {
            settings,
            identity: AgentIdentity { version: VERSION.into(), policies: loaded(&effects.policies.set) },
            refused_policies: refused(&effects.policies.set),
            ledger,
            cni_in_place,
            boot_id,
            previous_start_ago,
            wall_ms: wall.as_millisecond(),
            seed,
        };
        if let Some(journal) = &journal {
            journal.tell(started.elapsed(), &Entry::Born(&born));
        }
        Ok(Driver {
            started,
            life: Life::new(born),
            effects,
            told,
            terminate,
            journal,
            view: View::new(health, metrics, config.policies.mode, started.elapsed()),
            assigned_by: None,
            looked_at: None,
            _health_servers: health_servers,
        })
    }

    fn ledger_store(&self) -> LedgerStore<Arc<dyn Files>> {
        LedgerStore::with_files(&self.agent.config.machine.state_directory, self.agent.files.clone())
    }

    fn cni_file(&self) -> CniFile<Arc<dyn Files>> {
        let machine = &self.agent.config.machine;
        CniFile::with_files(&machine.cni_directory, &machine.cni_file, self.agent.files.clone())
    }

    fn wall_now(&self) -> Timestamp {
        self.agent.wall + self.started.elapsed()
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Exit> {
    spawn_blocking(work).await.map_err(|error| exit(ExitCode::Failed, format!("A task of the start failed: {error}.")))
}

fn exit(code: ExitCode, reason: String) -> Exit {
    Exit { code, reason }
}

/// The policies that answer, by name, each once.
pub(super) fn loaded(set: &PolicySet) -> Vec<(String, String)> {
    let mut loaded: Vec<_> = set
        .bindings()
        .filter_map(|binding| binding.policy().ok())
        .map(|policy| (policy.name().to_owned(), policy.digest().to_string()))
        .collect();
    loaded.sort();
    loaded.dedup();
    loaded
}

fn refused(set: &PolicySet) -> Vec<String> {
    let mut refused: Vec<_> = set
        .refusals()
        .map(|(binding, error)| {
            format!("The binding {} of the hook {} has no policy: {}", binding.name(), binding.hook(), chain(&**error))
        })
        .collect();
    refused.dedup();
    refused
}
