//! Says on standard error what is being done, but only where it takes longer than a second.

use std::io::Write as _;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(1);

/// What is being done; nothing more is said once it is dropped.
pub(super) struct Progress {
    doing: Option<Sender<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    pub(super) fn new() -> Self {
        let (doing, told) = channel::<String>();
        let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(move || {
            let mut current = None;
            loop {
                match told.recv_timeout(PATIENCE) {
                    Ok(doing) => current = Some(doing),
                    Err(RecvTimeoutError::Timeout) => {
                        if let Some(doing) = current.take() {
                            // Where nobody can read it, nothing is lost.
                            let _ = writeln!(std::io::stderr(), "{doing} …");
                        }
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        Self { doing: Some(doing), thread: thread.ok() }
    }

    /// This is being done from now on.
    pub(super) fn doing(&self, what: impl Into<String>) {
        if let Some(doing) = &self.doing {
            // Without its thread nothing is said.
            let _ = doing.send(what.into());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.doing = None;
        if let Some(thread) = self.thread.take() {
            // It only writes lines.
            let _ = thread.join();
        }
    }
}
