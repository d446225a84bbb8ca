//! The binary `moorline`.

mod log;

use std::process::ExitCode;

use clap::Parser as _;
use moorline::{cli::Cli, dataplane};

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.compiles() {
        return moorline_policy::compile_child();
    }
    ExitCode::from(cli.run(log::install, dataplane::from_config).number())
}
