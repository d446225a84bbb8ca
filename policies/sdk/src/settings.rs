//! A binding's settings: JSON from the operator, read into the policy's own type, with mistakes named by JSON pointer.
//! Unknown keys are refused by the type itself (`deny_unknown_fields`).

use serde::{Deserialize, de::DeserializeOwned};

use crate::{PolicyError, SettingError, pointer};

/// What an operator may set for a policy, in the settings of a binding.
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

    /// Whether none was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the mistakes in a part of the settings, which is at `path`.
    pub fn within(&mut self, path: &str, part: &impl Settings) {
        let mut found = Self::default();
        part.check(&mut found);
        self.0.extend(found.0.into_iter().map(|error| SettingError { path: format!("{path}{}", error.path), ..error }));
    }
}

/// What `validate-settings` says of settings of type `S`.
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

/// The whole of `validate-settings`, for a component that exports the hooks in `answered`.
pub fn validate<S: Settings>(answered: &[&str], hook: &str, json: &str) -> Result<(), Vec<SettingError>> {
    if answered.contains(&hook) {
        return check::<S>(json);
    }
    let message = format!("hook \"{hook}\" is not answered by this policy; it answers {}", answered.join(", "));
    Err(vec![SettingError { path: String::new(), message }])
}

fn parse<S: Settings>(json: &str) -> Result<S, Vec<SettingError>> {
    // A list would do for a struct, by the order of its fields: nobody means that.
    if json.trim_start().starts_with('[') {
        return Err(vec![SettingError {
            path: String::new(),
            message: "settings are an object, not a list".to_owned(),
        }]);
    }
    let settings: S = serde_json::from_str(json).map_err(|error| vec![locate(json, &error)])?;
    let mut problems = Problems::default();
    settings.check(&mut problems);
    if problems.is_empty() { Ok(settings) } else { Err(problems.0) }
}

/// Where a document says something that the settings' type doesn't accept.
fn locate(json: &str, error: &serde_json::Error) -> SettingError {
    let message = error.to_string();
    if !error.is_data() {
        // Not JSON at all: there is nothing to point into, and the line and column in the text serve better.
        return SettingError { path: String::new(), message };
    }
    let lines = json.split_inclusive('\n').take(error.line().saturating_sub(1));
    let end = lines.map(str::len).sum::<usize>().saturating_add(error.column());
    let place = format!(" at line {} column {}", error.line(), error.column());
    SettingError { path: pointer::before(json, end), message: message.replace(&place, "") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Outer {
        list: Vec<Inner>,
        inner: Inner,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Inner {
        size: u8,
    }

    impl Settings for Outer {
        fn check(&self, problems: &mut Problems) {
            problems.within("/inner", &self.inner);
        }
    }

    impl Settings for Inner {
        fn check(&self, problems: &mut Problems) {
            if self.size == 0 {
                problems.add("/size", "nothing fits");
                problems.add("", "and that is all there is");
            }
        }
    }

    fn mistakes(json: &str) -> Vec<(String, String)> {
        check::<Outer>(json).unwrap_err().into_iter().map(|error| (error.path, error.message)).collect()
    }

    fn mistake(json: &str) -> (String, String) {
        let [one] = mistakes(json).try_into().unwrap();
        one
    }

    #[test]
    fn good_settings_are_read() {
        assert_eq!(read::<Outer>("{\"inner\": {\"size\": 3}}").unwrap().inner.size, 3);
    }

    #[test]
    fn a_mistake_is_named_by_its_pointer_on_any_line() {
        let json = "{\n  \"list\": [\n    {\"size\": 1},\n    {\"size\": 256}\n  ]\n}";
        let (path, message) = mistake(json);
        assert_eq!(path, "/list/1/size");
        assert_eq!(message, "invalid value: integer `256`, expected u8");
        assert_eq!(mistake("{\"list\": {}}").0, "/list");
        assert_eq!(mistake("{\"inner\": {\"ä/~\": 1}}").0, "/inner/ä~1~0");
        assert_eq!(mistake("{\"inner\": {}, \"inner\": {}}").0, "/inner");
    }

    #[test]
    fn what_is_no_json_is_named_by_line_and_column() {
        let (path, message) = mistake("{\n  \"inner\": {,}\n}");
        assert_eq!(path, "");
        assert!(message.ends_with("at line 2 column 13"), "{message}");
        assert_eq!(mistake("{} x").0, "");
        assert_eq!(mistake("").0, "");
    }

    #[test]
    fn a_part_is_checked_under_its_own_path() {
        let paths: Vec<_> = mistakes("{}").into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["/inner/size", "/inner"]);
    }

    #[test]
    fn a_call_with_bad_settings_is_invalid_input() {
        let error = read::<Outer>("{\"inner\": {\"size\": \"x\"}}").unwrap_err();
        assert!(matches!(error, PolicyError::InvalidInput(text) if text.starts_with("settings at \"/inner/size\": ")));
    }

    #[test]
    fn settings_for_a_hook_that_is_not_answered_are_refused() {
        let error = validate::<NoSettings>(&["drift", "retry"], "cni", "{}").unwrap_err();
        assert_eq!(error[0].message, "hook \"cni\" is not answered by this policy; it answers drift, retry");
        assert!(validate::<NoSettings>(&["drift"], "drift", "{}").is_ok());
        assert!(validate::<NoSettings>(&["drift"], "drift", "{\"x\": 1}").is_err());
    }
}
