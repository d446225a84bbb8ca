//! Compiling in a child process: nothing bounds the compiler's time and memory from within, so it gets a process that may be
//! lost. The parent starts it, feeds it and ends it; the child binds itself to its limits before it reads the component.

use std::{
    ffi::OsString,
    fs,
    io::{self, BufRead, Read as _, Write as _},
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{
        Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, pidfd_open, set_parent_process_death_signal, setrlimit,
    },
};
use serde::{Deserialize, Serialize};

use crate::{
    Allocation, Artefact, CompileError, Compiler, Digest,
    compile::{Job, precompile},
    engine,
};

/// Bytes of what the child says on its standard error that are kept.
const LAST_WORDS: u64 = 4 << 10;
/// Bytes of the line that comes before a component, at most.
const ORDER_BYTES: u64 = 4 << 10;
/// Bytes of native code per byte of a component that are more than any compiler makes.
const GROWTH: u64 = 64;
/// What the runtime of the language says when it is refused memory.
const OUT_OF_MEMORY: &str = "memory allocation of";
/// A component that the compiler refuses, against a child that could not even begin: EX_DATAERR and EX_UNAVAILABLE of
/// sysexits.h, which no shell and no runtime ends with by itself.
const REFUSED: u8 = 65;
const UNAVAILABLE: u8 = 69;

/// Compiles in a child process, within [`Limits::compile_memory_bytes`](crate::Limits::compile_memory_bytes) and
/// [`Limits::compile_deadline`](crate::Limits::compile_deadline).
///
/// The child is a program that calls [`compile_child`] and does nothing else: usually the embedding program itself, with an
/// argument that only this is started with, or else the program `moorline-compile` of this crate.
#[derive(Clone, Debug)]
pub struct ChildProcess {
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl ChildProcess {
    /// Starts this program with these arguments for each component. It gets an empty environment.
    pub fn new<A: Into<OsString>>(program: impl Into<PathBuf>, arguments: impl IntoIterator<Item = A>) -> Self {
        Self { program: program.into(), arguments: arguments.into_iter().map(Into::into).collect() }
    }

    /// Starts the running program itself, whatever its file is called by now.
    pub fn this_program<A: Into<OsString>>(arguments: impl IntoIterator<Item = A>) -> Self {
        Self::new("/proc/self/exe", arguments)
    }
}

/// What a child is told before the component follows: a line of JSON.
#[derive(Serialize, Deserialize)]
struct Order {
    compatibility: Digest,
    memory_bytes: u64,
    file_bytes: u64,
    seconds: u64,
}

impl Compiler for ChildProcess {
    fn compile(&self, job: &Job<'_>) -> Result<Artefact, CompileError> {
        let artefact = job.file().map_err(CompileError::Unavailable)?;
        let component_bytes = u64::try_from(job.component.len()).unwrap_or(u64::MAX);
        let order = Order {
            compatibility: job.engine.compatibility(),
            memory_bytes: u64::try_from(job.limits.compile_memory_bytes).unwrap_or(u64::MAX),
            file_bytes: component_bytes.saturating_mul(GROWTH).saturating_add(1 << 20),
            seconds: job.limits.compile_deadline.as_secs().saturating_add(1),
        };
        let mut order = serde_json::to_vec(&order).map_err(|error| CompileError::Unavailable(error.into()))?;
        order.push(b'\n');
        let code = artefact.file().try_clone().map_err(CompileError::Unavailable)?;
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(code)
            .stderr(Stdio::piped())
            .spawn()
            .map_err(CompileError::Unavailable)?;
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        let (waited, last_words) = thread::scope(|scope| {
            scope.spawn(|| {
                // A child that ends early is told apart by its status, not by a broken pipe.
                let _ = stdin.map(|mut stdin| stdin.write_all(&order).and_then(|()| stdin.write_all(job.component)));
            });
            let words = scope.spawn(|| {
                let mut words = Vec::new();
                let _ = stderr.map(|stderr| stderr.take(LAST_WORDS).read_to_end(&mut words));
                String::from_utf8_lossy(&words).trim().to_owned()
            });
            let waited = wait(&mut child, job.limits.compile_deadline);
            (waited, words.join().unwrap_or_default())
        });
        match waited.map_err(CompileError::Unavailable)? {
            None => Err(CompileError::Deadline),
            Some(status) if status.success() => {
                tracing::debug!(
                    process = child.id(),
                    bytes = job.component.len(),
                    "a policy was compiled in a process of its own"
                );
                Ok(artefact)
            }
            Some(status) => Err(verdict(status, last_words)),
        }
    }
}

/// Waits for the child's end, or ends it when its time is over. It is gone afterwards in either case.
fn wait(child: &mut Child, time: Duration) -> io::Result<Option<ExitStatus>> {
    let by = Instant::now() + time;
    let ended = ended(child, by);
    if !matches!(ended, Ok(true)) {
        // It may just have ended by itself.
        let _ = child.kill();
    }
    let status = child.wait()?;
    ended.map(|ended| ended.then_some(status))
}

fn ended(child: &Child, by: Instant) -> io::Result<bool> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    loop {
        let left = by.saturating_duration_since(Instant::now());
        let left = left.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn verdict(status: ExitStatus, last_words: String) -> CompileError {
    if last_words.contains(OUT_OF_MEMORY) {
        return CompileError::Memory;
    }
    match (status.code().and_then(|code| u8::try_from(code).ok()), status.signal()) {
        (Some(REFUSED), _) => CompileError::Refused(last_words),
        (Some(UNAVAILABLE), _) => CompileError::Unavailable(io::Error::other(last_words)),
        (_, Some(signal)) if signal == Signal::XCPU.as_raw() => CompileError::Deadline,
        (_, Some(signal)) if signal == Signal::XFSZ.as_raw() => {
            CompileError::Refused("its native code is far larger than any sensible component's".into())
        }
        (_, Some(signal)) => CompileError::Died(format!("it was ended by signal {signal}. {last_words}")),
        (Some(code), None) => CompileError::Died(format!("it ended with status {code}. {last_words}")),
        (None, None) => CompileError::Died(last_words),
    }
}

/// The child's side of [`ChildProcess`]: reads a component from standard input and writes native code to standard output,
/// within the limits that it was told. The program that calls this should do nothing before and nothing after.
#[must_use]
pub fn compile_child() -> ExitCode {
    let (code, words) = match serve() {
        Ok(()) => return ExitCode::SUCCESS,
        Err(CompileError::Refused(why)) => (REFUSED, why),
        Err(CompileError::Unavailable(error)) => (UNAVAILABLE, error.to_string()),
        Err(error) => (UNAVAILABLE, error.to_string()),
    };
    // Nobody is left to be told.
    let _ = io::stderr().write_all(words.as_bytes());
    ExitCode::from(code)
}

fn serve() -> Result<(), CompileError> {
    let unavailable = CompileError::Unavailable;
    let mut input = io::stdin().lock();
    let order = order(&mut input).map_err(unavailable)?;
    bind(&order).map_err(unavailable)?;
    let mut component = Vec::new();
    input.read_to_end(&mut component).map_err(unavailable)?;
    let wasmtime = engine::bare(&Allocation::OnDemand).map_err(|error| unavailable(io::Error::other(error)))?;
    if Digest::of_hash(&wasmtime.precompile_compatibility_hash()) != order.compatibility {
        return Err(unavailable(io::Error::other(
            "the compiling program is of another version than the one that asks",
        )));
    }
    let code = precompile(&wasmtime, &component).map_err(CompileError::Refused)?;
    io::stdout().lock().write_all(&code).map_err(unavailable)
}

fn order(input: &mut impl BufRead) -> io::Result<Order> {
    let mut line = Vec::new();
    input.take(ORDER_BYTES).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        let text = "there is nothing to compile; this is started by the program itself, not by people";
        return Err(io::Error::other(text));
    }
    Ok(serde_json::from_slice(&line)?)
}

/// Binds this process to its limits, for good.
fn bind(order: &Order) -> io::Result<()> {
    // A parent that dies takes the child along.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Where memory runs out after all, the kernel should not take the parent. Some systems don't have the file.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    // What the program has mapped so far, its own code above all, is not the component's doing.
    let pages: u64 = fs::read_to_string("/proc/self/statm")?
        .split(' ')
        .next()
        .and_then(|pages| pages.parse().ok())
        .ok_or_else(|| io::Error::other("/proc/self/statm can't be read"))?;
    let mapped = pages.saturating_mul(u64::try_from(rustix::param::page_size()).unwrap_or(4096));
    for (resource, most) in [
        (Resource::As, mapped.saturating_add(order.memory_bytes)),
        (Resource::Cpu, order.seconds),
        (Resource::Fsize, order.file_bytes),
        (Resource::Core, 0),
    ] {
        let hard = getrlimit(resource).maximum.map_or(most, |hard| hard.min(most));
        setrlimit(resource, Rlimit { current: Some(hard), maximum: Some(hard) })?;
    }
    Ok(())
}
