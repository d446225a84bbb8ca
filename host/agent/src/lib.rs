//! Placeholder.

pub mod config;
pub mod machine;
