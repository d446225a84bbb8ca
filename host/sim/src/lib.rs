//! Placeholder.

pub mod server;
