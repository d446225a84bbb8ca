//! The runner, held to what it promises, with an agent that is a few lines long.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

#[path = "scenarios/mistakes.rs"]
mod mistakes;
#[path = "scenarios/runs.rs"]
mod runs;
#[path = "scenarios/toy.rs"]
mod toy;
