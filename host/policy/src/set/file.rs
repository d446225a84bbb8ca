//! `policies.yaml`: its form, and everything that can be wrong with it. All mistakes are reported at once, each with its line.
//! It only reads; loading what it names is done elsewhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    path::{Component, Path, PathBuf},
};

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_saphyr::Spanned;

use super::DEFAULT;
use crate::{Digest, Hooks, OnFailure, loader};

/// The file's name in its folder.
pub(super) const NAME: &str = "policies.yaml";
/// More than any sensible file has.
const MOST_BYTES: usize = 1 << 20;

/// A `policies.yaml` that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// It can't be read.
    #[error("The policy set {} can't be read.", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// It has mistakes.
    #[error("The policy set {} has mistakes.{}", .file.display(), Problems(.problems))]
    Mistaken {
        /// The file.
        file: PathBuf,
        /// All that were found.
        problems: Vec<Problem>,
    },
}

/// A mistake in a `policies.yaml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where, counted from 1; 0 when it isn't known.
    pub line: u64,
    /// What is wrong, and what would be right: a sentence.
    pub message: String,
}

struct Problems<'a>(&'a [Problem]);

impl fmt::Display for Problems<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|problem| match problem.line {
            0 => write!(f, "\n  {}", problem.message),
            line => write!(f, "\n  line {line}: {}", problem.message),
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(super) struct SetFile {
    #[serde(deserialize_with = "or_nothing")]
    pub(super) modules: BTreeMap<String, ModuleEntry>,
    #[serde(deserialize_with = "or_nothing")]
    pub(super) bindings: BTreeMap<String, Spanned<Vec<BindingEntry>>>,
    #[serde(deserialize_with = "or_nothing")]
    pub(super) default: DefaultEntry,
}

/// A key without a value, as is left when everything under it is a comment.
fn or_nothing<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct ModuleEntry {
    pub(super) file: Spanned<PathBuf>,
    #[serde(default)]
    pub(super) sha256: Option<Digest>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct BindingEntry {
    pub(super) name: Spanned<String>,
    pub(super) module: Spanned<String>,
    #[serde(default, rename = "sites")]
    site_globs: Option<Spanned<Vec<String>>>,
    #[serde(default)]
    settings: Option<Value>,
    #[serde(default)]
    pub(super) on_failure: Option<Spanned<OnFailure>>,
    /// What the globs came to.
    #[serde(skip)]
    pub(super) sites: Option<Sites>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(super) struct DefaultEntry {
    settings: Option<Value>,
}

/// The Sites that a binding is for.
#[derive(Clone, Debug)]
pub(super) struct Sites {
    pub(super) globs: Vec<String>,
    set: GlobSet,
}

impl Sites {
    fn new(globs: &[String]) -> Result<Self, globset::Error> {
        let mut set = GlobSetBuilder::new();
        for glob in globs {
            set.add(Glob::new(glob)?);
        }
        Ok(Self { globs: globs.to_vec(), set: set.build()? })
    }

    pub(super) fn contain(&self, site: &str) -> bool {
        self.set.is_match(site)
    }
}

fn settings_json(settings: Option<&Value>) -> String {
    settings.map_or_else(|| "{}".to_owned(), Value::to_string)
}

impl BindingEntry {
    pub(super) fn settings_json(&self) -> String {
        settings_json(self.settings.as_ref())
    }
}

impl DefaultEntry {
    pub(super) fn settings_json(&self) -> String {
        settings_json(self.settings.as_ref())
    }
}

impl SetFile {
    pub(super) fn binds(&self, name: &str) -> bool {
        self.entries().any(|entry| entry.name.value == name)
    }

    pub(super) fn uses(&self, module: &str) -> bool {
        self.entries().any(|entry| entry.module.value == module)
    }

    fn entries(&self) -> impl Iterator<Item = &BindingEntry> {
        self.bindings.values().flat_map(|entries| &entries.value)
    }
}

/// Reads and checks the file in this folder.
pub(super) fn read(folder: &Path, hooks: &Hooks) -> Result<(SetFile, String), SetError> {
    let file = folder.join(NAME);
    let unreadable = |source| SetError::Unreadable { file: file.clone(), source };
    let text = loader::read(&file, MOST_BYTES).map_err(unreadable)?;
    let Some(text) = text else {
        return Err(unreadable(io::Error::other("it has more than a mebibyte")));
    };
    let text = String::from_utf8(text).map_err(|error| unreadable(io::Error::other(error)))?;
    match parse(&text, hooks) {
        Ok(set) => Ok((set, text)),
        Err(problems) => Err(SetError::Mistaken { file, problems }),
    }
}

fn parse(text: &str, hooks: &Hooks) -> Result<SetFile, Vec<Problem>> {
    let options = serde_saphyr::options! { with_snippet: false };
    let mut set: SetFile = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().map_or(0, |location| location.line());
        vec![Problem { line, message: sentence(&error.to_string()) }]
    })?;
    let problems = check(&mut set, hooks);
    if problems.is_empty() { Ok(set) } else { Err(problems) }
}

/// The parser's message as a sentence, without the position that is said before it.
fn sentence(message: &str) -> String {
    let text = message.rsplit_once(" at line ").map_or(message, |(text, _)| text);
    let mut letters = text.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.", letters.as_str().trim_end_matches('.'))
}

fn check(set: &mut SetFile, hooks: &Hooks) -> Vec<Problem> {
    let mut problems = Vec::new();
    let modules: BTreeSet<String> = set.modules.keys().cloned().collect();
    for (name, module) in &set.modules {
        let file = &module.file;
        if name == DEFAULT {
            problem(
                &mut problems,
                file,
                format!("The name `{DEFAULT}` belongs to the built-in policy. Call the module something else."),
            );
        }
        if !file.value.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            problem(
                &mut problems,
                file,
                format!("The module `{name}` has to lie in the folder of this file or below it."),
            );
        }
    }
    let mut names = BTreeSet::new();
    for (hook, entries) in &mut set.bindings {
        let Some(known) = hooks.get(hook) else {
            let known = hooks.iter().map(|hook| hook.name).collect::<Vec<_>>().join(", ");
            problem(&mut problems, entries, format!("There is no hook `{hook}`. The hooks are {known}."));
            continue;
        };
        for entry in &mut entries.value {
            let name = &entry.name;
            if !good_name(&name.value) {
                let message = format!(
                    "`{}` is no name for a binding: use up to 63 of a-z, 0-9, `-` and `.`, but not `{DEFAULT}`.",
                    name.value
                );
                problem(&mut problems, name, message);
            } else if !names.insert(name.value.clone()) {
                let message = format!(
                    "There are two bindings `{}`. Grants go by name, so each needs one of its own.",
                    name.value
                );
                problem(&mut problems, name, message);
            }
            if !modules.contains(&entry.module.value) {
                problem(
                    &mut problems,
                    &entry.module,
                    format!("There is no module `{}` under `modules`.", entry.module.value),
                );
            }
            if let Some(on_failure) =
                entry.on_failure.as_ref().filter(|it| it.value == OnFailure::Hold && !known.rules.may_hold)
            {
                let message =
                    format!("`on-failure: hold` is refused for the hook `{hook}`: its bindings always fall through.");
                problem(&mut problems, on_failure, message);
            }
            if let Some(globs) = &entry.site_globs {
                if !known.rules.may_name_sites {
                    problem(
                        &mut problems,
                        globs,
                        format!("`sites` is refused for the hook `{hook}`: it is asked before the Site is known."),
                    );
                }
                match Sites::new(&globs.value) {
                    Ok(sites) => entry.sites = Some(sites),
                    Err(error) => problem(&mut problems, globs, format!("This is no list of globs: {error}.")),
                }
            }
        }
    }
    problems.sort_by_key(|problem| problem.line);
    problems
}

fn problem<T>(problems: &mut Vec<Problem>, at: &Spanned<T>, message: String) {
    problems.push(Problem { line: at.referenced.line(), message });
}

fn good_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    name != DEFAULT && (1..=63).contains(&name.len()) && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

    use super::*;

    fn problems(text: &str) -> Vec<(u64, String)> {
        let found = parse(text, &Hooks::default()).unwrap_err();
        found.into_iter().map(|problem| (problem.line, problem.message)).collect()
    }

    const GOOD: &str = "\
modules:
  tolerant:
    file: tolerant.wasm
    sha256: ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad
bindings:
  drift:
    - name: tolerate-pool
      module: tolerant
      sites: [edge-*, lab]
      settings: {label: maintenance}
      on-failure: fall-through
default:
  settings: {}
";

    #[test]
    fn a_good_file_is_read_whole() {
        let set = parse(GOOD, &Hooks::default()).unwrap();
        let entry = &set.bindings["drift"].value[0];
        assert_eq!(entry.settings_json(), r#"{"label":"maintenance"}"#);
        let sites = entry.sites.as_ref().unwrap();
        assert!(sites.contain("edge-7") && sites.contain("lab") && !sites.contain("core"));
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line() {
        let found = problems(&GOOD.replace("on-failure", "on-failur"));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, 11);
        assert!(found[0].1.contains("on-failur") && found[0].1.contains("on-failure"), "{found:?}");
    }

    #[test]
    fn all_mistakes_are_listed_each_with_its_line() {
        let found = problems(
            "\
modules:
  away: {file: ../away.wasm}
bindings:
  drift:
    - {name: a, module: nowhere}
    - {name: a, module: away}
    - {name: default, module: away}
  adoption:
    - {name: b, module: away, sites: [x]}
  retry:
    - {name: c, module: away, on-failure: hold}
  cni:
    - {name: d, module: away, sites: ['[']}
  drfit: []
",
        );
        let lines: Vec<u64> = found.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [2, 5, 6, 7, 9, 11, 13, 14], "{found:#?}");
    }

    #[test]
    fn a_digest_that_is_none_is_refused_with_its_line() {
        let found = problems(&GOOD.replace("ba7816", "ba78"));
        assert_eq!(found[0].0, 4, "{found:?}");
    }
}
