//! The engine: one WebAssembly configuration shared by all policies of a process, and the ticker that its deadlines hang on.
//! It holds no policy and no global state; two engines in one process don't know each other.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig};

use crate::{Digest, Limits};

/// The resolution of deadlines.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// Ticks without a call after which the ticker goes to sleep: long enough that calls in a row don't pay for waking it.
const LINGER: u32 = 16;

/// What is decided once per engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineConfig {
    /// Where the memory of calls comes from.
    pub allocation: Allocation,
}

/// Where the memory of calls comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Allocation {
    /// Mapped for each call and given back after it: nothing is held between calls. For hosts that ask now and then.
    #[default]
    OnDemand,
    /// From a pool that is mapped once, for hosts with many calls a second. A component that doesn't fit a place of the
    /// pool is refused at load.
    Pooled(Pool),
}

/// The size of a pool. It takes address space for all of its places, and memory for those that were used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Calls at the same time. One more fails as `pool-full`.
    pub calls: u32,
    /// Core instances, memories and tables of one component. A component in Rust or C needs four or fewer of each.
    pub instances: u32,
    /// Bytes of one memory, at most; the limit of a call may be lower.
    pub memory_bytes: usize,
    /// Elements of one table, at most; the limit of a call may be lower.
    pub table_elements: usize,
    /// Bytes of a memory that stay in place between two calls and are cleared by writing, which is quicker than giving them
    /// back to the system.
    pub keep_resident_bytes: usize,
}

impl Default for Pool {
    fn default() -> Self {
        Self { calls: 16, instances: 8, memory_bytes: 16 << 20, table_elements: 10_000, keep_resident_bytes: 2 << 20 }
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
    /// The one of `shared` that has this handle's stack.
    wasmtime: wasmtime::Engine,
}

struct Shared {
    config: EngineConfig,
    pooled: bool,
    compatibility: Digest,
    ticker: Arc<Ticker>,
    thread: thread::Thread,
}

struct Ticker {
    in_flight: AtomicUsize,
    stop: AtomicBool,
    /// By the bytes of stack that a guest may use, which wasmtime decides per engine. Compiled code fits all of them.
    engines: Mutex<BTreeMap<usize, wasmtime::Engine>>,
}

impl Engine {
    /// Starts an engine and its ticker thread, which sleeps while no call is in flight.
    ///
    /// A pool that can't be mapped is done without; [`is_pooled`](Self::is_pooled) tells.
    ///
    /// # Errors
    /// When the platform has no compiler for it or no thread can be started.
    pub fn new(config: &EngineConfig) -> Result<Self, EngineError> {
        let stack = Limits::default().stack_bytes;
        let (pooled, wasmtime) = match (&config.allocation, bare(&config.allocation)) {
            (Allocation::Pooled(_), Err(error)) => {
                tracing::warn!(error = format!("{error:#}"), "the pool can't be mapped, so calls are served without");
                (false, bare(&Allocation::OnDemand))
            }
            (Allocation::Pooled(_), wasmtime) => (true, wasmtime),
            (Allocation::OnDemand, wasmtime) => (false, wasmtime),
        };
        let wasmtime = wasmtime.map_err(|error| EngineError(error.into()))?;
        let compatibility = Digest::of_hash(&wasmtime.precompile_compatibility_hash());
        let ticker = Arc::new(Ticker {
            in_flight: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            engines: Mutex::new([(stack, wasmtime.clone())].into()),
        });
        let thread = thread::Builder::new()
            .name("policy-ticker".into())
            .spawn({
                let ticker = ticker.clone();
                move || ticker.run()
            })
            .map_err(|error| EngineError(error.into()))?
            .thread()
            .clone();
        let shared = Shared { config: config.clone(), pooled, compatibility, ticker, thread };
        Ok(Self { shared: Arc::new(shared), wasmtime })
    }

    /// What it was started with.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.shared.config
    }

    /// Whether calls are served from a pool.
    #[must_use]
    pub fn is_pooled(&self) -> bool {
        self.shared.pooled
    }

    /// The same engine for guests with this much stack.
    pub(crate) fn for_stack(&self, bytes: usize) -> Result<Self, EngineError> {
        let mut engines = self.shared.ticker.engines();
        let wasmtime = match engines.get(&bytes) {
            Some(wasmtime) => wasmtime.clone(),
            None => {
                let allocation =
                    if self.shared.pooled { &self.shared.config.allocation } else { &Allocation::OnDemand };
                let wasmtime = with_stack(allocation, bytes).map_err(|error| EngineError(error.into()))?;
                engines.insert(bytes, wasmtime.clone());
                wasmtime
            }
        };
        Ok(Self { shared: self.shared.clone(), wasmtime })
    }

    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.wasmtime
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
    fn run(&self) {
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
            self.engines().values().for_each(wasmtime::Engine::increment_epoch);
        }
    }

    fn engines(&self) -> MutexGuard<'_, BTreeMap<usize, wasmtime::Engine>> {
        self.engines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wasmtime engine without a ticker: what a compiler needs.
pub(crate) fn bare(allocation: &Allocation) -> wasmtime::Result<wasmtime::Engine> {
    with_stack(allocation, Limits::default().stack_bytes)
}

fn with_stack(allocation: &Allocation, stack_bytes: usize) -> wasmtime::Result<wasmtime::Engine> {
    let mut wasm = Config::new();
    wasm.wasm_component_model(true)
        // Halves the cost of a call; a policy is asked one thing at a time.
        .concurrency_support(false)
        .consume_fuel(true)
        .epoch_interruption(true)
        .max_wasm_stack(stack_bytes)
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
    if let Allocation::Pooled(pool) = allocation {
        wasm.allocation_strategy(InstanceAllocationStrategy::Pooling(pooling(pool)));
    }
    wasmtime::Engine::new(&wasm)
}

fn pooling(pool: &Pool) -> PoolingAllocationConfig {
    let total = pool.calls.saturating_mul(pool.instances);
    let mut pooling = PoolingAllocationConfig::new();
    pooling
        .total_component_instances(pool.calls)
        .total_core_instances(total)
        .total_memories(total)
        .total_tables(total)
        .max_core_instances_per_component(pool.instances)
        .max_memories_per_component(pool.instances)
        .max_tables_per_component(pool.instances)
        .max_memory_size(pool.memory_bytes)
        .table_elements(pool.table_elements)
        .linear_memory_keep_resident(pool.keep_resident_bytes)
        .table_keep_resident(pool.keep_resident_bytes)
        // Only pages that a call has written are cleared after it, where the kernel can tell which.
        .pagemap_scan(Enabled::Auto);
    pooling
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

    use super::*;

    #[test]
    fn compiled_code_fits_engines_with_a_pool_and_with_another_stack() {
        let engine = Engine::new(&EngineConfig::default()).unwrap();
        let pooled = Engine::new(&EngineConfig { allocation: Allocation::Pooled(Pool::default()) }).unwrap();
        assert!(pooled.is_pooled());
        assert_eq!(engine.compatibility(), pooled.compatibility());
        let deep = engine.for_stack(1 << 20).unwrap();
        assert_eq!(
            Digest::of_hash(&deep.wasmtime().precompile_compatibility_hash()),
            Digest::of_hash(&engine.wasmtime().precompile_compatibility_hash())
        );
    }

    #[test]
    fn a_pool_that_cant_be_mapped_is_done_without() {
        let pool = Pool { calls: u32::MAX, memory_bytes: 1 << 40, ..Pool::default() };
        let engine = Engine::new(&EngineConfig { allocation: Allocation::Pooled(pool) }).unwrap();
        assert!(!engine.is_pooled());
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
