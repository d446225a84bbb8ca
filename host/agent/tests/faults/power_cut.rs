//! Power cuts: what an agent did to its files is recorded, and replayed up to every step with what no fsync had secured
//! lost in every way that file systems lose it. Names: any of the changes since the folder was last synced may be lost,
//! each by itself. Data: a file that was not synced may be empty, cut, full of zeroes, or whole.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use moorline::driver::Agent;
use moorline::machine::files::{Change, Disk, Files};
use moorline_sim::server::Server;

use crate::stage::Machine;
use crate::starts::{self, Start};
use crate::world::{self, CNI, Objects};

/// A change that was made.
#[derive(Debug, Clone)]
enum Done {
    Folder(PathBuf),
    File {
        path: PathBuf,
        content: Vec<u8>,
        mode: u32,
    },
    SyncFile(PathBuf),
    SyncFolder(PathBuf),
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Remove(PathBuf),
    /// What no power cut makes dangerous.
    Other,
}

/// The real file system, and what was done to it, with the objects of the cluster at that moment.
struct Recorder {
    root: PathBuf,
    server: Server,
    done: Mutex<Vec<(Done, Objects)>>,
}

impl Files for Recorder {
    fn change(&self, change: &Change<'_>) -> io::Result<()> {
        // Requests that are under way are not seen before what comes after them is recorded.
        let objects = Objects::of(&self.server);
        Disk.change(change)?;
        let at = |path: &Path| path.strip_prefix(&self.root).unwrap().to_owned();
        let done = match *change {
            Change::CreateFolder { path, .. } => Done::Folder(at(path)),
            Change::CreateFile { path, content, mode } => {
                Done::File { path: at(path), content: content.to_vec(), mode }
            }
            Change::SyncFile(path) => Done::SyncFile(at(path)),
            Change::SyncFolder(path) => Done::SyncFolder(at(path)),
            Change::Rename { from, to, .. } => Done::Rename { from: at(from), to: at(to) },
            Change::Remove(path) => Done::Remove(at(path)),
            Change::SetMode { .. } => Done::Other,
        };
        self.done.lock().unwrap().push((done, objects));
        Ok(())
    }
}

/// A file as the disk has it.
#[derive(Debug, Clone)]
struct Inode {
    content: Vec<u8>,
    mode: u32,
    synced: bool,
}

/// A change of names that is not secured yet.
#[derive(Debug, Clone)]
enum Naming {
    Folder(PathBuf),
    File(PathBuf, usize),
    Rename { from: PathBuf, to: PathBuf, inode: usize },
    Remove(PathBuf),
}

impl Naming {
    fn folder(&self) -> &Path {
        match self {
            Self::Folder(path) | Self::File(path, _) | Self::Remove(path) => path.parent().unwrap(),
            Self::Rename { to, .. } => to.parent().unwrap(),
        }
    }
}

/// Names, each with its file, and folders.
#[derive(Debug, Clone, Default)]
struct Names {
    files: BTreeMap<PathBuf, usize>,
    folders: BTreeSet<PathBuf>,
}

impl Names {
    fn apply(&mut self, naming: &Naming) {
        match naming {
            Naming::Folder(path) => {
                self.folders.insert(path.clone());
            }
            Naming::File(path, inode) => {
                self.files.insert(path.clone(), *inode);
            }
            Naming::Rename { from, to, inode } => {
                self.files.remove(from);
                self.files.insert(to.clone(), *inode);
            }
            Naming::Remove(path) => {
                self.files.remove(path);
            }
        }
    }
}

/// A disk, as far as it is secured, and what is not.
#[derive(Debug, Clone, Default)]
struct Volatile {
    inodes: Vec<Inode>,
    secured: Names,
    pending: Vec<Naming>,
}

type Image = BTreeMap<PathBuf, (Vec<u8>, u32)>;

impl Volatile {
    fn new(files: &BTreeMap<PathBuf, Vec<u8>>) -> Self {
        let mut disk = Self::default();
        disk.secured.folders.insert(PathBuf::new());
        for (path, content) in files {
            let mode = if path.starts_with("state") { 0o600 } else { 0o644 };
            disk.secured.folders.insert(path.parent().unwrap().to_owned());
            disk.secured.files.insert(path.clone(), disk.inodes.len());
            disk.inodes.push(Inode { content: content.clone(), mode, synced: true });
        }
        disk
    }

    /// The names as a running process sees them.
    fn seen(&self) -> Names {
        let mut names = self.secured.clone();
        self.pending.iter().for_each(|naming| names.apply(naming));
        names
    }

    fn apply(&mut self, done: &Done) {
        match done {
            Done::Folder(path) => self.pending.push(Naming::Folder(path.clone())),
            Done::File { path, content, mode } => {
                self.pending.push(Naming::File(path.clone(), self.inodes.len()));
                self.inodes.push(Inode { content: content.clone(), mode: *mode, synced: false });
            }
            Done::SyncFile(path) => {
                let inode = self.seen().files[path];
                self.inodes[inode].synced = true;
            }
            Done::SyncFolder(folder) => {
                let (secured, pending): (Vec<_>, _) =
                    self.pending.drain(..).partition(|naming| naming.folder() == folder);
                self.pending = pending;
                secured.iter().for_each(|naming| self.secured.apply(naming));
            }
            Done::Rename { from, to } => {
                let inode = self.seen().files[from];
                self.pending.push(Naming::Rename { from: from.clone(), to: to.clone(), inode });
            }
            Done::Remove(path) => self.pending.push(Naming::Remove(path.clone())),
            Done::Other => {}
        }
    }

    /// Every disk that a power cut may leave now.
    fn cuts(&self) -> BTreeSet<Image> {
        assert!(
            self.pending.len() < 12,
            "too much is left unsecured to try every way of losing it: {:?}",
            self.pending
        );
        let mut images = BTreeSet::new();
        for kept in 0..1_u32 << self.pending.len() {
            let mut names = self.secured.clone();
            for (index, naming) in self.pending.iter().enumerate() {
                if kept & (1 << index) != 0 {
                    names.apply(naming);
                }
            }
            // What is in a folder that is lost is lost.
            let reachable = names
                .files
                .iter()
                .filter(|(path, _)| path.parent().is_some_and(|folder| names.folders.contains(folder)));
            let mut partial = vec![Image::new()];
            for (path, inode) in reachable {
                let Inode { content, mode, synced } = &self.inodes[*inode];
                let mut contents = vec![content.clone()];
                if !synced {
                    contents.extend([Vec::new(), content[..content.len() / 2].to_vec(), vec![0; content.len()]]);
                }
                let with = |image: &Image| {
                    let image = image.clone();
                    contents
                        .iter()
                        .map(move |content| {
                            let mut image = image.clone();
                            image.insert(path.clone(), (content.clone(), *mode));
                            image
                        })
                        .collect::<Vec<_>>()
                };
                partial = partial.iter().flat_map(with).collect();
            }
            images.extend(partial);
        }
        images
    }
}

fn contents(image: &Image) -> BTreeMap<PathBuf, Vec<u8>> {
    image.iter().map(|(path, (content, _))| (path.clone(), content.clone())).collect()
}

/// What a start does to its files, in order.
async fn record(start: &Start) -> Vec<(Done, Objects)> {
    let (server, machine) = (start.objects.serve(), Machine::new());
    world::put(machine.root.path(), &start.files);
    let recorder =
        Arc::new(Recorder { root: machine.root.path().to_owned(), server: server.clone(), done: Mutex::default() });
    let files = recorder.clone();
    world::settle_as(&machine, &server, |agent| {
        // Another hour, by which its acknowledgment differs from an earlier one.
        Agent { files, wall: agent.wall + Duration::from_secs(3600), ..agent }
    })
    .await;
    start.assert_done(&server, machine.root.path());
    let mut done = std::mem::take(&mut *recorder.done.lock().unwrap());
    // The power may fail after the last change, too.
    done.push((Done::Other, Objects::of(&server)));
    done
}

#[tokio::test(start_paused = true)]
async fn after_a_power_cut_at_any_step_the_cni_file_is_the_old_or_the_new_one_and_the_next_start_settles() {
    for start in starts::all().await {
        let (mut disk, mut tried) = (Volatile::new(&start.files), Vec::<(Image, Objects)>::new());
        for (step, (done, objects)) in record(&start).await.into_iter().enumerate() {
            // Right before this step and right after it: what the cluster knows then, the disk has to bear out.
            let before = disk.cuts();
            disk.apply(&done);
            for image in before.into_iter().chain(disk.cuts()) {
                if tried.iter().any(|known| (&known.0, &known.1) == (&image, &objects)) {
                    continue;
                }
                cut(&start, &format!("cut at step {step}, {done:?}"), &image, &objects).await;
                tried.push((image, objects.clone()));
            }
        }
        println!("{}: {} disks", start.name, tried.len());
        assert!(tried.len() > 15, "{}", start.name);
    }
}

async fn cut(start: &Start, when: &str, image: &Image, objects: &Objects) {
    let (server, machine) = (objects.serve(), Machine::new());
    let root = machine.root.path();
    let files = contents(image);
    start.assert_old_or_new(&files, when);
    let (before, now) = (world::acknowledgment(&start.objects.serve()), world::acknowledgment(&server));
    if now.is_some() && now != before {
        assert_eq!(files.get(Path::new(CNI)), Some(&start.new), "{when}: acknowledged, and lost");
        let ledger = String::from_utf8_lossy(&files[Path::new("state/ledger.json")]);
        assert!(ledger.contains("uid-agent"), "{when}: acknowledged, and not in the ledger");
    } else if now.is_some() && start.hands_off {
        assert_eq!(files.get(Path::new(CNI)), start.old.as_ref(), "{when}: undone, and not withdrawn yet");
    }
    world::put(root, &files);
    for (path, (_, mode)) in image {
        std::fs::set_permissions(root.join(path), std::fs::Permissions::from_mode(*mode)).unwrap();
    }
    world::settle(&machine, &server).await;
    // The ledger is never half of one: nothing had to be set aside.
    assert!(!machine.told.has("Boot(Ledger"), "{when}: {:#?}", machine.told.lines());
    start.assert_done(&server, root);
}

/// Whether some disk after a power cut has a CNI file that is neither the old nor the new one, or has lost an
/// acknowledged one.
fn breaks(start: &Start, record: &[(Done, Objects)]) -> bool {
    let mut disk = Volatile::new(&start.files);
    record.iter().any(|(done, objects)| {
        let acknowledged = world::acknowledgment(&objects.serve()).is_some();
        let broken = disk.cuts().iter().any(|image| {
            let found = image.get(Path::new(CNI)).map(|(content, _)| content);
            found != Some(&start.new) && (acknowledged || found != start.old.as_ref())
        });
        disk.apply(done);
        broken
    })
}

#[tokio::test(start_paused = true)]
async fn the_replay_notices_each_kind_of_sync_that_is_left_out() {
    let [start, ..] = starts::all().await;
    let record = record(&start).await;
    assert!(!breaks(&start, &record));
    let without = |left_out: fn(&Done) -> bool| -> Vec<_> {
        record.iter().filter(|(done, _)| !left_out(done)).cloned().collect()
    };
    assert!(breaks(&start, &without(|done| matches!(done, Done::SyncFile(_)))));
    assert!(breaks(&start, &without(|done| matches!(done, Done::SyncFolder(path) if path == Path::new("cni")))));
    assert!(breaks(&start, &without(|done| matches!(done, Done::SyncFolder(path) if path == Path::new("")))));
}
