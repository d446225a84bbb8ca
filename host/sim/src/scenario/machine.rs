//! The folder that stands for the machine: what is put there at first, what is there now, and whether it was touched.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// All files of a machine, by their path from its root folder.
pub(crate) type Snapshot = BTreeMap<PathBuf, FileState>;

/// A file at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileState {
    pub(crate) content: Vec<u8>,
    /// Which file it is, and when it was last written: a file that was replaced by an equal one differs.
    identity: (u64, i64, i64),
}

/// Reads all files under a folder. Symbolic links are files with what they point to as their content.
pub(crate) fn snapshot(root: &Path) -> io::Result<Snapshot> {
    let mut found = Snapshot::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let about = fs::symlink_metadata(&path)?;
            if about.is_dir() {
                folders.push(path);
                continue;
            }
            let content = if about.is_symlink() {
                fs::read_link(&path)?.into_os_string().into_encoded_bytes()
            } else if about.is_file() {
                fs::read(&path)?
            } else {
                Vec::new()
            };
            let identity = (about.ino(), about.mtime(), about.mtime_nsec());
            let name = path.strip_prefix(root).unwrap_or(&path).to_owned();
            found.insert(name, FileState { content, identity });
        }
    }
    Ok(found)
}

/// Writes a file, and the folders above it.
pub(crate) fn write(path: &Path, content: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, content)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]
    use super::*;

    #[test]
    fn a_file_that_was_replaced_by_an_equal_one_was_touched() {
        let root = tempfile::tempdir().unwrap();
        write(&root.path().join("a/b"), "x").unwrap();
        let before = snapshot(root.path()).unwrap();
        assert_eq!(before, snapshot(root.path()).unwrap());
        write(&root.path().join("a/c"), "x").unwrap();
        fs::rename(root.path().join("a/c"), root.path().join("a/b")).unwrap();
        let after = snapshot(root.path()).unwrap();
        assert_eq!(after.keys().collect::<Vec<_>>(), [Path::new("a/b")]);
        assert_eq!(before[Path::new("a/b")].content, after[Path::new("a/b")].content);
        assert_ne!(before, after);
    }
}
