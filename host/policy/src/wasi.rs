//! WASI with nothing in it, for guests whose toolchain insists: it keeps the promise that a verdict depends on input and
//! settings alone, and adds no way to spend what no limit counts. Nothing here blocks, and nothing reaches the system.

use std::{
    mem,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use wasmtime::component::{Component, HasData, Linker, Resource, ResourceTable, ResourceType, types::ComponentItem};
use wasmtime_wasi::{
    WasiCtx, WasiCtxView, WasiView,
    cli::{IsTerminal, StdoutStream, WasiCli, WasiCliView as _},
    filesystem::{WasiFilesystem, WasiFilesystemView as _},
    p2::{
        DynInputStream, DynOutputStream, DynPollable, OutputStream, Pollable, StreamError, StreamResult,
        bindings::{
            cli, clocks, filesystem,
            random::{insecure, insecure_seed, random},
            sync,
        },
        subscribe,
    },
    random::{Deterministic, WasiRandom},
};

use wasmtime_wasi_io::bindings::wasi::io as asynchronous;

use crate::{
    Digest, inspect,
    store::{Failure, Host},
};

/// Midnight of 2020-01-01 UTC in seconds since 1970: a date that no guest takes for a machine without a clock.
const NOW: u64 = 1_577_836_800;
/// Handles that one call may hold.
pub(crate) const HANDLES: usize = 1024;
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

/// The interfaces that are linked, in any version of their semver track.
const LINKED: [&str; 20] = [
    "wasi:clocks/wall-clock@0.2.0",
    "wasi:clocks/monotonic-clock@0.2.0",
    "wasi:random/random@0.2.0",
    "wasi:random/insecure@0.2.0",
    "wasi:random/insecure-seed@0.2.0",
    "wasi:cli/exit@0.2.0",
    "wasi:cli/environment@0.2.0",
    "wasi:cli/stdin@0.2.0",
    "wasi:cli/stdout@0.2.0",
    "wasi:cli/stderr@0.2.0",
    "wasi:cli/terminal-input@0.2.0",
    "wasi:cli/terminal-output@0.2.0",
    "wasi:cli/terminal-stdin@0.2.0",
    "wasi:cli/terminal-stdout@0.2.0",
    "wasi:cli/terminal-stderr@0.2.0",
    "wasi:filesystem/preopens@0.2.0",
    "wasi:filesystem/types@0.2.0",
    "wasi:io/error@0.2.0",
    "wasi:io/poll@0.2.0",
    "wasi:io/streams@0.2.0",
];

/// Links what guests import.
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
    asynchronous::error::add_to_linker::<H, Table>(linker, |host| host.ctx().table)?;
    sync::io::poll::add_to_linker::<H, Streams>(linker, ready)?;
    sync::io::streams::add_to_linker::<H, Streams>(linker, ready)?;
    Ok(())
}

/// Gives a component the interfaces of WASI that it imports and that have no meaning here, such as sockets: they trap when
/// they are called, at which point the guest has left its sandbox's ground.
///
/// wasmtime's own way of doing this looks at whole names, and so takes from a guest what is linked in another version of the
/// same track.
pub(crate) fn trap_the_rest(linker: &mut Linker<Host>, component: &Component) -> wasmtime::Result<()> {
    let engine = linker.engine().clone();
    for (name, import) in component.component_type().imports(&engine) {
        let ComponentItem::ComponentInstance(interface) = import.ty else { continue };
        if !name.starts_with(inspect::WASI) || LINKED.iter().any(|linked| inspect::same_interface(linked, name)) {
            continue;
        }
        let mut traps = linker.instance(name)?;
        for (item, export) in interface.exports(&engine) {
            let called = format!("{name}#{item}");
            match export.ty {
                ComponentItem::ComponentFunc(_) => traps.func_new(item, move |mut store, _, _, _| {
                    store.data_mut().refuse(Failure::Missing(called.clone()))
                })?,
                ComponentItem::Resource(_) => traps.resource(item, ResourceType::host::<()>(), |_, _| Ok(()))?,
                _ => {}
            }
        }
    }
    Ok(())
}

fn ready(host: &mut Host) -> Ready<'_> {
    Ready(host.ctx().table)
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

/// Streams and waits that are all ready at once. wasmtime-wasi's own blocking form of these runs them in a tokio runtime,
/// which it starts where there is none, and which panics on a thread that drives one. Here they are polled once.
struct Ready<'a>(&'a mut ResourceTable);

struct Streams;

impl HasData for Streams {
    type Data<'a> = Ready<'a>;
}

/// The output of what is ready.
fn at_once<T, E>(future: impl Future<Output = Result<T, E>>, error: fn(&'static str) -> E) -> Result<T, E> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(error("nothing in an isolated WASI can be waited for")),
    }
}

impl sync::io::poll::Host for Ready<'_> {
    fn poll(&mut self, pollables: Vec<Resource<DynPollable>>) -> wasmtime::Result<Vec<u32>> {
        at_once(asynchronous::poll::Host::poll(self.0, pollables), wasmtime::Error::msg)
    }
}

impl sync::io::poll::HostPollable for Ready<'_> {
    fn ready(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<bool> {
        at_once(asynchronous::poll::HostPollable::ready(self.0, pollable), wasmtime::Error::msg)
    }

    fn block(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        at_once(asynchronous::poll::HostPollable::block(self.0, pollable), wasmtime::Error::msg)
    }

    fn drop(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        asynchronous::poll::HostPollable::drop(self.0, pollable)
    }
}

impl sync::io::streams::Host for Ready<'_> {
    fn convert_stream_error(&mut self, error: StreamError) -> wasmtime::Result<sync::io::streams::StreamError> {
        sync::io::streams::Host::convert_stream_error(self.0, error)
    }
}

impl sync::io::streams::HostInputStream for Ready<'_> {
    fn read(&mut self, stream: Resource<DynInputStream>, bytes: u64) -> StreamResult<Vec<u8>> {
        asynchronous::streams::HostInputStream::read(self.0, stream, bytes)
    }

    fn blocking_read(&mut self, stream: Resource<DynInputStream>, bytes: u64) -> StreamResult<Vec<u8>> {
        at_once(asynchronous::streams::HostInputStream::blocking_read(self.0, stream, bytes), StreamError::trap)
    }

    fn skip(&mut self, stream: Resource<DynInputStream>, bytes: u64) -> StreamResult<u64> {
        asynchronous::streams::HostInputStream::skip(self.0, stream, bytes)
    }

    fn blocking_skip(&mut self, stream: Resource<DynInputStream>, bytes: u64) -> StreamResult<u64> {
        at_once(asynchronous::streams::HostInputStream::blocking_skip(self.0, stream, bytes), StreamError::trap)
    }

    fn subscribe(&mut self, stream: Resource<DynInputStream>) -> wasmtime::Result<Resource<DynPollable>> {
        asynchronous::streams::HostInputStream::subscribe(self.0, stream)
    }

    fn drop(&mut self, stream: Resource<DynInputStream>) -> wasmtime::Result<()> {
        at_once(asynchronous::streams::HostInputStream::drop(self.0, stream), wasmtime::Error::msg)
    }
}

impl sync::io::streams::HostOutputStream for Ready<'_> {
    fn check_write(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<u64> {
        asynchronous::streams::HostOutputStream::check_write(self.0, stream)
    }

    fn write(&mut self, stream: Resource<DynOutputStream>, bytes: Vec<u8>) -> StreamResult<()> {
        asynchronous::streams::HostOutputStream::write(self.0, stream, bytes)
    }

    fn blocking_write_and_flush(&mut self, stream: Resource<DynOutputStream>, bytes: Vec<u8>) -> StreamResult<()> {
        let written = asynchronous::streams::HostOutputStream::blocking_write_and_flush(self.0, stream, bytes);
        at_once(written, StreamError::trap)
    }

    fn flush(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<()> {
        asynchronous::streams::HostOutputStream::flush(self.0, stream)
    }

    fn blocking_flush(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<()> {
        at_once(asynchronous::streams::HostOutputStream::blocking_flush(self.0, stream), StreamError::trap)
    }

    fn subscribe(&mut self, stream: Resource<DynOutputStream>) -> wasmtime::Result<Resource<DynPollable>> {
        asynchronous::streams::HostOutputStream::subscribe(self.0, stream)
    }

    fn write_zeroes(&mut self, stream: Resource<DynOutputStream>, bytes: u64) -> StreamResult<()> {
        asynchronous::streams::HostOutputStream::write_zeroes(self.0, stream, bytes)
    }

    fn blocking_write_zeroes_and_flush(&mut self, stream: Resource<DynOutputStream>, bytes: u64) -> StreamResult<()> {
        let written = asynchronous::streams::HostOutputStream::blocking_write_zeroes_and_flush(self.0, stream, bytes);
        at_once(written, StreamError::trap)
    }

    fn splice(
        &mut self,
        to: Resource<DynOutputStream>,
        from: Resource<DynInputStream>,
        bytes: u64,
    ) -> StreamResult<u64> {
        asynchronous::streams::HostOutputStream::splice(self.0, to, from, bytes)
    }

    fn blocking_splice(
        &mut self,
        to: Resource<DynOutputStream>,
        from: Resource<DynInputStream>,
        bytes: u64,
    ) -> StreamResult<u64> {
        at_once(asynchronous::streams::HostOutputStream::blocking_splice(self.0, to, from, bytes), StreamError::trap)
    }

    fn drop(&mut self, stream: Resource<DynOutputStream>) -> wasmtime::Result<()> {
        at_once(asynchronous::streams::HostOutputStream::drop(self.0, stream), wasmtime::Error::msg)
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
