//! The command line of `moorline simulate`: which scenarios, how their reports are printed, and what the exit code says.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use moorline_lifecycle::ExitCode;
use moorline_sim::scenario::{self, Document, Loaded, Shown};

use super::Launcher;
use super::progress::Progress;
use crate::trace::Recorder;

/// Run scenarios: the real agent and real policies against an embedded API server, in virtual time.
///
/// Ends with 0 when every expectation holds, with 1 when one fails, and with 2 when a scenario can't be run.
#[derive(Debug, Clone, Args)]
pub struct SimulateCommand {
    /// Scenario files, or folders that hold some.
    #[arg(value_name = "SCENARIO", required_unless_present = "schema")]
    pub scenarios: Vec<PathBuf>,
    /// How the reports are printed.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Append a trace of every process to this file: what `moorline replay` reads.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Print the JSON Schema of what `--format json` prints, and run nothing.
    #[arg(long)]
    pub schema: bool,
}

/// How reports are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON document.
    Json,
}

impl SimulateCommand {
    /// Runs the scenarios: reports to `out`, in colours where `colours`, problems to `err`. `launcher` is called once
    /// every scenario has been read.
    ///
    /// # Errors
    /// Where one of the two can't be written.
    pub fn run(
        &self,
        launcher: impl FnOnce() -> Result<Launcher, String>,
        colours: bool,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> io::Result<ExitCode> {
        if self.schema {
            writeln!(out, "{:#}", Document::schema().as_value())?;
            return Ok(ExitCode::Asked);
        }
        let loaded = match self.load() {
            Ok(loaded) => loaded,
            Err(problem) => {
                writeln!(err, "{problem}")?;
                return Ok(ExitCode::Configuration);
            }
        };
        let progress = Progress::new();
        progress.doing("Loading the default policy");
        // A module is compiled once for all processes of all scenarios.
        let cache = tempfile::tempdir()?;
        let mut launcher = match launcher() {
            Ok(launcher) => launcher.with_cache(cache.path()),
            Err(problem) => {
                writeln!(err, "{problem}")?;
                return Ok(ExitCode::Failed);
            }
        };
        if let Some(path) = &self.record {
            match Recorder::append(path) {
                Ok(recorder) => launcher.journal = Some(Arc::new(recorder)),
                Err(error) => {
                    writeln!(err, "The trace {} can't be written: {error}.", path.display())?;
                    return Ok(ExitCode::Configuration);
                }
            }
        }
        for scenario in &loaded {
            if let Err(problems) = launcher.check(scenario) {
                problems.iter().try_for_each(|problem| writeln!(err, "{problem}"))?;
                return Ok(ExitCode::Configuration);
            }
        }
        let mut reports = Vec::new();
        for (index, scenario) in loaded.iter().enumerate() {
            progress.doing(format!("Running {} ({} of {})", scenario.scenario.name, index + 1, loaded.len()));
            let report = match scenario::run(scenario, &launcher) {
                Ok(report) => report,
                Err(error) => {
                    writeln!(err, "{error}")?;
                    return Ok(ExitCode::Failed);
                }
            };
            if self.format == Format::Text {
                if index > 0 {
                    writeln!(out)?;
                }
                write!(out, "{}", Shown { report: &report, colours })?;
            }
            reports.push(report);
        }
        drop(progress);
        let document = Document::new(reports);
        match self.format {
            Format::Json => {
                serde_json::to_writer_pretty(&mut *out, &document)?;
                writeln!(out)?;
            }
            Format::Text if document.scenarios.len() > 1 => summary(&document, out)?,
            Format::Text => {}
        }
        Ok(if document.passed { ExitCode::Asked } else { ExitCode::Failed })
    }

    fn load(&self) -> Result<Vec<Loaded>, scenario::LoadError> {
        let mut loaded = Vec::new();
        for path in &self.scenarios {
            for file in scenario::find(path)? {
                loaded.push(scenario::load(&file)?);
            }
        }
        Ok(loaded)
    }
}

fn summary(document: &Document, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    for report in &document.scenarios {
        let mark = if report.passed { "✓" } else { "✗" };
        writeln!(out, "{mark} {} ({:.2} s)", report.name, report.real_time.as_secs_f64())?;
    }
    let failed = document.scenarios.iter().filter(|report| !report.passed).count();
    writeln!(out, "{} scenarios, {failed} failed", document.scenarios.len())
}
