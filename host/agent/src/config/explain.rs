//! Puts into words for people what serde found wrong with a value, and the way out.

use figment::error::{Actual, Kind};

/// The nearest of the known words, if one is near enough to be meant.
pub(super) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |word: &str| word.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let word = plain(word);
    let scored = known.map(|candidate| (strsim::jaro_winkler(&word, &plain(candidate)), candidate));
    scored.filter(|(score, _)| *score > 0.85).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, candidate)| candidate)
}

/// Says what serde found, and the way out, in words for people who don't know serde.
pub(super) fn explain(kind: &Kind, key: &str) -> (String, String) {
    match kind {
        Kind::UnknownField(_, known) => {
            let nearest = nearest(key, known.iter().copied());
            let meant = nearest.map(|nearest| format!("Did you mean `{nearest}`? ")).unwrap_or_default();
            ("is no key of the configuration".to_owned(), format!("{meant}The keys here are {}", list(known)))
        }
        Kind::UnknownVariant(value, known) => {
            (format!("is {value:?}, which is none of its choices"), format!("Use one of {}", list(known)))
        }
        Kind::InvalidType(actual, expected) | Kind::InvalidValue(actual, expected) => {
            let found = match actual {
                Actual::Bool(value) => format!("`{value}`"),
                Actual::Unsigned(value) => format!("`{value}`"),
                Actual::Signed(value) => format!("`{value}`"),
                Actual::Float(value) => format!("`{value}`"),
                Actual::Str(value) => format!("{value:?}"),
                Actual::Unit | Actual::Option => "empty".to_owned(),
                Actual::Seq => "a list".to_owned(),
                Actual::Map => "a section".to_owned(),
                other => other.to_string(),
            };
            let is_scalar =
                matches!(actual, Actual::Bool(_) | Actual::Unsigned(_) | Actual::Signed(_) | Actual::Float(_));
            let (expected, hint) = match expected.as_str() {
                "a string" | "path string" if is_scalar => ("text", ": put it in quotes"),
                "a string" | "path string" => ("text", ""),
                "u64" | "u32" | "usize" => ("a whole number", ""),
                "u8" => ("a whole number from 0 to 255", ""),
                "a boolean" => ("`true` or `false`", ""),
                "a sequence" => ("a list", ""),
                "a map" => ("a section with keys of its own", ""),
                other if other.starts_with("struct ") => ("a section with keys of its own", ""),
                other => (other, ""),
            };
            (format!("is {found}, which can't be used here"), format!("Write {expected}{hint}"))
        }
        Kind::MissingField(field) => (format!("lacks `{field}`"), "Add it".to_owned()),
        other => (format!("can't be used ({other})"), "Correct it".to_owned()),
    }
}

fn list(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
