//! A file system for tests that stops, or fails, at a chosen change.

#![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

use std::io;
use std::sync::Mutex;

use super::files::{Change, Disk, Files};

/// The real file system, until a chosen change.
#[derive(Debug)]
pub(super) struct Failing {
    /// What is left until then.
    until: Mutex<usize>,
    /// How that change and all after it fail; none is a process that was killed there.
    error: Option<io::ErrorKind>,
}

impl Failing {
    /// The process is killed at this change, counted from 0: neither it nor any after it is made.
    pub(super) fn killed_at(change: usize) -> Self {
        Self { until: Mutex::new(change), error: None }
    }

    /// This change and all after it fail so.
    pub(super) fn failing_from(change: usize, error: io::ErrorKind) -> Self {
        Self { until: Mutex::new(change), error: Some(error) }
    }

    /// Whether the change was reached.
    pub(super) fn was_reached(&self) -> bool {
        *self.until.lock().unwrap() == 0
    }
}

impl Files for &Failing {
    fn change(&self, change: &Change<'_>) -> io::Result<()> {
        let mut until = self.until.lock().unwrap();
        // Taking something away is always possible, as on a full disk.
        if *until == 0 && !(self.error.is_some() && matches!(change, Change::Remove(_))) {
            return Err(self.error.unwrap_or(io::ErrorKind::Interrupted).into());
        }
        *until = until.saturating_sub(1);
        Disk.change(change)
    }
}
