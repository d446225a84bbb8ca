//! The binary `moorline`.

mod log;

use std::process::ExitCode;

use clap::Parser as _;
use moorline::cli::Cli;

fn main() -> ExitCode {
    ExitCode::from(Cli::parse().run(log::install).number())
}
