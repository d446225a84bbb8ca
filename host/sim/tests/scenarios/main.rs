//! The runner, held to what it promises, with an agent that is a few lines long.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

mod mistakes;
mod runs;
mod toy;
