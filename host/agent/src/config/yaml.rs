//! Turns a YAML text into single settings, each with the line on which it stands. It knows nothing about which keys exist.

use std::collections::BTreeMap;
use std::fmt;

use figment::value::{Dict, Empty, Num, Tag, Value};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// A text that isn't YAML.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotYaml {
    /// The line, counted from 1, where it is known.
    pub line: Option<u64>,
    /// What the parser says.
    pub message: String,
}

/// What a text says.
#[derive(Debug, Default)]
pub(super) struct Document {
    /// Every value that isn't a map with something in it, with the keys that lead to it.
    pub leaves: Vec<(Vec<String>, Value)>,
    /// The line of every key and list entry.
    pub lines: BTreeMap<Vec<String>, u64>,
}

/// Reads a text. An empty one says nothing.
pub(super) fn read(text: &str) -> Result<Document, NotYaml> {
    // `on` and `no` are words here, as they are to whoever names a Node so.
    let options = serde_saphyr::options! { strict_booleans: true };
    let root: Option<Spanned<Node>> = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let error = error.without_snippet();
        let message = match error {
            serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => {
                format!("the key `{key}` stands there twice")
            }
            other => other.render_with_formatter(&serde_saphyr::UserMessageFormatter),
        };
        NotYaml { line: error.location().map(|location| location.line()), message }
    })?;
    let mut document = Document::default();
    if let Some(root) = root {
        document.add(&mut Vec::new(), root.value);
    }
    Ok(document)
}

/// Reads a single value, such as a variable holds.
pub(super) fn value(text: &str) -> Option<Value> {
    let options = serde_saphyr::options! { strict_booleans: true };
    let node: Spanned<Node> = serde_saphyr::from_str_with_options(text, options).ok()?;
    Some(node.value.into_value())
}

/// A YAML value whose parts know their lines.
#[derive(Debug)]
enum Node {
    Scalar(Value),
    List(Vec<Spanned<Node>>),
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
}

impl Node {
    fn into_value(self) -> Value {
        match self {
            Self::Scalar(value) => value,
            Self::List(entries) => {
                Value::Array(Tag::Default, entries.into_iter().map(|entry| entry.value.into_value()).collect())
            }
            Self::Map(entries) => {
                let dict: Dict = entries.into_iter().map(|(key, node)| (key.value, node.value.into_value())).collect();
                Value::Dict(Tag::Default, dict)
            }
        }
    }
}

impl Document {
    fn add(&mut self, path: &mut Vec<String>, node: Node) {
        match node {
            Node::Map(entries) if !entries.is_empty() => {
                for (key, node) in entries {
                    path.push(key.value);
                    self.lines.insert(path.clone(), key.referenced.line());
                    self.add(path, node.value);
                    path.pop();
                }
            }
            Node::List(entries) => {
                self.add_lines(path, &entries);
                self.leaves.push((path.clone(), Node::List(entries).into_value()));
            }
            other => self.leaves.push((path.clone(), other.into_value())),
        }
    }

    /// The lines of entries, and of the keys of those that are maps.
    fn add_lines(&mut self, path: &mut Vec<String>, entries: &[Spanned<Node>]) {
        for (index, entry) in entries.iter().enumerate() {
            path.push(index.to_string());
            self.lines.insert(path.clone(), entry.referenced.line());
            if let Node::Map(keys) = &entry.value {
                for (key, _) in keys {
                    path.push(key.value.clone());
                    self.lines.insert(path.clone(), key.referenced.line());
                    path.pop();
                }
            }
            path.pop();
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(Value::from(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Num(Tag::Default, Num::from(value))))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Num(Tag::Default, Num::from(value))))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Num(Tag::Default, Num::from(value))))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(Value::from(value)))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Empty(Tag::Default, Empty::Unit)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = seq.next_element()? {
            entries.push(entry);
        }
        Ok(Node::List(entries))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }
}
