//! `moorline replay`: a recorded life lived again, step by step, without cluster, policies or machine.

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::PathBuf;

use clap::Args;
use moorline_lifecycle::{Action, ExitCode};

use crate::chain;
use crate::trace::{Replayed, replay};

/// Replay traces that `moorline run --record` wrote, and check that the same events lead to the same actions.
///
/// Prints the story with its times. Exits with 1 where the life now wants something else than it did.
#[derive(Debug, Args)]
pub struct ReplayCommand {
    /// The traces.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print every event and every action, not only what the life notes.
    #[arg(long)]
    pub all: bool,
}

impl ReplayCommand {
    /// Replays each trace.
    ///
    /// # Errors
    /// Where the output can't be written.
    pub fn run(&self, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        let mut code = ExitCode::Asked;
        for path in &self.files {
            let trace = match File::open(path) {
                Ok(file) => BufReader::new(file),
                Err(error) => {
                    writeln!(err, "The trace {} can't be opened: {error}.", path.display())?;
                    code = ExitCode::Configuration;
                    continue;
                }
            };
            let (mut lives, mut events, mut actions) = (0_usize, 0_usize, 0_usize);
            let mut written = Ok(());
            let replayed = replay(trace, |told| {
                match told {
                    Replayed::Born => lives += 1,
                    Replayed::Step(_, _, wanted) => {
                        events += 1;
                        actions += wanted.len();
                    }
                }
                if written.is_ok() {
                    written = self.print(told, out);
                }
            });
            written?;
            match replayed {
                Ok(()) => writeln!(
                    out,
                    "{}: lives: {lives}, events: {events}, actions: {actions}, all the same as recorded.",
                    path.display()
                )?,
                Err(error) => {
                    writeln!(err, "{}: {}.", path.display(), chain(&error))?;
                    code = ExitCode::Failed;
                }
            }
        }
        Ok(code)
    }

    fn print(&self, told: Replayed<'_>, out: &mut dyn Write) -> io::Result<()> {
        let Replayed::Step(at, event, actions) = told else { return writeln!(out, "A life begins.") };
        let seconds = at.as_secs_f64();
        if self.all {
            writeln!(out, "{seconds:>12.3} s  > {event:?}")?;
        }
        for action in actions {
            match action {
                Action::Note(note) => writeln!(out, "{seconds:>12.3} s  {note}")?,
                Action::Exit(exit) => {
                    writeln!(out, "{seconds:>12.3} s  Ends with {}: {}", exit.code.number(), exit.reason)?;
                }
                action if self.all => writeln!(out, "{seconds:>12.3} s  < {action:?}")?,
                _ => {}
            }
        }
        Ok(())
    }
}
