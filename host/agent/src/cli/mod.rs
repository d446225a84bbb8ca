//! The command line: what can be asked of `moorline`, and what its exit code says. Each command is a module; nothing here
//! knows how an agent works.

mod cleanup;
pub mod config;
mod policy;
mod replay;
mod run;

use std::io::{self, IsTerminal as _, Write};

use clap::{Parser, Subcommand};
use moorline_lifecycle::ExitCode;

use crate::config::LogConfig;
use crate::dataplane::Choice;
use crate::simulate::SimulateCommand;
pub use cleanup::CleanupCommand;
pub use policy::PolicyCommand;
pub use replay::ReplayCommand;
pub use run::RunCommand;

/// The agent that moors a Kubernetes Node to its Site.
///
/// Exit codes: 0 ended as asked; 1 something else; 2 the configuration, an argument or a file is wrong; 3 the environment
/// is wrong (no credentials, someone else's Pod, no place for files); 10 the assignment changed; 11 the Node was deleted.
#[derive(Debug, Parser)]
#[command(name = "moorline", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(RunCommand),
    Simulate(SimulateCommand),
    Replay(ReplayCommand),
    Cleanup(CleanupCommand),
    #[command(subcommand)]
    Policy(PolicyCommand),
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Compile one policy and end: what `run` starts for each module that it compiles.
    #[command(name = COMPILE, hide = true)]
    Compile,
}

/// The command of the process that compiles.
const COMPILE: &str = "compile-child";

impl Cli {
    /// Whether this process is the one that compiles, for [`moorline_policy::compile_child`].
    #[must_use]
    pub fn compiles(&self) -> bool {
        matches!(self.command, Command::Compile)
    }

    /// Does what was asked. `log` sets up the log, as the configuration of `run` wants it; `data_plane` makes what puts
    /// assignments into effect and undoes them.
    pub fn run(self, log: impl FnOnce(&LogConfig) -> Result<(), String>, data_plane: Choice) -> ExitCode {
        let (mut out, mut err) = (io::stdout().lock(), io::stderr());
        let done = match self.command {
            Command::Run(command) => command.run(config::environment(), log, data_plane, &mut err),
            Command::Simulate(command) => command.run(run::launcher, out.is_terminal(), &mut out, &mut err),
            Command::Replay(command) => command.run(&mut out, &mut err),
            Command::Cleanup(command) => command.run(config::environment(), data_plane, &mut out, &mut err),
            Command::Policy(command) => command.run(&mut out, &mut err),
            Command::Config(command) => command.run(config::environment(), &mut out, &mut err),
            Command::Compile => Ok(ExitCode::Failed),
        };
        match done.and_then(|code| out.flush().map(|()| code)) {
            Ok(code) => code,
            // Whoever reads has had enough, as `head` does.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::Failed,
            Err(error) => {
                // Nothing is left to tell it to.
                let _ = writeln!(err, "The output can't be written: {error}.");
                ExitCode::Failed
            }
        }
    }
}
