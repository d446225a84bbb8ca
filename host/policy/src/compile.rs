//! From a component to something that runs: the seam behind which a compiler sits, and the two ways of taking in what it
//! made. A compiled artefact is native code: this is the only module that takes one on trust, and it is given none but those
//! that a [`Compiler`] of this process made or that the cache has checked.

use std::{
    fmt::Debug,
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    path::Path,
};

use tempfile::NamedTempFile;
use wasmtime::component::Component;

use crate::{Engine, Limits};

/// Makes native code from a component.
pub trait Compiler: Debug + Send + Sync {
    /// Compiles a component.
    ///
    /// # Errors
    /// When the component is at fault, and when the compiler is.
    fn compile(&self, job: &Job<'_>) -> Result<Artefact, CompileError>;
}

/// A component to compile.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) component: &'a [u8],
    pub(crate) limits: &'a Limits,
    /// Where the artefact will be kept.
    pub(crate) folder: Option<&'a Path>,
}

impl Job<'_> {
    /// The component.
    #[must_use]
    pub fn component(&self) -> &[u8] {
        self.component
    }

    /// What a compiler may use is among them.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        self.limits
    }

    /// An empty file for the artefact: in the folder where it will be kept, or else in memory.
    pub(crate) fn file(&self) -> io::Result<Artefact> {
        if let Some(folder) = self.folder {
            match tempfile::Builder::new().prefix(".tmp-").tempfile_in(folder) {
                Ok(file) => return Ok(Artefact(Place::Folder(file))),
                Err(error) => {
                    tracing::warn!(folder = %folder.display(), %error, "a compiled policy can't be kept, so the next start compiles it again");
                }
            }
        }
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        Ok(Artefact(Place::Memory(rustix::fs::memfd_create("moorline-policy", flags)?.into())))
    }
}

/// Native code for one engine, as a compiler made it. There is no way to make one from other bytes.
pub struct Artefact(Place);

enum Place {
    Folder(NamedTempFile),
    Memory(File),
}

impl Artefact {
    pub(crate) fn file(&self) -> &File {
        match &self.0 {
            Place::Folder(file) => file.as_file(),
            Place::Memory(file) => file,
        }
    }

    /// The file, where it lies in the folder that a [`Job`] named.
    pub(crate) fn in_folder(self) -> Option<NamedTempFile> {
        match self.0 {
            Place::Folder(file) => Some(file),
            Place::Memory(_) => None,
        }
    }

    /// The same code once more, wherever its file goes.
    pub(crate) fn held(&self) -> io::Result<Self> {
        Ok(Self(Place::Memory(self.file().try_clone()?)))
    }
}

impl Debug for Artefact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Artefact").field(self.file()).finish()
    }
}

/// Why a compiler made nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// It dislikes the component; a clause says what.
    #[error("the compiler refuses it: {0}")]
    Refused(String),
    /// [`Limits::compile_deadline`] passed.
    #[error("it took too long")]
    Deadline,
    /// It wanted more than [`Limits::compile_memory_bytes`].
    #[error("it wanted too much memory")]
    Memory,
    /// The compiler broke down; a clause says how.
    #[error("the compiler broke down: {0}")]
    Died(String),
    /// The compiler can't be used, whatever the component.
    #[error("the compiler can't be used")]
    Unavailable(#[source] io::Error),
}

/// Compiles in this process, on the calling thread. No limit on memory or time holds, and a component that kills the compiler
/// kills the process: for components that are trusted.
#[derive(Clone, Copy, Debug, Default)]
pub struct InProcess;

impl Compiler for InProcess {
    fn compile(&self, job: &Job<'_>) -> Result<Artefact, CompileError> {
        let code = precompile(job.engine.wasmtime(), job.component).map_err(CompileError::Refused)?;
        let artefact = job.file().map_err(CompileError::Unavailable)?;
        artefact.file().write_all(&code).map_err(CompileError::Unavailable)?;
        Ok(artefact)
    }
}

pub(crate) fn precompile(engine: &wasmtime::Engine, component: &[u8]) -> Result<Vec<u8>, String> {
    engine.precompile_component(component).map_err(|error| format!("{error:#}"))
}

/// Takes an artefact into memory.
#[allow(unsafe_code, reason = "native code has to be trusted at one point, and this is it")]
pub(crate) fn take(engine: &Engine, artefact: &Artefact) -> wasmtime::Result<Component> {
    let mut file = artefact.file();
    let mut code = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut code)?;
    // SAFETY: only a `Compiler` makes an `Artefact`, and there is no way to make one from other bytes.
    unsafe { Component::deserialize(engine.wasmtime(), &code) }
}

/// Maps an artefact's file, so that its pages are shared and can be dropped.
#[allow(unsafe_code, reason = "native code has to be trusted at one point, and this is it")]
pub(crate) fn map(engine: &Engine, file: &Path) -> wasmtime::Result<Component> {
    // SAFETY: the cache calls this alone, for a file whose seal it has just checked, in a folder that nobody else can write,
    // where files are renamed into place and never written again. wasmtime checks version, settings and CPU itself.
    unsafe { Component::deserialize_file(engine.wasmtime(), file) }
}
