//! Runs one executable to its end within limits: input, capped output, time, cancellation. When it returns, nothing of the
//! executable's process group is left. It blocks, and its time limit is the real clock's.

use std::collections::BTreeMap;
use std::io::{self, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// From SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// How often to look whether what was killed has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// From the end of the whole group to the end of its output: it is in the pipe already.
const DRAIN: Duration = Duration::from_secs(1);

/// What is to be run.
pub(super) struct Job {
    /// The executable and its arguments.
    pub argv: Vec<String>,
    /// Its environment, beside `PATH`.
    pub environment: BTreeMap<String, String>,
    /// Its standard input.
    pub input: Vec<u8>,
    /// How long it may take.
    pub time_limit: Duration,
    /// How many bytes of standard output it may write, and how many of standard error are kept.
    pub output_limit: usize,
}

/// What happens while it runs.
pub(super) enum Happening {
    /// The executable has ended.
    Exited,
    /// Nobody waits for it any more.
    Cancelled,
    /// Standard output passed its cap.
    TooMuchOutput,
    /// Standard output is at its end.
    Stdout(Vec<u8>),
    /// Standard error is at its end.
    Stderr(Vec<u8>),
}

/// How it went.
pub(super) struct Finished {
    pub ending: Ending,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// By itself.
    Exited(ExitStatus),
    Cancelled,
    TimedOut,
    TooMuchOutput,
    /// By itself, but a process outside of its group holds its output open.
    HeldOpen,
}

impl Job {
    /// Runs it. `events` is where its threads, and whoever cancels it, say what happens.
    pub(super) fn run(self, events: Sender<Happening>, happenings: &Receiver<Happening>) -> io::Result<Finished> {
        let mut child = self.start()?;
        let group = Group::of(&child);
        if let Err(error) = self.attend(&mut child, group, events) {
            group.signal(Signal::KILL);
            child.wait()?;
            return Err(error);
        }
        let mut seen = Seen::default();
        let in_time =
            seen.until(happenings, Some(self.time_limit), |seen| seen.exited || seen.cancelled || seen.too_much_output);
        let by_itself = seen.exited;
        if !seen.exited {
            group.signal(Signal::TERM);
            if !seen.until(happenings, Some(GRACE), |seen| seen.exited) {
                group.signal(Signal::KILL);
                seen.until(happenings, None, |seen| seen.exited);
            }
        }
        // What it left behind in its group goes too. Until it is reaped, the group's number can't be another's.
        group.signal(Signal::KILL);
        group.wait_for_the_others();
        let status = child.wait()?;
        group.reap_orphans();
        let at_end = seen.until(happenings, Some(DRAIN), |seen| seen.stdout.is_some() && seen.stderr.is_some());
        let ending = match () {
            () if !in_time => Ending::TimedOut,
            () if seen.too_much_output => Ending::TooMuchOutput,
            () if !by_itself => Ending::Cancelled,
            () if !at_end => Ending::HeldOpen,
            () => Ending::Exited(status),
        };
        Ok(Finished { ending, stdout: seen.stdout.unwrap_or_default(), stderr: seen.stderr.unwrap_or_default() })
    }

    fn start(&self) -> io::Result<Child> {
        let Some((executable, arguments)) = self.argv.split_first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no command is named"));
        };
        Command::new(executable)
            .args(arguments)
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .envs(&self.environment)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own, so that what it starts can be ended with it.
            .process_group(0)
            .spawn()
    }

    /// Starts the threads that feed it, read it and wait for it.
    fn attend(&self, child: &mut Child, group: Group, events: Sender<Happening>) -> io::Result<()> {
        let cap = self.output_limit;
        if let Some(mut stdin) = child.stdin.take() {
            let input = self.input.clone();
            // One that doesn't read its input needs none.
            spawn("stdin", move || drop(stdin.write_all(&input)))?;
        }
        if let Some(stdout) = child.stdout.take() {
            let events = events.clone();
            spawn("stdout", move || {
                let kept = read(stdout, cap, || drop(events.send(Happening::TooMuchOutput)));
                drop(events.send(Happening::Stdout(kept)));
            })?;
        }
        if let Some(stderr) = child.stderr.take() {
            let events = events.clone();
            spawn("stderr", move || drop(events.send(Happening::Stderr(read(stderr, cap, || {})))))?;
        }
        spawn("wait", move || {
            group.wait_for_leader();
            drop(events.send(Happening::Exited));
        })
    }
}

/// What has happened so far.
#[derive(Default)]
struct Seen {
    exited: bool,
    cancelled: bool,
    too_much_output: bool,
    stdout: Option<Vec<u8>>,
    stderr: Option<Vec<u8>>,
}

impl Seen {
    /// Listens until something is so, and says whether that came in time.
    fn until(
        &mut self,
        happenings: &Receiver<Happening>,
        limit: Option<Duration>,
        is_so: impl Fn(&Self) -> bool,
    ) -> bool {
        let deadline = limit.map(|limit| Instant::now() + limit);
        while !is_so(self) {
            let happening = match deadline {
                Some(deadline) => happenings.recv_timeout(deadline.saturating_duration_since(Instant::now())),
                None => happenings.recv().map_err(Into::into),
            };
            match happening {
                Ok(Happening::Exited) => self.exited = true,
                Ok(Happening::Cancelled) => self.cancelled = true,
                Ok(Happening::TooMuchOutput) => self.too_much_output = true,
                Ok(Happening::Stdout(output)) => self.stdout = Some(output),
                Ok(Happening::Stderr(output)) => self.stderr = Some(output),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return false,
            }
        }
        true
    }
}

/// The process group of an executable, named by its leader.
#[derive(Clone, Copy)]
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(Pid::from_raw(child.id().cast_signed()))
    }

    /// Sends a signal to every process of the group. A group that has none left is fine.
    fn signal(self, signal: Signal) {
        if let Some(leader) = self.0 {
            let _ = kill_process_group(leader, signal);
        }
    }

    /// Waits until the leader has ended, and leaves it to be reaped, so that its number stays its own.
    fn wait_for_leader(self) {
        if let Some(leader) = self.0 {
            while let Err(rustix::io::Errno::INTR) =
                waitid(WaitId::Pid(leader), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
            {}
        }
    }
}

impl Group {
    /// Waits until no process of the group runs any more: one that was killed may still be inside of a system call.
    fn wait_for_the_others(self) {
        while self.0.is_some_and(|leader| is_running(leader.as_raw_nonzero().get())) {
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// Takes away what ended without a parent, where this process is the one that inherits it (process 1 of a container).
    fn reap_orphans(self) {
        if let Some(leader) = self.0 {
            while let Ok(Some(_)) = waitid(WaitId::Pgid(Some(leader)), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {}
        }
    }
}

/// Whether a process of this group is there that has not ended.
fn is_running(group: i32) -> bool {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok()).any(|stat| {
        // After the name, which is in brackets and may hold anything: state, parent, group.
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let state = fields.next();
        !matches!(state, Some("Z" | "X")) && fields.nth(1) == Some(group.to_string().as_str())
    })
}

fn spawn(what: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(format!("data-plane-{what}")).spawn(work).map(drop)
}

/// Reads to the end and keeps `cap` bytes. What comes after that is read and dropped, so that the writer isn't held up.
fn read(mut pipe: impl Read, cap: usize, when_passed: impl Fn()) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut passed = false;
    let mut buffer = [0; 8192];
    loop {
        match pipe.read(&mut buffer) {
            Ok(0) => return kept,
            Ok(count) => {
                let room = cap.saturating_sub(kept.len()).min(count);
                kept.extend_from_slice(&buffer[..room]);
                if room < count && !std::mem::replace(&mut passed, true) {
                    when_passed();
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return kept,
        }
    }
}
