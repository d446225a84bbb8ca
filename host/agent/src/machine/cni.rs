//! The one CNI configuration file that the agent owns: written whole or not at all, disabled by renaming. A file of
//! someone else, a symlink or a folder under that name is never touched.
//!
//! A file is the agent's own when it has the agent's form (the same JSON printed as [`form`] prints it, which no other
//! writer does) and its content is one that the ledger knows. Where the ledger is lost, the form alone decides.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use moorline_lifecycle::CniSeen;
use serde::Serialize as _;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::files::{self, Change, Disk, FileError, Files, Found};
use crate::config::Takeover;

/// No configuration is near this size; a larger file isn't read.
const READ_CAP: usize = 4 << 20;
/// What ends the names of files that container runtimes read (containerd's and CRI-O's loaders).
const READ: [&str; 3] = ["conf", "conflist", "json"];
const FILE_MODE: u32 = 0o644;
const FOLDER_MODE: u32 = 0o755;

/// The agent's CNI file in its folder.
#[derive(Debug, Clone)]
pub struct CniFile<F = Disk> {
    folder: PathBuf,
    name: String,
    files: F,
}

/// By what the agent recognises a file as its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ownership {
    /// The [`digest`] of every content that the ledger lists.
    pub known_digests: BTreeSet<String>,
    /// The ledger is missing or damaged, so that it knows nothing and the form alone decides.
    pub ledger_lost: bool,
    /// Whether the published agent's file counts as the agent's own.
    pub takeover: Takeover,
}

/// What is in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CniState {
    /// No file of that name.
    Absent,
    /// A file that the agent may replace, with the [`digest`] of its content.
    Own(String),
    /// Something that the agent leaves alone.
    Blocked(CniBlocked),
}

/// What writing did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The file is new, or another content is in place now.
    Changed,
    /// The content was in place already; at most the mode was put right.
    Unchanged,
}

/// What disabling did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disabled {
    /// The file was renamed.
    Renamed,
    /// There was nothing to disable.
    Absent,
}

/// Something that isn't the agent's is in the way, and only a person can help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} {reason}", path.display())]
pub struct CniBlocked {
    /// What is in the way.
    pub path: PathBuf,
    /// Why it is left alone, and the way out.
    pub reason: BlockReason,
}

/// Why something is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockReason {
    /// Someone else wrote it.
    #[error(
        "was written or changed by someone else and stays as it is. Move it away, or give the agent another file name \
         by `machine.cniFile`"
    )]
    Foreign,
    /// The published agent wrote it, and taking it over isn't allowed.
    #[error(
        "was written by the published agent and stays as it is. Set `machine.takeover: published` to have it replaced, \
         or move it away"
    )]
    Published,
    /// A symbolic link.
    #[error("is a symbolic link, which the agent neither follows nor replaces. Move it away")]
    Symlink,
    /// A folder.
    #[error("is a folder, where a file should be. Move it away")]
    Folder,
    /// A pipe, a socket or a device.
    #[error("is neither a file nor a folder. Move it away")]
    Special,
    /// Not a folder, where the folder should be.
    #[error("is not a folder. Move it away, or correct `machine.cniDirectory`")]
    NotAFolder,
}

/// Why the CNI file isn't as it should be.
#[derive(Debug, thiserror::Error)]
pub enum CniError {
    /// Something is in the way.
    #[error(transparent)]
    Blocked(#[from] CniBlocked),
    /// The file system failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The configuration to be written isn't JSON. The floor refuses such a one before it gets here.
    #[error("the CNI configuration isn't JSON and was not written")]
    NotJson(#[source] serde_json::Error),
}

impl CniError {
    /// Whether only a person can help.
    pub fn is_blocked(&self) -> bool {
        matches!(self, Self::Blocked(_))
    }
}

/// The agent's form of a configuration: keys sorted, indented by tabs, a newline at the end. What it says is unchanged.
pub fn form(conflist: &str) -> Result<Vec<u8>, serde_json::Error> {
    let mut value: Value = serde_json::from_str(conflist)?;
    value.sort_all_objects();
    let mut printed = Vec::new();
    let tabs = serde_json::ser::PrettyFormatter::with_indent(b"\t");
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut printed, tabs))?;
    printed.push(b'\n');
    Ok(printed)
}

/// A digest of what a configuration says, whatever its spaces and the order of its keys.
pub fn digest(conflist: &str) -> Result<String, serde_json::Error> {
    let mut value: Value = serde_json::from_str(conflist)?;
    value.sort_all_objects();
    let hash = Sha256::digest(value.to_string());
    Ok(hash.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl CniFile {
    /// The file of this name in this folder.
    pub fn new(folder: impl Into<PathBuf>, name: impl Into<String>) -> Self {
        Self::with_files(folder, name, Disk)
    }
}

impl<F: Files> CniFile<F> {
    /// The same on another file system.
    pub fn with_files(folder: impl Into<PathBuf>, name: impl Into<String>, files: F) -> Self {
        Self { folder: folder.into(), name: name.into(), files }
    }

    /// The file's path.
    pub fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    fn disabled_path(&self) -> PathBuf {
        self.folder.join(format!("{}.disabled", self.name))
    }

    /// What is in place.
    pub fn read(&self, ownership: &Ownership) -> Result<CniState, CniError> {
        Ok(ownership.judge(&self.path(), &files::look(&self.path(), READ_CAP)?))
    }

    /// A configuration that an earlier agent put in place, where no ledger says so: its [`form`] alone decides.
    pub fn left(&self) -> Option<String> {
        let by_form = Ownership { ledger_lost: true, ..Ownership::default() };
        match files::look(&self.path(), READ_CAP) {
            Ok(Found::File { content, .. }) if by_form.judge_content(&content).is_ok() => {
                String::from_utf8(content).ok()
            }
            _ => None,
        }
    }

    /// Looks whether a configuration that was put in place is there as it was. A file or folder that can't be read counts
    /// as gone: writing says what is wrong with it.
    pub fn look(&self, conflist: &str) -> CniSeen {
        let is_there = |content: Vec<u8>| matches!(files::look(&self.path(), READ_CAP), Ok(Found::File { content: found, .. }) if found == content);
        CniSeen { in_place: form(conflist).is_ok_and(is_there), in_the_way: self.in_the_way() }
    }

    /// The first file that a container runtime reads before the agent's and can't make sense of. containerd loads nothing
    /// then: its loader ends with the first file that it can't parse.
    fn in_the_way(&self) -> Option<String> {
        let names =
            std::fs::read_dir(&self.folder).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let is_read = |name: &String| {
            *name < self.name && Path::new(name).extension().is_some_and(|end| READ.iter().any(|read| end == *read))
        };
        let mut earlier: Vec<_> = names.filter(is_read).collect();
        earlier.sort();
        let broken = earlier.into_iter().map(|name| self.folder.join(name)).find(|path| is_broken(path))?;
        Some(format!(
            "{} is read before {} and is no CNI configuration: with it a container runtime may load none at all. Repair \
             it or move it away.",
            broken.display(),
            self.name
        ))
    }

    /// Puts a configuration in place, in the agent's [`form`]. The folder is made where it is missing, leftovers of a
    /// crash are removed, a content that is there already isn't written again.
    pub fn write(&self, conflist: &str, ownership: &Ownership) -> Result<Written, CniError> {
        let content = form(conflist).map_err(CniError::NotJson)?;
        self.ensure_folder()?;
        files::sweep(&self.files, &self.folder)?;
        let path = self.path();
        let found = files::look(&path, READ_CAP)?;
        if let Found::File { content: present, mode } = &found
            && *present == content
        {
            if *mode != FILE_MODE {
                files::change(&self.files, Change::SetMode { path: &path, mode: FILE_MODE })?;
            }
            // The process that wrote it may have been killed before the name was durable.
            files::change(&self.files, Change::SyncFolder(&self.folder))?;
            return Ok(Written::Unchanged);
        }
        let replace = match ownership.judge(&path, &found) {
            CniState::Absent => false,
            CniState::Own(_) => true,
            CniState::Blocked(blocked) => return Err(blocked.into()),
        };
        match files::put(&self.files, &self.folder, &self.name, &content, FILE_MODE, replace) {
            // Someone put a file there just now.
            Err(error) if error.already_exists() => Err(CniBlocked { path, reason: BlockReason::Foreign }.into()),
            result => Ok(result.map(|()| Written::Changed)?),
        }
    }

    /// Renames the agent's file to `<name>.disabled`, where the container runtime doesn't look. A leftover one of the
    /// agent's is replaced.
    pub fn disable(&self, ownership: &Ownership) -> Result<Disabled, CniError> {
        files::sweep(&self.files, &self.folder)?;
        let (from, to) = (self.path(), self.disabled_path());
        match ownership.judge(&from, &files::look(&from, READ_CAP)?) {
            CniState::Absent => return Ok(Disabled::Absent),
            CniState::Own(_) => {}
            CniState::Blocked(blocked) => return Err(blocked.into()),
        }
        // The ledger knows only the last contents, and a leftover may be older: its form decides.
        let by_form = Ownership { ledger_lost: true, ..ownership.clone() };
        let replace = match by_form.judge(&to, &files::look(&to, READ_CAP)?) {
            CniState::Absent => false,
            CniState::Own(_) => true,
            CniState::Blocked(blocked) => return Err(blocked.into()),
        };
        files::change(&self.files, Change::Rename { from: &from, to: &to, replace })?;
        files::change(&self.files, Change::SyncFolder(&self.folder))?;
        Ok(Disabled::Renamed)
    }

    fn ensure_folder(&self) -> Result<(), CniError> {
        match std::fs::metadata(&self.folder) {
            Ok(metadata) if metadata.is_dir() => Ok(()),
            Ok(_) => Err(CniBlocked { path: self.folder.clone(), reason: BlockReason::NotAFolder }.into()),
            Err(_) => Ok(files::make_folder(&self.files, &self.folder, FOLDER_MODE)?),
        }
    }
}

impl Ownership {
    /// The ownership that a ledger gives which lists these configurations.
    pub fn of<'a>(contents: impl IntoIterator<Item = &'a str>, ledger_lost: bool, takeover: Takeover) -> Self {
        // What isn't JSON was never written.
        let known_digests = contents.into_iter().filter_map(|content| digest(content).ok()).collect();
        Self { known_digests, ledger_lost, takeover }
    }

    fn judge(&self, path: &Path, found: &Found) -> CniState {
        let reason = match found {
            Found::Absent => return CniState::Absent,
            Found::Symlink => BlockReason::Symlink,
            Found::Folder => BlockReason::Folder,
            Found::Special => BlockReason::Special,
            Found::TooLarge => BlockReason::Foreign,
            Found::File { content, .. } => match self.judge_content(content) {
                Ok(digest) => return CniState::Own(digest),
                Err(reason) => reason,
            },
        };
        CniState::Blocked(CniBlocked { path: path.to_owned(), reason })
    }

    fn judge_content(&self, content: &[u8]) -> Result<String, BlockReason> {
        let text = std::str::from_utf8(content).map_err(|_| BlockReason::Foreign)?;
        let (form, digest) = form(text).and_then(|form| Ok((form, digest(text)?))).map_err(|_| BlockReason::Foreign)?;
        if is_conflist(text) && form == content && (self.ledger_lost || self.known_digests.contains(&digest)) {
            Ok(digest)
        } else if form == content || !is_published(text) {
            Err(BlockReason::Foreign)
        } else if self.takeover == Takeover::Published {
            Ok(digest)
        } else {
            Err(BlockReason::Published)
        }
    }
}

fn plugin_types(text: &str) -> Option<(String, Vec<String>)> {
    let value: Value = serde_json::from_str(text).ok()?;
    let plugins = value.get("plugins")?.as_array()?;
    let types = plugins.iter().map(|plugin| Some(plugin.get("type")?.as_str()?.to_owned())).collect::<Option<_>>()?;
    Some((value.get("name")?.as_str()?.to_owned(), types))
}

/// Whether a file is neither a network configuration list nor a single plugin's configuration.
fn is_broken(path: &Path) -> bool {
    let Ok(Found::File { content, .. }) = files::look(path, READ_CAP) else {
        // What is no plain file is judged by who made it.
        return false;
    };
    let Ok(text) = std::str::from_utf8(&content) else { return true };
    let is_list = path.extension().is_some_and(|end| end == "conflist");
    !if is_list { is_conflist(text) } else { is_plugin(text) }
}

/// A single plugin's configuration: it has a type.
fn is_plugin(text: &str) -> bool {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    value["type"].as_str().is_some_and(|kind| !kind.is_empty())
}

/// A network configuration list: a name, and plugins that each have a type.
fn is_conflist(text: &str) -> bool {
    plugin_types(text).is_some_and(|(_, types)| !types.is_empty())
}

/// What the published agent writes: its network name, a bridge, nothing but bridge and portmap.
fn is_published(text: &str) -> bool {
    plugin_types(text).is_some_and(|(name, types)| {
        name == "unbounded-net"
            && types.first().is_some_and(|first| first == "bridge")
            && types.iter().all(|known| known == "bridge" || known == "portmap")
    })
}

#[cfg(test)]
mod tests;
