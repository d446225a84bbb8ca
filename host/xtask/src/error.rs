//! Why a task failed, and the way out. Printed with its chain of causes by `main`.

use std::{io, path::PathBuf, process::ExitStatus};

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{} could not be {done}", path.display())]
    File { path: PathBuf, done: &'static str, source: io::Error },

    #[error("`{command}` could not be started")]
    Start { command: String, source: io::Error },

    #[error("`{command}` ended with {status}")]
    Command { command: String, status: ExitStatus },

    #[error("`cargo metadata` answered no JSON and ended with {status}")]
    Metadata { status: ExitStatus, source: serde_json::Error },

    #[error(
        "no Rust compiler here can build for wasm32-unknown-unknown. Either `rustup target add wasm32-unknown-unknown`, \
         or on Debian `apt-get install --no-install-recommends rustc-web rust-web-src lld-22`"
    )]
    NoToolchain,

    #[error("{} could not be made a component: {message}", path.display())]
    Component { path: PathBuf, message: String },

    #[error(
        "the component of {policy} imports {import}; a policy imports nothing but moorline:policy/host-log (and types)"
    )]
    Import { policy: String, import: String },

    #[error("the component of {policy} holds \"{text}\", a path of this machine")]
    PathInside { policy: String, text: String },

    #[error(
        "{differing} of the committed components differ from their source. `cargo xtask policies build` writes them anew"
    )]
    Differs { differing: usize },

    #[error("{} can't be read as rules", path.display())]
    Rules { path: PathBuf, source: Box<serde_saphyr::Error> },

    #[error("there is no rule {name}; there are {known}")]
    NoSuchRule { name: String, known: String },

    #[error(
        "the rule {rule} is out of date: the text that it breaks is {found} times in {}, and has to be there once",
        path.display()
    )]
    Outdated { rule: String, path: PathBuf, found: usize },

    #[error("the rule {rule} does not compile when it is broken, so no test can notice")]
    DoesNotCompile { rule: String },

    #[error("{unnoticed} times a broken rule was not noticed by the test that has to")]
    Unnoticed { unnoticed: usize },

    #[error("{failed} tests failed")]
    Tests { failed: u64 },

    #[error("{skipped} tests were skipped, and none may be")]
    Skipped { skipped: u64 },
}

/// Attaches the file to an I/O error.
pub(crate) fn file(path: impl Into<PathBuf>, done: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::File { path: path.into(), done, source }
}
