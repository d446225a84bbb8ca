//! A process that is killed at every single step of its work on files: a real one, by SIGKILL, against a server on a
//! socket. The test runs itself once more as that process.

use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use moorline::cluster::{Access, connect};
use moorline::driver::{Agent, DefaultPolicy};
use moorline::machine::files::{Change, Disk, Files};
use moorline::machine::network::NetworkAccess;
use moorline_policy::{CompileCache, Engine, EngineConfig, Loader};
use rustix::process::{Signal, getpid, kill_process};

use crate::stage::{self, Machine};
use crate::starts::{self, Start};
use crate::world;

/// Tells the process where its machine is. Without it, the test is the one who starts processes.
const MACHINE: &str = "MOORLINE_TEST_MACHINE";
/// At which step it dies; without it, it ends once it has settled.
const STEP: &str = "MOORLINE_TEST_DIES_AT";
/// Where compiled policies are kept from one process to the next.
const CACHE: &str = "MOORLINE_TEST_CACHE";

/// The real file system, until a chosen step. Creating a file is three steps: an empty one, half of it, all of it.
struct Dying(AtomicUsize);

impl Dying {
    fn step(&self) {
        if self.0.fetch_sub(1, Ordering::Relaxed) == 0 {
            kill_process(getpid(), Signal::KILL).unwrap();
            loop {
                std::thread::park();
            }
        }
    }
}

impl Files for Dying {
    fn change(&self, change: &Change<'_>) -> io::Result<()> {
        self.step();
        let Change::CreateFile { path, content, mode } = *change else { return Disk.change(change) };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        self.step();
        file.set_permissions(Permissions::from_mode(mode))?;
        let (first, second) = content.split_at(content.len() / 2);
        file.write_all(first)?;
        self.step();
        file.write_all(second)
    }
}

/// The process: a real agent, to its death or until it has settled.
fn be_the_agent(root: PathBuf) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let step = std::env::var(STEP).ok();
    runtime.block_on(async move {
        let kubeconfig = root.join("kubeconfig");
        let cache = CompileCache::open(std::env::var_os(CACHE).unwrap()).unwrap();
        let (health, mut seen) = tokio::sync::watch::channel(Default::default());
        let agent = Agent {
            config: stage::config_at(&root, &[]),
            client: connect(&Access::Kubeconfig(kubeconfig)).await.unwrap(),
            loader: Loader::new(&Engine::new(&EngineConfig::default()).unwrap()).with_cache(cache),
            default_policy: DefaultPolicy::Component(moorline::DEFAULT_POLICY.into()),
            data_plane: None,
            files: match &step {
                Some(step) => Arc::new(Dying(AtomicUsize::new(step.parse().unwrap()))),
                None => Arc::new(Disk),
            },
            network: NetworkAccess::Untouched,
            journal: None,
            health,
            reload: Arc::default(),
            terminate: Default::default(),
            // The second start is not splayed.
            wall: jiff::Timestamp::now() + Duration::from_secs(if step.is_some() { 0 } else { 3600 }),
            seed: 1,
        };
        let mut life = Box::pin(agent.run());
        world::until_ready(&mut life, &mut seen).await;
    });
}

/// Runs this test once more, as the process.
async fn run(test: &str, machine: &Machine, cache: &Path, step: Option<usize>) -> (ExitStatus, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env(MACHINE, machine.root.path()).env(CACHE, cache);
    if let Some(step) = step {
        command.env(STEP, step.to_string());
    }
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    (output.status, String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
}

/// Whether there was such a step.
async fn kill_at(test: &str, start: &Start, cache: &Path, step: usize) -> bool {
    let (server, machine) = (start.objects.serve(), Machine::new());
    let _serving = world::serve(&server, &machine).await;
    world::put(machine.root.path(), &start.files);
    let (status, said) = run(test, &machine, cache, Some(step)).await;
    let killed = status.signal() == Some(9);
    assert!(killed || status.success(), "{}, killed at step {step}: {status} {said}", start.name);
    let files = world::files(machine.root.path());
    start.assert_old_or_new(&files, &format!("killed at step {step}"));
    if killed {
        let (status, said) = run(test, &machine, cache, None).await;
        assert!(status.success(), "{}, started again after step {step}: {status} {said}", start.name);
    }
    start.assert_done(&server, machine.root.path());
    killed
}

#[test]
fn killed_at_every_step_of_its_files_the_cni_file_is_the_old_or_the_new_one_and_the_next_start_settles() {
    if let Some(root) = std::env::var_os(MACHINE) {
        return be_the_agent(root.into());
    }
    let test =
        "kill::killed_at_every_step_of_its_files_the_cni_file_is_the_old_or_the_new_one_and_the_next_start_settles";
    let cache = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for start in starts::all().await {
            let mut step = 0;
            while kill_at(test, &start, cache.path(), step).await {
                step += 1;
            }
            println!("{}: {step} steps", start.name);
            assert!(step > 15, "{}: {step}", start.name);
        }
    });
}
