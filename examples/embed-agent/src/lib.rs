//! A data plane of one file: what the assignment asks of this machine, as JSON, for a routing daemon that watches it.

use std::path::{Path, PathBuf};
use std::{fs, io};

use futures_util::future::BoxFuture;
use moorline::config::Config;
use moorline::dataplane::{Answer, DataPlane, DataPlaneError};
use moorline::machine::files::{Disk, make_folder, put};
use moorline_lifecycle::{Desired, Routes};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

/// Writes the desired state to a file.
pub struct DesiredFile {
    path: PathBuf,
}

impl DesiredFile {
    /// The file `desired.json` in the agent's state folder: the [`Choice`](moorline::dataplane::Choice) of this program.
    #[must_use]
    pub fn choose(config: &Config, _node_name: &str) -> Box<dyn DataPlane> {
        Box::new(Self { path: config.machine.state_directory.join("desired.json") })
    }
}

impl DataPlane for DesiredFile {
    fn name(&self) -> &str {
        "desired-file"
    }

    // The teardown may come after an update that moved the file: the plan says where this one is.
    fn plan<'a>(&'a self, _: &'a Desired, _: CancellationToken) -> Answer<'a, Value> {
        Box::pin(async { Ok(json!({ "file": self.path })) })
    }

    // Putting the whole file in place again changes nothing, so it may be done any number of times.
    fn apply<'a>(&'a self, desired: &'a Desired, _: CancellationToken) -> Answer<'a, Routes> {
        let (path, desired) = (self.path.clone(), json!(desired).to_string());
        blocking(move || {
            let folder = path.parent().unwrap_or(Path::new("."));
            make_folder(&Disk, folder, 0o700)?;
            put(&Disk, folder, "desired.json", desired.as_bytes(), 0o644, true)?;
            Ok(Routes::NotMine)
        })
    }

    // A plan comes from the ledger, and the file may be gone already.
    fn teardown<'a>(&'a self, plan: &'a Value, _: CancellationToken) -> Answer<'a, ()> {
        let file = plan["file"].as_str().map(PathBuf::from);
        blocking(move || match fs::remove_file(file.ok_or("The plan in the ledger names no file.")?) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        })
    }

    // An operation ends before its answer, so nothing is left that could go on.
    fn join(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn workers(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Files block, and the agent lives on one thread.
fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
) -> Answer<'static, T> {
    Box::pin(async {
        match spawn_blocking(work).await {
            Ok(done) => done.map_err(DataPlaneError::Other),
            Err(error) => Err(DataPlaneError::Other(error.into())),
        }
    })
}
