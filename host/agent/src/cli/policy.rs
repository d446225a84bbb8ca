//! `moorline policy check`: what a host finds in a component, and what it would refuse. Nothing is started or written.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use moorline_lifecycle::ExitCode;
use moorline_policy::{Engine, EngineConfig, Loader, Policy};

use crate::chain;

/// For the authors of policies.
#[derive(Debug, Clone, Subcommand)]
pub enum PolicyCommand {
    /// Look a component over as the agent does when it loads it. Ends with 2 when the agent would refuse it.
    Check(CheckCommand),
}

/// See [`PolicyCommand::Check`].
#[derive(Debug, Clone, Args)]
pub struct CheckCommand {
    /// The component, such as policy.wasm.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Settings as JSON, to have them checked for every hook that the policy answers.
    #[arg(long, value_name = "JSON")]
    pub settings: Option<String>,
}

impl PolicyCommand {
    /// Runs it: what was found to `out`, what is refused to `err`.
    ///
    /// # Errors
    /// Where one of the two can't be written.
    pub fn run(&self, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        let Self::Check(command) = self;
        let engine = match Engine::new(&EngineConfig::default()) {
            Ok(engine) => engine,
            Err(error) => {
                writeln!(err, "{}", chain(&error))?;
                return Ok(ExitCode::Failed);
            }
        };
        let name = command.file.file_stem().map_or_else(|| "policy".into(), |stem| stem.to_string_lossy());
        match Loader::new(&engine).load_file(&name, &command.file, None) {
            Ok(policy) => command.report(&policy, out, err),
            Err(error) => {
                writeln!(err, "{error}")?;
                Ok(ExitCode::Configuration)
            }
        }
    }
}

impl CheckCommand {
    fn report(&self, policy: &Policy, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        let description = policy.describe();
        writeln!(out, "{} {}: {}", description.name, description.version, description.summary)?;
        writeln!(out, "file      {} ({} bytes)", self.file.display(), std::fs::metadata(&self.file)?.len())?;
        writeln!(out, "digest    {}", policy.digest())?;
        for hook in policy.hooks() {
            writeln!(out, "answers   {:<14}  {}", hook.name, hook.interface)?;
        }
        // Anything else was refused above.
        writeln!(out, "imports   nothing but logging")?;
        match &description.settings_schema {
            Some(schema) => writeln!(out, "settings  {}", one_line(schema))?,
            None => writeln!(out, "settings  no schema")?,
        }
        let mut problems = 0;
        if let Some(settings) = &self.settings {
            for hook in policy.hooks() {
                problems += dislikes(policy, hook.name, settings, err)?;
            }
        }
        if problems > 0 {
            return Ok(ExitCode::Configuration);
        }
        writeln!(out, "The agent takes it.")?;
        Ok(ExitCode::Asked)
    }
}

/// Writes what the policy dislikes in settings, and how much that is.
fn dislikes(policy: &Policy, hook: &str, settings: &str, err: &mut dyn Write) -> io::Result<usize> {
    if let Err(error) = serde_json::from_str::<serde_json::Value>(settings) {
        writeln!(err, "--settings: this is not JSON: {error}.")?;
        return Ok(1);
    }
    match policy.validate_settings(hook, settings) {
        Ok(errors) => {
            for error in &errors {
                writeln!(err, "--settings, for the hook {hook}: {}: {}", error.path, error.message)?;
            }
            Ok(errors.len())
        }
        Err(error) => {
            writeln!(err, "{error}")?;
            Ok(1)
        }
    }
}

fn one_line(schema: &str) -> String {
    serde_json::from_str::<serde_json::Value>(schema)
        .map_or_else(|_| "a schema that is not JSON".into(), |json| json.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

    use std::path::Path;

    use super::*;

    /// Exit code, output, errors.
    fn check(file: &Path, settings: Option<&str>) -> (u8, String, String) {
        let command = CheckCommand { file: file.to_owned(), settings: settings.map(str::to_owned) };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = PolicyCommand::Check(command).run(&mut out, &mut err).unwrap();
        (code.number(), String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn the_default_policy_is_taken_and_answers_all_six_hooks() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("default.wasm");
        std::fs::write(&file, crate::DEFAULT_POLICY).unwrap();
        let (code, out, err) = check(&file, Some("{}"));
        assert_eq!((code, err.as_str()), (0, ""));
        for hook in ["adoption", "drift", "retry", "taints", "cni", "acknowledgment"] {
            assert!(out.contains(&format!("answers   {hook}")), "{out}");
        }
        let (code, _, err) = check(&file, Some("{\"no-such-setting\": 1}"));
        assert_eq!(code, 2);
        assert!(err.contains("no-such-setting"), "{err}");
    }

    #[test]
    fn a_file_that_is_no_component_gets_one_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("notes.txt");
        for content in ["these are notes", "", "\0asm\x01\0\0\0"] {
            std::fs::write(&file, content).unwrap();
            let (code, out, err) = check(&file, None);
            assert_eq!((code, out.as_str()), (2, ""));
            assert_eq!(err.lines().count(), 1, "{err}");
            assert!(err.contains(file.to_str().unwrap()), "{err}");
        }
        let (code, _, err) = check(&folder.path().join("absent.wasm"), None);
        assert_eq!(code, 2);
        assert!(err.contains("absent.wasm"), "{err}");
    }
}
