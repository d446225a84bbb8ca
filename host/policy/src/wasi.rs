//! WASI with nothing in it, for guests whose toolchain insists: it keeps the promise that a verdict depends on input and
//! settings alone, and adds no way to spend what no limit counts. Nothing here blocks, and nothing reaches the system.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use wasmtime::component::{HasData, Linker, Resource, ResourceTable};
use wasmtime_wasi::{
    WasiCtx, WasiCtxView, WasiView,
    cli::{IsTerminal, StdoutStream, WasiCli, WasiCliView as _},
    filesystem::{WasiFilesystem, WasiFilesystemView as _},
    p2::{
        DynPollable, OutputStream, Pollable, StreamResult,
        bindings::{
            cli, clocks, filesystem,
            random::{insecure, insecure_seed, random},
            sync,
        },
        subscribe,
    },
    random::{Deterministic, WasiRandom},
};

use crate::{Digest, store::Host};

/// Midnight of 2020-01-01 UTC in seconds since 1970: a date that no guest takes for a machine without a clock.
const NOW: u64 = 1_577_836_800;
/// Handles that one call may hold.
const HANDLES: usize = 1024;
/// Bytes that a guest may ask of the generator at once.
const RANDOM_BYTES: u64 = 64 << 10;
/// Bytes of the end of standard error that are kept: the panic text.
const LAST_WORDS: usize = 2 << 10;
/// Bytes that a stream takes at once.
const PERMIT: usize = 4096;

/// The state of one call. It is made when a guest first asks for it.
pub(crate) struct Isolated {
    ctx: WasiCtx,
    table: ResourceTable,
    stderr: Sink,
}

impl Isolated {
    pub(crate) fn new() -> Self {
        let stderr = Sink(Arc::default());
        let ctx = WasiCtx::builder()
            .stdout(Sink(Arc::default()))
            .stderr(stderr.clone())
            .secure_random(generator(b"secure"))
            .insecure_random(generator(b"insecure"))
            .insecure_random_seed(0)
            .max_random_size(RANDOM_BYTES)
            .build();
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES);
        Self { ctx, table, stderr }
    }

    /// The end of what the guest wrote to standard error.
    pub(crate) fn last_words(self) -> Option<String> {
        let words = mem::take(&mut *self.stderr.words());
        let words = String::from_utf8_lossy(&words).trim().to_owned();
        (!words.is_empty()).then_some(words)
    }
}

/// Bytes that look random, the same on every machine and in every version: SHA-256 of a counter.
fn generator(name: &[u8]) -> Deterministic {
    let bytes = (0..512_u32).flat_map(|count| *Digest::of_all([name, &count.to_be_bytes()]).as_bytes());
    Deterministic::new(bytes.collect())
}

/// Links what guests import. Sockets and anything else that has no meaning here trap when they are called, at which point the
/// guest has left its sandbox's ground.
pub(crate) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    type H = Host;
    clocks::wall_clock::add_to_linker::<H, Clocks>(linker, frozen)?;
    clocks::monotonic_clock::add_to_linker::<H, Clocks>(linker, frozen)?;
    random::add_to_linker::<H, WasiRandom>(linker, |host| host.ctx().ctx.random())?;
    insecure::add_to_linker::<H, WasiRandom>(linker, |host| host.ctx().ctx.random())?;
    insecure_seed::add_to_linker::<H, WasiRandom>(linker, |host| host.ctx().ctx.random())?;
    cli::exit::add_to_linker::<H, WasiCli>(linker, H::cli)?;
    cli::environment::add_to_linker::<H, WasiCli>(linker, H::cli)?;
    cli::stdin::add_to_linker::<H, WasiCli>(linker, H::cli)?;
    cli::stdout::add_to_linker::<H, WasiCli>(linker, H::cli)?;
    cli::stderr::add_to_linker::<H, WasiCli>(linker, H::cli)?;
    cli::terminal_input::add_to_linker::<H, WasiCli>(linker, H::cli)?;
    cli::terminal_output::add_to_linker::<H, WasiCli>(linker, H::cli)?;
    cli::terminal_stdin::add_to_linker::<H, WasiCli>(linker, H::cli)?;
    cli::terminal_stdout::add_to_linker::<H, WasiCli>(linker, H::cli)?;
    cli::terminal_stderr::add_to_linker::<H, WasiCli>(linker, H::cli)?;
    filesystem::preopens::add_to_linker::<H, WasiFilesystem>(linker, H::filesystem)?;
    sync::filesystem::types::add_to_linker::<H, WasiFilesystem>(linker, H::filesystem)?;
    wasmtime_wasi_io::bindings::wasi::io::error::add_to_linker::<H, Table>(linker, table)?;
    sync::io::poll::add_to_linker::<H, Table>(linker, table)?;
    sync::io::streams::add_to_linker::<H, Table>(linker, table)?;
    Ok(())
}

fn table(host: &mut Host) -> &mut ResourceTable {
    host.ctx().table
}

fn frozen(host: &mut Host) -> Frozen<'_> {
    Frozen(host.ctx().table)
}

impl WasiView for Host {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let Isolated { ctx, table, .. } = self.wasi();
        WasiCtxView { ctx, table }
    }
}

struct Table;

impl HasData for Table {
    type Data<'a> = &'a mut ResourceTable;
}

/// Clocks that stand still. Whoever waits for them to go on has waited already: a guest that could sleep would hold a thread
/// of the host for as long as it likes, since a deadline ends guests and not the host's own functions.
struct Frozen<'a>(&'a mut ResourceTable);

struct Clocks;

impl HasData for Clocks {
    type Data<'a> = Frozen<'a>;
}

impl clocks::wall_clock::Host for Frozen<'_> {
    fn now(&mut self) -> wasmtime::Result<clocks::wall_clock::Datetime> {
        Ok(clocks::wall_clock::Datetime { seconds: NOW, nanoseconds: 0 })
    }

    fn resolution(&mut self) -> wasmtime::Result<clocks::wall_clock::Datetime> {
        Ok(clocks::wall_clock::Datetime { seconds: 1, nanoseconds: 0 })
    }
}

impl clocks::monotonic_clock::Host for Frozen<'_> {
    fn now(&mut self) -> wasmtime::Result<u64> {
        Ok(0)
    }

    fn resolution(&mut self) -> wasmtime::Result<u64> {
        Ok(1)
    }

    fn subscribe_instant(&mut self, _when: u64) -> wasmtime::Result<Resource<DynPollable>> {
        let over = self.0.push(Over)?;
        subscribe(self.0, over)
    }

    fn subscribe_duration(&mut self, _duration: u64) -> wasmtime::Result<Resource<DynPollable>> {
        self.subscribe_instant(0)
    }
}

/// A wait that is over.
struct Over;

#[async_trait::async_trait]
impl Pollable for Over {
    async fn ready(&mut self) {}
}

/// An output that takes everything and keeps the end of it.
#[derive(Clone)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    fn words(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IsTerminal for Sink {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Sink {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        // For WASI 0.3, which is not linked.
        Box::new(tokio::io::sink())
    }
}

#[async_trait::async_trait]
impl Pollable for Sink {
    async fn ready(&mut self) {}
}

#[async_trait::async_trait]
impl OutputStream for Sink {
    fn write(&mut self, bytes: bytes::Bytes) -> StreamResult<()> {
        let mut words = self.words();
        words.extend_from_slice(&bytes);
        let too_many = words.len().saturating_sub(LAST_WORDS);
        words.drain(..too_many);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(PERMIT)
    }

    fn write_zeroes(&mut self, _count: usize) -> StreamResult<()> {
        // Whoever asks for a terabyte of them doesn't get the host to make it.
        Ok(())
    }
}
