//! Reads scenario files and checks them whole, so that a run never starts on a mistake. Every error names the file, the
//! place and the way out.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;
use serde_saphyr::{Location, Spanned};

use super::check_format;
use super::format::Scenario;

/// A scenario that was read and checked.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The file.
    pub path: PathBuf,
    /// What it says.
    pub scenario: Scenario,
    /// The objects that there are at first: those of the files, then its own.
    pub objects: Vec<Value>,
}

impl Loaded {
    /// The policy volume, if the scenario has one: a folder as it is, or one that is put together in `into`, which has to
    /// exist.
    ///
    /// # Errors
    /// When files can't be copied.
    pub fn policy_volume(&self, into: &Path) -> std::io::Result<Option<PathBuf>> {
        let Some(spec) = &self.scenario.agent.policies else { return Ok(None) };
        let beside = self.path.parent().unwrap_or(Path::new(""));
        if let Some(path) = &spec.value.path {
            return beside.join(path).canonicalize().map(Some);
        }
        let volume = into.join("policies");
        std::fs::create_dir(&volume)?;
        for (name, path) in &spec.value.modules {
            std::fs::copy(beside.join(path), volume.join(name))?;
        }
        let inline = spec.value.inline.as_ref().map(ToString::to_string).unwrap_or_default();
        std::fs::write(volume.join("policies.yaml"), inline)?;
        Ok(Some(volume))
    }
}

/// Why a scenario can't be run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file can't be read.
    #[error("{} can't be read: {source}. Name a scenario file, or a folder that holds some.", .path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A folder holds no scenario.
    #[error("The folder {} holds no .yaml file. Name a scenario file, or a folder that holds some.", .path.display())]
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// A place in a file is wrong.
    #[error("{}:{line}:{column}: {what}", .path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The column, from 1.
        column: u64,
        /// The field, what is wrong with it, and what helps.
        what: String,
    },
}

/// The scenario files that a path names: itself, or the `.yaml` files of a folder in order of their names.
///
/// # Errors
/// Where there is no such file, or none in the folder.
pub fn find(path: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let unreadable = |source| LoadError::Read { path: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        if file.is_file() && file.extension().is_some_and(|extension| extension == "yaml") {
            found.push(file);
        }
    }
    if found.is_empty() {
        return Err(LoadError::Empty { path: path.to_owned() });
    }
    found.sort();
    Ok(found)
}

/// Reads a scenario and everything that it names.
///
/// # Errors
/// For the first thing that is wrong, with its place.
pub fn load(path: &Path) -> Result<Loaded, LoadError> {
    let text = std::fs::read_to_string(path).map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut scenario: Scenario = parse(path, &text)?;
    let real = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    replace(&mut scenario.agent.config, "${scenario}", &real.display().to_string());
    let mut objects = Vec::new();
    for file in &scenario.files {
        let found = folder.join(&file.value);
        let text = std::fs::read_to_string(&found)
            .map_err(|error| wrong(path, file.defined, format!("files: {} can't be read: {error}", found.display())))?;
        let documents: Vec<Spanned<Value>> =
            serde_saphyr::from_multiple(&text).map_err(|error| yaml(&found, &error))?;
        for document in documents {
            objects_of(&found, "", document, &mut objects)?;
        }
    }
    for object in &scenario.objects {
        objects_of(path, "objects: ", object.clone(), &mut objects)?;
    }
    check_format::check(folder, &scenario, &objects).map_err(|(at, what)| wrong(path, at, what))?;
    Ok(Loaded { path: path.to_owned(), scenario, objects })
}

/// Parses a document, with the field in every error.
fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, LoadError> {
    let mut field = String::new();
    serde_saphyr::with_deserializer_from_str_with_options(text, options(), |deserializer| {
        let mut track = serde_path_to_error::Track::new();
        let result = T::deserialize(serde_path_to_error::Deserializer::new(deserializer, &mut track));
        field = shown(&track.path());
        result
    })
    .map_err(|error| {
        let LoadError::Wrong { path, line, column, what } = yaml(path, &error) else { return yaml(path, &error) };
        let what = if field.is_empty() { what } else { format!("{field}: {what}") };
        LoadError::Wrong { path, line, column, what }
    })
}

/// `y` and `n` are names, as in YAML 1.2; only `true` and `false` are booleans.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! { strict_booleans: true }
}

/// A path without the layer that holds a value's place.
fn shown(path: &serde_path_to_error::Path) -> String {
    let mut text = String::new();
    for segment in path.iter() {
        match segment {
            Segment::Seq { index } => text = format!("{text}[{index}]"),
            Segment::Map { key } if key == "value" => {}
            Segment::Map { key } | Segment::Enum { variant: key } if text.is_empty() => text.clone_from(key),
            Segment::Map { key } | Segment::Enum { variant: key } => text = format!("{text}.{key}"),
            Segment::Unknown => {}
        }
    }
    text
}

fn yaml(path: &Path, error: &serde_saphyr::Error) -> LoadError {
    let plain = error.without_snippet();
    let location = plain.location().unwrap_or(Location::UNKNOWN);
    let options = serde_saphyr::render_options! {
        formatter: &serde_saphyr::UserMessageFormatter,
        snippets: serde_saphyr::SnippetMode::Off,
    };
    let what = plain.render_with_options(options);
    let place = format!(" at line {}, column {}", location.line(), location.column());
    wrong(path, location, what.strip_suffix(&place).unwrap_or(&what))
}

fn wrong(path: &Path, at: Location, what: impl Into<String>) -> LoadError {
    LoadError::Wrong { path: path.to_owned(), line: at.line(), column: at.column(), what: what.into() }
}

/// An object, or the items of a list as `kubectl get` prints several.
fn objects_of(path: &Path, field: &str, document: Spanned<Value>, into: &mut Vec<Value>) -> Result<(), LoadError> {
    #[derive(Deserialize)]
    struct List {
        items: Vec<Value>,
    }
    let Spanned { value, defined, .. } = document;
    if value.is_null() {
        return Ok(());
    }
    let items = if value["kind"] == "List" {
        let list = List::deserialize(value).map_err(|error| wrong(path, defined, format!("{field}{error}")))?;
        list.items
    } else {
        vec![value]
    };
    for item in items {
        if let Some(missing) = missing(&item) {
            let what = format!(
                "{field}an object has no {missing}. Paste it as `kubectl get -o yaml` prints it: with apiVersion, kind and metadata.name."
            );
            return Err(wrong(path, defined, what));
        }
        into.push(item);
    }
    Ok(())
}

/// Puts a text in the place of a word, in every string of a document.
pub(super) fn replace(document: &mut Value, word: &str, text: &str) {
    match document {
        Value::String(string) => *string = string.replace(word, text),
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, word, text)),
        Value::Object(members) => members.values_mut().for_each(|member| replace(member, word, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What an object can't do without.
pub(super) fn missing(object: &Value) -> Option<&'static str> {
    [("/apiVersion", "apiVersion"), ("/kind", "kind"), ("/metadata/name", "metadata.name")]
        .into_iter()
        .find(|(pointer, _)| object.pointer(pointer).and_then(Value::as_str).is_none_or(str::is_empty))
        .map(|(_, name)| name)
}
