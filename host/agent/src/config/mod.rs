//! The configuration: defaults, then the YAML file, then `MOORLINE_*` variables, then flags. It is read and checked
//! whole, so that every problem is told at once. Nothing here changes anything, and no variable is read behind the
//! caller's back: the environment is passed in.

mod check;
mod explain;
mod load;
mod model;
mod network;
mod problem;
mod show;
mod value;
mod yaml;

pub(crate) use check::is_interface_name;
pub use load::{FILE_VARIABLE, Flag, Loaded, Sources, load};
pub use model::{
    ClusterConfig, CniFloorConfig, Config, DataPlaneConfig, DataPlaneKind, DeadlineConfig, EventConfig, FloorConfig,
    Grant, HealthConfig, LimitOverrides, LogConfig, LogFormat, MachineConfig, NodeConfig, PeriodRange, PodConfig,
    PolicyConfig, PolicyLimits, PolicyLogLevel, PolicyMode, Takeover, WasiGrant,
};
pub use network::{IpFamily, LegacyConfig, LegacyLink, LegacyRoute, LegacyRule, NetworkConfig};
pub use problem::{Origin, Problem, Problems};
pub use show::{Entry, schema};
pub use value::{ApiVersion, Period, Size};

#[cfg(test)]
mod tests;
