//! Another set takes the place of the one before: whole or not at all, once it stands still, and without a call lost.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]
#![forbid(unsafe_code)]

mod guests;

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use guests::{SAME, drift, engine};
use moorline_policy::{
    Artefact, CompileError, Compiler, Decision, Digest, Hook as _, InProcess, Job, Loader, PolicySet, ReloadError,
    Reloader, SetOptions,
    hooks::{Drift, DriftVerdict},
};

const LOOK: Duration = Duration::from_secs(10);

/// A policy that answers `same` with this reason of four letters.
fn saying(word: &str) -> Vec<u8> {
    let word = i32::from_le_bytes(word.as_bytes().try_into().unwrap());
    drift(&format!(
        "(i32.store (i32.const 200) (i32.const {word})) {SAME}
         (i32.store (i32.const 72) (i32.const 200)) (i32.store (i32.const 76) (i32.const 4))"
    ))
}

/// The text of a `policies.yaml` with these modules, each bound to drift in this order for a Site of its own name.
fn text(modules: &[(&str, &[u8])]) -> String {
    let list = |line: &dyn Fn(&str, &[u8]) -> String| -> String {
        modules.iter().map(|(name, bytes)| line(name, bytes)).collect()
    };
    format!(
        "modules:\n{}bindings:\n  drift:\n{}",
        list(&|name, bytes| format!("  {name}: {{file: {name}.wasm, sha256: {}}}\n", Digest::of(bytes))),
        list(&|name, _| format!("    - {{name: {name}, module: {name}, sites: [{name}]}}\n")),
    )
}

fn write(folder: &Path, modules: &[(&str, &[u8])]) {
    for (name, bytes) in modules {
        fs::write(folder.join(format!("{name}.wasm")), bytes).unwrap();
    }
    fs::write(folder.join("policies.yaml"), text(modules)).unwrap();
}

/// What kubelet does when a ConfigMap changes: a new folder, and `..data` turned to it in one step.
fn swap(volume: &Path, version: &str, modules: &[(&str, &[u8])]) {
    let folder = volume.join(format!("..{version}"));
    fs::create_dir(&folder).unwrap();
    write(&folder, modules);
    let before = fs::read_link(volume.join("..data")).ok();
    let _ = fs::remove_file(volume.join("..data_tmp"));
    symlink(format!("..{version}"), volume.join("..data_tmp")).unwrap();
    fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    for entry in fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name();
        let _ = symlink(Path::new("..data").join(&name), volume.join(&name));
    }
    if let Some(before) = before {
        fs::remove_dir_all(volume.join(before)).unwrap();
    }
}

/// Compiles in this process, and keeps count.
#[derive(Clone, Debug, Default)]
struct Counting(Arc<Mutex<usize>>);

impl Compiler for Counting {
    fn compile(&self, job: &Job<'_>) -> Result<Artefact, CompileError> {
        *self.0.lock().unwrap() += 1;
        InProcess.compile(job)
    }
}

struct Stage {
    folder: tempfile::TempDir,
    reloader: Reloader,
    compiled: Counting,
    now: Duration,
}

impl Stage {
    fn plain(modules: &[(&str, &[u8])]) -> Self {
        Self::with(modules, write)
    }

    fn volume(modules: &[(&str, &[u8])]) -> Self {
        Self::with(modules, |folder, modules| swap(folder, "first", modules))
    }

    fn with(modules: &[(&str, &[u8])], write: impl FnOnce(&Path, &[(&str, &[u8])])) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), modules);
        let compiled = Counting::default();
        let loader = Loader::new(&engine()).with_compiler(compiled.clone());
        let reloader = Reloader::load(loader, folder.path().to_owned(), SetOptions::default(), Duration::ZERO).unwrap();
        Self { folder, reloader, compiled, now: Duration::ZERO }
    }

    fn look(&mut self) -> Option<Result<Arc<PolicySet>, ReloadError>> {
        self.now += LOOK;
        self.reloader.look(self.now)
    }

    fn compiled(&self) -> usize {
        *self.compiled.0.lock().unwrap()
    }
}

fn says(set: &PolicySet, site: &str) -> Option<String> {
    match set.ask::<Drift>(&Drift::sample(), Some(site), Duration::ZERO).decision {
        Decision::Decided { verdict: DriftVerdict::Same(reason), .. } => Some(reason),
        Decision::NoBinding => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_swap_of_data_and_a_changed_plain_folder_are_seen_once_they_stand_still() {
    let (one, two) = (saying("one."), saying("two."));
    let volume = Stage::volume(&[("a", &one)]);
    swap(volume.folder.path(), "second", &[("a", &two)]);
    let plain = Stage::plain(&[("a", &one)]);
    write(plain.folder.path(), &[("a", &two)]);
    for mut stage in [volume, plain] {
        let before = stage.reloader.current().clone();
        assert!(stage.look().is_none(), "it may be changing just now");
        let after = stage.look().unwrap().unwrap();
        assert_eq!((says(&before, "a").unwrap(), says(&after, "a").unwrap()), ("one.".into(), "two.".into()));
        assert_ne!(before.digest(), after.digest());
        for _ in 0..10 {
            assert!(stage.look().is_none());
        }
        assert_eq!(stage.compiled(), 2);
    }
}

#[test]
fn the_same_content_written_again_is_the_same_set() {
    let one = saying("one.");
    let mut stage = Stage::volume(&[("a", &one)]);
    let before = stage.reloader.current().clone();
    swap(stage.folder.path(), "second", &[("a", &one)]);
    assert!(stage.look().is_none());
    assert!(Arc::ptr_eq(&stage.look().unwrap().unwrap(), &before));
    assert_eq!(stage.compiled(), 1);
}

#[test]
fn what_stays_is_not_compiled_again_and_its_breaker_goes_on() {
    let (one, two) = (saying("one."), saying("two."));
    let bad = drift("unreachable");
    let mut stage = Stage::plain(&[("a", &one), ("bad", &bad)]);
    for _ in 0..5 {
        let before = stage.reloader.current();
        assert!(matches!(
            before.ask::<Drift>(&Drift::sample(), Some("bad"), Duration::ZERO).decision,
            Decision::Held(_)
        ));
    }
    write(stage.folder.path(), &[("a", &two), ("bad", &bad)]);
    assert!(stage.look().is_none());
    let after = stage.look().unwrap().unwrap();
    assert_eq!(stage.compiled(), 3, "two at first, and the one that changed");
    let failures: Vec<_> = after.bindings().map(|binding| binding.status(Duration::ZERO).failures).collect();
    assert_eq!(failures, [0, 5]);
}

#[test]
fn half_of_an_update_is_never_used() {
    let (one, two) = (saying("one."), saying("two."));
    let mut stage = Stage::plain(&[("a", &one), ("b", &one)]);
    let before = stage.reloader.current().clone();
    // The file and one module are there, the other module isn't yet.
    fs::write(stage.folder.path().join("policies.yaml"), text(&[("a", &two), ("b", &two)])).unwrap();
    fs::write(stage.folder.path().join("a.wasm"), &two).unwrap();
    assert!(stage.look().is_none());
    let refused = stage.look().unwrap().unwrap_err().to_string();
    assert!(refused.contains("the binding `b` of the hook `drift`") && refused.contains("sha256"), "{refused}");
    assert!(Arc::ptr_eq(stage.reloader.current(), &before), "the set before goes on");
    assert!(stage.look().is_none(), "it is told once");

    fs::write(stage.folder.path().join("b.wasm"), &two).unwrap();
    assert!(stage.look().is_none());
    let after = stage.look().unwrap().unwrap();
    assert_eq!((says(&after, "a").unwrap(), says(&after, "b").unwrap()), ("two.".into(), "two.".into()));
}

#[test]
fn a_change_during_the_load_is_loaded_again() {
    /// Changes the folder while it compiles, once.
    #[derive(Debug)]
    struct Meddling(Mutex<Option<(std::path::PathBuf, Vec<u8>)>>, Arc<AtomicBool>);
    impl Compiler for Meddling {
        fn compile(&self, job: &Job<'_>) -> Result<Artefact, CompileError> {
            if self.1.load(Ordering::SeqCst)
                && let Some((folder, bytes)) = self.0.lock().unwrap().take()
            {
                write(&folder, &[("a", &bytes)]);
            }
            InProcess.compile(job)
        }
    }
    let (one, two, three) = (saying("one."), saying("two."), saying("last"));
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[("a", &one)]);
    let armed = Arc::new(AtomicBool::new(false));
    let meddling = Meddling(Mutex::new(Some((folder.path().to_owned(), three))), armed.clone());
    let loader = Loader::new(&engine()).with_compiler(meddling);
    let mut reloader = Reloader::load(loader, folder.path().to_owned(), SetOptions::default(), Duration::ZERO).unwrap();
    armed.store(true, Ordering::SeqCst);
    write(folder.path(), &[("a", &two)]);
    let sets: Vec<_> = (1..6).filter_map(|look| reloader.look(LOOK * look)).map(Result::unwrap).collect();
    assert_eq!(sets.len(), 1, "the second content was gone when it was loaded");
    assert_eq!(says(&sets[0], "a").unwrap(), "last");
}

#[test]
fn a_refused_set_is_told_kept_out_tried_again_and_forgotten_when_the_old_one_is_back() {
    let one = saying("one.");
    let mut stage = Stage::plain(&[("a", &one)]);
    let good = fs::read_to_string(stage.folder.path().join("policies.yaml")).unwrap();
    fs::write(stage.folder.path().join("policies.yaml"), "bindings: [").unwrap();
    let told = |stage: &mut Stage, looks: usize| -> Vec<bool> {
        (0..looks).filter_map(|_| stage.look()).map(|told| told.is_ok()).collect()
    };
    assert_eq!(told(&mut stage, 2), [false]);
    // A minute, two, four, eight, fifteen, fifteen …
    assert_eq!(told(&mut stage, 6), [false]);
    assert!(told(&mut stage, 11).is_empty());
    assert_eq!(told(&mut stage, 1), [false]);
    assert_eq!(told(&mut stage, 360).len(), 5);
    assert_eq!(says(stage.reloader.current(), "a").unwrap(), "one.");

    fs::write(stage.folder.path().join("policies.yaml"), good).unwrap();
    assert_eq!(told(&mut stage, 400), [true], "and nothing is tried again");
}

#[test]
fn a_refused_binding_of_the_first_set_is_tried_again() {
    let one = saying("one.");
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[("a", &one)]);
    /// No memory for the compiler, at first.
    #[derive(Debug)]
    struct Starved(Mutex<u32>);
    impl Compiler for Starved {
        fn compile(&self, job: &Job<'_>) -> Result<Artefact, CompileError> {
            let mut left = self.0.lock().unwrap();
            if *left > 0 {
                *left -= 1;
                return Err(CompileError::Memory);
            }
            InProcess.compile(job)
        }
    }
    let loader = Loader::new(&engine()).with_compiler(Starved(Mutex::new(2)));
    let mut reloader = Reloader::load(loader, folder.path().to_owned(), SetOptions::default(), Duration::ZERO).unwrap();
    assert_eq!(reloader.current().refusals().count(), 1);
    let told: Vec<_> = (1..30).filter_map(|look| reloader.look(LOOK * look)).map(|told| told.is_ok()).collect();
    assert_eq!(told, [false, true]);
    assert_eq!(says(reloader.current(), "a").unwrap(), "one.");
}

#[test]
fn a_flood_of_changes_is_loaded_once_a_minute() {
    let (one, two) = (saying("one."), saying("two."));
    let mut stage = Stage::volume(&[("a", &one)]);
    let mut loads = 0;
    for round in 0..60 {
        swap(stage.folder.path(), &format!("flood-{round}"), &[("a", if round % 2 == 0 { &two } else { &one })]);
        loads += usize::from(stage.look().is_some());
    }
    assert!((8..=10).contains(&loads), "{loads} loads in ten minutes");
}

#[test]
fn who_asks_for_a_look_is_answered_at_once() {
    let (one, two) = (saying("one."), saying("two."));
    let mut stage = Stage::plain(&[("a", &one)]);
    let before = stage.reloader.current().clone();
    assert!(Arc::ptr_eq(&stage.reloader.look_now(Duration::ZERO).unwrap(), &before));
    write(stage.folder.path(), &[("a", &two)]);
    assert_eq!(says(&stage.reloader.look_now(Duration::ZERO).unwrap(), "a").unwrap(), "two.");
}

#[test]
fn a_pipe_in_the_place_of_the_file_is_refused_and_not_waited_for() {
    let one = saying("one.");
    let mut stage = Stage::plain(&[("a", &one)]);
    let file = stage.folder.path().join("policies.yaml");
    fs::remove_file(&file).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &file, rustix::fs::Mode::RUSR).unwrap();
    assert!(stage.look().is_none());
    let refused = stage.look().unwrap().unwrap_err();
    assert!(refused.to_string().contains("policies.yaml"), "{refused}");
    assert_eq!(says(stage.reloader.current(), "a").unwrap(), "one.");
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// `MOORLINE_SWAPS=1000` is the long form.
#[test]
fn swaps_under_constant_calls_lose_no_verdict_mix_no_sets_and_leave_no_memory() {
    let swaps: usize = std::env::var("MOORLINE_SWAPS").map_or(60, |swaps| swaps.parse().unwrap());
    // Both modules of a set are of one version.
    let versions: Vec<_> = (0..8).map(|version| saying(&format!("v{version:03}"))).collect();
    let mut stage = Stage::volume(&[("a", &versions[0]), ("b", &versions[0])]);
    let current = Arc::new(Mutex::new(stage.reloader.current().clone()));
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..2)
        .map(|_| {
            let (current, stop) = (current.clone(), stop.clone());
            thread::spawn(move || {
                let mut verdicts = 0_usize;
                while !stop.load(Ordering::SeqCst) {
                    let set = current.lock().unwrap().clone();
                    let (a, b) = (says(&set, "a"), says(&set, "b"));
                    assert!(a.is_some(), "a verdict is lost");
                    assert_eq!(a, b, "both are of one set");
                    verdicts += 2;
                }
                verdicts
            })
        })
        .collect();
    let (mut after_warm_up, mut peak) = (0, 0);
    for round in 1..=swaps {
        let version = &versions[round % versions.len()];
        swap(stage.folder.path(), &format!("version-{round}"), &[("a", version), ("b", version)]);
        assert!(stage.look().is_none());
        let set = stage.look().unwrap().unwrap();
        assert_eq!(says(&set, "a").unwrap(), format!("v{:03}", round % versions.len()));
        *current.lock().unwrap() = set;
        if round == swaps / 2 {
            after_warm_up = resident_kib();
        }
        peak = peak.max(resident_kib());
    }
    let end = resident_kib();
    stop.store(true, Ordering::SeqCst);
    let verdicts: usize = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
    println!(
        "{swaps} swaps, {verdicts} verdicts, {after_warm_up} KiB half way, {end} KiB at the end, {peak} KiB at most"
    );
    assert!(verdicts > 0);
    // A set that was kept would be two modules, about 100 KiB each, for every swap.
    assert!(end < after_warm_up + 8 * 1024, "memory grew from {after_warm_up} to {end} KiB");
}
