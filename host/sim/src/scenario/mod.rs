//! Scenarios: a YAML file says what there is, what happens and what has to come of it; the runner starts a real agent
//! against the embedded API server in virtual time and judges the run. It knows nothing of the agent but [`Launcher`].
//!
//! The same scenario with the same seed gives the same timeline every time.

mod act;
mod check;
mod check_format;
mod describe;
mod expectation;
mod format;
mod kubelet;
mod launcher;
mod load;
mod machine;
mod pattern;
mod report;
mod requests;
mod run;
mod step;
mod text;
mod time;
mod timeline;
mod wire;

pub use expectation::{
    AcknowledgmentCheck, AssignmentCheck, EntriesCheck, Expectation, FileCheck, FolderCheck, Phase, ReadyzCheck,
    RequestsCheck, TaintsCheck, VerdictsCheck,
};
pub use format::{AgentSpec, KubeletSpec, MachineSpec, PodSpec, PoliciesSpec, Scenario};
pub use launcher::{Ended, Launch, Launcher, PodIdentity, Process, Readiness};
pub use load::{LoadError, Loaded, find, load};
pub use pattern::{Count, EntryPattern, ObjectCheck, ObjectRef, RequestPattern, Turn};
pub use report::{Document, ExpectationResult, Report, RequestRow, VerdictRow};
pub use run::{RunError, run};
pub use step::{
    AdmissionStep, AgentStep, ClosingStep, Condition, FaultStep, FaultTarget, FileStep, LabelStep, Lost, Nothing,
    PatchStep, StatusFault, Step, StreamEnd, StreamFault, TaintStep,
};
pub use text::Shown;
pub use time::Time;
pub use timeline::{Journal, PolicyCall, Source, TimelineEntry};
