//! The marks by which the agent knows links, routes and rules of its own. They are given, never guessed: a name or a prefix
//! is no mark.

use moorline_lifecycle::Assignment;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::config::NetworkConfig;

/// So many hexadecimal digits of the assignment's digest stand in an alias.
const DIGITS: usize = 32;

/// The marks that everything has to carry which a data plane lists as its `network`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Marks {
    /// The protocol number of every route and rule (`ip route add … proto 158`, `ip rule add … protocol 158`).
    pub route_protocol: u8,
    /// The alias of every link (`ip link set … alias moorline:…`). Each assignment has its own.
    pub link_alias: String,
}

impl Marks {
    /// The marks of an assignment.
    pub fn new(config: &NetworkConfig, assignment: &Assignment) -> Self {
        // Quoted and in order, so that no two assignments come to the same text.
        let text = serde_json::json!([assignment.node_uid, assignment.site, assignment.pool]);
        let digest = Sha256::digest(text.to_string());
        let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).take(DIGITS / 2).collect();
        Self { route_protocol: config.route_protocol, link_alias: format!("{}:{digits}", config.link_alias) }
    }
}

/// Whether an alias has the form that [`Marks::new`] gives it, for whatever assignment.
pub(super) fn is_own_alias(prefix: &str, alias: &str) -> bool {
    let digits = alias.strip_prefix(prefix).and_then(|rest| rest.strip_prefix(':'));
    digits.is_some_and(|digits| {
        digits.len() == DIGITS && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}
