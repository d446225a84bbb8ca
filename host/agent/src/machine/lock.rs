//! The lock of the state folder: at most one agent at a time on a machine. It is held for as long as the process lives
//! and falls with it, however it ends. It also tells when the last process started.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::files::{self, Disk, FileError, Files};

const NAME: &str = "lock";
const FOLDER_MODE: u32 = 0o700;

/// The lock, held until it is dropped.
#[derive(Debug)]
pub struct StateLock {
    /// Closing it releases the lock.
    _file: File,
    /// When the process that held the lock before started, if that is known.
    pub previous_start: Option<Timestamp>,
}

/// Who holds the lock, or held it last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its process id, as seen in its own process namespace.
    pub pid: u32,
    /// When it started.
    #[serde(with = "rfc3339")]
    pub started: Timestamp,
}

mod rfc3339 {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(time)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Why the lock isn't held.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another agent holds it.
    #[error(
        "another agent holds the lock {}{}. This one waits until that one has ended, and makes no request until then",
        path.display(),
        describe(holder.as_ref())
    )]
    Held {
        /// The lock file.
        path: PathBuf,
        /// Who holds it, as far as the file tells.
        holder: Option<Holder>,
    },
    /// The file system failed.
    #[error(transparent)]
    File(#[from] FileError),
}

fn describe(holder: Option<&Holder>) -> String {
    holder.map(|holder| format!(" (process {}, started {})", holder.pid, holder.started)).unwrap_or_default()
}

impl StateLock {
    /// Takes the lock of a state folder, which is made where it is missing, or says who has it. Never waits.
    pub fn try_acquire(folder: &Path, now: Timestamp) -> Result<Self, LockError> {
        Self::try_acquire_on(&Disk, folder, now)
    }

    /// The same where the folder is made on another file system. The lock itself is the operating system's.
    pub fn try_acquire_on(files: &impl Files, folder: &Path, now: Timestamp) -> Result<Self, LockError> {
        let path = folder.join(NAME);
        let failed = |source| FileError { path: path.clone(), participle: "locked", source };
        files::make_folder(files, folder, FOLDER_MODE)?;
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)
                .map_err(failed)?;
            let locked = file.try_lock();
            let holder = read_holder(&mut file);
            match locked {
                Err(TryLockError::WouldBlock) => return Err(LockError::Held { path, holder }),
                Err(TryLockError::Error(source)) => return Err(failed(source).into()),
                // A file that was removed meanwhile locks nothing.
                Ok(()) if !is_still_at(&file, &path) => continue,
                Ok(()) => {}
            }
            // A full disk takes nothing from the lock: the next process then knows no time of this start.
            let _ = write_holder(&mut file, &Holder { pid: std::process::id(), started: now });
            return Ok(Self { _file: file, previous_start: holder.map(|holder| holder.started) });
        }
    }

    /// Looks whether the lock of a state folder is held, and changes nothing. For that moment nobody else gets it.
    ///
    /// # Errors
    /// That it is held, or can't be looked at.
    pub fn look(folder: &Path) -> Result<(), LockError> {
        let path = folder.join(NAME);
        let failed = |source| FileError { path: path.clone(), participle: "read", source };
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(error).into()),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => {
                let holder = read_holder(&mut file);
                Err(LockError::Held { path, holder })
            }
            Err(TryLockError::Error(source)) => Err(failed(source).into()),
        }
    }
}

fn read_holder(file: &mut File) -> Option<Holder> {
    let mut text = String::new();
    file.take(4096).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn write_holder(file: &mut File, holder: &Holder) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    serde_json::to_writer(&mut *file, holder)?;
    file.write_all(b"\n")
}

fn is_still_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(held), Ok(named)) => (held.dev(), held.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
