//! Everything that is known to go wrong around an agent, on the real agent: kinds of faults by what they are about, a
//! process killed at every step, a power cut at every step, SIGTERM and SIGKILL in every state.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

mod cni_files;
#[path = "../../../policy/tests/guests/mod.rs"]
mod guests;
mod hostile;
mod kill;
mod kinds;
mod policies;
mod power_cut;
#[path = "../agent/stage.rs"]
#[allow(dead_code, reason = "shared with the other tests of the agent, which use the rest")]
mod stage;
mod starts;
mod startup;
mod states;
mod taints_and_labels;
mod watches_and_requests;
mod world;
