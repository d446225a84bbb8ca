//! Compiled components on disk, so that a restart doesn't compile again. A compiled component is native code: a file is
//! used only when the folder is private and the file's name, which holds a seal over its content, agrees with it. Any doubt
//! means that the file is removed and the component compiled again; nothing here ever makes a load fail.

use std::{
    fs::{self, File},
    io::{self, Seek as _},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use wasmtime::component::Component;

use crate::{
    Digest, Engine,
    compile::{self, Artefact},
};

/// What all files together may have; the oldest go first.
const TOTAL_BYTES: u64 = 256 << 20;
/// After this time a temporary file is a crash's leftover.
const STALE: Duration = Duration::from_secs(3600);

/// A private folder with compiled components. Any number of processes of one user may share it.
#[derive(Clone, Debug)]
pub struct CompileCache {
    folder: PathBuf,
}

/// A folder that can't hold native code.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// It can't be made or looked at.
    #[error("The folder {} for compiled policies can't be used.", .folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Others could put code there.
    #[error(
        "The folder {} for compiled policies {what}, so somebody else could put native code there. \
         Give it to the agent's user alone (`chmod 700`), or name another one.", .folder.display()
    )]
    NotPrivate {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
}

impl CompileCache {
    /// Opens the folder, and makes it if it doesn't exist (its parent has to).
    ///
    /// # Errors
    /// When it can't be made, or isn't private: owned by this process's user and writable by nobody else.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, CacheError> {
        let folder = folder.into();
        let failed = |source| CacheError::Io { folder: folder.clone(), source };
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        let what = doubt(&fs::symlink_metadata(&folder).map_err(failed)?, fs::FileType::is_dir);
        match what {
            Some(what) => Err(CacheError::NotPrivate { folder, what }),
            None => Ok(Self { folder }),
        }
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The compiled form of the module with this digest, if there is one beyond doubt.
    pub(crate) fn get(&self, module: Digest, engine: &Engine) -> Option<Component> {
        let key = key(module, engine);
        for entry in fs::read_dir(&self.folder).ok()?.flatten() {
            let name = entry.file_name();
            let Some(seal) = name.to_str().and_then(|name| name.strip_prefix(&key)?.strip_suffix(".cwasm")) else {
                continue;
            };
            match self.checked(&entry.path(), seal, module, engine) {
                Ok(component) => return Some(component),
                Err(doubt) => {
                    tracing::warn!(file = %entry.path().display(), %doubt, "a compiled policy is not trusted, so the policy is compiled again");
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
        None
    }

    fn checked(&self, file: &Path, seal: &str, module: Digest, engine: &Engine) -> Result<Component, String> {
        let private = |path, is_kind| match fs::symlink_metadata(path) {
            Ok(metadata) => doubt(&metadata, is_kind).map_or(Ok(()), |what| Err(what.to_owned())),
            Err(error) => Err(error.to_string()),
        };
        private(&*self.folder, fs::FileType::is_dir)?;
        private(file, fs::FileType::is_file)?;
        let found =
            File::open(file).and_then(|file| seal_of(module, engine, &file)).map_err(|error| error.to_string())?;
        if found.to_string() != seal {
            return Err("its content is not what was written".into());
        }
        compile::map(engine, file).map_err(|error| format!("{error:#}"))
    }

    /// Keeps an artefact that was made in this folder, and maps it. `None` when that doesn't work out.
    pub(crate) fn put(&self, module: Digest, engine: &Engine, artefact: Artefact) -> Option<Component> {
        let temporary = artefact.in_folder()?;
        let kept = seal_of(module, engine, temporary.as_file()).and_then(|seal| {
            let seal = seal.to_string();
            let file = self.folder.join(format!("{}{seal}.cwasm", key(module, engine)));
            temporary.persist(&file).map_err(io::Error::from)?;
            Ok((seal, file))
        });
        let (seal, file) = kept
            .inspect_err(|error| {
                tracing::warn!(folder = %self.folder.display(), %error, "a compiled policy can't be kept, so the next start compiles it again");
            })
            .ok()?;
        self.tidy(&file);
        self.checked(&file, &seal, module, engine)
            .inspect_err(|doubt| tracing::warn!(file = %file.display(), %doubt, "a compiled policy can't be mapped"))
            .ok()
    }

    /// Removes leftovers of crashes and, beyond the total size, the oldest files. A removed file that is mapped stays mapped.
    fn tidy(&self, newest: &Path) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let mut artefacts: Vec<(std::time::SystemTime, u64, PathBuf)> = Vec::new();
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let Some((modified, metadata)) =
                entry.metadata().ok().and_then(|metadata| Some((metadata.modified().ok()?, metadata)))
            else {
                continue;
            };
            if name.to_string_lossy().starts_with(".tmp-") && modified.elapsed().is_ok_and(|age| age > STALE) {
                let _ = fs::remove_file(path);
            } else if path.extension().is_some_and(|extension| extension == "cwasm") && path != newest {
                artefacts.push((modified, metadata.len(), path));
            }
        }
        artefacts.sort_unstable_by(|left, right| right.cmp(left));
        let mut total = fs::metadata(newest).map_or(0, |metadata| metadata.len());
        for (_, bytes, path) in artefacts {
            total += bytes;
            if total > TOTAL_BYTES {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// The part of a file's name that its content doesn't decide.
fn key(module: Digest, engine: &Engine) -> String {
    format!("{module}-{}-", engine.compatibility().short())
}

/// Binds content, module and engine: a file that was cut, changed or renamed for another module doesn't agree with its name.
fn seal_of(module: Digest, engine: &Engine, mut content: &File) -> io::Result<Digest> {
    content.rewind()?;
    Digest::of_read(&[module.as_bytes(), engine.compatibility().as_bytes()], content)
}

/// Why a folder or file can't be trusted with native code.
fn doubt(metadata: &fs::Metadata, is_kind: fn(&fs::FileType) -> bool) -> Option<&'static str> {
    if !is_kind(&metadata.file_type()) {
        Some("is a link or something else that it shouldn't be")
    } else if metadata.uid() != rustix::process::geteuid().as_raw() {
        Some("belongs to another user")
    } else if metadata.permissions().mode() & 0o022 != 0 {
        Some("can be written by others")
    } else {
        None
    }
}
