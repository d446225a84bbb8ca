//! The configuration: defaults, then the YAML file, then `MOORLINE_*` variables, then flags. It is read and checked
//! whole, so that every problem is told at once. Nothing here changes anything, and no variable is read behind the
//! caller's back: the environment is passed in.

mod model;
mod value;

pub use model::{
    ClusterConfig, CniFloorConfig, Config, DataPlaneConfig, DataPlaneKind, DeadlineConfig, EventConfig, FloorConfig,
    Grant, HealthConfig, LimitOverrides, LogConfig, LogFormat, MachineConfig, NodeConfig, PeriodRange, PodConfig,
    PolicyConfig, PolicyLimits, ReloadMode, Takeover, WasiGrant,
};
pub use value::{ApiVersion, Period, Size};
