//! The six hooks of the Moorline agent, as types: what each one is asked, what it may answer.
//! They mirror `wit/policy.wit` field by field and are checked against a component's own types at load. They decide nothing:
//! floors and effects belong to whoever asks.
//!
//! Each is an ordinary [`Hook`](crate::Hook); an embedder's own hooks are written the same way.

mod acknowledgment;
mod adoption;
mod cni;
mod drift;
mod retry;
mod taints;
mod types;

pub use acknowledgment::{Acknowledgment, AcknowledgmentSubject, AcknowledgmentVerdict};
pub use adoption::{Adoption, AdoptionVerdict, Assigned};
pub use cni::{Cni, CniSubject, CniVerdict, ManagedConfiguration};
pub use drift::{Drift, DriftVerdict, Observation};
pub use retry::{Attempt, Pause, Retry, RetryVerdict};
pub use taints::{Removal, Taints, TaintsSubject, TaintsVerdict};
pub(crate) use types::cut;
pub use types::{Assignment, Entry, Node, Pool, Site, Taint};
