//! The names that Kubernetes accepts as keys of labels, annotations and taints, so that a mistake in settings shows at load.
//! The host checks again what comes out of a verdict.

use moorline_policy_sdk::Problems;

/// Adds a problem at `path` unless `key` is a qualified name: `[prefix/]name`.
pub(crate) fn check_key(problems: &mut Problems, path: &str, key: &str) {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if let Some(prefix) = prefix {
        let label = |part: &str| {
            ends_alphanumeric(part) && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        };
        if prefix.len() > 253 || !prefix.split('.').all(label) {
            problems.add(
                path,
                format!("the prefix of key \"{key}\" is not a DNS name of at most 253 lower-case characters"),
            );
        }
    }
    if name.len() > 63
        || !ends_alphanumeric(name)
        || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    {
        problems.add(
            path,
            format!(
                "the name of key \"{key}\" must be 1 to 63 letters, digits, '-', '_' or '.', and begin and end with a letter or digit"
            ),
        );
    }
}

/// Not empty, and begins and ends with a letter or digit.
fn ends_alphanumeric(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(alphanumeric) && text.ends_with(alphanumeric)
}
