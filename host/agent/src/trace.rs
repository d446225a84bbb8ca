//! A trace of a life: what it was born with, every event with its time, and every action, one JSON value a line. The life
//! is pure, so the same events give the same actions: a trace is replayed anywhere, by any version, without the cluster.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use moorline_lifecycle::{Action, Boot, Event, Life};
use serde::{Deserialize, Serialize};

use crate::journal::{Entry, Journal};

/// No line of a trace is longer: a Node with all its annotations fits many times.
const LINE_CAP: u64 = 16 << 20;

/// One line of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Line {
    /// A life begins.
    Born(Box<Boot>),
    /// The life was told this, so long after the start of its process.
    Event(Duration, Event),
    /// The life wanted this.
    Action(Action),
}

/// Writes a trace as it happens.
pub struct Recorder<W = File> {
    out: Mutex<Result<W, io::Error>>,
}

impl Recorder {
    /// Appends to this file, which only its owner may read.
    ///
    /// # Errors
    /// Where the file can't be opened.
    pub fn append(path: &Path) -> io::Result<Self> {
        Ok(Self::new(OpenOptions::new().append(true).create(true).mode(0o600).open(path)?))
    }
}

impl<W: Write> Recorder<W> {
    /// Writes to anything.
    pub fn new(out: W) -> Self {
        Self { out: Mutex::new(Ok(out)) }
    }

    /// What was written to.
    ///
    /// # Errors
    /// The first write that failed; nothing was written after it, so that a trace has no holes.
    pub fn into_inner(self) -> io::Result<W> {
        self.out.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<W: Write + Send> Journal for Recorder<W> {
    fn tell(&self, at: Duration, entry: &Entry<'_>) {
        let line = match *entry {
            Entry::Born(boot) => Line::Born(Box::new(boot.clone())),
            Entry::Event(event) => Line::Event(at, event.clone()),
            Entry::Action(action) => Line::Action(action.clone()),
            _ => return,
        };
        let mut out = self.out.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Ok(to) = &mut *out else { return };
        // In one write, so that a process that is killed leaves a whole line or a torn last one.
        let written = serde_json::to_vec(&line).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            to.write_all(&line)
        });
        if let Err(error) = written {
            tracing::warn!("The trace ends here, because it can't be written: {error}.");
            *out = Err(error);
        }
    }
}

/// What a replay tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replayed<'a> {
    /// A life begins.
    Born,
    /// An event at its time, and the actions that it led to, the same as recorded.
    Step(Duration, &'a Event, &'a [Action]),
}

/// Why a trace isn't replayed to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace can't be read.
    #[error("the trace can't be read at line {line}")]
    Read {
        /// The line, from 1.
        line: usize,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// A line is too long to be one of a trace.
    #[error("line {line} is longer than {LINE_CAP} bytes, so this is no trace of a life")]
    TooLong {
        /// The line, from 1.
        line: usize,
    },
    /// A line isn't one of a trace.
    #[error("line {line} is no line of a trace that this version understands")]
    Line {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// An event or an action comes before any life begins.
    #[error("line {line} comes before the beginning of a life, so the trace has lost its start")]
    Unborn {
        /// The line, from 1.
        line: usize,
    },
    /// The life wants something else than it did.
    #[error(
        "line {line}: the life wants something else than was recorded. Recorded: {recorded}. Now: {now}. The trace is of \
         another version, or the life isn't the same for the same events, which is a fault"
    )]
    Differs {
        /// The line, from 1.
        line: usize,
        /// The action of the trace; `nothing` at the end of a step.
        recorded: String,
        /// The action of the replay; `nothing` at the end of a step.
        now: String,
    },
}

/// Replays a trace through the life, compares each action with the recorded one, and tells of each step. A torn last line,
/// as a killed process leaves it, is passed over, and so are the actions that a last step had no time to record.
///
/// # Errors
/// See [`ReplayError`].
pub fn replay(trace: impl BufRead, mut tell: impl FnMut(Replayed<'_>)) -> Result<(), ReplayError> {
    let mut life: Option<Life> = None;
    let mut step: Option<Step> = None;
    let mut lines = Lines { trace, number: 0 };
    while let Some((number, line)) = lines.next()? {
        if let Line::Action(action) = line {
            step.as_mut().ok_or(ReplayError::Unborn { line: number })?.check(number, action)?;
            continue;
        }
        if let Some(step) = step.take() {
            step.ended(number)?;
            step.tell(&mut tell);
        }
        match line {
            Line::Born(boot) => {
                life = Some(Life::new(*boot));
                tell(Replayed::Born);
            }
            Line::Event(at, event) => {
                let life = life.as_mut().ok_or(ReplayError::Unborn { line: number })?;
                let actions = life.step(at, event.clone());
                step = Some(Step { at, event, actions, checked: 0 });
            }
            Line::Action(_) => {}
        }
    }
    if let Some(step) = step {
        step.tell(&mut tell);
    }
    Ok(())
}

/// A step under comparison.
struct Step {
    at: Duration,
    event: Event,
    actions: Vec<Action>,
    checked: usize,
}

impl Step {
    fn check(&mut self, line: usize, recorded: Action) -> Result<(), ReplayError> {
        let now = self.actions.get(self.checked);
        if now != Some(&recorded) {
            return Err(differs(line, Some(&recorded), now));
        }
        self.checked += 1;
        Ok(())
    }

    fn ended(&self, line: usize) -> Result<(), ReplayError> {
        self.actions.get(self.checked).map_or(Ok(()), |now| Err(differs(line, None, Some(now))))
    }

    fn tell(&self, tell: &mut impl FnMut(Replayed<'_>)) {
        tell(Replayed::Step(self.at, &self.event, &self.actions[..self.checked]));
    }
}

fn differs(line: usize, recorded: Option<&Action>, now: Option<&Action>) -> ReplayError {
    let say = |action: Option<&Action>| action.map_or_else(|| "nothing".to_owned(), |action| format!("{action:?}"));
    ReplayError::Differs { line, recorded: say(recorded), now: say(now) }
}

struct Lines<R> {
    trace: R,
    number: usize,
}

impl<R: BufRead> Lines<R> {
    fn next(&mut self) -> Result<Option<(usize, Line)>, ReplayError> {
        self.number += 1;
        let line = self.number;
        let mut text = Vec::new();
        let read = io::Read::take(&mut self.trace, LINE_CAP).read_until(b'\n', &mut text);
        let read = read.map_err(|source| ReplayError::Read { line, source })?;
        if text.last() != Some(&b'\n') {
            return if read as u64 == LINE_CAP { Err(ReplayError::TooLong { line }) } else { Ok(None) };
        }
        serde_json::from_slice(&text)
            .map(|read| Some((line, read)))
            .map_err(|source| ReplayError::Line { line, source })
    }
}

#[cfg(test)]
mod tests;
