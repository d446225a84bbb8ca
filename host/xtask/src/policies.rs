//! The Rust policies of this repository: built from source, and compared with what is committed.
//! A component travels with `<component>.sha256`: its checksum, and the toolchain that made it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use sha2::{Digest, Sha256};

use crate::{
    component::{self, World},
    error::{Error, file},
    toolchain::{self, Toolchain},
};

/// Names the component that a policy's tests are to ask instead of the committed one.
const COMPONENT_UNDER_TEST: &str = "MOORLINE_TEST_COMPONENT";

/// A crate that becomes the component `<folder>/<folder's name>.wasm`, with `_` for `-`.
struct Policy {
    package: String,
    component: PathBuf,
}

/// Builds every policy and writes its component and checksum.
pub(crate) fn build(workspace: &Path) -> Result<(), Error> {
    for policy in find(workspace)? {
        let toolchain = Toolchain::find(policy.record().ok().and_then(|record| record.toolchain).as_deref())?;
        let component = policy.make(workspace, &toolchain)?;
        let record = Record { sum: sha256(&component), toolchain: Some(toolchain.to_string()) };
        fs::write(&policy.component, &component).map_err(file(&policy.component, "written"))?;
        fs::write(policy.record_file(), record.text(&policy.file_name()))
            .map_err(file(policy.record_file(), "written"))?;
        println!("{}: {} bytes, built with {toolchain}", policy.shown(workspace), component.len());
    }
    Ok(())
}

/// Builds every policy and says of each whether the committed component is what its source gives.
///
/// With the toolchain that the committed one was built with, that means the same bytes. Another compiler makes other bytes
/// of the same source: then the committed component has to match its checksum and have the same world as the rebuilt one,
/// and the policy's tests, which the committed one passes on every run, have to pass with the rebuilt one too.
pub(crate) fn check(workspace: &Path) -> Result<(), Error> {
    let mut differing = 0;
    for policy in find(workspace)? {
        let record = policy.record()?;
        let toolchain = Toolchain::find(record.toolchain.as_deref())?;
        let rebuilt = policy.make(workspace, &toolchain)?;
        let committed = fs::read(&policy.component).map_err(file(&policy.component, "read"))?;
        let mut comparison = compare(&committed, &record, &rebuilt, &toolchain.to_string());
        if let Comparison::OtherToolchain(why) = comparison {
            println!("{}: {why}", policy.shown(workspace));
            comparison = policy.compare_in_use(workspace, &committed, &rebuilt)?;
        }
        let said = match comparison {
            Comparison::Same(said) => said,
            Comparison::Differs(said) | Comparison::OtherToolchain(said) => {
                differing += 1;
                said
            }
        };
        println!("{}: {said}", policy.shown(workspace));
    }
    if differing == 0 { Ok(()) } else { Err(Error::Differs { differing }) }
}

/// How a committed component stands to the one that its source gives, for people.
#[derive(Debug, PartialEq, Eq)]
enum Comparison {
    Same(String),
    Differs(String),
    /// The bytes differ, as they do when compilers do: they say nothing.
    OtherToolchain(String),
}

/// Compares bytes. `here` is the toolchain that built the second component.
fn compare(committed: &[u8], record: &Record, rebuilt: &[u8], here: &str) -> Comparison {
    let sum = sha256(committed);
    if record.sum != sum {
        return Comparison::Differs(format!("its checksum is {sum}, not {} as recorded", record.sum));
    }
    if committed == rebuilt {
        return Comparison::Same("the same bytes as its source gives".to_owned());
    }
    let sizes = format!("{} bytes committed, {} rebuilt", committed.len(), rebuilt.len());
    match record.toolchain.as_deref() {
        Some(recorded) if recorded != here => Comparison::OtherToolchain(format!(
            "built with {recorded}, and rebuilt with {here}: bytes differ ({sizes})"
        )),
        _ => {
            let at = committed.iter().zip(rebuilt).take_while(|(committed, rebuilt)| committed == rebuilt).count();
            Comparison::Differs(format!("differs from what its source gives, first at byte {at} ({sizes}, by {here})"))
        }
    }
}

/// What is recorded beside a component, in a form that `sha256sum --check` reads.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    sum: String,
    /// The toolchain that built it.
    toolchain: Option<String>,
}

impl Record {
    fn parse(text: &str) -> Self {
        let toolchain = text.lines().find_map(|line| line.strip_prefix("# ")).map(str::to_owned);
        Self { sum: text.split_whitespace().next().unwrap_or_default().to_owned(), toolchain }
    }

    fn text(&self, file_name: &str) -> String {
        let toolchain = self.toolchain.iter().map(|toolchain| format!("# {toolchain}\n"));
        format!("{}  {file_name}\n{}", self.sum, toolchain.collect::<String>())
    }
}

/// Every crate under `policies` and `examples/policies` that is built as a module of its own.
fn find(workspace: &Path) -> Result<Vec<Policy>, Error> {
    let metadata = toolchain::metadata(workspace)?;
    let mut policies = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let is_module = package["targets"].as_array().into_iter().flatten().any(|target| {
            target["crate_types"].as_array().is_some_and(|types| types.iter().any(|kind| kind == "cdylib"))
        });
        let (Some(name), Some(manifest)) = (package["name"].as_str(), package["manifest_path"].as_str().map(Path::new))
        else {
            continue;
        };
        let inside = |folder: &str| manifest.starts_with(workspace.join(folder));
        let Some(folder) =
            manifest.parent().filter(|_| is_module && (inside("policies") || inside("examples/policies")))
        else {
            continue;
        };
        let stem = folder.file_name().unwrap_or_default().to_string_lossy().replace('-', "_");
        policies.push(Policy { package: name.to_owned(), component: folder.join(format!("{stem}.wasm")) });
    }
    policies.sort_by(|a, b| a.component.cmp(&b.component));
    Ok(policies)
}

impl Policy {
    /// The component, built from source and held to what every policy of this repository promises.
    fn make(&self, workspace: &Path, toolchain: &Toolchain) -> Result<Vec<u8>, Error> {
        let component = component::encode(&toolchain.compile(workspace, &self.package)?)?;
        let World { imports, .. } = component::world(&component, &self.component)?;
        let allowed = |import: &String| {
            ["moorline:policy/host-log@", "moorline:policy/types@"].iter().any(|own| import.starts_with(own))
        };
        if let Some(import) = imports.into_iter().find(|import| !allowed(import)) {
            return Err(Error::Import { policy: self.package.clone(), import });
        }
        for path in toolchain.private_paths(workspace) {
            let text = path.to_string_lossy().into_owned();
            if component.windows(text.len()).any(|window| window == text.as_bytes()) {
                return Err(Error::PathInside { policy: self.package.clone(), text });
            }
        }
        Ok(component)
    }

    /// Compares what two components export, and what they answer: the policy's tests are run with the rebuilt one.
    fn compare_in_use(&self, workspace: &Path, committed: &[u8], rebuilt: &[u8]) -> Result<Comparison, Error> {
        if component::world(committed, &self.component)?.text != component::world(rebuilt, &self.component)?.text {
            return Ok(Comparison::Differs("imports or exports differ from what its source gives".to_owned()));
        }
        let folder = tempfile::tempdir().map_err(file("a temporary folder", "made"))?;
        let path = folder.path().join(self.file_name());
        fs::write(&path, rebuilt).map_err(file(&path, "written"))?;
        let mut cargo = Command::new(toolchain::cargo());
        cargo
            .current_dir(workspace)
            // By this pattern cargo fails where there is no test to run.
            .args(["test", "--quiet", "--locked", "--package", &self.package, "--test", "*"])
            .env(COMPONENT_UNDER_TEST, &path);
        let command = format!("cargo test -p {}", self.package);
        let status = cargo.status().map_err(|source| Error::Start { command, source })?;
        Ok(if status.success() {
            Comparison::Same("the same imports, exports and answers as its source gives".to_owned())
        } else {
            Comparison::Differs("the tests of this policy fail with what its source gives".to_owned())
        })
    }

    /// The component's path, as short as people need it.
    fn shown(&self, workspace: &Path) -> String {
        self.component.strip_prefix(workspace).unwrap_or(&self.component).display().to_string()
    }

    fn file_name(&self) -> String {
        self.component.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn record_file(&self) -> PathBuf {
        self.component.with_extension("wasm.sha256")
    }

    fn record(&self) -> Result<Record, Error> {
        let path = self.record_file();
        fs::read_to_string(&path).map(|text| Record::parse(&text)).map_err(file(path, "read"))
    }
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(component: &[u8], toolchain: &str) -> Record {
        Record { sum: sha256(component), toolchain: Some(toolchain.to_owned()) }
    }

    #[test]
    fn a_record_reads_as_it_was_written() {
        let record = record(b"component", "rustc 1.0, std as installed");
        let text = record.text("a.wasm");
        assert_eq!(Record::parse(&text), record);
        assert!(text.starts_with(&format!("{}  a.wasm\n# rustc", record.sum)), "{text}");
    }

    #[test]
    fn the_same_bytes_are_the_same_whatever_built_them() {
        assert!(matches!(compare(b"abc", &record(b"abc", "x"), b"abc", "y"), Comparison::Same(_)));
    }

    #[test]
    fn other_bytes_by_the_same_toolchain_differ_and_the_place_is_named() {
        let Comparison::Differs(said) = compare(b"abc", &record(b"abc", "x"), b"abd", "x") else { unreachable!() };
        assert!(said.contains("first at byte 2 (3 bytes committed, 3 rebuilt"), "{said}");
    }

    #[test]
    fn other_bytes_by_another_toolchain_say_nothing() {
        assert!(matches!(compare(b"abc", &record(b"abc", "x"), b"abd", "y"), Comparison::OtherToolchain(_)));
    }

    #[test]
    fn other_bytes_by_an_unknown_toolchain_differ() {
        let record = Record { toolchain: None, ..record(b"abc", "") };
        assert!(matches!(compare(b"abc", &record, b"abd", "y"), Comparison::Differs(_)));
    }

    #[test]
    fn a_component_that_is_not_the_recorded_one_differs_even_from_its_own_source() {
        assert!(matches!(compare(b"abc", &record(b"abd", "x"), b"abc", "x"), Comparison::Differs(_)));
    }
}
