//! Moorline with a data plane of its own, and everything else as it is: `cargo run -p embed-agent -- run`.

use std::process::ExitCode;

use clap::Parser as _;
use embed_agent::DesiredFile;
use moorline::{cli::Cli, config::LogConfig};

fn main() -> ExitCode {
    let cli = Cli::parse();
    // The agent starts this program anew to compile a policy.
    if cli.compiles() {
        return moorline_policy::compile_child();
    }
    ExitCode::from(cli.run(log, DesiredFile::choose).number())
}

fn log(config: &LogConfig) -> Result<(), String> {
    let filter = tracing_subscriber::EnvFilter::try_new(&config.filter)
        .map_err(|error| format!("`log.filter` can't be used: {error}."))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init()
        .map_err(|error| format!("The log can't be set up: {error}."))
}
