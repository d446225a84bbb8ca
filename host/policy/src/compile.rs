//! From a component to something that runs: the seam behind which a compiler sits, and the two ways of taking in what it
//! made. A compiled artefact is native code: this is the only module that takes one on trust, and it is given none but those
//! that a [`Compiler`] of this process made or that the cache has checked.

use std::{fmt::Debug, path::Path};

use wasmtime::component::Component;

use crate::Engine;

/// Makes native code from a component.
pub trait Compiler: Debug + Send + Sync {
    /// Compiles a component for this engine. Whatever bounds time and memory is the implementation's affair.
    ///
    /// # Errors
    /// A clause that says what the compiler dislikes.
    fn compile(&self, engine: &Engine, component: &[u8]) -> Result<Artefact, String>;
}

/// Native code for one engine, as a compiler made it.
pub struct Artefact(Vec<u8>);

impl Artefact {
    /// The code, for a cache.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Debug for Artefact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Artefact({} bytes)", self.0.len())
    }
}

/// Compiles in this process, on the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct InProcess;

impl Compiler for InProcess {
    fn compile(&self, engine: &Engine, component: &[u8]) -> Result<Artefact, String> {
        engine.wasmtime().precompile_component(component).map(Artefact).map_err(|error| format!("{error:#}"))
    }
}

/// Takes an artefact into memory.
#[allow(unsafe_code, reason = "native code has to be trusted at one point, and this is it")]
pub(crate) fn take(engine: &Engine, artefact: &Artefact) -> wasmtime::Result<Component> {
    // SAFETY: only a `Compiler` makes an `Artefact`, and there is no way to make one from other bytes.
    unsafe { Component::deserialize(engine.wasmtime(), &artefact.0) }
}

/// Maps an artefact's file, so that its pages are shared and can be dropped.
#[allow(unsafe_code, reason = "native code has to be trusted at one point, and this is it")]
pub(crate) fn map(engine: &Engine, file: &Path) -> wasmtime::Result<Component> {
    // SAFETY: the cache calls this alone, for a file whose seal it has just checked, in a folder that nobody else can write,
    // where files are renamed into place and never written again. wasmtime checks version, settings and CPU itself.
    unsafe { Component::deserialize_file(engine.wasmtime(), file) }
}
