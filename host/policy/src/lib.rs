//! PLACEHOLDER
#![deny(missing_docs)]

mod attempt;
mod cache;
mod compile;
mod digest;
mod engine;
mod error;
mod hook;
pub mod hooks;
mod inspect;
mod limits;
mod loader;
mod policy;
mod record;
mod set;
mod store;

pub use cache::{CacheError, CompileCache};
pub use compile::{Artefact, Compiler, InProcess};
pub use digest::{Digest, NotADigest};
pub use engine::{Engine, EngineConfig, EngineError};
pub use error::{CallError, CallFault, LoadError, LoadFault};
pub use hook::{Hook, Hooks, KnownHook, OnFailure, Rules};
pub use limits::{LimitOverrides, Limits};
pub use loader::Loader;
pub use policy::{CallOutcome, Description, Policy, Reply, SettingError};
pub use record::{CallRecord, Observer, Recorded, RecordedOutcome};
pub use set::{
    Answer, Asked, Binding, BindingStatus, DEFAULT, Decision, Grants, PolicySet, Problem, SetError, SetOptions, Trouble, TroubleCause,
};
pub use store::{Level, Logs};
