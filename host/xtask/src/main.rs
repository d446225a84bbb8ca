//! Tasks of this workspace that cargo alone can't do: `cargo xtask test`, `cargo xtask broken`, `cargo xtask policies build`
//! and `… check`. It writes nothing but the committed components, their checksums, and what is below the target folder.

mod broken;
mod component;
mod error;
mod policies;
mod tests;
mod toolchain;

use std::{path::Path, process::ExitCode};

use clap::{Parser, Subcommand};

/// Tasks of the Moorline workspace.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// The policy components that are committed beside their sources.
    #[command(subcommand)]
    Policies(Policies),
    /// Break rules of the agent on purpose, in a copy, and see that a test notices each.
    Broken {
        /// The rules, by name; without any, all of them.
        rules: Vec<String>,
    },
    /// Run every suite of this repository and end with a count.
    Test {
        /// Fail where a suite is skipped because something is missing.
        #[arg(long)]
        deny_skips: bool,
    },
}

#[derive(Subcommand)]
enum Policies {
    /// Build every Rust policy and write its component and checksum.
    Build,
    /// Build every Rust policy into a temporary folder and compare it with what is committed.
    Check,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // `host/xtask` is two levels below the workspace.
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("."));
    let done = match arguments.task {
        Task::Policies(Policies::Build) => policies::build(workspace),
        Task::Policies(Policies::Check) => policies::check(workspace),
        Task::Broken { rules } => broken::run(workspace, &rules),
        Task::Test { deny_skips } => tests::run(workspace, deny_skips),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                eprintln!("  because: {cause}");
                source = cause.source();
            }
            ExitCode::FAILURE
        }
    }
}
