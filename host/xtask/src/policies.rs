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

/// A crate that becomes the component `<folder>/<folder's name>.wasm`, with `_` for `-`.
struct Policy {
    package: String,
    component: PathBuf,
}

/// Builds every policy and writes its component and checksum.
pub(crate) fn build(workspace: &Path) -> Result<(), Error> {
    for policy in find(workspace)? {
        let toolchain = Toolchain::find(policy.recorded_toolchain().as_deref())?;
        let component = policy.make(workspace, &toolchain)?;
        fs::write(&policy.component, &component).map_err(file(&policy.component, "written"))?;
        let record = format!("{}  {}\n# {toolchain}\n", sha256(&component), policy.file_name());
        fs::write(policy.record(), record).map_err(file(policy.record(), "written"))?;
        println!("{}: {} bytes, built with {toolchain}", policy.component.display(), component.len());
    }
    Ok(())
}

/// Builds every policy and says of each whether the committed component is what its source gives.
///
/// With the toolchain that the committed one was built with, that means the same bytes. Another compiler makes other bytes of
/// the same source: then the committed component must match its checksum and have the same world as the rebuilt one, and the
/// policy's tests must pass with the rebuilt one as they do with the committed one.
pub(crate) fn check(workspace: &Path) -> Result<(), Error> {
    let mut differing = 0;
    for policy in find(workspace)? {
        let recorded = policy.recorded_toolchain();
        let toolchain = Toolchain::find(recorded.as_deref())?;
        let rebuilt = policy.make(workspace, &toolchain)?;
        match policy.compare(workspace, &rebuilt, recorded, &toolchain)? {
            Ok(same) => println!("{}: {same}", policy.component.display()),
            Err(differs) => {
                differing += 1;
                println!("{}: {differs}", policy.component.display());
            }
        }
    }
    if differing == 0 { Ok(()) } else { Err(Error::Differs { differing }) }
}

/// Every crate under `policies` and `examples/policies` that is built as a module of its own.
fn find(workspace: &Path) -> Result<Vec<Policy>, Error> {
    let mut cargo = Command::new(toolchain::cargo());
    cargo.current_dir(workspace).args(["metadata", "--no-deps", "--format-version", "1"]);
    let output = cargo.output().map_err(|source| Error::Start { command: "cargo metadata".into(), source })?;
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|source| Error::Metadata { source, status: output.status })?;
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

    /// What makes the committed component the same as the rebuilt one, or in what it differs.
    fn compare(
        &self,
        workspace: &Path,
        rebuilt: &[u8],
        recorded: Option<String>,
        toolchain: &Toolchain,
    ) -> Result<Result<String, String>, Error> {
        let committed = fs::read(&self.component).map_err(file(&self.component, "read"))?;
        let record = fs::read_to_string(self.record()).map_err(file(self.record(), "read"))?;
        let sum = sha256(&committed);
        if record.split_whitespace().next() != Some(sum.as_str()) {
            return Ok(Err(format!("its checksum is {sum}, not what {} says", self.record().display())));
        }
        if committed == rebuilt {
            return Ok(Ok("the same bytes as its source gives".to_owned()));
        }
        let sizes = format!("{} bytes committed, {} rebuilt", committed.len(), rebuilt.len());
        let recorded = recorded.unwrap_or_else(|| "an unknown toolchain".to_owned());
        if recorded == toolchain.to_string() {
            let at = committed.iter().zip(rebuilt).take_while(|(a, b)| a == b).count();
            return Ok(Err(format!(
                "differs from what its source gives, first at byte {at} ({sizes}, both by {toolchain})"
            )));
        }
        println!(
            "{}: committed was built with {recorded}; here is {toolchain}, so the bytes differ ({sizes})",
            self.component.display()
        );
        if component::world(&committed, &self.component)?.text != component::world(rebuilt, &self.component)?.text {
            return Ok(Err("imports or exports differ from what its source gives".to_owned()));
        }
        self.behaves(workspace, rebuilt, &sum)
    }

    /// Runs the policy's tests with the rebuilt component in place of the committed one, with which they run every time.
    fn behaves(&self, workspace: &Path, rebuilt: &[u8], sum: &str) -> Result<Result<String, String>, Error> {
        let folder = tempfile::tempdir().map_err(file("a temporary folder", "made"))?;
        let path = folder.path().join(self.file_name());
        fs::write(&path, rebuilt).map_err(file(&path, "written"))?;
        let mut cargo = Command::new(toolchain::cargo());
        cargo
            .current_dir(workspace)
            .args(["test", "--quiet", "--locked", "--package", &self.package])
            .env("MOORLINE_TEST_COMPONENT", &path);
        let status = cargo
            .status()
            .map_err(|source| Error::Start { command: format!("cargo test -p {}", self.package), source })?;
        Ok(if status.success() {
            Ok(format!("sha256 {sum}, the same world and the same answers as its source gives"))
        } else {
            Err("the tests of this policy fail with what its source gives".to_owned())
        })
    }

    fn file_name(&self) -> String {
        self.component.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn record(&self) -> PathBuf {
        self.component.with_extension("wasm.sha256")
    }

    /// The toolchain that the committed component was built with.
    fn recorded_toolchain(&self) -> Option<String> {
        let record = fs::read_to_string(self.record()).ok()?;
        record.lines().find_map(|line| line.strip_prefix("# ")).map(str::to_owned)
    }
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
