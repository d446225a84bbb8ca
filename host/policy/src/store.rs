//! One call of a guest: a fresh store and instance, its limits, what it logged, and why it failed.
//! This is all of the sandbox. It knows neither hooks nor bindings, and it never keeps anything from one call for the next.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use wasmtime::{
    PoolConcurrencyLimitError, ResourceLimiter, Store, StoreContextMut, Trap,
    component::{
        ComponentExportIndex, ComponentNamedList, ComponentType, InstancePre, Lift, Linker, Lower, ResourceTableError,
        WasmStr,
    },
};

use wasmtime_wasi::I32Exit;

use crate::{
    Engine, Limits, Wasi,
    engine::TICK,
    wasi::{self, Isolated},
};

/// Bytes of the last error line that are kept whatever the log limits say: it is the panic text.
const PANIC_BYTES: usize = 2 << 10;

/// How much a log line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(enum)]
#[repr(u8)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Every step.
    #[component(name = "trace")]
    Trace,
    /// For the policy's author.
    #[component(name = "debug")]
    Debug,
    /// For the operator.
    #[component(name = "info")]
    Info,
    /// Worth a look.
    #[component(name = "warn")]
    Warn,
    /// The policy failed; its panic text is such a line.
    #[component(name = "error")]
    Error,
}

/// What a policy logged during one call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logs {
    /// The lines that were kept, in order.
    pub lines: Vec<(Level, String)>,
    /// How many lines of a kept level were dropped because a limit was reached.
    pub dropped: usize,
}

/// Why a call gave no value. The limits that were broken are in the [`Limits`] that it ran with.
#[derive(Debug)]
pub(crate) enum Failure {
    Fuel,
    Deadline,
    Memory {
        wanted: usize,
    },
    Table {
        wanted: usize,
    },
    Stack,
    Instances,
    /// The engine's pool has no place left.
    PoolFull,
    /// A transfer larger than `output_bytes`.
    Output,
    /// A trap of any other kind.
    Trap(Trap),
    /// It called for the end of its process.
    Exited(i32),
    /// It holds more handles than an isolated WASI gives.
    Handles,
    /// It called what an isolated WASI doesn't have.
    Missing(String),
    /// What came back, or a pointer that came with it, breaks the canonical ABI; or the component couldn't be instantiated.
    Abi(String),
}

/// A finished call.
pub(crate) struct Ran<R> {
    pub(crate) result: Result<R, Failure>,
    pub(crate) fuel: u64,
    pub(crate) elapsed: Duration,
    pub(crate) logs: Logs,
    /// The last line that the guest logged as an error.
    pub(crate) panic: Option<String>,
}

/// What a store holds for the host: the limits, and what has been used of them.
pub(crate) struct Host {
    limits: Limits,
    memory: usize,
    table: usize,
    broken: Option<Failure>,
    logs: Logs,
    log_bytes: usize,
    panic: Option<String>,
    wasi: Option<Box<Isolated>>,
}

/// How often a policy that only came too late is asked at load.
const TRIES_AT_LOAD: u32 = 5;

/// Calls one function of a fresh instance.
pub(crate) fn call<P, R>(
    engine: &Engine,
    pre: &InstancePre<Host>,
    export: &ComponentExportIndex,
    params: P,
    limits: &Limits,
) -> Ran<R>
where
    P: ComponentNamedList + Lower,
    R: ComponentNamedList + Lift,
{
    let started = Instant::now();
    let _ticking = engine.call_in_flight();
    let mut store = Store::new(engine.wasmtime(), Host::new(limits));
    store.limiter(|host| host);
    store.set_hostcall_fuel(limits.output_bytes);
    // One tick more than the budget has, since the first may come at once.
    let ticks = u64::try_from(limits.deadline.as_nanos().div_ceil(TICK.as_nanos())).unwrap_or(u64::MAX);
    let result = store.set_fuel(limits.fuel).and_then(|()| {
        // Instantiation runs guest code as well, so the deadline is armed before it.
        store.set_epoch_deadline(ticks.saturating_add(1));
        let instance = pre.instantiate(&mut store)?;
        let function = instance.get_typed_func::<P, R>(&mut store, export)?;
        function.call(&mut store, params)
    });
    let fuel = limits.fuel.saturating_sub(store.get_fuel().unwrap_or(0));
    let mut host = store.into_data();
    let last_words = host.wasi.take().and_then(|wasi| wasi.last_words());
    Ran {
        result: result.map_err(|error| host.broken.unwrap_or_else(|| failure(&error))),
        fuel,
        elapsed: started.elapsed(),
        logs: host.logs,
        panic: host.panic.or(last_words),
    }
}

/// Makes a call at load, where a failure is for the life of the process: fuel is the policy's budget, and an answer that
/// only came too late, on a machine that is busy for a moment, is asked for again.
pub(crate) fn unless_late<R>(mut call: impl FnMut() -> Ran<R>) -> Ran<R> {
    let mut ran = call();
    for _ in 1..TRIES_AT_LOAD {
        if !matches!(ran.result, Err(Failure::Deadline)) {
            break;
        }
        ran = call();
    }
    ran
}

fn failure(error: &wasmtime::Error) -> Failure {
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => Failure::Fuel,
        Some(Trap::Interrupt) => Failure::Deadline,
        Some(Trap::StackOverflow) => Failure::Stack,
        Some(trap) => Failure::Trap(*trap),
        None if let Some(ResourceTableError::Full) = error.downcast_ref() => Failure::Handles,
        None if error.is::<PoolConcurrencyLimitError>() => Failure::PoolFull,
        None if let Some(I32Exit(status)) = error.downcast_ref() => Failure::Exited(*status),
        // wasmtime keeps the types of these errors to itself.
        None => match format!("{error:#}") {
            text if text.contains("fuel allocated for hostcalls has been exhausted") => Failure::Output,
            text if text.contains("resource limit exceeded") => Failure::Instances,
            text => Failure::Abi(text),
        },
    }
}

/// The host's side of the contract: logging, nothing else.
pub(crate) fn linker(engine: &Engine, wasi: Wasi) -> wasmtime::Result<Linker<Host>> {
    let mut linker = Linker::new(engine.wasmtime());
    if wasi == Wasi::Isolated {
        wasi::link(&mut linker)?;
    }
    let mut host_log = linker.instance("moorline:policy/host-log@0.1.0")?;
    host_log.func_wrap("log", |mut store: StoreContextMut<'_, Host>, (level, line): (Level, WasmStr)| {
        if let Some(longest) = store.data_mut().room_for(level) {
            let line = line.to_str(&store)?;
            let line = line[..line.floor_char_boundary(longest)].to_owned();
            store.data_mut().log(level, line);
        }
        Ok(())
    })?;
    host_log.func_wrap("enabled", |store: StoreContextMut<'_, Host>, (level,): (Level,)| {
        Ok((level >= store.data().limits.log_level,))
    })?;
    Ok(linker)
}

impl Host {
    fn new(limits: &Limits) -> Self {
        Self {
            limits: limits.clone(),
            memory: 0,
            table: 0,
            broken: None,
            logs: Logs::default(),
            log_bytes: 0,
            panic: None,
            wasi: None,
        }
    }

    pub(crate) fn wasi(&mut self) -> &mut Isolated {
        self.wasi.get_or_insert_with(|| Box::new(Isolated::new()))
    }

    /// Bytes of a new line that are worth reading from the guest's memory, if any. A line that a limit drops is counted here.
    fn room_for(&mut self, level: Level) -> Option<usize> {
        if level < self.limits.log_level {
            return None;
        }
        let room = self.room();
        match (room, level) {
            (_, Level::Error) => Some(room.max(PANIC_BYTES)),
            (0, _) => {
                self.logs.dropped += 1;
                None
            }
            _ => Some(room),
        }
    }

    fn room(&self) -> usize {
        if self.logs.lines.len() < self.limits.log_lines {
            self.limits.log_bytes.saturating_sub(self.log_bytes)
        } else {
            0
        }
    }

    fn log(&mut self, level: Level, mut line: String) {
        if level == Level::Error {
            self.panic = Some(line[..line.floor_char_boundary(PANIC_BYTES)].to_owned());
        }
        match self.room() {
            0 => self.logs.dropped += 1,
            room => {
                line.truncate(line.floor_char_boundary(room));
                self.log_bytes += line.len();
                self.logs.lines.push((level, line));
            }
        }
    }

    /// Ends the call for this reason.
    pub(crate) fn refuse<T>(&mut self, why: Failure) -> wasmtime::Result<T> {
        self.broken = Some(why);
        Err(wasmtime::Error::msg("a limit of the host was reached"))
    }
}

impl ResourceLimiter for Host {
    // Growing past what the host allows ends the call with a clear reason, instead of leaving it to the guest to cope with.
    // A memory's own maximum is the guest's affair.
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let wanted = self.memory.saturating_add(desired.saturating_sub(current));
        if wanted > self.limits.memory_bytes {
            return self.refuse(Failure::Memory { wanted });
        }
        let allowed = maximum.is_none_or(|maximum| desired <= maximum);
        if allowed {
            self.memory = wanted;
        }
        Ok(allowed)
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let wanted = self.table.saturating_add(desired.saturating_sub(current));
        if wanted > self.limits.table_elements {
            return self.refuse(Failure::Table { wanted });
        }
        let allowed = maximum.is_none_or(|maximum| desired <= maximum);
        if allowed {
            self.table = wanted;
        }
        Ok(allowed)
    }

    fn instances(&self) -> usize {
        self.limits.instances
    }

    fn memories(&self) -> usize {
        self.limits.instances
    }

    fn tables(&self) -> usize {
        self.limits.instances
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many tries are made of a call whose tries end so: `None` is an answer.
    fn tries(ends: &[Option<Failure>]) -> usize {
        let mut tries = 0;
        let ran = unless_late(|| {
            tries += 1;
            let result = match &ends[tries - 1] {
                None => Ok(()),
                Some(Failure::Deadline) => Err(Failure::Deadline),
                Some(_) => Err(Failure::Fuel),
            };
            Ran { result, fuel: 0, elapsed: Duration::ZERO, logs: Logs::default(), panic: None }
        });
        assert_eq!(ran.result.is_ok(), ends[tries - 1].is_none());
        tries
    }

    #[test]
    fn at_load_an_answer_that_comes_too_late_is_asked_for_again_and_no_other_failure_is() {
        assert_eq!(tries(&[Some(Failure::Deadline), Some(Failure::Deadline), None]), 3);
        assert_eq!(tries(&[Some(Failure::Fuel), None]), 1);
        assert_eq!(tries(&[const { Some(Failure::Deadline) }; 9]), 5);
    }
}
