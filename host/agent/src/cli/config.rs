//! `moorline config show|check|schema`: what the configuration comes to, what is wrong with it, what it may say. Nothing
//! is started, written or asked.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use moorline_lifecycle::ExitCode;

use crate::config::{self, FILE_VARIABLE, Flag, Sources};
use crate::machine::memory;

/// The file that is read where none is named, if it is there.
pub const USUAL_FILE: &str = "/etc/moorline/config.yaml";

/// The flags of every command that reads the configuration.
#[derive(Debug, Clone, Default, Args)]
pub struct ConfigFlags {
    /// The configuration file. Without it, /etc/moorline/config.yaml is read if it is there.
    #[arg(long, value_name = "FILE", env = FILE_VARIABLE)]
    pub config: Option<PathBuf>,
    /// Set one key, such as `--set log.filter=debug`; it wins over file and environment. May be given more than once.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    pub set: Vec<(String, String)>,
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it like `--set log.filter=debug`")?;
    Ok((key.trim().to_owned(), value.to_owned()))
}

impl ConfigFlags {
    /// The sources of the configuration, with this environment.
    pub fn sources(&self, environment: Vec<(String, String)>) -> Sources {
        let flags = self.set.iter().map(|(key, value)| Flag {
            name: format!("--set {key}"),
            key: key.clone(),
            value: value.clone(),
        });
        Sources {
            file: Some(self.config.clone().unwrap_or_else(|| USUAL_FILE.into())),
            file_may_be_absent: self.config.is_none(),
            environment,
            flags: flags.collect(),
        }
    }
}

/// The environment of this process. What isn't Unicode is shown as far as it is.
pub fn environment() -> Vec<(String, String)> {
    let lossy = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    std::env::vars_os().map(|(name, value)| (lossy(name), lossy(value))).collect()
}

/// Look at the configuration without starting the agent.
#[derive(Debug, Clone, Subcommand)]
pub enum ConfigCommand {
    /// Print every key with its value, and where that comes from.
    Show(Chosen),
    /// List everything that is wrong, at once. Ends with 2 when there is something.
    Check(Chosen),
    /// Print the JSON Schema of the configuration file.
    Schema,
}

/// Which configuration is meant.
#[derive(Debug, Clone, Default, Args)]
pub struct Chosen {
    /// The configuration file, instead of --config.
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The flags of every command.
    #[command(flatten)]
    pub flags: ConfigFlags,
}

impl Chosen {
    fn sources(&self, environment: Vec<(String, String)>) -> Sources {
        let Self { file, flags } = self;
        let config = file.clone().or_else(|| flags.config.clone());
        ConfigFlags { config, set: flags.set.clone() }.sources(environment)
    }
}

impl ConfigCommand {
    /// Runs it: the result to `out`, problems to `err`.
    ///
    /// # Errors
    /// Where one of the two can't be written.
    pub fn run(
        &self,
        environment: Vec<(String, String)>,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> io::Result<ExitCode> {
        let chosen = match self {
            Self::Schema => {
                writeln!(out, "{:#}", config::schema())?;
                return Ok(ExitCode::Asked);
            }
            Self::Show(chosen) | Self::Check(chosen) => chosen,
        };
        match (config::load(&chosen.sources(environment)), self) {
            (Err(problems), _) => {
                writeln!(err, "{problems}")?;
                Ok(ExitCode::Configuration)
            }
            (Ok(loaded), Self::Show(_)) => {
                write!(out, "{}", loaded.show())?;
                Ok(ExitCode::Asked)
            }
            (Ok(loaded), _) => {
                writeln!(out, "The configuration is good.")?;
                // Not an error: the check may run elsewhere than the agent will.
                let limit = memory::limit(Path::new(memory::CGROUP));
                if let Some(warning) = limit.and_then(|limit| memory::no_room(&loaded.config, limit)) {
                    writeln!(err, "Warning: {warning}")?;
                }
                Ok(ExitCode::Asked)
            }
        }
    }
}

#[cfg(test)]
mod tests;
