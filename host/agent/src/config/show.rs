//! Prints a configuration as YAML that could be its file, each value with where it comes from.

use std::fmt::Write as _;

use figment::value::{Num, Value};

use super::load::origin_of_value;
use super::{Config, Loaded, Origin, yaml};

/// One key of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The parts of the key.
    pub keys: Vec<String>,
    /// The value on one line of YAML.
    pub value: String,
    /// Where it comes from.
    pub origin: Origin,
}

impl Loaded {
    /// Every key with its value and where that comes from, sections in the order of their names.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        if let Ok(root) = self.figment.find_value("") {
            self.collect(&mut Vec::new(), &root, &mut entries);
        }
        entries
    }

    fn collect(&self, keys: &mut Vec<String>, value: &Value, entries: &mut Vec<Entry>) {
        match value.as_dict().filter(|dict| !dict.is_empty()) {
            Some(dict) => {
                for (key, value) in dict {
                    keys.push(key.clone());
                    self.collect(keys, value, entries);
                    keys.pop();
                }
            }
            None => {
                let origin = origin_of_value(&self.figment, &self.origins, value);
                entries.push(Entry { keys: keys.clone(), value: on_one_line(value), origin });
            }
        }
    }

    /// The configuration as YAML, each value with a comment that says where it comes from.
    pub fn show(&self) -> String {
        let lines: Vec<_> = self
            .entries()
            .into_iter()
            .scan(Vec::new(), |above, entry| {
                let Some((last, sections)) = entry.keys.split_last() else { return Some(Vec::new()) };
                let shared = above.iter().zip(sections).take_while(|(a, b)| a == b).count();
                let mut lines: Vec<_> = sections
                    .iter()
                    .enumerate()
                    .skip(shared)
                    .map(|(depth, section)| (format!("{}{}:", "  ".repeat(depth), scalar(section)), None))
                    .collect();
                *above = sections.to_vec();
                let line = format!("{}{}: {}", "  ".repeat(sections.len()), scalar(last), entry.value);
                lines.push((line, Some(entry.origin)));
                Some(lines)
            })
            .flatten()
            .collect();
        let width =
            lines.iter().filter(|line| line.1.is_some()).map(|line| line.0.chars().count()).max().unwrap_or(0).min(60);
        lines.iter().fold(String::new(), |mut shown, (line, origin)| {
            let _ = match origin {
                Some(origin) => writeln!(shown, "{line:width$}  # {origin}"),
                None => writeln!(shown, "{line}"),
            };
            shown
        })
    }
}

/// The JSON Schema of the configuration file.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Config).to_value()
}

fn on_one_line(value: &Value) -> String {
    match value {
        Value::String(_, text) => scalar(text),
        Value::Char(_, c) => scalar(&c.to_string()),
        Value::Bool(_, value) => value.to_string(),
        Value::Num(_, number) => match number {
            Num::F32(_) | Num::F64(_) => number.to_f64().map(|n| n.to_string()).unwrap_or_default(),
            _ => number
                .to_i128()
                .map(|n| n.to_string())
                .or_else(|| number.to_u128().map(|n| n.to_string()))
                .unwrap_or_default(),
        },
        Value::Empty(..) => "null".to_owned(),
        Value::Array(_, entries) => format!("[{}]", entries.iter().map(on_one_line).collect::<Vec<_>>().join(", ")),
        Value::Dict(_, dict) => {
            let entries: Vec<_> =
                dict.iter().map(|(key, value)| format!("{}: {}", scalar(key), on_one_line(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

/// A text as YAML: plain where no reader can take it for something else, in quotes elsewhere.
fn scalar(text: &str) -> String {
    let is_word = ["yes", "no", "on", "off", "y", "n"].contains(&text.to_ascii_lowercase().as_str());
    let is_plain = !is_word
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./ ".contains(&byte))
        && text.bytes().any(|byte| byte.is_ascii_alphabetic())
        && yaml::value(text).is_some_and(|value| value.as_str() == Some(text));
    if is_plain { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}
