//! A host for policies: WebAssembly components that answer questions, one call at a time, and can do nothing else.
//!
//! A *hook* is one kind of question, and a type that implements [`Hook`]. A *policy* is a component that answers hooks; a
//! [`Loader`] checks and compiles it. A *binding* says which policy, with which settings, is asked a hook, and a [`PolicySet`]
//! asks them in order. What a verdict is good for is decided by whoever asks.
//!
//! What a policy may use is in [`Limits`], and a call that breaks one ends in an error that names it; the next call is not
//! concerned, since each has an instance of its own. A policy sees its input and its settings, no clock, no randomness, no
//! files and no network: the same call gives the same verdict and uses the same fuel on every machine.
//!
//! This crate never talks to a cluster or a network, starts no runtime, and takes no global state. All of it is `Send + Sync`;
//! calls block for as long as their deadline allows, so make them on a thread that may wait.
//!
//! # An embedder's own hook
//!
//! The six hooks of the Moorline agent are in [`hooks`]. This one belongs to somebody else, with a WIT package of its own:
//!
//! ```
//! use moorline_policy::{Engine, EngineConfig, Hook, Hooks, Loader, Reply};
//! use serde::{Deserialize, Serialize};
//! use wasmtime::component::{ComponentType, Lift, Lower};
//!
//! /// May this valve stay open?
//! struct Flow;
//!
//! #[derive(Clone, Debug, Serialize, Deserialize, ComponentType, Lower)]
//! #[component(record)]
//! struct Reading {
//!     valve: String,
//!     litres: u32,
//! }
//!
//! #[derive(Clone, Debug, PartialEq, Serialize, ComponentType, Lift)]
//! #[component(record)]
//! struct Judgement {
//!     open: bool,
//!     reason: String,
//! }
//!
//! impl Hook for Flow {
//!     const NAME: &'static str = "flow";
//!     const INTERFACE: &'static str = "acme:valves/flow@1.0.0";
//!     const FUNCTION: &'static str = "judge";
//!     type Input = Reading;
//!     type Verdict = Judgement;
//!
//!     fn reason(judgement: &Judgement) -> &str {
//!         &judgement.reason
//!     }
//!
//!     fn sample() -> Reading {
//!         Reading { valve: "inlet".into(), litres: 7 }
//!     }
//! }
//!
//! # let component = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/embed-host/policies/valves.wasm"));
//! let engine = Engine::new(&EngineConfig::default())?;
//! let loader = Loader::new(&engine).with_hooks(Hooks::none().with::<Flow>());
//! let policy = loader.load("valves", component)?;
//!
//! let outcome = policy.call::<Flow>(&Reading { valve: "inlet".into(), litres: 120 }, "{}");
//! let closed = Judgement { open: false, reason: "100 litres or more".into() };
//! assert_eq!(outcome.result, Ok(Reply::Verdict(closed)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(missing_docs)]

mod attempt;
mod cache;
mod child;
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
mod unpack;
mod wasi;

pub use cache::{CacheError, CompileCache};
pub use child::{ChildProcess, compile_child};
pub use compile::{Artefact, CompileError, Compiler, InProcess, Job};
pub use digest::{Digest, NotADigest};
pub use engine::{Allocation, Engine, EngineConfig, EngineError, Pool};
pub use error::{CallError, CallFault, LoadError, LoadFault};
pub use hook::{Hook, Hooks, KnownHook, OnFailure, Rules};
pub use limits::{LimitOverrides, Limits};
pub use loader::Loader;
pub use policy::{CallOutcome, Description, Policy, Reply, SettingError};
pub use record::{CallRecord, Observer, Recorded, RecordedOutcome};
pub use set::{
    Answer, Asked, Binding, BindingStatus, DEFAULT, Decision, Grants, PolicySet, Problem, ReloadError, Reloader,
    SetError, SetOptions, Trouble, TroubleCause, Wasi,
};
pub use store::{Level, Logs};
