//! The few changes that the agent makes to a file system, each a value, so that a test can record them, stop at any of
//! them, or replay only what had reached the disk. Nothing here knows what the files mean.

use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

/// One change to a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// Make a folder with this mode; one that exists is fine.
    CreateFolder {
        /// The folder.
        path: &'a Path,
        /// Its mode.
        mode: u32,
    },
    /// Make a file that must not exist yet.
    CreateFile {
        /// The file.
        path: &'a Path,
        /// What goes into it.
        content: &'a [u8],
        /// Its mode, whatever the umask says.
        mode: u32,
    },
    /// Set a file's mode.
    SetMode {
        /// The file.
        path: &'a Path,
        /// Its mode.
        mode: u32,
    },
    /// Make a file's content durable.
    SyncFile(&'a Path),
    /// Make the names in a folder durable.
    SyncFolder(&'a Path),
    /// Rename a file within its folder.
    Rename {
        /// The old name.
        from: &'a Path,
        /// The new name.
        to: &'a Path,
        /// Whether a file of the new name may be replaced.
        replace: bool,
    },
    /// Remove a file.
    Remove(&'a Path),
}

impl Change<'_> {
    fn path(&self) -> &Path {
        match self {
            Self::CreateFolder { path, .. } | Self::CreateFile { path, .. } | Self::SetMode { path, .. } => path,
            Self::SyncFile(path) | Self::SyncFolder(path) | Self::Remove(path) => path,
            Self::Rename { to, .. } => to,
        }
    }

    fn participle(&self) -> &'static str {
        match self {
            Self::CreateFolder { .. } => "created",
            Self::CreateFile { .. } => "written",
            Self::SetMode { .. } => "given its mode",
            Self::SyncFile(_) | Self::SyncFolder(_) => "made durable",
            Self::Rename { .. } => "renamed into place",
            Self::Remove(_) => "removed",
        }
    }
}

/// Where changes go.
pub trait Files: Send + Sync {
    /// Makes one change.
    fn change(&self, change: &Change<'_>) -> io::Result<()>;
}

impl<F: Files + ?Sized> Files for Arc<F> {
    fn change(&self, change: &Change<'_>) -> io::Result<()> {
        (**self).change(change)
    }
}

/// A file system that stays as it is: each change is said to be made, and none is. What is found there is real.
#[derive(Debug, Clone, Copy, Default)]
pub struct Untouched;

impl Files for Untouched {
    fn change(&self, _: &Change<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// The real file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk;

impl Files for Disk {
    fn change(&self, change: &Change<'_>) -> io::Result<()> {
        match *change {
            Change::CreateFolder { path, mode } => match fs::DirBuilder::new().mode(mode).create(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
                result => result,
            },
            Change::CreateFile { path, content, mode } => {
                let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
                file.set_permissions(Permissions::from_mode(mode))?;
                file.write_all(content)
            }
            Change::SetMode { path, mode } => fs::set_permissions(path, Permissions::from_mode(mode)),
            Change::SyncFile(path) | Change::SyncFolder(path) => File::open(path)?.sync_all(),
            Change::Rename { from, to, replace: true } => fs::rename(from, to),
            Change::Rename { from, to, replace: false } => {
                match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
                    // Some file systems can't; what was there a moment ago has been looked at by the caller.
                    Err(Errno::INVAL | Errno::NOSYS) => fs::rename(from, to),
                    result => Ok(result?),
                }
            }
            Change::Remove(path) => fs::remove_file(path),
        }
    }
}

/// A change, or a look, that failed.
#[derive(Debug, thiserror::Error)]
#[error("{} could not be {participle}{}", path.display(), self.cause().advice())]
pub struct FileError {
    /// Which file or folder.
    pub path: PathBuf,
    /// What was tried with it, as in "could not be *written*".
    pub participle: &'static str,
    /// What the operating system said.
    #[source]
    pub source: io::Error,
}

/// The kinds of failure that call for different help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The file system is mounted read-only.
    ReadOnly,
    /// No space, no inodes or no quota is left.
    Full,
    /// The agent's user may not.
    Denied,
    /// Something above it doesn't exist.
    Missing,
    /// Anything else.
    Other,
}

impl FileError {
    /// The kind of failure.
    pub fn cause(&self) -> Cause {
        match self.source.kind() {
            io::ErrorKind::ReadOnlyFilesystem => Cause::ReadOnly,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Cause::Full,
            io::ErrorKind::PermissionDenied => Cause::Denied,
            io::ErrorKind::NotFound => Cause::Missing,
            _ => Cause::Other,
        }
    }

    /// Whether something was in place that should not have been.
    pub(super) fn already_exists(&self) -> bool {
        self.source.kind() == io::ErrorKind::AlreadyExists
    }
}

impl Cause {
    fn advice(self) -> &'static str {
        match self {
            Self::ReadOnly => ": its file system is read-only. Mount it writable",
            Self::Full => ": no space, inodes or quota is left on its file system. Free some",
            Self::Denied => ": the agent's user may not. Give it the right, or run the agent as a user that has it",
            Self::Missing => ": it, or a folder above it, does not exist",
            Self::Other => "",
        }
    }
}

/// What is found under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Absent,
    /// A regular file.
    File {
        /// Its content.
        content: Vec<u8>,
        /// The permission bits of its mode.
        mode: u32,
    },
    /// A regular file beyond the cap, left unread.
    TooLarge,
    /// A symbolic link, not followed.
    Symlink,
    /// A folder.
    Folder,
    /// A pipe, socket or device, left unopened.
    Special,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "nothing",
            Self::File { .. } => "a file",
            Self::TooLarge => "a file that is too large",
            Self::Symlink => "a symbolic link",
            Self::Folder => "a folder",
            Self::Special => "neither a file nor a folder",
        })
    }
}

/// Looks at a name without following a link, and reads the file if there is one of at most `cap` bytes.
pub fn look(path: &Path, cap: usize) -> Result<Found, FileError> {
    let failed = |source| FileError { path: path.to_owned(), participle: "read", source };
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Absent),
        other => other.map_err(failed)?,
    };
    let kind = metadata.file_type();
    if kind.is_symlink() {
        return Ok(Found::Symlink);
    } else if kind.is_dir() {
        return Ok(Found::Folder);
    } else if !kind.is_file() {
        return Ok(Found::Special);
    }
    // Whatever took the file's place since then is neither followed nor waited for.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Absent),
        other => other.map_err(failed)?,
    };
    let mut content = Vec::new();
    file.take(cap as u64 + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() > cap {
        return Ok(Found::TooLarge);
    }
    Ok(Found::File { content, mode: metadata.permissions().mode() & 0o7777 })
}

/// Makes one change, and says which one when it fails.
pub fn change(files: &impl Files, change: Change<'_>) -> Result<(), FileError> {
    files.change(&change).map_err(|source| FileError {
        path: change.path().to_owned(),
        participle: change.participle(),
        source,
    })
}

/// Makes a folder where it is missing, and those above it: each lasts before anything is put into it.
pub fn make_folder(files: &impl Files, folder: &Path, mode: u32) -> Result<(), FileError> {
    let missing: Vec<_> =
        folder.ancestors().take_while(|path| *path != Path::new("") && fs::metadata(path).is_err()).collect();
    for path in missing.into_iter().rev() {
        change(files, Change::CreateFolder { path, mode })?;
        // A relative path begins in the working folder.
        let parent = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        change(files, Change::SyncFolder(parent))?;
    }
    Ok(())
}

const TEMPORARY_PREFIX: &str = ".moorline-";
const TEMPORARY_SUFFIX: &str = ".tmp";

/// Puts a file in place, whole or not at all: a temporary file beside it, made durable, renamed, the name made durable.
/// `replace` says whether a file of that name may be replaced.
pub fn put(
    files: &impl Files,
    folder: &Path,
    name: &str,
    content: &[u8],
    mode: u32,
    replace: bool,
) -> Result<(), FileError> {
    let to = folder.join(name);
    let from = create_temporary(files, folder, content, mode)?;
    let placed = change(files, Change::SyncFile(&from))
        .and_then(|()| change(files, Change::Rename { from: &from, to: &to, replace }));
    if let Err(error) = placed {
        // The first error is the one that matters; what stays behind is swept up later.
        let _ = files.change(&Change::Remove(&from));
        return Err(error);
    }
    change(files, Change::SyncFolder(folder))
}

fn create_temporary(files: &impl Files, folder: &Path, content: &[u8], mode: u32) -> Result<PathBuf, FileError> {
    let process = std::process::id();
    let mut number = 0_u32;
    loop {
        let path = folder.join(format!("{TEMPORARY_PREFIX}{process}-{number}{TEMPORARY_SUFFIX}"));
        match change(files, Change::CreateFile { path: &path, content, mode }) {
            Ok(()) => return Ok(path),
            // The leftover of a crash whose process had the same id: never in the way.
            Err(error) if error.already_exists() && number < 1000 => number += 1,
            Err(error) => {
                // A file system that is full leaves an empty file behind.
                if !error.already_exists() {
                    let _ = files.change(&Change::Remove(&path));
                }
                return Err(error);
            }
        }
    }
}

/// Removes the temporary files that a crash left in a folder, and says how many. A folder that is missing has none.
/// Only the holder of the lock may call it: a temporary file of a running agent looks the same.
pub fn sweep(files: &impl Files, folder: &Path) -> Result<usize, FileError> {
    let failed = |source| FileError { path: folder.to_owned(), participle: "read", source };
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        other => other.map_err(failed)?,
    };
    let mut swept = 0;
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let is_ours =
            name.to_str().is_some_and(|name| name.starts_with(TEMPORARY_PREFIX) && name.ends_with(TEMPORARY_SUFFIX));
        if is_ours && entry.file_type().map_err(failed)?.is_file() {
            change(files, Change::Remove(&entry.path()))?;
            swept += 1;
        }
    }
    Ok(swept)
}
