//! A scenario as its author writes it: what there is at first, what happens, and what has to come of it. Data only.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::Spanned;

use super::expectation::Expectation;
use super::step::Step;
use super::time::Time;

/// A scenario.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scenario {
    /// A short name, such as the file's.
    pub name: String,
    /// What it shows, in a sentence or two.
    pub description: String,
    /// Whatever is drawn by lot in a run is drawn from this: the same scenario runs the same way every time.
    #[serde(default)]
    pub seed: u64,
    /// What the clock on the wall shows at the start.
    #[serde(default = "default_start")]
    pub start: Timestamp,
    /// When the run ends, in virtual time.
    #[serde(default = "default_end")]
    pub end: Time,
    /// How long every request takes on its way.
    #[serde(default = "default_latency")]
    pub latency: Time,
    /// How the agent's container is restarted.
    #[serde(default)]
    pub kubelet: KubeletSpec,
    /// Files with objects, from the scenario's own folder.
    #[serde(default)]
    pub files: Vec<Spanned<PathBuf>>,
    /// Objects that there are at first, as `kubectl get -o yaml` prints them.
    #[serde(default)]
    pub objects: Vec<Spanned<Value>>,
    /// The agent.
    pub agent: AgentSpec,
    /// The machine that it runs on.
    #[serde(default)]
    pub machine: MachineSpec,
    /// What happens.
    #[serde(default)]
    pub steps: Vec<Spanned<Step>>,
    /// What has to come of it.
    pub expect: Vec<Spanned<Expectation>>,
}

fn default_start() -> Timestamp {
    crate::server::Options::default().started
}

fn default_end() -> Time {
    Time::from_secs(600)
}

fn default_latency() -> Time {
    Time(std::time::Duration::from_millis(2))
}

/// How the agent's container is restarted: at once the first time, then after a wait that doubles.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct KubeletSpec {
    /// The wait before the second restart.
    pub backoff: Time,
    /// The longest wait.
    pub longest: Time,
    /// After a container has run for so long, the next restart is the first again.
    pub forget: Time,
}

impl Default for KubeletSpec {
    fn default() -> Self {
        Self { backoff: Time::from_secs(10), longest: Time::from_secs(300), forget: Time::from_secs(600) }
    }
}

/// The agent.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentSpec {
    /// The Node that it runs on.
    pub node: String,
    /// The Pod that it runs in, which is one of the objects.
    pub pod: PodSpec,
    /// Its configuration, as far as it isn't the default. `${scenario}` stands for the folder of the scenario's file,
    /// `${machine}` for the machine's root folder.
    #[serde(default)]
    pub config: Value,
    /// Its policy volume; without one the default policy answers every hook.
    pub policies: Option<Spanned<PoliciesSpec>>,
}

/// A Pod by name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodSpec {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// A policy volume: a folder as it is, or one that is put together. Paths are from the scenario's own folder.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoliciesSpec {
    /// The folder.
    pub path: Option<PathBuf>,
    /// What `policies.yaml` says.
    pub inline: Option<Value>,
    /// The modules beside it: the file in the volume, and where it comes from.
    #[serde(default)]
    pub modules: BTreeMap<String, PathBuf>,
    /// The agent may refuse some of them: that is what the scenario is about.
    #[serde(default)]
    pub may_be_refused: bool,
}

/// The machine.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct MachineSpec {
    /// The files on it at first, by their path from its root folder.
    pub files: BTreeMap<PathBuf, String>,
}
