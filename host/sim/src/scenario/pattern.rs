//! What a trigger or an expectation looks for: patterns over the timeline, over objects and over JSON. Pure: nothing here
//! waits or changes anything.

use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value};

use super::timeline::{Source, TimelineEntry};
use crate::server::Verb;

/// Entries of the timeline. What is left out matches everything.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct EntryPattern {
    /// Who tells it.
    pub source: Option<Source>,
    /// The entry's kind.
    pub kind: Option<String>,
    /// A part of the text; `*` stands for anything between two parts.
    pub text: Option<String>,
    /// Details that the entry has, among others.
    pub fields: Map<String, Value>,
    /// Only of this process.
    pub process: Option<u32>,
}

impl EntryPattern {
    /// Whether an entry is meant.
    pub fn matches(&self, entry: &TimelineEntry) -> bool {
        self.source.is_none_or(|source| source == entry.source)
            && self.kind.as_ref().is_none_or(|kind| *kind == entry.kind)
            && self.text.as_ref().is_none_or(|text| contains(&entry.text, text))
            && self.process.is_none_or(|process| entry.process == Some(process))
            && self.fields.iter().all(|(name, wanted)| entry.fields.get(name).is_some_and(|found| found == wanted))
    }
}

/// An entry by its text alone, or by more.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn(pub EntryPattern);

impl<'de> Deserialize<'de> for Turn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Turn;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(
                    "a part of an entry's text, or a pattern with `source`, `kind`, `text`, `fields` or `process`",
                )
            }

            fn visit_str<E>(self, text: &str) -> Result<Turn, E> {
                Ok(Turn(EntryPattern { text: Some(text.to_owned()), ..EntryPattern::default() }))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Turn, A::Error> {
                EntryPattern::deserialize(de::value::MapAccessDeserializer::new(map)).map(Turn)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Requests to the API server. What is left out matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct RequestPattern {
    /// The verb, in the words of RBAC.
    #[serde(deserialize_with = "verb")]
    pub verb: Option<Verb>,
    /// The plural, such as `nodes`.
    pub resource: Option<String>,
    /// The subresource; an empty one means the object itself.
    pub subresource: Option<String>,
    /// The object's name.
    pub name: Option<String>,
    /// The status code of the answer.
    pub code: Option<u16>,
    /// Only of this process.
    pub process: Option<u32>,
}

pub(super) fn verb<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Verb>, D::Error> {
    String::deserialize(deserializer)?.parse().map(Some).map_err(de::Error::custom)
}

impl RequestPattern {
    /// Whether an entry tells of the end of such a request, or of the opening of such a watch: each request once.
    pub fn matches(&self, entry: &TimelineEntry) -> bool {
        matches!(entry.kind.as_str(), "request" | "watch-opened") && self.matches_at_any_stage(entry)
    }

    /// Whether an entry tells of the arrival of such a request.
    pub(crate) fn matches_arrival(&self, entry: &TimelineEntry) -> bool {
        entry.kind == "request-received" && self.matches_at_any_stage(entry)
    }

    fn matches_at_any_stage(&self, entry: &TimelineEntry) -> bool {
        let is = |name: &str, wanted: Option<&str>| {
            wanted.is_none_or(|wanted| entry.fields.get(name).and_then(Value::as_str).unwrap_or_default() == wanted)
        };
        entry.source == Source::Server
            && is("verb", self.verb.map(Verb::as_str))
            && is("resource", self.resource.as_deref())
            && is("subresource", self.subresource.as_deref())
            && is("name", self.name.as_deref())
            && self.code.is_none_or(|code| entry.fields.get("code").and_then(Value::as_u64) == Some(code.into()))
            && self.process.is_none_or(|process| entry.process == Some(process))
    }
}

/// One object of the API server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectRef {
    /// Group and version, where the kind alone isn't enough.
    #[serde(default)]
    pub api_version: Option<String>,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The namespace; only for what lives in one.
    #[serde(default)]
    pub namespace: Option<String>,
}

/// What a place in a JSON document has to say.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectCheck {
    /// Group and version, where the kind alone isn't enough.
    #[serde(default)]
    pub api_version: Option<String>,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The namespace; only for what lives in one.
    #[serde(default)]
    pub namespace: Option<String>,
    /// A JSON pointer; left out, it is the whole object.
    #[serde(default)]
    pub path: String,
    /// Whether there has to be anything.
    #[serde(default)]
    pub exists: Option<bool>,
    /// The value there.
    #[serde(default)]
    pub equals: Option<Value>,
    /// Members that the value there has, among others.
    #[serde(default)]
    pub includes: Option<Value>,
}

impl ObjectCheck {
    /// The object that is meant.
    pub fn object(&self) -> ObjectRef {
        ObjectRef {
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            name: self.name.clone(),
            namespace: self.namespace.clone(),
        }
    }

    /// What is wrong with an object, which may be absent.
    pub fn fault(&self, object: Option<&Value>) -> Option<String> {
        let found = object.and_then(|object| object.pointer(&self.path));
        let place = if self.path.is_empty() { "the object" } else { &self.path };
        let shown = found.map_or_else(|| "absent".to_owned(), Value::to_string);
        if self.exists.is_some_and(|exists| exists != found.is_some()) {
            return Some(format!("{place} is {shown}"));
        }
        if self.equals.as_ref().is_some_and(|wanted| found != Some(wanted)) {
            return Some(format!("{place} is {shown}"));
        }
        if self.includes.as_ref().is_some_and(|wanted| !found.is_some_and(|found| includes(found, wanted))) {
            return Some(format!("{place} is {shown}"));
        }
        None
    }
}

/// How many there have to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Not fewer.
    pub min: Option<usize>,
    /// Not more.
    pub max: Option<usize>,
    /// Just so many.
    pub exactly: Option<usize>,
}

impl Count {
    /// Whether so many are right. Where nothing is said there has to be at least one.
    pub fn allows(&self, found: usize) -> bool {
        if *self == Self::default() {
            return found > 0;
        }
        self.min.is_none_or(|min| found >= min)
            && self.max.is_none_or(|max| found <= max)
            && self.exactly.is_none_or(|exactly| found == exactly)
    }
}

/// Whether the parts of a pattern, between its `*`, stand in a text in this order.
pub(super) fn contains(text: &str, pattern: &str) -> bool {
    pattern.split('*').try_fold(text, |rest, part| rest.split_once(part).map(|(_, after)| after)).is_some()
}

/// Whether a value has all the members that are wanted; lists and scalars have to be equal.
pub(super) fn includes(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(name, wanted)| found.get(name).is_some_and(|found| includes(found, wanted)))
        }
        _ => found == wanted,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_star_stands_for_anything_between_two_parts() {
        assert!(contains("adopted worker in Site a: label", "worker*label"));
        assert!(contains("adopted", ""));
        assert!(!contains("label, worker", "worker*label"));
    }

    #[test]
    fn members_that_are_not_named_do_not_matter_but_null_does() {
        assert!(includes(&json!({"a": 1, "b": {"c": null, "d": 2}}), &json!({"b": {"c": null}})));
        assert!(!includes(&json!({"b": {}}), &json!({"b": {"c": null}})));
        assert!(!includes(&json!({"a": [1, 2]}), &json!({"a": [1]})));
    }

    #[test]
    fn a_count_that_says_nothing_means_at_least_one() {
        assert!(Count::default().allows(3) && !Count::default().allows(0));
        assert!(Count { max: Some(2), ..Count::default() }.allows(0));
        assert!(!Count { exactly: Some(2), ..Count::default() }.allows(3));
    }

    #[test]
    fn a_watch_counts_when_it_is_opened_and_only_then() {
        let entry = |kind: &str| TimelineEntry {
            at: Duration::ZERO,
            source: Source::Server,
            process: Some(1),
            kind: kind.into(),
            text: String::new(),
            fields: Map::from_iter([("verb".into(), json!("watch")), ("resource".into(), json!("nodes"))]),
        };
        let watches = RequestPattern { verb: Some(Verb::Watch), ..RequestPattern::default() };
        assert!(watches.matches(&entry("watch-opened")));
        assert!(!watches.matches(&entry("watch-closed")) && !watches.matches(&entry("request-received")));
        let patches = RequestPattern { verb: Some(Verb::Patch), ..RequestPattern::default() };
        assert!(!patches.matches(&entry("watch-opened")));
    }
}
