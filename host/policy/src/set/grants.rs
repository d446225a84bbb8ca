//! What a binding may do beyond the usual. Grants come from the embedder's own configuration, never from the policy folder.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{Digest, LimitOverrides};

/// What a module may import beside the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wasi {
    /// Nothing.
    #[default]
    None,
    /// WASI 0.2 with nothing in it, for guests whose toolchain can't do without: no files, arguments, environment or network,
    /// a clock that stands still, randomness that is the same in every call.
    Isolated,
}

/// What the operator trusts one binding with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Grants {
    /// Only the module with this digest has the grant, whatever else the binding names. The module has to be pinned by the
    /// same digest in `policies.yaml`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
    /// Its `same` counts although the projection changed. What that means is up to whoever asks the hook.
    pub may_tolerate: bool,
    /// Its module may import WASI.
    pub wasi: Wasi,
    /// What else it may do, in words that mean something to whoever asks the hook.
    pub permits: BTreeSet<String>,
    /// Limits that differ from the usual ones.
    pub limits: LimitOverrides,
}
