//! The agent's parts and the agent as a whole against the embedded API server, over a real kube client, in virtual time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

mod binary;
mod cluster;
mod connect;
mod driver;
#[path = "../../../policy/tests/guests/mod.rs"]
mod guests;
mod observe;
mod stage;
