//! The Moorline agent as a library: effectors around the pure life of `moorline-lifecycle`, and the driver that connects
//! them. It takes no global state: no tracing subscriber, no metrics registry, no signal handler.
#![deny(missing_docs)]

pub mod cluster;
pub mod config;
pub mod dataplane;
pub mod driver;
pub mod health;
pub mod journal;
pub mod machine;
