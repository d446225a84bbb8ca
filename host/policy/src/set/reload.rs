//! Another set from the same folder, once its content has changed. The folder is looked at from time to time: that costs a
//! few `stat`s, misses nothing, and needs no watch that could run out. Time is an argument, and nothing here waits.

use std::{
    fmt,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::{PolicySet, SetError, SetOptions, file};
use crate::{Digest, LoadError, Loader};

/// A content that never stands still is taken as it is after this.
const LONGEST_FLOOD: Duration = Duration::from_secs(60);
/// Somebody who asks is told after so many contents that changed meanwhile.
const TRIES: u32 = 3;
/// What was refused is tried again after this, as it may have been for want of memory or time; later after twice as long …
const FIRST_RETRY: Duration = Duration::from_secs(60);
/// … and never after more than this.
const LONGEST_RETRY: Duration = Duration::from_secs(900);

/// Loads another set when the content of a folder has changed: whole, or not at all.
///
/// A change is loaded once two looks have found the same, so a flood of changes costs one load. A mounted ConfigMap, a plain
/// folder and a folder behind a symbolic link are all the same to it.
#[derive(Debug)]
pub struct Reloader {
    loader: Loader,
    folder: PathBuf,
    options: SetOptions,
    current: Arc<PolicySet>,
    /// What the folder held when it was last loaded.
    loaded: Option<Digest>,
    /// What it holds since, and since when it differs.
    changed: Option<Changed>,
    retry: Option<Retry>,
}

#[derive(Debug)]
struct Changed {
    content: Digest,
    since: Duration,
}

/// What was loaded last was refused, or some of it.
#[derive(Debug)]
struct Retry {
    at: Duration,
    pause: Duration,
}

/// A changed set that isn't used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// Its `policies.yaml` can't be used.
    #[error("{0}")]
    Set(#[source] SetError),
    /// Policies of it are refused, each with the binding that names it.
    #[error("The policy set in {} has policies that are refused.{}", .folder.display(), Refusals(.refusals))]
    Policies {
        /// The folder.
        folder: PathBuf,
        /// Hook, binding and reason.
        refusals: Vec<(&'static str, String, Arc<LoadError>)>,
    },
    /// It never stood still for long enough to be loaded.
    #[error("The policy set in {} changes all the time. Ask again when it is written.", .folder.display())]
    Changing {
        /// The folder.
        folder: PathBuf,
    },
}

struct Refusals<'a>(&'a [(&'static str, String, Arc<LoadError>)]);

impl fmt::Display for Refusals<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(hook, binding, error)| {
            write!(f, "\n  the binding `{binding}` of the hook `{hook}`: {error}")
        })
    }
}

impl Reloader {
    /// Loads the first set, as [`PolicySet::load`] does. `now` is the clock of the looks.
    ///
    /// # Errors
    /// When the file can't be read or has mistakes.
    pub fn load(loader: Loader, folder: PathBuf, options: SetOptions, now: Duration) -> Result<Self, SetError> {
        // Taken before: what changes meanwhile is a change.
        let loaded = fingerprint(&loader, &folder);
        let current = Arc::new(PolicySet::load(&loader, Some(&folder), options.clone())?);
        let retry = (current.refusals().next().is_some()).then(|| Retry::first(now));
        Ok(Self { loader, folder, options, current, loaded: Some(loaded), changed: None, retry })
    }

    /// The set in use.
    #[must_use]
    pub fn current(&self) -> &Arc<PolicySet> {
        &self.current
    }

    /// Looks at the folder: `None` when there is nothing new, or nothing that stands still yet. Otherwise the set that is in
    /// use from now on: the same `Arc` as before when all that changed makes no difference.
    ///
    /// This blocks for as long as loading takes, so call it where that stops nobody.
    ///
    /// # Errors
    /// When the changed content is refused. The set before goes on; the same content is tried again after a while, and
    /// another content as soon as it is there.
    pub fn look(&mut self, now: Duration) -> Option<Result<Arc<PolicySet>, ReloadError>> {
        let content = fingerprint(&self.loader, &self.folder);
        if self.loaded == Some(content) {
            self.changed = None;
            return match &self.retry {
                Some(retry) if now >= retry.at => self.try_content(content, now),
                _ => None,
            };
        }
        match &mut self.changed {
            Some(changed) if changed.content == content || now >= changed.since + LONGEST_FLOOD => {
                self.try_content(content, now)
            }
            Some(changed) => {
                changed.content = content;
                None
            }
            None => {
                self.changed = Some(Changed { content, since: now });
                None
            }
        }
    }

    /// Looks at the folder because somebody asks for it: what is there is loaded at once, whether or not it was refused
    /// before. The answer is the set that is in use from now on.
    ///
    /// # Errors
    /// As [`look`](Self::look), and when the content changes again and again while it is loaded.
    pub fn look_now(&mut self, now: Duration) -> Result<Arc<PolicySet>, ReloadError> {
        let mut tries = (0..TRIES).map(|_| self.try_content(fingerprint(&self.loader, &self.folder), now));
        match tries.find_map(|found| found) {
            Some(found) => found,
            None => Err(ReloadError::Changing { folder: self.folder.clone() }),
        }
    }

    fn try_content(&mut self, content: Digest, now: Duration) -> Option<Result<Arc<PolicySet>, ReloadError>> {
        let set = PolicySet::load_after(&self.loader, Some(&self.folder), self.options.clone(), Some(&self.current));
        if fingerprint(&self.loader, &self.folder) != content {
            // It may be half of this and half of that.
            self.loaded = None;
            self.changed.get_or_insert(Changed { content, since: now });
            return None;
        }
        let pause = self.retry.take().filter(|_| self.loaded == Some(content)).map(|retry| retry.pause);
        self.loaded = Some(content);
        self.changed = None;
        let refused = match set {
            Ok(set) => {
                let refusals: Vec<_> = set
                    .refusals()
                    .map(|(binding, error)| (binding.hook(), binding.name().to_owned(), error.clone()))
                    .collect();
                if refusals.is_empty() {
                    if set.digest() != self.current.digest() {
                        self.current = Arc::new(set);
                    }
                    return Some(Ok(self.current.clone()));
                }
                ReloadError::Policies { folder: self.folder.clone(), refusals }
            }
            Err(error) => ReloadError::Set(error),
        };
        self.retry = Some(pause.map_or_else(|| Retry::first(now), |pause| Retry::after(now, pause)));
        Some(Err(refused))
    }
}

impl Retry {
    fn first(now: Duration) -> Self {
        Self { at: now + FIRST_RETRY, pause: FIRST_RETRY }
    }

    fn after(now: Duration, pause: Duration) -> Self {
        let pause = LONGEST_RETRY.min(pause * 2);
        Self { at: now + pause, pause }
    }
}

/// Changes whenever a set that is loaded from the folder may be another one: `policies.yaml` by its content, the modules by
/// what the file system says of them.
fn fingerprint(loader: &Loader, folder: &Path) -> Digest {
    let mut parts = Vec::new();
    match file::read(folder, loader.hooks()) {
        Ok((file, text)) => {
            parts.extend(file.modules.values().map(|module| stat(&folder.join(&module.file.value))));
            parts.push(text);
        }
        // Mistakes are told by their lines, and whoever mends them changes the file.
        Err(error) => parts.push(format!("{error} {}", stat(&folder.join(file::NAME)))),
    }
    Digest::of_all(parts.iter().map(String::as_bytes))
}

fn stat(file: &Path) -> String {
    match file.metadata() {
        Ok(of) => format!(
            "{}:{} {} {}.{} {}.{}\n",
            of.dev(),
            of.ino(),
            of.size(),
            of.mtime(),
            of.mtime_nsec(),
            of.ctime(),
            of.ctime_nsec()
        ),
        Err(error) => format!("{}\n", error.kind()),
    }
}
