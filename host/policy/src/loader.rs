//! Loading a component: checked, compiled or taken from the cache, linked, asked about itself. Everything cheap comes before
//! everything dear. A refusal names what is wrong; it never concerns another component.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::Arc,
};

use wasmtime::component::Component;

use crate::{
    CompileCache, CompileError, Compiler, Description, Digest, Engine, Hooks, InProcess, Limits, LoadError, LoadFault,
    Policy, Wasi,
    attempt::Attempt,
    compile::{self, Job},
    hook,
    inspect::{self, POLICY},
    policy::{Loaded, ValidateResults},
    store,
    unpack::unpack,
    wasi,
};

/// Loads components for one engine. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Loader {
    engine: Engine,
    hooks: Arc<Hooks>,
    limits: Limits,
    wasi: Wasi,
    cache: Option<CompileCache>,
    compiler: Arc<dyn Compiler>,
}

impl Loader {
    /// A loader that knows the six hooks, has the default limits, compiles in this process and keeps nothing on disk.
    #[must_use]
    pub fn new(engine: &Engine) -> Self {
        Self {
            engine: engine.clone(),
            hooks: Arc::new(Hooks::default()),
            limits: Limits::default(),
            wasi: Wasi::None,
            cache: None,
            compiler: Arc::new(InProcess),
        }
    }

    /// Looks for these hooks instead.
    #[must_use]
    pub fn with_hooks(mut self, hooks: Hooks) -> Self {
        self.hooks = Arc::new(hooks);
        self
    }

    /// Loads and calls under these limits instead.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Lets components import this.
    #[must_use]
    pub fn with_wasi(mut self, wasi: Wasi) -> Self {
        self.wasi = wasi;
        self
    }

    /// Keeps compiled components in this folder, and marks there what is being loaded.
    #[must_use]
    pub fn with_cache(mut self, cache: CompileCache) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Compiles with this compiler instead.
    #[must_use]
    pub fn with_compiler(mut self, compiler: impl Compiler + 'static) -> Self {
        self.compiler = Arc::new(compiler);
        self
    }

    /// The hooks that this loader looks for.
    #[must_use]
    pub fn hooks(&self) -> &Hooks {
        &self.hooks
    }

    /// The limits under which this loader loads and calls.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What can be said about a component without compiling it: the names of the hooks that it answers, or why it would be
    /// refused. It may be compressed with zstd or gzip.
    ///
    /// # Errors
    /// When the component is too large, no component, or one that imports or exports other than it should.
    pub fn check(&self, component: &[u8]) -> Result<Vec<&'static str>, LoadFault> {
        let component = unpack(component, self.limits.component_bytes)?;
        inspect::inspect(&component, &self.hooks, self.wasi)
    }

    /// Loads a component from memory, which may be compressed with zstd or gzip. It is called `name` from now on.
    ///
    /// # Errors
    /// When anything about it is not as it has to be.
    pub fn load(&self, name: &str, component: &[u8]) -> Result<Policy, LoadError> {
        self.unpack_and_load(name, component, None, |_| None).map_err(|(digest, fault)| LoadError {
            name: name.to_owned(),
            digest,
            file: None,
            fault,
        })
    }

    /// Loads a component from a file, which may be compressed with zstd or gzip. Where a digest is pinned, the component has
    /// to have it: that of the component itself, whether or not it is compressed.
    ///
    /// # Errors
    /// When the file can't be read, or anything about the component is not as it has to be.
    pub fn load_file(&self, name: &str, file: &Path, pinned: Option<Digest>) -> Result<Policy, LoadError> {
        self.load_file_or_take(name, file, pinned, |_| None)
    }

    /// As [`load_file`](Self::load_file), but takes what is there already for a component of that digest.
    pub(crate) fn load_file_or_take(
        &self,
        name: &str,
        file: &Path,
        pinned: Option<Digest>,
        there: impl FnOnce(Digest) -> Option<Policy>,
    ) -> Result<Policy, LoadError> {
        let limit = self.limits.component_bytes;
        let content = match read(file, limit) {
            Ok(Some(content)) => Ok(content),
            Ok(None) => Err(LoadFault::TooLarge { packed: false, limit }),
            Err(error) => Err(LoadFault::Unreadable(Arc::new(error))),
        };
        content
            .map_err(|fault| (None, fault))
            .and_then(|content| self.unpack_and_load(name, &content, pinned, there))
            .map_err(|(digest, fault)| LoadError { name: name.to_owned(), digest, file: Some(file.to_owned()), fault })
    }

    fn unpack_and_load(
        &self,
        name: &str,
        content: &[u8],
        pinned: Option<Digest>,
        there: impl FnOnce(Digest) -> Option<Policy>,
    ) -> Result<Policy, (Option<Digest>, LoadFault)> {
        let component = unpack(content, self.limits.component_bytes).map_err(|fault| (None, fault))?;
        let digest = Digest::of(&component);
        match pinned {
            Some(pinned) if pinned != digest => {
                let compressed = Digest::of(content) == pinned;
                Err((Some(digest), LoadFault::WrongDigest { pinned, found: digest, compressed }))
            }
            _ => match there(digest) {
                Some(policy) => Ok(policy),
                None => self.load_bytes(name, digest, &component).map_err(|fault| (Some(digest), fault)),
            },
        }
    }

    fn load_bytes(&self, name: &str, digest: Digest, bytes: &[u8]) -> Result<Policy, LoadFault> {
        let exported = inspect::inspect(bytes, &self.hooks, self.wasi)?;
        let engine = self
            .engine
            .for_stack(self.limits.stack_bytes)
            .map_err(|error| LoadFault::NoCompiler(Arc::new(io::Error::other(error))))?;
        // Held until the end: what compiles a component and what first runs it are what may end the process.
        let mut attempt = match &self.cache {
            Some(cache) => Attempt::begin(cache, digest)?,
            None => None,
        };
        let component = self.component(&engine, digest, bytes).inspect_err(|fault| {
            if let (Some(attempt), true) = (&mut attempt, fault.is_of_the_compiler()) {
                attempt.keep();
            }
        })?;
        let mut linker = store::linker(&engine, self.wasi).map_err(|error| LoadFault::Compile(format!("{error:#}")))?;
        if self.wasi == Wasi::Isolated {
            wasi::trap_the_rest(&mut linker, &component).map_err(|error| LoadFault::Compile(format!("{error:#}")))?;
        }
        let pre = linker
            .instantiate_pre(&component)
            .map_err(|error| LoadFault::WrongSignature { interface: "imports".into(), why: format!("{error:#}") })?;

        let misfit = |interface: &str| {
            let interface = interface.to_owned();
            move |why| LoadFault::WrongSignature { interface, why }
        };
        let describe = hook::find::<(), (Description,)>(&pre, POLICY, "describe").map_err(misfit(POLICY))?;
        let validate_settings =
            hook::find::<(&str, &str), ValidateResults>(&pre, POLICY, "validate-settings").map_err(misfit(POLICY))?;
        let mut hooks = Vec::new();
        for known in self.hooks.iter().filter(|known| exported.contains(&known.name)) {
            hooks.push((*known, (known.look_up)(&pre).map_err(misfit(known.interface))?));
        }
        let describing = || store::call::<(), (Description,)>(&engine, &pre, &describe, (), &self.limits);
        let (description,) = store::unless_late(describing)
            .reported(name, digest, "describe", &self.limits)
            .map_err(|error| LoadFault::Unusable(Box::new(error)))?;

        let loaded = Loaded {
            name: name.to_owned(),
            digest,
            engine: engine.clone(),
            pre,
            description,
            validate_settings,
            hooks,
        };
        Ok(Policy::new(loaded, self.limits.clone()))
    }

    /// The component's native code, from the cache or from the compiler.
    fn component(&self, engine: &Engine, digest: Digest, bytes: &[u8]) -> Result<Component, LoadFault> {
        if let Some(component) = self.cache.as_ref().and_then(|cache| cache.get(digest, engine)) {
            return Ok(component);
        }
        let folder = self.cache.as_ref().map(CompileCache::folder);
        let job = Job { engine, component: bytes, limits: &self.limits, folder };
        let artefact = self.compiler.compile(&job).map_err(|error| match error {
            CompileError::Refused(why) => LoadFault::Compile(why),
            CompileError::Deadline => LoadFault::CompileDeadline(self.limits.compile_deadline),
            CompileError::Memory => LoadFault::CompileMemory(self.limits.compile_memory_bytes),
            CompileError::Died(how) => LoadFault::CompilerDied(how),
            CompileError::Unavailable(error) => LoadFault::NoCompiler(Arc::new(error)),
        })?;
        let held = artefact.held().map_err(|error| LoadFault::NoCompiler(Arc::new(error)))?;
        match self.cache.as_ref().and_then(|cache| cache.put(digest, engine, artefact)) {
            Some(component) => Ok(component),
            None => compile::take(engine, &held).map_err(|error| LoadFault::Compile(format!("{error:#}"))),
        }
    }
}

/// Reads a regular file; nothing where it has more than `limit` bytes. A pipe or a device in its place is refused, never
/// waited for.
pub(crate) fn read(file: &Path, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let opened = File::options().read(true).custom_flags(nonblocking).open(file)?;
    if !opened.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    let cap = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    opened.take(cap).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= limit).then_some(bytes))
}
