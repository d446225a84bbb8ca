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

#[cfg(test)]
mod tests {
    use moorline_policy_sdk::Problems;

    use super::check_key;

    fn is_key(key: &str) -> bool {
        let mut problems = Problems::default();
        check_key(&mut problems, "", key);
        problems.is_empty()
    }

    #[test]
    fn what_kubernetes_takes_as_a_key_is_a_key() {
        let longest = format!("{}/{}", ["a"; 127].join("."), "n".repeat(63));
        for key in ["a", "A.b_c-9", "unbounded-cloud.io/site", "x/y", "1.2/3", &longest] {
            assert!(is_key(key), "{key}");
        }
    }

    #[test]
    fn what_kubernetes_refuses_as_a_key_is_none() {
        let name_too_long = "n".repeat(64);
        let prefix_too_long = format!("{}/n", ["a"; 128].join("."));
        for key in [
            "",
            "/",
            "a/",
            "/a",
            "a/b/c",
            "a b",
            "-a",
            "a-",
            "a.",
            "ä",
            "a/ä",
            "A.b/c",
            "a..b/c",
            ".a/c",
            "-a/c",
            "a_b/c",
            "a\n",
            &name_too_long,
            &prefix_too_long,
        ] {
            assert!(!is_key(key), "{key:?}");
        }
    }
}
