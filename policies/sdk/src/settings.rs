//! A binding's settings: JSON from the operator, read into the policy's own type, with mistakes named by JSON pointer.
//! Unknown keys are refused by the type itself (`deny_unknown_fields`).

use serde::{Deserialize, de::DeserializeOwned};
use serde_path_to_error::{Path, Segment};

use crate::{PolicyError, SettingError};

/// The settings of one hook.
///
/// Derive `Deserialize` with `#[serde(default, deny_unknown_fields)]`, so that `{}` means the defaults and a typo is refused.
pub trait Settings: DeserializeOwned {
    /// What the types alone can't say: ranges, formats, settings that contradict each other.
    fn check(&self, problems: &mut Problems) {
        let _ = problems;
    }
}

/// For a policy that has nothing to set: only `{}` is valid.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoSettings {}

impl Settings for NoSettings {}

/// The mistakes found in one settings document.
#[derive(Debug, Default)]
pub struct Problems(Vec<SettingError>);

impl Problems {
    /// Adds a mistake. `path` is a JSON pointer (RFC 6901) to the value that is wrong.
    pub fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(SettingError { path: path.into(), message: message.into() });
    }
}

/// What `validate-settings` answers for settings of type `S`.
///
/// # Errors
///
/// The first value that has the wrong type or name; or else everything that [`Settings::check`] finds.
pub fn check<S: Settings>(json: &str) -> Result<(), Vec<SettingError>> {
    parse::<S>(json).map(drop)
}

/// Reads and checks the settings of one call.
///
/// # Errors
///
/// `InvalidInput` that names the first mistake, for a host that skipped `validate-settings`.
pub fn read<S: Settings>(json: &str) -> Result<S, PolicyError> {
    parse(json).map_err(|mistakes| {
        PolicyError::InvalidInput(match mistakes.first() {
            Some(SettingError { path, message }) => format!("settings at \"{path}\": {message}"),
            None => "settings are invalid".to_owned(),
        })
    })
}

/// The answer to `validate-settings` for a hook that the component doesn't export.
///
/// # Errors
///
/// Always: one that names the hooks that are answered.
pub fn not_answered(hook: &str, answered: &[&str]) -> Result<(), Vec<SettingError>> {
    let message = format!("hook \"{hook}\" is not answered by this policy; it answers {}", answered.join(", "));
    Err(vec![SettingError { path: String::new(), message }])
}

fn parse<S: Settings>(json: &str) -> Result<S, Vec<SettingError>> {
    let mut document = serde_json::Deserializer::from_str(json);
    let settings: S = serde_path_to_error::deserialize(&mut document).map_err(|error| {
        let path = pointer(error.path());
        vec![SettingError { path, message: error.into_inner().to_string() }]
    })?;
    document.end().map_err(|error| vec![SettingError { path: String::new(), message: error.to_string() }])?;
    let mut problems = Problems::default();
    settings.check(&mut problems);
    if problems.0.is_empty() { Ok(settings) } else { Err(problems.0) }
}

/// A serde path as a JSON pointer (RFC 6901).
fn pointer(path: &Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
            Segment::Map { key } => {
                pointer.push('/');
                pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
            }
            // An enum's variant is not a step in the document, and an unknown step can't be named.
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    pointer
}
