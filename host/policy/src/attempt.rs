//! Marks on disk that say "this module is being loaded". Who finds one that nobody holds any more knows that loading it ended
//! a process, the agent's or its compiler's. Twice in a row, and the module rests for an hour: a module that kills whoever
//! loads it must not keep an agent in a crash loop, and a node that lost power while a good one was compiled must not lose it
//! for ever.

use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use crate::{CompileCache, Digest, LoadFault};

/// Loads that ended a process before the module rests.
const ENOUGH: u32 = 2;
/// How long it rests.
const REST: Duration = Duration::from_secs(3600);

/// A load under way. The mark goes when this is dropped, and stays when the process ends before.
#[derive(Debug)]
pub(crate) struct Attempt {
    marker: PathBuf,
    kept: bool,
    _held: File,
}

impl Attempt {
    /// Marks the module, once nobody else is loading it. `None` when marks can't be written; loading goes on without.
    pub(crate) fn begin(cache: &CompileCache, module: Digest) -> Result<Option<Self>, LoadFault> {
        let marker = cache.folder().join(format!("{module}.loading"));
        match begin(&marker) {
            Ok(Begun::Marked(held)) => Ok(Some(Self { marker, kept: false, _held: held })),
            Ok(Begun::Resting { attempts, again_after }) => {
                Err(LoadFault::Quarantined { attempts, marker, again_after })
            }
            Err(error) => {
                tracing::warn!(marker = %marker.display(), %error, "a policy is loaded without a mark");
                Ok(None)
            }
        }
    }
}

impl Attempt {
    /// Leaves the mark, as if this process had ended here: it counts.
    pub(crate) fn keep(&mut self) {
        self.kept = true;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // Removed while it is still locked: who waits for the lock finds that its file is gone, and starts afresh.
        let _ = fs::remove_file(&self.marker);
    }
}

enum Begun {
    Marked(File),
    Resting { attempts: u32, again_after: Duration },
}

fn begin(marker: &PathBuf) -> io::Result<Begun> {
    loop {
        // A mark is locked before it is visible, so one that can be locked is nobody's.
        let mut fresh = tempfile::Builder::new().prefix(".tmp-").tempfile_in(marker.parent().unwrap_or(marker))?;
        fresh.as_file().lock()?;
        fresh.write_all(b"1")?;
        match fresh.persist_noclobber(marker) {
            Ok(held) => return Ok(Begun::Marked(held)),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.error),
        }
        let mut found = match File::options().read(true).write(true).open(marker) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            found => found?,
        };
        found.lock()?;
        let metadata = found.metadata()?;
        if metadata.nlink() == 0 {
            continue;
        }
        let mut text = String::new();
        (&found).take(16).read_to_string(&mut text)?;
        let attempts = text.trim().parse().unwrap_or(1_u32);
        let age = SystemTime::now().duration_since(metadata.modified()?).unwrap_or_default();
        if attempts >= ENOUGH && age < REST {
            return Ok(Begun::Resting { attempts, again_after: REST - age });
        }
        found.rewind()?;
        found.set_len(0)?;
        write!(found, "{}", attempts.saturating_add(1))?;
        return Ok(Begun::Marked(found));
    }
}
