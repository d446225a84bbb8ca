//! Tables that compare: the host with interpreters and with native code, its ways of allocating memory, and an agent that
//! starts with a cold cache with one that starts with a warm one. Each number comes from this machine, in this run.

mod agent;
mod table;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

/// Measures the policy host and the agent.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Ratios of the drift verdict: everyone in turn, again and again, in one run.
    Table {
        /// A tenth of the rounds: whether it works, and roughly what comes out.
        #[arg(long)]
        quick: bool,
    },
    /// Where the time of our own calls goes.
    Phases,
    /// Resident memory of an agent that has settled, and the time that it took to start: with nothing compiled yet, and with
    /// everything compiled.
    Agent {
        /// The agent's binary; `cargo build --profile dist --bin moorline` makes one as in images.
        #[arg(value_name = "BINARY")]
        binary: PathBuf,
        /// Pairs of starts.
        #[arg(long, value_name = "N", default_value_t = 10)]
        starts: usize,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().what {
        What::Table { quick } => table::table(quick),
        What::Phases => table::phases(),
        What::Agent { binary, starts } => agent::measure(&binary, starts),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
