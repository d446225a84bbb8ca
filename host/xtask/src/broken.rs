//! Rules that are broken on purpose, to see that a test notices: each is an edit of the source and the tests that have to
//! fail then. It is done in a copy of the workspace below the target folder; the source itself is never touched.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use serde::Deserialize;

use crate::{
    error::{Error, file},
    toolchain,
};

/// Where the rules are, from the workspace.
const RULES: &str = "host/xtask/broken";
/// Where the copy and what is built of it are, in the target folder. What is built is shared with nothing: cargo takes a
/// copy of a crate for the crate itself, and a test that runs meanwhile would ask the broken one.
const COPY: &str = "broken/workspace";
const TARGET: &str = "broken/target";

/// A rule, and how it is broken.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Rule {
    /// A word for the rule: the promise, or the fault that would come of it.
    name: String,
    /// What the source says then.
    breaks: String,
    edits: Vec<Edit>,
    /// Each of these has to notice.
    caught_by: Vec<Catch>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    file: PathBuf,
    /// A text that is there exactly once.
    before: String,
    after: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Catch {
    /// What cargo is called with.
    cargo: Vec<String>,
    /// Variables of its environment.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// What the failing output has to say.
    says: String,
}

/// Breaks the rules of these names, or all of them, and sees that each is noticed.
pub(crate) fn run(workspace: &Path, names: &[String]) -> Result<(), Error> {
    let rules = load(&workspace.join(RULES))?;
    if let Some(unknown) = names.iter().find(|name| rules.iter().all(|rule| rule.name != **name)) {
        let known = rules.iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>().join(", ");
        return Err(Error::NoSuchRule { name: unknown.clone(), known });
    }
    let target = target_folder(workspace)?;
    let (copy, target) = (target.join(COPY), target.join(TARGET));
    let chosen: Vec<_> = rules.iter().filter(|rule| names.is_empty() || names.contains(&rule.name)).collect();
    let mut unnoticed = 0;
    for rule in &chosen {
        mirror(workspace, &copy)?;
        rule.edits.iter().try_for_each(|edit| edit.apply(&copy, &rule.name))?;
        for catch in &rule.caught_by {
            let began = Instant::now();
            let shown = catch.shown();
            match catch.notices(&copy, &target)? {
                Noticed::Yes => println!("{}: caught by `{shown}` ({:.0?})", rule.name, began.elapsed()),
                Noticed::No(output) => {
                    unnoticed += 1;
                    println!("{output}");
                    println!("{}: NOT caught by `{shown}`. The rule: {}", rule.name, rule.breaks);
                }
                Noticed::DoesNotCompile(output) => {
                    println!("{output}");
                    return Err(Error::DoesNotCompile { rule: rule.name.clone() });
                }
            }
        }
    }
    // Nothing that is broken stays.
    mirror(workspace, &copy)?;
    println!("{} rules broken, {unnoticed} times unnoticed", chosen.len());
    if unnoticed == 0 { Ok(()) } else { Err(Error::Unnoticed { unnoticed }) }
}

fn load(folder: &Path) -> Result<Vec<Rule>, Error> {
    let entries = fs::read_dir(folder).map_err(file(folder, "read"))?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(file(folder, "read"))?;
    paths.sort();
    let mut rules = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).map_err(file(&path, "read"))?;
        let read: Vec<Rule> = serde_saphyr::from_str(&text)
            .map_err(|source| Error::Rules { path: path.clone(), source: Box::new(source) })?;
        rules.extend(read);
    }
    Ok(rules)
}

impl Edit {
    fn apply(&self, copy: &Path, rule: &str) -> Result<(), Error> {
        let path = copy.join(&self.file);
        let text = fs::read_to_string(&path).map_err(file(&path, "read"))?;
        let found = text.matches(&self.before).count();
        if found != 1 {
            return Err(Error::Outdated { rule: rule.to_owned(), path: self.file.clone(), found });
        }
        fs::write(&path, text.replacen(&self.before, &self.after, 1)).map_err(file(&path, "written"))
    }
}

enum Noticed {
    Yes,
    No(String),
    DoesNotCompile(String),
}

impl Catch {
    /// The command as one would type it.
    fn shown(&self) -> String {
        let env: String = self.env.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        format!("{env}cargo {}", self.cargo.join(" "))
    }

    fn notices(&self, copy: &Path, target: &Path) -> Result<Noticed, Error> {
        let mut cargo = Command::new(toolchain::cargo());
        cargo.current_dir(copy).args(&self.cargo).envs(&self.env).env("CARGO_TARGET_DIR", target).stdin(Stdio::null());
        let command = format!("{cargo:?}");
        let output = cargo.output().map_err(|source| Error::Start { command, source })?;
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        Ok(if text.contains("could not compile") {
            Noticed::DoesNotCompile(text)
        } else if !output.status.success() && text.contains(&self.says) {
            Noticed::Yes
        } else {
            Noticed::No(text)
        })
    }
}

fn target_folder(workspace: &Path) -> Result<PathBuf, Error> {
    let metadata = toolchain::metadata(workspace)?;
    Ok(metadata["target_directory"].as_str().map_or_else(|| workspace.join("target"), PathBuf::from))
}

/// Makes the copy what the workspace is. A file that is the same is left alone, so that nothing is built in vain.
fn mirror(workspace: &Path, copy: &Path) -> Result<(), Error> {
    let wanted = files(workspace)?;
    for path in &wanted {
        let (from, to) = (workspace.join(path), copy.join(path));
        let content = fs::read(&from).map_err(file(&from, "read"))?;
        if fs::read(&to).is_ok_and(|present| present == content) {
            continue;
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).map_err(file(folder, "created"))?;
        }
        // Permissions come with it: a scenario's data plane is a program.
        fs::copy(&from, &to).map_err(file(&to, "written"))?;
        // What was put right is newer than what was built of it.
        fs::File::open(&to)
            .and_then(|copied| copied.set_modified(std::time::SystemTime::now()))
            .map_err(file(&to, "written"))?;
    }
    Ok(())
}

/// The files of the workspace, from its folder: sources, examples and what goes with them, and nothing that is built.
fn files(workspace: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let whole = workspace.join(&folder);
        for entry in fs::read_dir(&whole).map_err(file(&whole, "read"))? {
            let entry = entry.map_err(file(&whole, "read"))?;
            let path = folder.join(entry.file_name());
            let kind = entry.file_type().map_err(file(workspace.join(&path), "read"))?;
            if kind.is_file() {
                found.push(path);
            } else if kind.is_dir() && path != Path::new("target") && path != Path::new(".git") {
                folders.push(path);
            }
        }
    }
    Ok(found)
}
