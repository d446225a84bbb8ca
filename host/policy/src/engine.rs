//! The engine: one WebAssembly configuration shared by all policies of a process, and the ticker that its deadlines hang on.
//! It holds no policy and no global state; two engines in one process don't know each other.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use wasmtime::{Config, OptLevel};

use crate::Digest;

/// The resolution of deadlines.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// Ticks without a call after which the ticker goes to sleep: long enough that calls in a row don't pay for waking it.
const LINGER: u32 = 16;

/// What is decided once per engine, since compiled code depends on it.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Bytes of stack that a guest may use. The thread that calls needs this much and some 256 KiB more.
    pub stack_bytes: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self { stack_bytes: 512 << 10 }
    }
}

/// An engine that the platform or the configuration doesn't allow.
#[derive(Debug, thiserror::Error)]
#[error("The WebAssembly engine can't be started.")]
pub struct EngineError(#[source] Box<dyn std::error::Error + Send + Sync>);

/// The shared engine. Clones are handles to the same one; its ticker thread ends with the last of them.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    wasmtime: wasmtime::Engine,
    compatibility: Digest,
    ticker: Arc<Ticker>,
    thread: thread::Thread,
}

struct Ticker {
    in_flight: AtomicUsize,
    stop: AtomicBool,
}

impl Engine {
    /// Starts an engine and its ticker thread, which sleeps while no call is in flight.
    ///
    /// # Errors
    /// When the platform has no compiler for it or no thread can be started.
    pub fn new(config: &EngineConfig) -> Result<Self, EngineError> {
        let wasmtime = wasmtime::Engine::new(&wasmtime_config(config)).map_err(|error| EngineError(error.into()))?;
        let compatibility = Digest::of_hash(&wasmtime.precompile_compatibility_hash());
        let ticker = Arc::new(Ticker { in_flight: AtomicUsize::new(0), stop: AtomicBool::new(false) });
        let thread = thread::Builder::new()
            .name("policy-ticker".into())
            .spawn({
                let (ticker, engine) = (ticker.clone(), wasmtime.clone());
                move || ticker.run(&engine)
            })
            .map_err(|error| EngineError(error.into()))?
            .thread()
            .clone();
        Ok(Self { shared: Arc::new(Shared { wasmtime, compatibility, ticker, thread }) })
    }

    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.shared.wasmtime
    }

    /// Names everything that compiled code depends on: wasmtime's version, its settings, the CPU's features.
    pub(crate) fn compatibility(&self) -> Digest {
        self.shared.compatibility
    }

    /// Keeps the ticker running until the guard is dropped.
    pub(crate) fn call_in_flight(&self) -> InFlight<'_> {
        if self.shared.ticker.in_flight.fetch_add(1, SeqCst) == 0 {
            self.shared.thread.unpark();
        }
        InFlight(&self.shared.ticker)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("compatibility", &self.shared.compatibility).finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.ticker.stop.store(true, SeqCst);
        self.thread.unpark();
    }
}

pub(crate) struct InFlight<'a>(&'a Ticker);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, SeqCst);
    }
}

impl Ticker {
    /// One increment per wake-up and none for ticks that were missed: when this thread comes late, deadlines come late too,
    /// but no guest is ever killed before its time.
    fn run(&self, engine: &wasmtime::Engine) {
        let mut idle = 0;
        while !self.stop.load(SeqCst) {
            if self.in_flight.load(SeqCst) > 0 {
                idle = 0;
            } else if idle == LINGER {
                // A call that begins between the check and here leaves a token, and `park` returns at once.
                thread::park();
                idle = 0;
                continue;
            } else {
                idle += 1;
            }
            thread::sleep(TICK);
            engine.increment_epoch();
        }
    }
}

fn wasmtime_config(config: &EngineConfig) -> Config {
    let mut wasm = Config::new();
    wasm.wasm_component_model(true)
        // Halves the cost of a call; a policy is asked one thing at a time.
        .concurrency_support(false)
        .consume_fuel(true)
        .epoch_interruption(true)
        .max_wasm_stack(config.stack_bytes)
        // The same input gives the same verdict and uses the same fuel on every CPU.
        .cranelift_nan_canonicalization(true)
        .wasm_relaxed_simd(false)
        .wasm_memory64(false)
        .cranelift_opt_level(OptLevel::SpeedAndSize)
        // 16 MiB of address space per memory instead of 4 GiB: an agent must not look like a 33 GiB process.
        .memory_reservation(16 << 20)
        .memory_guard_size(64 << 10)
        // Nobody reads frames of a guest: its panic text is what helps.
        .generate_address_map(false)
        .wasm_backtrace_max_frames(None);
    wasm
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

    use super::*;

    #[test]
    fn engines_of_equal_configuration_share_compiled_code_and_others_dont() {
        let engine = |stack_bytes| Engine::new(&EngineConfig { stack_bytes }).unwrap();
        assert_eq!(engine(512 << 10).compatibility(), engine(512 << 10).compatibility());
    }

    #[test]
    fn dropping_the_last_handle_ends_the_ticker() {
        let engine = Engine::new(&EngineConfig::default()).unwrap();
        let ticker = Arc::downgrade(&engine.shared.ticker);
        drop(engine);
        while ticker.upgrade().is_some() {
            thread::yield_now();
        }
    }
}
