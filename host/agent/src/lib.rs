//! The Moorline agent as a library: effectors around the pure life of `moorline-lifecycle`, and the driver that connects
//! them. It takes no global state: no tracing subscriber, no metrics registry, no signal handler.
#![deny(missing_docs)]

pub mod cli;
pub mod cluster;
pub mod config;
pub mod dataplane;
pub mod driver;
pub mod health;
pub mod journal;
pub mod machine;
pub mod simulate;

/// The default policy, which answers every hook as the documentation says: asked after all others.
pub const DEFAULT_POLICY: &[u8] = include_bytes!("../../../policies/default/default.wasm");

/// An error with all of its causes on one line. Where an error's text repeats that of its cause, it is said once.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
