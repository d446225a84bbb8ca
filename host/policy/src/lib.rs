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
pub use store::{Level, Logs};
