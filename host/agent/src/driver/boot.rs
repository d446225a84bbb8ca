//! What comes before the life: health is served, the token is looked at, the lock is held, policies are loaded and the
//! ledger is read, in this order. No request is made here. What can end in time is waited for; the rest is an exit.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use moorline_lifecycle as life;
use moorline_lifecycle::{AgentIdentity, Exit, ExitCode, Ledger, LedgerFound, Life, Missing, Settings, State, Status};
use moorline_policy::{Grants, PolicySet, SetOptions};
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::effects::{Effects, chain};
use super::{Agent, Driver};
use crate::cluster::{Cluster, GroupVersion, Names, Timeouts};
use crate::config::{ApiVersion, Config};
use crate::dataplane;
use crate::health::metrics::Metrics;
use crate::health::{BindError, HealthServer, Pages};
use crate::journal::{Boot, Entry};
use crate::machine::cni::CniFile;
use crate::machine::ledger::{LedgerStore, Loaded};
use crate::machine::lock::{LockError, StateLock};
use crate::machine::token;

pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Between two looks at a taken port or lock.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Everything up to the life's first event, or the reason why there is no life.
pub(super) async fn boot(agent: Agent, started: Instant) -> Result<Driver, Exit> {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry, VERSION);
    metrics.enter(State::Starting.as_str(), None);
    let booting = Booting { agent, started };
    let health_servers = booting.serve_health(&Arc::new(registry)).await?;
    booting.check_token()?;
    let lock = booting.lock().await?;
    let policies = booting.load_policies().await?;
    let ledger = booting.load_ledger().await?;
    booting.driver(metrics, health_servers, lock, policies, ledger)
}

struct Booting {
    agent: Agent,
    started: Instant,
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
        let wanted = [(Some(health.address), Pages::All), (health.metrics_address, Pages::Metrics)];
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
            let now = self.wall_now();
            match blocking(move || StateLock::try_acquire(&folder, now)).await? {
                Ok(lock) => {
                    self.tell(Boot::Locked);
                    return Ok(lock);
                }
                Err(error @ LockError::Held { .. }) => self.wait("lock", &chain(&error), &mut told).await?,
                Err(error) => return Err(exit(ExitCode::Environment, chain(&error))),
            }
        }
    }

    async fn load_policies(&self) -> Result<PolicySet, Exit> {
        let config = &self.agent.config.policies;
        let grants = config.grants.iter().map(|(name, grant)| (name.clone(), granted(grant))).collect();
        let options = SetOptions { default: Some(self.agent.default_policy.clone()), grants, observer: None };
        let (loader, folder): (_, Option<PathBuf>) = (self.agent.loader.clone(), config.directory.clone());
        let set = blocking(move || PolicySet::load(&loader, folder.as_deref(), options))
            .await?
            .map_err(|error| exit(ExitCode::Configuration, chain(&error)))?;
        self.tell(Boot::Policies { loaded: &loaded(&set), refused: &refused(&set), warnings: set.warnings() });
        Ok(set)
    }

    async fn load_ledger(&self) -> Result<LedgerFound, Exit> {
        let store = LedgerStore::new(&self.agent.config.machine.state_directory);
        match blocking(move || store.load::<Ledger>()).await? {
            Ok(Loaded::Found(ledger)) => Ok(LedgerFound::Some(Box::new(ledger))),
            Ok(Loaded::Missing) => Ok(LedgerFound::None),
            Ok(Loaded::Damaged(damaged)) => {
                self.tell(Boot::Ledger(&damaged.message));
                Ok(LedgerFound::None)
            }
            Err(error) => Err(exit(ExitCode::Environment, chain(&error))),
        }
    }

    fn driver(
        self,
        metrics: Metrics,
        health_servers: Vec<AbortOnDropHandle<()>>,
        lock: StateLock,
        policies: PolicySet,
        ledger: LedgerFound,
    ) -> Result<Driver, Exit> {
        let Agent { config, client, data_plane, journal, health, terminate, seed, .. } = &self.agent;
        let settings = settings(config).ok_or_else(|| {
            exit(ExitCode::Configuration, "NODE_NAME, POD_NAME, POD_NAMESPACE and POD_UID have to be set.".into())
        })?;
        let names = Names {
            node: settings.node_name.clone(),
            pod: settings.pod_name.clone(),
            namespace: settings.pod_namespace.clone(),
            site_api: group_version(&config.cluster.site_api),
            gateway_api: group_version(&config.cluster.gateway_api),
        };
        let timeouts =
            Timeouts { request: config.cluster.request_timeout.get(), idle: config.cluster.watch_idle_limit.get() };
        let (sender, told) = mpsc::unbounded_channel();
        // Time zero of the life is now; of records, too.
        let started = Instant::now();
        let wall = self.wall_now();
        let plugin_types =
            config.policies.grants.iter().map(|(name, grant)| (name.clone(), grant.plugin_types.clone())).collect();
        let effects = Effects {
            cluster: Cluster::new(client.clone(), names, timeouts),
            pod_uid: settings.pod_uid.clone(),
            plugin_types: Arc::new(plugin_types),
            data_plane: data_plane
                .clone()
                .unwrap_or_else(|| dataplane::from_config(&config.data_plane, &settings.node_name).into()),
            cni: CniFile::new(&config.machine.cni_directory, &config.machine.cni_file),
            takeover: config.machine.takeover,
            ledger_lost: ledger == LedgerFound::None,
            ledger: LedgerStore::new(&config.machine.state_directory),
            join_deadline: config.deadlines.end.get() / 2,
            wall_ms: wall.as_millisecond(),
            told: sender,
            tasks: JoinSet::new(),
            handles: std::collections::BTreeMap::new(),
            workers: CancellationToken::new(),
            policies: Arc::new(policies),
        };
        let life = Life::new(life::Boot {
            settings,
            identity: AgentIdentity { version: VERSION.into(), policies: loaded(&effects.policies) },
            refused_policies: refused(&effects.policies),
            ledger,
            boot_id: std::fs::read_to_string(BOOT_ID).ok().map(|id| id.trim().to_owned()),
            previous_start_ago: lock
                .previous_start
                .and_then(|before| Duration::try_from(wall.duration_since(before)).ok()),
            wall_ms: wall.as_millisecond(),
            seed: *seed,
        });
        let (health, terminate, journal) = (health.clone(), terminate.clone(), journal.clone());
        let status: Status = life.status();
        Ok(Driver {
            started,
            life,
            effects,
            told,
            terminate,
            journal,
            metrics,
            health,
            status,
            verdicts: std::collections::BTreeMap::new(),
            _health_servers: health_servers,
            _lock: lock,
        })
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

fn group_version(api: &ApiVersion) -> GroupVersion {
    GroupVersion { group: api.group.clone(), version: api.version.clone() }
}

/// The policies that answer, by name, each once.
fn loaded(set: &PolicySet) -> Vec<(String, String)> {
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

/// The life's part of the configuration; none where Node or Pod are not named.
fn settings(config: &Config) -> Option<Settings> {
    let Config { node, pod, cluster, floors, deadlines, events, .. } = config;
    let mut settings = Settings::new(node.name.clone()?, pod.name.clone()?, pod.namespace.clone()?, pod.uid.clone()?);
    settings.allowed_taints.clone_from(&floors.allowed_taints);
    settings.gateway_taint.clone_from(&floors.gateway_taint);
    settings.annotation_prefixes.clone_from(&floors.annotation_prefixes);
    settings.cni.plugin_types.clone_from(&floors.cni.plugin_types);
    settings.cni.bridge_names.clone_from(&floors.cni.bridge_names);
    settings.cni.data_dirs.clone_from(&floors.cni.data_dirs);
    settings.cni.max_bytes = floors.cni.max_size.as_usize();
    settings.end_deadline = deadlines.end.get();
    settings.cleanup_deadline = deadlines.cleanup.get();
    settings.denial_interval = deadlines.denial_interval.get();
    settings.watch_lifetime = (cluster.watch_timeout.min.get(), cluster.watch_timeout.max.get());
    settings.events = events.enabled;
    Some(settings)
}

fn granted(grant: &crate::config::Grant) -> Grants {
    let limits = &grant.limits;
    let usize_of = |number: Option<u64>| number.map(|number| usize::try_from(number).unwrap_or(usize::MAX));
    Grants {
        sha256: None,
        may_tolerate: grant.may_tolerate,
        limits: moorline_policy::LimitOverrides {
            fuel: limits.fuel,
            deadline: limits.deadline.map(crate::config::Period::get),
            memory: limits.memory.map(crate::config::Size::as_usize),
            table_elements: usize_of(limits.table_elements),
            instances: usize_of(limits.instances),
            output: limits.output.map(crate::config::Size::as_usize),
            log_lines: usize_of(limits.log_lines),
            component: limits.module_size.map(crate::config::Size::as_usize),
            ..Default::default()
        },
    }
}
