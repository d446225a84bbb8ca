//! Kinds of faults about CNI files. A process that is killed, and a power cut, at every step: see `kill` and `power_cut`.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use moorline::machine::files::{Change, Disk, Files};
use moorline_lifecycle::ExitCode;
use moorline_sim::server::Server;
use serde_json::{Value, json};

use crate::kinds::Running;
use crate::stage::{self, Machine};
use crate::world::{self, CNI, DISABLED};

/// The real file system, on which every change is looked at, and on which some fail.
struct Looked {
    /// The CNI file.
    path: PathBuf,
    /// What became of it.
    seen: Mutex<Vec<String>>,
    /// How every change below its folder fails, while it does.
    failure: Mutex<Option<io::ErrorKind>>,
}

impl Looked {
    fn new(machine: &Machine) -> Arc<Self> {
        Arc::new(Self { path: machine.path(CNI), seen: Mutex::default(), failure: Mutex::default() })
    }

    fn fail(&self, failure: Option<io::ErrorKind>) {
        *self.failure.lock().unwrap() = failure;
    }
}

impl Files for Looked {
    fn change(&self, change: &Change<'_>) -> io::Result<()> {
        let named = match *change {
            Change::CreateFolder { path, .. } | Change::CreateFile { path, .. } | Change::SetMode { path, .. } => path,
            Change::SyncFile(path) | Change::SyncFolder(path) | Change::Remove(path) => path,
            Change::Rename { to, .. } => to,
        };
        let is_below = named.starts_with(self.path.parent().unwrap());
        if let (true, Some(failure)) = (is_below, *self.failure.lock().unwrap()) {
            return Err(failure.into());
        }
        Disk.change(change)?;
        if named == self.path {
            let kind = format!("{change:?}").split([' ', '(']).next().unwrap().to_owned();
            self.seen.lock().unwrap().push(kind);
        }
        // Whenever a runtime looks, it finds no file or a whole one.
        if let Ok(content) = std::fs::read(&self.path) {
            let read: Value = serde_json::from_slice(&content).unwrap();
            assert!(read["plugins"].is_array(), "{read}");
        }
        Ok(())
    }
}

fn looked_at() -> (Arc<Looked>, Running) {
    let (server, machine) = (stage::server(), Machine::new());
    let files = Looked::new(&machine);
    let given = files.clone();
    let running = Running::start_as(server, machine, |mut agent| {
        agent.files = given;
        agent
    });
    (files, running)
}

/// Another generation of the Site, and so another configuration.
fn change_site(server: &Server, mtu: u16) {
    server.apply(world::site("east", mtu)).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_runtime_never_reads_a_half_written_or_empty_file() {
    let (files, mut running) = looked_at();
    running.live(10).await;
    change_site(&running.server, 9000);
    running.live(60).await;
    let content = std::fs::read_to_string(running.machine.path(CNI)).unwrap();
    assert!(content.contains("9000"), "{content}");
    assert_eq!(*files.seen.lock().unwrap(), ["Rename", "Rename"]);
}

#[tokio::test(start_paused = true)]
async fn a_malformed_earlier_file_in_the_folder_is_left_alone_and_told_and_none_of_ours_is_ever_loaded_half() {
    let (server, machine) = (stage::server(), Machine::new());
    std::fs::create_dir(machine.path("cni")).unwrap();
    std::fs::write(machine.path("cni/00-broken.conflist"), "{\"name\":").unwrap();
    // The leftover of a crash: no runtime takes a file that is called so.
    std::fs::write(machine.path("cni/.moorline-1-0.tmp"), "{\"na").unwrap();
    let mut running = Running::start(server, machine);
    running.live(10).await;
    running.assert_settled();
    let names: Vec<_> = world::files(&running.machine.path("cni")).into_keys().collect();
    assert_eq!(names, [Path::new("00-broken.conflist"), Path::new("10-unbounded.conflist")]);
    assert_eq!(std::fs::read(running.machine.path("cni/00-broken.conflist")).unwrap(), b"{\"name\":");
    let (ready, text) = running.probe("/readyz").await;
    assert!(ready && text.contains("00-broken.conflist is read before 10-unbounded.conflist"), "{text}");
    let events = |running: &Running| {
        let events = running.server.list("events").unwrap();
        events.iter().filter(|event| event["reason"] == "CniBlocked").count()
    };
    running.live(3600).await;
    assert_eq!(events(&running), 1, "it is told once");
    std::fs::remove_file(running.machine.path("cni/00-broken.conflist")).unwrap();
    running.live(120).await;
    let (ready, text) = running.probe("/readyz").await;
    assert!(ready && !text.contains("00-broken"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_malformed_file_under_our_own_name_is_said_and_not_overwritten() {
    let (server, machine) = (stage::server(), Machine::new());
    std::fs::create_dir(machine.path("cni")).unwrap();
    std::fs::write(machine.path(CNI), "{\"name\":").unwrap();
    let mut running = Running::start(server, machine);
    running.live(60).await;
    let (ready, text) = running.probe("/readyz").await;
    assert!(!ready && text.contains("10-unbounded.conflist") && text.contains("someone else"), "{text}");
    assert_eq!(std::fs::read(running.machine.path(CNI)).unwrap(), b"{\"name\":");
    assert!(world::acknowledgment(&running.server).is_none());
    // Once it is out of the way, the agent goes on by itself.
    std::fs::remove_file(running.machine.path(CNI)).unwrap();
    running.live(600).await;
    running.assert_settled();
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_watches_only_renames_misses_no_file() {
    let (files, mut running) = looked_at();
    running.live(10).await;
    let seen = files.seen.lock().unwrap().clone();
    assert!(seen.iter().all(|change| change == "Rename") && !seen.is_empty(), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn the_folder_is_removed_and_created_again_while_the_agent_runs() {
    for created_again in [false, true] {
        let mut running = Running::start(stage::server(), Machine::new());
        running.live(10).await;
        std::fs::remove_dir_all(running.machine.path("cni")).unwrap();
        if created_again {
            std::fs::create_dir(running.machine.path("cni")).unwrap();
        }
        let before = running.server.audit().len();
        running.live(120).await;
        running.assert_settled();
        assert!(running.machine.path(CNI).exists(), "created again: {created_again}");
        assert_eq!(running.server.audit().len(), before, "it is this machine's matter alone");

        // A change of the Site finds the same.
        std::fs::remove_dir_all(running.machine.path("cni")).unwrap();
        change_site(&running.server, 9000);
        running.live(60).await;
        let content = std::fs::read_to_string(running.machine.path(CNI)).unwrap();
        assert!(content.contains("9000"), "created again: {created_again}: {content}");

        // And so does the next start.
        std::fs::remove_dir_all(running.machine.path("cni")).unwrap();
        let mut running = running.restart().await;
        running.live(60).await;
        running.assert_settled();
        assert!(running.machine.path(CNI).exists());
    }
}

#[tokio::test(start_paused = true)]
async fn the_folder_does_not_exist_yet() {
    let mut running = Running::start(stage::server(), Machine::new());
    assert!(!running.machine.path("cni").exists());
    running.live(10).await;
    running.assert_settled();
    let mode = |path: &str| std::fs::metadata(running.machine.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("cni"), mode(CNI)), (0o755, 0o644));
}

/// The folder fails in this way for a while: that is said, nothing is acknowledged, nothing half is left, and the agent
/// goes on by itself when it doesn't fail any more.
async fn folder_fails(failure: io::ErrorKind, said: &str) {
    let (files, mut running) = looked_at();
    files.fail(Some(failure));
    running.live(600).await;
    let (ready, text) = running.probe("/readyz").await;
    assert!(!ready && text.contains(said), "{text}");
    assert!(world::acknowledgment(&running.server).is_none());
    assert!(world::files(&running.machine.path("cni")).is_empty());
    files.fail(None);
    running.live(600).await;
    running.assert_settled();
    assert_eq!(world::files(&running.machine.path("cni")).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_folder_is_read_only() {
    folder_fails(io::ErrorKind::ReadOnlyFilesystem, "its file system is read-only").await;
}

#[tokio::test(start_paused = true)]
async fn the_folder_is_full_or_out_of_inodes() {
    // The kernel says the same of both.
    assert_eq!(io::Error::from_raw_os_error(28).kind(), io::ErrorKind::StorageFull);
    folder_fails(io::ErrorKind::StorageFull, "no space, inodes or quota is left").await;
}

#[tokio::test(start_paused = true)]
async fn a_full_folder_keeps_the_old_configuration_in_whole() {
    let (files, mut running) = looked_at();
    running.live(10).await;
    let before = std::fs::read(running.machine.path(CNI)).unwrap();
    files.fail(Some(io::ErrorKind::StorageFull));
    change_site(&running.server, 9000);
    running.live(600).await;
    assert_eq!(std::fs::read(running.machine.path(CNI)).unwrap(), before);
    let (ready, text) = running.probe("/readyz").await;
    assert!(!ready && text.contains("no space"), "{text}");
    files.fail(None);
    running.live(600).await;
    assert!(std::fs::read_to_string(running.machine.path(CNI)).unwrap().contains("9000"));
}

#[tokio::test(start_paused = true)]
async fn stale_configuration_is_gone_after_the_role_changed() {
    let mut running = Running::start(stage::server(), Machine::new());
    running.live(10).await;
    let mut unmanaged = world::site("west", 1400);
    unmanaged["spec"]["manageCniPlugin"] = json!(false);
    running.server.apply(unmanaged).unwrap();
    running.server.label(&world::node_name(), world::SITE_LABEL, Some("west")).unwrap();
    let mut running = running.restart().await;
    running.live(60).await;
    running.assert_settled();
    assert!(!running.machine.path(CNI).exists() && running.machine.path(DISABLED).exists());
}

#[tokio::test(start_paused = true)]
async fn stale_configuration_is_gone_after_a_reboot() {
    let mut running = Running::start(stage::server(), Machine::new());
    running.live(10).await;
    // Meanwhile the machine was started anew, and the Site looks after CNI itself.
    let ledger = running.machine.path("state/ledger.json");
    let mut text: Value = serde_json::from_slice(&std::fs::read(&ledger).unwrap()).unwrap();
    text["bootId"] = json!("another");
    std::fs::write(&ledger, text.to_string()).unwrap();
    let mut unmanaged = world::site("east", 1400);
    unmanaged["spec"]["manageCniPlugin"] = json!(false);
    running.server.apply(unmanaged).unwrap();
    let mut running = running.restart().await;
    running.live(60).await;
    running.assert_settled();
    assert!(!running.machine.path(CNI).exists() && running.machine.path(DISABLED).exists());
}

#[tokio::test(start_paused = true)]
async fn a_plain_stop_does_not_cut_the_node() {
    let mut terminate = None;
    let mut running = Running::start_as(stage::server(), Machine::new(), |agent| {
        terminate = Some(agent.terminate.clone());
        agent
    });
    running.live(10).await;
    let before = world::files(running.machine.root.path());
    terminate.unwrap().cancel();
    assert_eq!(running.end().await.code, ExitCode::Asked);
    assert_eq!(world::files(running.machine.root.path()), before);
}

#[tokio::test(start_paused = true)]
async fn whatever_a_failed_start_leaves_the_next_one_repairs() {
    let (server, machine) = (stage::server(), Machine::new());
    for (path, content) in [
        ("cni/.moorline-7-0.tmp", "{\"cniVersion\":"),
        ("state/.moorline-7-0.tmp", "{"),
        ("state/ledger.json", "{\"version\":1,\"nodeNa"),
        ("state/lock", "not a holder"),
    ] {
        std::fs::create_dir_all(machine.path(path).parent().unwrap()).unwrap();
        std::fs::write(machine.path(path), content).unwrap();
    }
    let mut running = Running::start(server, machine);
    running.live(60).await;
    running.assert_settled();
    assert!(running.machine.told.has("is kept as"), "{:#?}", running.machine.told.lines());
    let left: Vec<_> = world::files(running.machine.root.path()).into_keys().collect();
    let wanted = [CNI, "state/ledger.json", "state/ledger.json.damaged-1", "state/lock"];
    assert_eq!(left, wanted.map(PathBuf::from));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_nothing_says_why() {
    let server = stage::server();
    server.label(&world::node_name(), world::SITE_LABEL, None).unwrap();
    let mut running = Running::start(server, Machine::new());
    running.live(60).await;
    let (_, text) = running.probe("/readyz").await;
    assert!(text.contains("assignment") && text.contains("unbounded-cloud.io/site"), "{text}");
    assert!(running.machine.told.has("WaitingForAssignment"), "{:#?}", running.machine.told.lines());

    let server = stage::server();
    let mut unmanaged = world::site("east", 1400);
    unmanaged["spec"]["manageCniPlugin"] = json!(false);
    server.apply(unmanaged).unwrap();
    let mut running = Running::start(server, Machine::new());
    running.live(60).await;
    running.assert_settled();
    assert!(running.machine.told.has("CNI is not managed here"), "{:#?}", running.machine.told.lines());
}
