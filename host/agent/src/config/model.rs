//! The whole configuration of the agent as plain data: every key, its default, its unit and its bounds.
//! Nothing here reads a file or a variable.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::network::NetworkConfig;
use super::value::{ApiVersion, Period, Size};

/// The configuration of the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The Node that the agent runs on.
    pub node: NodeConfig,
    /// The Pod that the agent runs in.
    pub pod: PodConfig,
    /// How the agent reaches the API server, and what it reads there.
    pub cluster: ClusterConfig,
    /// What the agent owns on this machine.
    pub machine: MachineConfig,
    /// Where policies come from, and what the operator trusts them with.
    pub policies: PolicyConfig,
    /// What the host holds to whatever a verdict says.
    pub floors: FloorConfig,
    /// What puts the assignment into effect on this machine.
    pub data_plane: DataPlaneConfig,
    /// Probes, metrics and status.
    pub health: HealthConfig,
    /// How long the agent may take, and how long it waits after a denial.
    pub deadlines: DeadlineConfig,
    /// Kubernetes Events about the Node.
    pub events: EventConfig,
    /// The log.
    pub log: LogConfig,
}

/// The Node that the agent runs on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeConfig {
    /// The Node's name. Also read from `NODE_NAME`, which the DaemonSet sets from `spec.nodeName`. `run` can't do without.
    pub name: Option<String>,
}

/// The Pod that the agent runs in: the acknowledgment is written on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct PodConfig {
    /// The Pod's name. Also read from `POD_NAME`. `run` can't do without.
    pub name: Option<String>,
    /// The Pod's namespace. Also read from `POD_NAMESPACE`. `run` can't do without.
    pub namespace: Option<String>,
    /// The Pod's UID, which guards every write on the Pod. Also read from `POD_UID`. `run` can't do without.
    pub uid: Option<String>,
    /// The mounted service account token, whose claims are compared with the names above. A missing file is fine.
    pub token_file: PathBuf,
    /// Where the reason of the end goes, for `kubectl describe pod`.
    pub termination_log: PathBuf,
}

impl Default for PodConfig {
    fn default() -> Self {
        Self {
            name: None,
            namespace: None,
            uid: None,
            token_file: "/var/run/secrets/kubernetes.io/serviceaccount/token".into(),
            termination_log: "/dev/termination-log".into(),
        }
    }
}

/// How the agent reaches the API server, and what it reads there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterConfig {
    /// The API server's URL, by address or by a name that the machine itself resolves: the agent starts before cluster
    /// DNS. Without it, `kubeconfig` or the variables that Kubernetes gives every Pod decide.
    pub api_server: Option<String>,
    /// A kubeconfig file, for an agent that runs outside a Pod. Not together with `apiServer`.
    pub kubeconfig: Option<PathBuf>,
    /// Group and version of Site.
    pub site_api: ApiVersion,
    /// Group and version of GatewayPool and GatewayPoolNode.
    pub gateway_api: ApiVersion,
    /// How long one watch lasts before it is renewed; each is drawn from this range. 1 minute to 24 hours.
    pub watch_timeout: PeriodRange,
    /// A watch on which nothing was heard for so long, bookmarks included, is given up. At least 90 seconds, since
    /// bookmarks come about once a minute, and shorter than every watch.
    pub watch_idle_limit: Period,
    /// How long one request, a watch aside, may take. 1 second to 5 minutes.
    pub request_timeout: Period,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            api_server: None,
            kubeconfig: None,
            site_api: ApiVersion::new("unbounded-cloud.io", "v1alpha3"),
            gateway_api: ApiVersion::new("net.unbounded-cloud.io", "v1alpha1"),
            watch_timeout: PeriodRange { min: Period::from_minutes(30), max: Period::from_minutes(60) },
            watch_idle_limit: Period::from_minutes(5),
            request_timeout: Period::from_secs(15),
        }
    }
}

/// A range of lengths of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct PeriodRange {
    /// The shortest.
    pub min: Period,
    /// The longest.
    pub max: Period,
}

impl Default for PeriodRange {
    fn default() -> Self {
        ClusterConfig::default().watch_timeout
    }
}

/// What the agent owns on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct MachineConfig {
    /// The folder in which the container runtime looks for CNI configurations.
    pub cni_directory: PathBuf,
    /// The one file in it that the agent owns. A file name that ends in `.conflist`.
    pub cni_file: String,
    /// Whether a configuration that an earlier agent left under that name may be replaced.
    pub takeover: Takeover,
    /// The folder of the lock and the ledger. It has to outlive the Pod.
    pub state_directory: PathBuf,
    /// The folder of compiled policies. Only the agent's user may write it; what is lost there is made again.
    pub cache_directory: PathBuf,
    /// Links, routes and rules.
    pub network: NetworkConfig,
}

impl Default for MachineConfig {
    fn default() -> Self {
        Self {
            cni_directory: "/etc/cni/net.d".into(),
            cni_file: "10-unbounded.conflist".into(),
            takeover: Takeover::None,
            state_directory: "/var/lib/moorline".into(),
            cache_directory: "/var/cache/moorline".into(),
            network: NetworkConfig::default(),
        }
    }
}

/// Whose CNI configuration, beside its own, the agent may replace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Takeover {
    /// Nobody's.
    #[default]
    None,
    /// What the published agent wrote, recognised by its network name and plugins.
    Published,
}

/// Where policies come from, and what the operator trusts them with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyConfig {
    /// The policy volume: `policies.yaml` beside the modules that it names. Without it the default policy answers every hook.
    pub directory: Option<PathBuf>,
    /// When a changed policy volume counts.
    pub mode: PolicyMode,
    /// How often the policy volume is looked at in `live` mode. 1 second to 1 hour.
    pub look_interval: Period,
    /// What one policy may use. A grant can say otherwise for a binding.
    pub limits: PolicyLimits,
    /// What single bindings are trusted with beyond that, by binding name. Whoever may edit the policy volume can't
    /// grant anything.
    pub grants: BTreeMap<String, Grant>,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self {
            directory: None,
            mode: PolicyMode::AtStart,
            look_interval: Period::from_secs(10),
            limits: PolicyLimits::default(),
            grants: BTreeMap::new(),
        }
    }
}

/// When a changed policy volume counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyMode {
    /// At the next start, so that a change is a rollout like any other; or on SIGHUP.
    #[default]
    AtStart,
    /// As soon as it stands still.
    Live,
}

/// What one policy may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyLimits {
    /// Instructions of one call, roughly: the budget that is the same on every machine.
    pub fuel: u64,
    /// The time of one call, as the backstop behind `fuel`. 10 milliseconds to 10 seconds.
    pub deadline: Period,
    /// The memory of one call. 1 MiB to 256 MiB.
    pub memory: Size,
    /// Elements of all tables together. Guests in JavaScript or Python need 100,000.
    pub table_elements: u64,
    /// Core instances, memories and tables: so many of each. Guests in JavaScript or Python need 512.
    pub instances: u64,
    /// Strings and lists in one answer. 1 KiB to 3 MiB.
    pub output: Size,
    /// The stack of one call. 64 KiB to 1 MiB.
    pub stack: Size,
    /// The reason of a verdict. 64 B to 16 KiB.
    pub reason: Size,
    /// Log lines of one call that are kept.
    pub log_lines: u64,
    /// All log lines of one call together. At most 1 MiB.
    pub log_size: Size,
    /// What a policy logs below this level isn't kept.
    pub log_level: PolicyLogLevel,
    /// What is given to a policy of a text that anyone may make long, such as an annotation's value; the rest is cut, with
    /// a mark. 1 KiB to 1 MiB.
    pub input_string: Size,
    /// The size of a module, once it is unpacked. At most 64 MiB.
    pub module_size: Size,
    /// The memory of the process that compiles a module. Together with the agent's own it has to fit the container's limit.
    /// 32 MiB to 4 GiB.
    pub compile_memory: Size,
    /// The time for compiling a module. 1 second to 10 minutes.
    pub compile_deadline: Period,
}

/// How much a line that a policy logs matters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyLogLevel {
    /// Every step.
    Trace,
    /// For the policy's author.
    Debug,
    /// For the operator.
    #[default]
    Info,
    /// Worth a look.
    Warn,
    /// The policy failed.
    Error,
}

impl Default for PolicyLimits {
    fn default() -> Self {
        Self {
            fuel: 100_000_000,
            deadline: Period::from_millis(500),
            memory: Size::from_mib(16),
            table_elements: 10_000,
            instances: 32,
            output: Size::from_kib(256),
            stack: Size::from_kib(512),
            reason: Size::from_kib(1),
            log_lines: 64,
            log_size: Size::from_kib(16),
            log_level: PolicyLogLevel::Info,
            input_string: Size::from_kib(64),
            module_size: Size::from_mib(4),
            compile_memory: Size::from_mib(192),
            compile_deadline: Period::from_secs(20),
        }
    }
}

/// What a binding is trusted with beyond the defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Grant {
    /// Only the module that is pinned by this SHA-256 digest in `policies.yaml` has the grant, whatever the binding names.
    /// Without it any module that the binding names has it.
    pub sha256: Option<String>,
    /// Its `same` stands although the assignment that the Node would have now is another one.
    pub may_tolerate: bool,
    /// CNI plugin types that it may use beside `floors.cni.pluginTypes`.
    pub plugin_types: BTreeSet<String>,
    /// What its module may import beside the log.
    pub wasi: WasiGrant,
    /// Limits of its own; what isn't said is as in `policies.limits`.
    pub limits: LimitOverrides,
}

/// What a module may import beside the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WasiGrant {
    /// Nothing.
    #[default]
    None,
    /// WASI with nothing in it, for guests whose toolchain insists: no files, no network, a clock that stands still, and
    /// randomness that is the same in every call.
    Isolated,
}

/// Limits of one binding; see [`PolicyLimits`] for the meaning and the bounds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitOverrides {
    /// Instead of `policies.limits.fuel`.
    pub fuel: Option<u64>,
    /// Instead of `policies.limits.deadline`.
    pub deadline: Option<Period>,
    /// Instead of `policies.limits.memory`.
    pub memory: Option<Size>,
    /// Instead of `policies.limits.tableElements`.
    pub table_elements: Option<u64>,
    /// Instead of `policies.limits.instances`.
    pub instances: Option<u64>,
    /// Instead of `policies.limits.output`.
    pub output: Option<Size>,
    /// Instead of `policies.limits.stack`.
    pub stack: Option<Size>,
    /// Instead of `policies.limits.reason`.
    pub reason: Option<Size>,
    /// Instead of `policies.limits.logLines`.
    pub log_lines: Option<u64>,
    /// Instead of `policies.limits.logSize`.
    pub log_size: Option<Size>,
    /// Instead of `policies.limits.logLevel`.
    pub log_level: Option<PolicyLogLevel>,
    /// Instead of `policies.limits.inputString`.
    pub input_string: Option<Size>,
    /// Instead of `policies.limits.moduleSize`.
    pub module_size: Option<Size>,
    /// Instead of `policies.limits.compileMemory`.
    pub compile_memory: Option<Size>,
    /// Instead of `policies.limits.compileDeadline`.
    pub compile_deadline: Option<Period>,
}

impl LimitOverrides {
    /// The limits that hold: these where they say something, `general` elsewhere.
    pub fn over(&self, general: &PolicyLimits) -> PolicyLimits {
        PolicyLimits {
            fuel: self.fuel.unwrap_or(general.fuel),
            deadline: self.deadline.unwrap_or(general.deadline),
            memory: self.memory.unwrap_or(general.memory),
            table_elements: self.table_elements.unwrap_or(general.table_elements),
            instances: self.instances.unwrap_or(general.instances),
            output: self.output.unwrap_or(general.output),
            stack: self.stack.unwrap_or(general.stack),
            reason: self.reason.unwrap_or(general.reason),
            log_lines: self.log_lines.unwrap_or(general.log_lines),
            log_size: self.log_size.unwrap_or(general.log_size),
            log_level: self.log_level.unwrap_or(general.log_level),
            input_string: self.input_string.unwrap_or(general.input_string),
            module_size: self.module_size.unwrap_or(general.module_size),
            compile_memory: self.compile_memory.unwrap_or(general.compile_memory),
            compile_deadline: self.compile_deadline.unwrap_or(general.compile_deadline),
        }
    }
}

/// What the host holds to whatever a verdict says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct FloorConfig {
    /// The keys of the taints that a policy may have removed.
    pub allowed_taints: BTreeSet<String>,
    /// The key of the gateway taint: never removed on a gateway, gone on a worker before the acknowledgment.
    pub gateway_taint: String,
    /// What the keys of the acknowledgment's annotations may begin with, such as `moorline.dev/`.
    pub annotation_prefixes: BTreeSet<String>,
    /// What a CNI configuration may say.
    pub cni: CniFloorConfig,
}

impl Default for FloorConfig {
    fn default() -> Self {
        const GATEWAY_TAINT: &str = "net.unbounded-cloud.io/gateway-node";
        Self {
            allowed_taints: BTreeSet::from([GATEWAY_TAINT.to_owned()]),
            gateway_taint: GATEWAY_TAINT.to_owned(),
            annotation_prefixes: BTreeSet::from(["moorline.dev/".to_owned()]),
            cni: CniFloorConfig::default(),
        }
    }
}

/// What a CNI configuration may say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct CniFloorConfig {
    /// Plugin types that any policy may use beside those that the agent knows and checks field by field.
    pub plugin_types: BTreeSet<String>,
    /// The bridges that a configuration may name.
    pub bridge_names: BTreeSet<String>,
    /// The folders in which host-local may be told to keep its data, each exactly as a configuration names it.
    pub data_dirs: BTreeSet<String>,
    /// The size of a configuration. 1 KiB to 1 MiB.
    pub max_size: Size,
}

impl Default for CniFloorConfig {
    fn default() -> Self {
        Self {
            plugin_types: BTreeSet::new(),
            bridge_names: BTreeSet::from(["cbr0".to_owned()]),
            data_dirs: BTreeSet::from(["/var/lib/cni/networks".to_owned()]),
            max_size: Size::from_kib(64),
        }
    }
}

/// What puts the assignment into effect on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct DataPlaneConfig {
    /// Which one.
    pub kind: DataPlaneKind,
    /// The executable and its arguments, where `kind` is `command`. The executable by its absolute path.
    pub command: Vec<String>,
    /// The time that one run may take; then its whole process group is ended. 1 second to 1 hour.
    pub time_limit: Period,
    /// What it may write to standard output and, once more, to standard error. 1 KiB to 16 MiB.
    pub output_limit: Size,
    /// The environment of the command, beside `PATH`. It is shown by `config show`: not the place for secrets.
    pub environment: BTreeMap<String, String>,
}

impl Default for DataPlaneConfig {
    fn default() -> Self {
        Self {
            kind: DataPlaneKind::None,
            command: Vec::new(),
            time_limit: Period::from_secs(60),
            output_limit: Size::from_mib(1),
            environment: BTreeMap::new(),
        }
    }
}

/// The data planes that are built in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DataPlaneKind {
    /// Nothing beside the CNI configuration.
    #[default]
    None,
    /// An executable that is given the desired state as JSON and answers with JSON.
    Command,
}

/// Probes, metrics and status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthConfig {
    /// Address and port of `/healthz`, `/readyz`, `/metrics` and `/status`. `null` serves nothing, and no probe is
    /// answered: for a program that has the agent inside and shows its health itself.
    #[serde(with = "super::value::optional_address")]
    #[schemars(with = "Option<String>")]
    pub address: Option<SocketAddr>,
    /// A second address and port that serve `/metrics` and nothing else, for scraping from outside.
    #[serde(with = "super::value::optional_address")]
    #[schemars(with = "Option<String>")]
    pub metrics_address: Option<SocketAddr>,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self { address: Some(SocketAddr::from(([127, 0, 0, 1], 9998))), metrics_address: None }
    }
}

/// How long the agent may take, and how long it waits after a denial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct DeadlineConfig {
    /// From SIGTERM or drift to the end of the process. Shorter than the Pod's termination grace period. 1 second to 5 minutes.
    pub end: Period,
    /// The time that the API's part of a forced cleanup may take before it is owed. 1 second to 5 minutes.
    pub cleanup: Period,
    /// How long a denied taint removal waits before it is tried again without a change. 10 seconds to 24 hours.
    pub denial_interval: Period,
}

impl Default for DeadlineConfig {
    fn default() -> Self {
        Self { end: Period::from_secs(10), cleanup: Period::from_secs(10), denial_interval: Period::from_minutes(5) }
    }
}

/// Kubernetes Events about the Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct EventConfig {
    /// Whether trouble is written as Events.
    pub enabled: bool,
}

impl Default for EventConfig {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// The log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LogConfig {
    /// One JSON object per line, or lines for people.
    pub format: LogFormat,
    /// What is logged, such as `info` or `info,moorline=debug`.
    pub filter: String,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Json, filter: "info".to_owned() }
    }
}

/// The form of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object per line.
    #[default]
    Json,
}
