//! The log of the binary: one line per event on standard error, as JSON or for people. The library only says; this listens.

use std::io::IsTerminal as _;

use moorline::config::{LogConfig, LogFormat};
use tracing_subscriber::EnvFilter;

/// Begins to listen, for the whole process.
pub(crate) fn install(config: &LogConfig) -> Result<(), String> {
    let filter = EnvFilter::try_new(&config.filter).map_err(|error| {
        format!("`log.filter` {:?} is no filter such as `info,moorline=debug`: {error}.", config.filter)
    })?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match config.format {
        LogFormat::Json => log.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).try_init(),
    }
    .map_err(|error| format!("The log can't be set up: {error}."))
}
