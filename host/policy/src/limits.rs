//! What one policy call may use: the numbers and their defaults. They are enforced in `store.rs` and, for verdicts, in
//! `policy.rs`; nothing here measures anything.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use crate::Level;

/// Limits on one call of a policy, and on its component at load. The defaults are many times what a policy in Rust or C
/// needs; guests that bring an interpreter along need more memory, table elements, instances and fuel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Units of fuel (about one per WebAssembly instruction). The same call uses the same fuel everywhere.
    pub fuel: u64,
    /// Wall-clock time, in case fuel is too generous for a slow machine; rounded up to whole milliseconds.
    pub deadline: Duration,
    /// Bytes of linear memory, all memories of the instance together.
    pub memory_bytes: usize,
    /// Elements of all tables together.
    pub table_elements: usize,
    /// Bytes of stack. The thread that calls needs this much and some 256 KiB more. It is fixed at load.
    pub stack_bytes: usize,
    /// Core instances, memories and tables: this many of each.
    pub instances: usize,
    /// Bytes of strings and lists in one answer, and in one log line before it is cut.
    pub output_bytes: usize,
    /// Bytes of a verdict's reason.
    pub reason_bytes: usize,
    /// Log lines that are kept; more are counted and dropped.
    pub log_lines: usize,
    /// Bytes of all log lines together; a line that doesn't fit is cut, later ones are dropped.
    pub log_bytes: usize,
    /// Lines below this level are not kept, and a policy that asks is told so.
    pub log_level: Level,
    /// Bytes of one string of the input that anyone may make long (an annotation's value, a spec); more is cut with a mark.
    pub input_string_bytes: usize,
    /// Bytes of a component; checked before anything looks into it.
    pub component_bytes: usize,
    /// Bytes of memory for compiling a component, where a [`Compiler`](crate::Compiler) keeps to it.
    pub compile_memory_bytes: usize,
    /// Wall-clock time for compiling a component, where a [`Compiler`](crate::Compiler) keeps to it.
    pub compile_deadline: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fuel: 100_000_000,
            deadline: Duration::from_millis(500),
            memory_bytes: 16 << 20,
            table_elements: 10_000,
            stack_bytes: 512 << 10,
            instances: 32,
            output_bytes: 256 << 10,
            reason_bytes: 1 << 10,
            log_lines: 64,
            log_bytes: 16 << 10,
            log_level: Level::Info,
            input_string_bytes: 64 << 10,
            component_bytes: 4 << 20,
            compile_memory_bytes: 192 << 20,
            compile_deadline: Duration::from_secs(20),
        }
    }
}

impl Limits {
    /// These limits with some of them replaced.
    #[must_use]
    pub fn with(&self, overrides: &LimitOverrides) -> Self {
        let over = overrides;
        Self {
            fuel: over.fuel.unwrap_or(self.fuel),
            deadline: over.deadline.unwrap_or(self.deadline),
            memory_bytes: over.memory.unwrap_or(self.memory_bytes),
            table_elements: over.table_elements.unwrap_or(self.table_elements),
            stack_bytes: over.stack.unwrap_or(self.stack_bytes),
            instances: over.instances.unwrap_or(self.instances),
            output_bytes: over.output.unwrap_or(self.output_bytes),
            reason_bytes: over.reason.unwrap_or(self.reason_bytes),
            log_lines: over.log_lines.unwrap_or(self.log_lines),
            log_bytes: over.log_size.unwrap_or(self.log_bytes),
            log_level: over.log_level.unwrap_or(self.log_level),
            input_string_bytes: over.input_string.unwrap_or(self.input_string_bytes),
            component_bytes: over.module_size.unwrap_or(self.component_bytes),
            compile_memory_bytes: over.compile_memory.unwrap_or(self.compile_memory_bytes),
            compile_deadline: over.compile_deadline.unwrap_or(self.compile_deadline),
        }
    }
}

/// Limits that differ from the usual ones, as an operator writes them: sizes as `16MiB`, durations as `500ms`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LimitOverrides {
    /// [`Limits::fuel`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
    /// [`Limits::deadline`].
    #[serde(
        deserialize_with = "duration",
        skip_serializing_if = "Option::is_none",
        serialize_with = "in_milliseconds"
    )]
    pub deadline: Option<Duration>,
    /// [`Limits::memory_bytes`].
    #[serde(deserialize_with = "size", skip_serializing_if = "Option::is_none")]
    pub memory: Option<usize>,
    /// [`Limits::table_elements`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table_elements: Option<usize>,
    /// [`Limits::stack_bytes`].
    #[serde(deserialize_with = "size", skip_serializing_if = "Option::is_none")]
    pub stack: Option<usize>,
    /// [`Limits::instances`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instances: Option<usize>,
    /// [`Limits::output_bytes`].
    #[serde(deserialize_with = "size", skip_serializing_if = "Option::is_none")]
    pub output: Option<usize>,
    /// [`Limits::reason_bytes`].
    #[serde(deserialize_with = "size", skip_serializing_if = "Option::is_none")]
    pub reason: Option<usize>,
    /// [`Limits::log_lines`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_lines: Option<usize>,
    /// [`Limits::log_bytes`].
    #[serde(deserialize_with = "size", skip_serializing_if = "Option::is_none")]
    pub log_size: Option<usize>,
    /// [`Limits::log_level`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_level: Option<Level>,
    /// [`Limits::input_string_bytes`].
    #[serde(deserialize_with = "size", skip_serializing_if = "Option::is_none")]
    pub input_string: Option<usize>,
    /// [`Limits::component_bytes`].
    #[serde(deserialize_with = "size", skip_serializing_if = "Option::is_none")]
    pub module_size: Option<usize>,
    /// [`Limits::compile_memory_bytes`].
    #[serde(deserialize_with = "size", skip_serializing_if = "Option::is_none")]
    pub compile_memory: Option<usize>,
    /// [`Limits::compile_deadline`].
    #[serde(
        deserialize_with = "duration",
        skip_serializing_if = "Option::is_none",
        serialize_with = "in_milliseconds"
    )]
    pub compile_deadline: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Quantity {
    Number(u64),
    Text(String),
}

/// Splits `16MiB` into 16 and `MiB`.
fn parts(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit.trim_start()))
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    let bytes = match Option::<Quantity>::deserialize(deserializer)? {
        None => return Ok(None),
        Some(Quantity::Number(bytes)) => Some(bytes),
        Some(Quantity::Text(text)) => parts(&text).and_then(|(number, unit)| {
            let shift = match unit {
                "" | "B" => 0,
                "KiB" => 10,
                "MiB" => 20,
                "GiB" => 30,
                _ => return None,
            };
            number.checked_mul(1 << shift)
        }),
    };
    let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
    bytes.map(Some).ok_or_else(|| D::Error::custom("a size is a whole number with B, KiB, MiB or GiB, such as `16MiB`"))
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else {
        return Ok(None);
    };
    let duration = parts(&text).and_then(|(number, unit)| match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        _ => None,
    });
    duration.map(Some).ok_or_else(|| D::Error::custom("a duration is a whole number with ms, s or m, such as `500ms`"))
}

fn in_milliseconds<S: serde::Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => serializer.collect_str(&format_args!("{}ms", duration.as_millis())),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

    use super::*;

    #[test]
    fn sizes_and_durations_are_written_as_people_write_them() {
        let over: LimitOverrides =
            serde_json::from_value(serde_json::json!({"memory": "64MiB", "deadline": "2s", "output": 1000, "fuel": 5}))
                .unwrap();
        let limits = Limits::default().with(&over);
        assert_eq!((limits.memory_bytes, limits.deadline), (64 << 20, Duration::from_secs(2)));
        assert_eq!((limits.output_bytes, limits.fuel), (1000, 5));
        assert_eq!(limits.instances, Limits::default().instances);
    }

    #[test]
    fn what_is_written_reads_back_the_same() {
        let over =
            LimitOverrides { deadline: Some(Duration::from_millis(1500)), memory: Some(1 << 20), ..Default::default() };
        let text = serde_json::to_string(&over).unwrap();
        assert_eq!(serde_json::from_str::<LimitOverrides>(&text).unwrap(), over);
    }

    #[test]
    fn a_unit_that_nobody_knows_is_refused() {
        for wrong in [
            r#"{"memory": "16MB"}"#,
            r#"{"memory": "-1"}"#,
            r#"{"deadline": "500"}"#,
            r#"{"memory": "99999999999GiB"}"#,
            r#"{"feul": 1}"#,
        ] {
            assert!(serde_json::from_str::<LimitOverrides>(wrong).is_err(), "{wrong} was accepted");
        }
    }
}
