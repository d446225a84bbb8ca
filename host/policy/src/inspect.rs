//! A look at a component before anything is compiled: is it one, whom does it import from, which contract was it built for,
//! what does it export? It reads names only; that types fit is checked after compilation.

use wasmparser::{Parser, Payload};

use crate::{Hooks, LoadFault, Wasi};

/// The interface that every policy exports.
pub(crate) const POLICY: &str = "moorline:policy/policy@0.1.0";
/// What the names of WASI's interfaces begin with.
pub(crate) const WASI: &str = "wasi:";
/// The one interface with functions that every policy may import.
const HOST_LOG: &str = "moorline:policy/host-log@0.1.0";

/// Checks a component's outer names and returns the names of the known hooks that it exports.
pub(crate) fn inspect(bytes: &[u8], hooks: &Hooks, wasi: Wasi) -> Result<Vec<&'static str>, LoadFault> {
    refuse_other_formats(bytes)?;
    let (imports, exports) = names(bytes).map_err(|error| LoadFault::Malformed(error.to_string()))?;

    let ours: Vec<Name<'_>> =
        hooks.iter().map(|hook| hook.interface).chain([POLICY, HOST_LOG]).filter_map(Name::parse).collect();
    for name in imports.iter().chain(&exports).filter_map(|name| Name::parse(name)) {
        // One package, one version: a component for another version of a contract would misunderstand every question.
        let same_package: Vec<_> = ours.iter().filter(|ours| ours.package == name.package).collect();
        if let Some(first) = same_package.first()
            && !same_package.iter().any(|ours| ours.track() == name.track())
        {
            return Err(LoadFault::OtherContract {
                found: format!("{}@{}", name.package, name.version),
                spoken: format!("{}@{}", first.package, first.version),
            });
        }
    }
    for import in &imports {
        // Interfaces of a known package beside the log hold nothing but types; if one has functions, linking finds no match.
        let allowed = Name::parse(import).is_some_and(|name| ours.iter().any(|ours| ours.package == name.package))
            || (wasi == Wasi::Isolated && import.starts_with(WASI));
        if !allowed {
            return Err(LoadFault::ForbiddenImport { import: import.clone() });
        }
    }
    if !exports.iter().any(|export| same_interface(export, POLICY)) {
        return Err(LoadFault::NoPolicyInterface);
    }
    let found: Vec<_> = hooks
        .iter()
        .filter(|hook| exports.iter().any(|export| same_interface(export, hook.interface)))
        .map(|hook| hook.name)
        .collect();
    if found.is_empty() {
        return Err(LoadFault::NoHook {
            known: hooks.iter().map(|hook| hook.interface).collect::<Vec<_>>().join(", "),
        });
    }
    Ok(found)
}

fn refuse_other_formats(bytes: &[u8]) -> Result<(), LoadFault> {
    let kind = match bytes {
        [0, b'a', b's', b'm', _, _, 1, 0, ..] => return Ok(()),
        [0, b'a', b's', b'm', 1, 0, 0, 0, ..] => "a core WebAssembly module; turn it into a component first",
        [] => "empty",
        [0x7f, b'E', b'L', b'F', ..] => "a native object file; compiled policies are never accepted from outside",
        _ if bytes.trim_ascii_start().starts_with(b"(") => "WebAssembly text; translate it to the binary format first",
        _ => "something else",
    };
    Err(LoadFault::NotAComponent { kind })
}

/// Names of the outermost imports and exports.
fn names(bytes: &[u8]) -> wasmparser::Result<(Vec<String>, Vec<String>)> {
    let (mut imports, mut exports) = (Vec::new(), Vec::new());
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    imports.push(import?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    exports.push(export?.name.name.to_owned());
                }
            }
            _ => {}
        }
    }
    Ok((imports, exports))
}

/// A versioned interface name, `package:name/interface@version`.
#[derive(Clone, Copy)]
struct Name<'a> {
    package: &'a str,
    interface: &'a str,
    version: &'a str,
}

impl<'a> Name<'a> {
    fn parse(name: &'a str) -> Option<Self> {
        let (package, rest) = name.split_once('/')?;
        let (interface, version) = rest.split_once('@')?;
        Some(Self { package, interface, version })
    }

    /// The part of the version within which semver promises compatibility: `1` of 1.2.3, `0.1` of 0.1.4, `0.0.7` of 0.0.7.
    fn track(&self) -> &'a str {
        if self.version.contains(['-', '+']) {
            return self.version;
        }
        let parts = self.version.split('.').take_while(|part| *part == "0").count() + 1;
        let end = self.version.match_indices('.').nth(parts - 1).map_or(self.version.len(), |(at, _)| at);
        &self.version[..end]
    }
}

/// Whether two names are of one interface, in versions of one semver track.
pub(crate) fn same_interface(left: &str, right: &str) -> bool {
    match (Name::parse(left), Name::parse(right)) {
        (Some(left), Some(right)) => {
            (left.package, left.interface, left.track()) == (right.package, right.interface, right.track())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_one_semver_track_are_one_interface_and_others_are_not() {
        assert!(same_interface("a:b/c@0.1.0", "a:b/c@0.1.9"));
        assert!(same_interface("a:b/c@1.2.3", "a:b/c@1.9.0"));
        for other in ["a:b/c@0.2.0", "a:b/d@0.1.0", "a:x/c@0.1.0", "a:b/c@1.1.0", "a:b/c@0.1.0-draft", "c"] {
            assert!(!same_interface("a:b/c@0.1.0", other), "{other} passed for 0.1.0");
        }
    }
}
