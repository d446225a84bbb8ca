//! Which compiler builds guests, and the nested cargo that does it with the same bytes on every machine.
//! Nothing of the outer cargo's configuration reaches the inner one, and no path of the machine reaches the output.

use std::{
    env,
    ffi::OsString,
    fmt, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::error::{Error, file};

const TARGET: &str = "wasm32-unknown-unknown";

/// A compiler for guests.
pub(crate) struct Toolchain {
    rustc: PathBuf,
    sysroot: PathBuf,
    version: String,
    std: Std,
}

/// Where the guest's standard library comes from.
enum Std {
    /// The target is installed, with a linker of its own.
    Installed,
    /// Built from the sources that are installed, and linked by this linker.
    Source { linker: PathBuf, version: String },
}

impl Std {
    fn from_source(linker: PathBuf) -> Option<Self> {
        let version = said(Command::new(&linker).arg("--version"))?;
        Some(Self::Source { linker, version })
    }
}

/// What decides the bytes of a component, as recorded beside its checksum.
impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.std {
            Std::Installed => write!(f, "{}, std as installed", self.version),
            Std::Source { version, .. } => write!(f, "{}, std from source, {version}", self.version),
        }
    }
}

impl Toolchain {
    /// The toolchain that `recorded` names if it is here, otherwise the first that can build guests.
    pub(crate) fn find(recorded: Option<&str>) -> Result<Self, Error> {
        // Debian's packages install beside a rustup toolchain that has no wasm target.
        let mut found: Vec<Self> = ["rustc", "/usr/bin/rustc"].into_iter().flat_map(Self::probe).collect();
        let wanted = found.iter().position(|toolchain| recorded == Some(toolchain.to_string().as_str()));
        if found.is_empty() { Err(Error::NoToolchain) } else { Ok(found.swap_remove(wanted.unwrap_or(0))) }
    }

    /// The ways in which a compiler can build guests here: none, or one for each linker.
    fn probe(rustc: &str) -> Vec<Self> {
        let ask = |arguments: &[&str]| said(Command::new(rustc).args(arguments));
        let (Some(version), Some(sysroot), Some(installed)) = (
            ask(&["--version"]),
            ask(&["--print", "sysroot"]).map(PathBuf::from),
            ask(&["--print", "target-libdir", "--target", TARGET]).map(PathBuf::from),
        ) else {
            return Vec::new();
        };
        let stds = if installed.is_dir() {
            vec![Std::Installed]
        } else if sysroot.join("lib/rustlib/src/rust/library/std").is_dir() {
            wasm_linkers().filter_map(Std::from_source).collect()
        } else {
            Vec::new()
        };
        stds.into_iter()
            .map(|std| Self { rustc: rustc.into(), sysroot: sysroot.clone(), version: version.clone(), std })
            .collect()
    }

    /// Compiles the library of `package` for guests and returns its core module.
    pub(crate) fn compile(&self, workspace: &Path, package: &str) -> Result<PathBuf, Error> {
        let target_dir = workspace.join("target/guest");
        let mut cargo = Command::new(cargo());
        for (name, _) in env::vars_os().filter(|(name, _)| steers_a_build(&name.to_string_lossy())) {
            cargo.env_remove(name);
        }
        cargo
            .current_dir(workspace)
            .args([
                "build",
                "--quiet",
                "--locked",
                "--profile",
                "guest",
                "--lib",
                "--target",
                TARGET,
                "--package",
                package,
            ])
            .arg("--target-dir")
            .arg(&target_dir)
            .env("RUSTC", &self.rustc)
            .env("CARGO_ENCODED_RUSTFLAGS", self.remaps(workspace)?);
        if let Std::Source { linker, .. } = &self.std {
            cargo
                .arg("-Zbuild-std=std,panic_abort")
                .env("RUSTC_BOOTSTRAP", "1")
                .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
        }
        let command = format!("{cargo:?}");
        let status =
            cargo.status().map_err(|source| Error::Start { command: format!("cargo build -p {package}"), source })?;
        if !status.success() {
            return Err(Error::Command { command, status });
        }
        Ok(target_dir.join(TARGET).join("guest").join(format!("{}.wasm", package.replace('-', "_"))))
    }

    /// Flags that give every source the same path on every machine: panics name their place.
    fn remaps(&self, workspace: &Path) -> Result<OsString, Error> {
        let mut from = vec![(workspace.to_owned(), "/moorline"), (self.sysroot.join("lib/rustlib/src/rust"), "/rust")];
        let registries = cargo_home().join("registry/src");
        for registry in fs::read_dir(&registries).map_err(file(&registries, "read"))? {
            from.push((registry.map_err(file(&registries, "read"))?.path(), "/crates"));
        }
        let flags: Vec<OsString> = from
            .into_iter()
            .map(|(from, to)| {
                let mut flag = OsString::from("--remap-path-prefix=");
                flag.push(from);
                flag.push("=");
                flag.push(to);
                flag
            })
            .collect();
        Ok(flags.join("\u{1f}".as_ref()))
    }

    /// Paths that must not show up in a component.
    pub(crate) fn private_paths(&self, workspace: &Path) -> Vec<PathBuf> {
        let mut paths = vec![workspace.to_owned(), self.sysroot.clone(), cargo_home()];
        paths.extend(env::var_os("HOME").map(PathBuf::from));
        // `/usr` is a sysroot too, and says nothing about a machine.
        paths.retain(|path| path.components().count() > 2);
        paths
    }
}

/// Whether a variable of the outer cargo or of a shell would change what the inner one builds.
fn steers_a_build(name: &str) -> bool {
    let of_cargo = name.starts_with("CARGO") || name.starts_with("RUST");
    // Where crates come from and which toolchain runs is the machine's business.
    let kept = ["CARGO_HOME", "CARGO_NET_", "CARGO_HTTP_", "CARGO_REGISTR", "CARGO_TERM_", "RUSTUP_"];
    of_cargo && !kept.iter().any(|kept| name.starts_with(kept))
}

/// The wasm linkers on the path, the newest first: `wasm-ld`, or Debian's `wasm-ld-22`.
fn wasm_linkers() -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = env::split_paths(&path).collect();
    let files = folders.into_iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let version = |path: &Path| {
        let name = path.file_name()?.to_str()?.strip_prefix("wasm-ld")?;
        if name.is_empty() { Some(0) } else { name.strip_prefix('-')?.parse::<u32>().ok() }
    };
    let mut linkers: Vec<_> = files.filter_map(|file| Some((version(&file.path())?, file.path()))).collect();
    linkers.sort_by(|(one, _), (other, _)| other.cmp(one));
    linkers.into_iter().map(|(_, linker)| linker)
}

/// The cargo that runs this task.
pub(crate) fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// What cargo knows of the workspace's own packages.
pub(crate) fn metadata(workspace: &Path) -> Result<serde_json::Value, Error> {
    let mut cargo = Command::new(cargo());
    cargo.current_dir(workspace).args(["metadata", "--no-deps", "--format-version", "1"]);
    let output = cargo.output().map_err(|source| Error::Start { command: "cargo metadata".into(), source })?;
    serde_json::from_slice(&output.stdout).map_err(|source| Error::Metadata { source, status: output.status })
}

fn cargo_home() -> PathBuf {
    env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .unwrap_or_else(|| PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cargo"))
}

/// What a command prints, trimmed, if it succeeds.
fn said(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_build_stays_outside_and_what_finds_crates_does_not() {
        for steers in
            ["CARGO", "CARGO_TARGET_DIR", "CARGO_PROFILE_GUEST_OPT_LEVEL", "RUSTFLAGS", "RUSTC_WRAPPER", "RUSTDOCFLAGS"]
        {
            assert!(steers_a_build(steers), "{steers}");
        }
        for kept in ["CARGO_HOME", "CARGO_REGISTRIES_OWN_INDEX", "CARGO_HTTP_PROXY", "RUSTUP_TOOLCHAIN", "PATH", "HOME"]
        {
            assert!(!steers_a_build(kept), "{kept}");
        }
    }
}
