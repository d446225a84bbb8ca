//! Keeps the ledger on disk: whole or not at all, durable before `save` returns, and never a reason not to start. It
//! doesn't know what the ledger says.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::files::{self, Change, Disk, FileError, Files, Found};
use crate::chain;

const NAME: &str = "ledger.json";
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
/// A ledger lists a handful of things; what is larger isn't one.
const CAP: usize = 1 << 20;
/// So many damaged ledgers are kept for people to look at; then the last one is replaced.
const DAMAGED_KEPT: u32 = 9;

/// The ledger's place in the state folder. Only the holder of the lock may use it.
#[derive(Debug, Clone)]
pub struct LedgerStore<F = Disk> {
    folder: PathBuf,
    files: F,
}

/// What was found of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loaded<T> {
    /// There is none: the first start on this machine.
    Missing,
    /// The ledger.
    Found(T),
    /// There was one that can't be used.
    Damaged(Damaged),
}

/// A ledger that can't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// For people: what is wrong with it, and what the agent goes by now.
    pub message: String,
    /// Where it is kept now; none when it could not be, or was not to be, set aside.
    pub set_aside: Option<PathBuf>,
}

/// Why a ledger was not saved.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The file system failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// It can't be written as JSON.
    #[error("the ledger could not be written as JSON")]
    Json(#[source] serde_json::Error),
    /// It is too large.
    #[error(
        "the ledger has {0} bytes and may have {CAP}: what the data plane plans to put on this machine is too much"
    )]
    TooLarge(usize),
}

impl LedgerStore {
    /// The ledger in this state folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self::with_files(folder, Disk)
    }
}

impl<F: Files> LedgerStore<F> {
    /// The same on another file system.
    pub fn with_files(folder: impl Into<PathBuf>, files: F) -> Self {
        Self { folder: folder.into(), files }
    }

    /// The ledger's path.
    pub fn path(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    /// Reads the ledger. One that can't be used is set aside as `ledger.json.damaged-N`; leftovers of a crash are
    /// removed.
    ///
    /// # Errors
    /// Where the folder can't be read at all.
    pub fn load<T: DeserializeOwned>(&self) -> Result<Loaded<T>, FileError> {
        files::sweep(&self.files, &self.folder)?;
        self.read(|| self.set_aside())
    }

    /// Reads the ledger and changes nothing: one that can't be used stays where it is.
    ///
    /// # Errors
    /// As [`LedgerStore::load`].
    pub fn look<T: DeserializeOwned>(&self) -> Result<Loaded<T>, FileError> {
        self.read(|| ("Since nothing is changed, it stays where it is".to_owned(), None))
    }

    /// `damaged` deals with one that can't be used, and says how.
    fn read<T: DeserializeOwned>(
        &self,
        damaged: impl FnOnce() -> (String, Option<PathBuf>),
    ) -> Result<Loaded<T>, FileError> {
        let problem = match files::look(&self.path(), CAP)? {
            Found::Absent => return Ok(Loaded::Missing),
            Found::File { content, .. } => match serde_json::from_slice(&content) {
                Ok(ledger) => return Ok(Loaded::Found(ledger)),
                Err(error) => format!("can't be understood ({error})"),
            },
            Found::TooLarge => format!("has more than {CAP} bytes"),
            other => format!("is {other}"),
        };
        let (kept, set_aside) = damaged();
        let message = format!(
            "The ledger {} {problem}. {kept}. What an earlier process put on this machine is recognised by its form \
             and marks alone; everything else is left alone",
            self.path().display()
        );
        Ok(Loaded::Damaged(Damaged { message, set_aside }))
    }

    /// Moves what can't be used out of the way. Says where it is now.
    fn set_aside(&self) -> (String, Option<PathBuf>) {
        let from = self.path();
        let names = (1..=DAMAGED_KEPT).map(|number| self.folder.join(format!("{NAME}.damaged-{number}")));
        let free = names.clone().find(|path| !exists(path));
        // Renaming over a folder fails, and is then said below.
        let to = free.or_else(|| names.last()).unwrap_or_else(|| from.with_extension("damaged"));
        let moved = files::change(&self.files, Change::Rename { from: &from, to: &to, replace: true })
            .and_then(|()| files::change(&self.files, Change::SyncFolder(&self.folder)));
        match moved {
            Ok(()) => (format!("It is kept as {}", to.display()), Some(to)),
            Err(error) => (format!("It could not be set aside ({})", chain(&error)), None),
        }
    }

    /// Makes this ledger durable.
    pub fn save<T: Serialize>(&self, ledger: &T) -> Result<(), LedgerError> {
        let mut content = serde_json::to_vec(ledger).map_err(LedgerError::Json)?;
        content.push(b'\n');
        if content.len() > CAP {
            return Err(LedgerError::TooLarge(content.len()));
        }
        files::make_folder(&self.files, &self.folder, FOLDER_MODE)?;
        Ok(files::put(&self.files, &self.folder, NAME, &content, FILE_MODE, true)?)
    }
}

fn exists(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

#[cfg(test)]
mod tests;
