//! Compiled components on disk: used when beyond doubt, made again otherwise; and the marks that end a crash loop.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

mod guests;

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};

use guests::{SAME, drift};
use moorline_policy::{
    Artefact, CacheError, CompileCache, CompileError, Compiler, Decision, Digest, Engine, EngineConfig, Hook as _,
    InProcess, Job, LoadFault, Loader, PolicySet, SetOptions, hooks::Drift,
};

/// A compiler that counts.
#[derive(Clone, Debug, Default)]
struct Counting(Arc<AtomicUsize>);

impl Compiler for Counting {
    fn compile(&self, job: &Job<'_>) -> Result<Artefact, CompileError> {
        self.0.fetch_add(1, SeqCst);
        InProcess.compile(job)
    }
}

struct Bench {
    folder: tempfile::TempDir,
    compiled: Counting,
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), compiled: Counting::default() }
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn loader(&self, config: &EngineConfig) -> Loader {
        let cache = CompileCache::open(self.cache()).unwrap();
        Loader::new(&Engine::new(config).unwrap()).with_cache(cache).with_compiler(self.compiled.clone())
    }

    /// Loads a component with a new engine, as a new process would, asks it, and tells how often it was compiled so far.
    fn load(&self, component: &[u8]) -> usize {
        let policy = self.loader(&EngineConfig::default()).load("guest", component).unwrap();
        assert!(policy.call::<Drift>(&Drift::sample(), "{}").result.is_ok());
        self.compiled.0.load(SeqCst)
    }

    fn artefacts(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.cache()).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|file| file.extension().is_some_and(|extension| extension == "cwasm")).collect()
    }

    fn artefact(&self) -> PathBuf {
        let [only] = self.artefacts().try_into().unwrap();
        only
    }

    fn marker(&self, component: &[u8]) -> PathBuf {
        self.cache().join(format!("{}.loading", Digest::of(component)))
    }
}

#[test]
fn a_second_start_compiles_nothing() {
    let (bench, component) = (Bench::new(), drift(SAME));
    assert_eq!(bench.load(&component), 1);
    assert_eq!(bench.load(&component), 1);
    let left: Vec<_> = fs::read_dir(bench.cache()).unwrap().collect();
    assert_eq!(left.len(), 1, "one artefact, and no mark or temporary file: {left:?}");
}

/// Loads, does something to the artefact, and expects that it is compiled again and then used again.
fn doubted(spoil: impl FnOnce(&Bench, &Path)) {
    let (bench, component) = (Bench::new(), drift(SAME));
    bench.load(&component);
    spoil(&bench, &bench.artefact());
    assert_eq!(bench.load(&component), 2, "the doubtful artefact was used");
    assert_eq!(bench.load(&component), 2, "the new artefact was not");
}

#[test]
fn a_truncated_artefact_is_compiled_again() {
    doubted(|_, file| File::options().write(true).open(file).unwrap().set_len(1000).unwrap());
}

#[test]
fn an_artefact_with_one_changed_byte_is_compiled_again() {
    doubted(|_, file| {
        let mut content = fs::read(file).unwrap();
        let middle = content.len() / 2;
        content[middle] ^= 1;
        fs::write(file, content).unwrap();
    });
}

#[test]
fn an_artefact_that_others_may_write_is_compiled_again() {
    doubted(|_, file| fs::set_permissions(file, Permissions::from_mode(0o666)).unwrap());
}

#[test]
fn an_artefact_that_is_a_link_is_compiled_again() {
    doubted(|bench, file| {
        let elsewhere = bench.folder.path().join("elsewhere");
        fs::rename(file, &elsewhere).unwrap();
        symlink(&elsewhere, file).unwrap();
    });
}

#[test]
fn the_artefact_of_another_module_is_never_taken() {
    let (bench, component) = (Bench::new(), drift(SAME));
    bench.load(&component);
    let file = bench.artefact();
    let other = drift("unreachable");
    let renamed = file
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .replace(&Digest::of(&component).to_string(), &Digest::of(&other).to_string());
    fs::rename(&file, file.with_file_name(renamed)).unwrap();
    let policy = bench.loader(&EngineConfig::default()).load("guest", &other).unwrap();
    assert!(policy.call::<Drift>(&Drift::sample(), "{}").result.is_err(), "the other module traps");
    assert_eq!(bench.compiled.0.load(SeqCst), 2);
}

#[test]
fn an_engine_with_other_settings_has_artefacts_of_its_own() {
    let (bench, component) = (Bench::new(), drift(SAME));
    bench.load(&component);
    let (mine, theirs) = (bench.artefact(), b"from another engine");
    let name = mine.file_name().unwrap().to_str().unwrap();
    let other = format!("{}-{}-{}.cwasm", &name[..64], "0".repeat(12), Digest::of(theirs));
    fs::write(mine.with_file_name(other), theirs).unwrap();
    assert_eq!(bench.load(&component), 1);
}

#[test]
fn a_compiled_file_of_before_an_upgrade_is_compiled_again_and_no_failure() {
    // The name says for which engine it is, and wasmtime refuses what another version made, whatever the name says.
    let (bench, component) = (Bench::new(), drift(SAME));
    bench.load(&component);
    let mine = bench.artefact();
    let mut older = fs::read(&mine).unwrap();
    // The major version as text, a length, and the target.
    let target = std::env::consts::ARCH.as_bytes();
    let at = older.windows(target.len()).position(|bytes| bytes == target).unwrap();
    let version = &mut older[at - 3..at - 1];
    assert!(version.iter().all(u8::is_ascii_digit), "wasmtime says its version in another way now: {version:?}");
    version[0] -= 1;
    fs::remove_file(&mine).unwrap();
    let name = mine.file_name().unwrap().to_str().unwrap();
    let renamed = format!("{}-{}.cwasm", &name[..name.rfind('-').unwrap()], Digest::of(&older));
    fs::write(mine.with_file_name(renamed), older).unwrap();
    assert_eq!(bench.load(&component), 2);
    assert_eq!(bench.load(&component), 2, "and that one is kept");
}

#[test]
fn nothing_is_compiled_again_for_a_call_or_a_second_binding() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("it.wasm"), drift(SAME)).unwrap();
    let text = "modules: {it: {file: it.wasm}}\nbindings: {drift: [{name: a, module: it, sites: [x]}, {name: b, module: it}]}\n";
    fs::write(folder.path().join("policies.yaml"), text).unwrap();
    let compiled = Counting::default();
    let loader = Loader::new(&Engine::new(&EngineConfig::default()).unwrap()).with_compiler(compiled.clone());
    let set = PolicySet::load(&loader, Some(folder.path()), SetOptions::default()).unwrap();
    for site in ["x", "y"].into_iter().cycle().take(100) {
        let answer = set.ask::<Drift>(&Drift::sample(), Some(site), Duration::ZERO);
        assert!(matches!(answer.decision, Decision::Decided { .. }));
    }
    assert_eq!(compiled.0.load(SeqCst), 1);
}

#[test]
fn a_folder_that_others_may_write_is_refused_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    assert!(CompileCache::open(&cache).is_ok());
    assert_eq!(fs::metadata(&cache).unwrap().permissions().mode() & 0o777, 0o700);
    fs::set_permissions(&cache, Permissions::from_mode(0o770)).unwrap();
    let error = CompileCache::open(&cache).unwrap_err();
    assert!(matches!(error, CacheError::NotPrivate { .. }) && error.to_string().contains("chmod 700"), "{error}");
    symlink(&cache, folder.path().join("link")).unwrap();
    assert!(CompileCache::open(folder.path().join("link")).is_err());
}

#[test]
fn a_folder_that_goes_away_costs_a_compilation_and_nothing_else() {
    let (bench, component) = (Bench::new(), drift(SAME));
    let loader = bench.loader(&EngineConfig::default());
    fs::remove_dir_all(bench.cache()).unwrap();
    assert!(loader.load("guest", &component).is_ok());
    fs::write(bench.cache(), "a file in its place").unwrap();
    assert!(loader.load("guest", &component).is_ok());
}

#[test]
fn many_loads_at_once_compile_once() {
    let (bench, component) = (Bench::new(), drift(SAME));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| bench.load(&component));
        }
    });
    assert_eq!(bench.compiled.0.load(SeqCst), 1);
}

#[test]
fn a_module_that_ended_two_loads_rests_and_the_error_names_the_way_out() {
    let (bench, component) = (Bench::new(), drift(SAME));
    let loader = bench.loader(&EngineConfig::default());
    let marker = bench.marker(&component);

    // What one killed process leaves is forgiven: it may have been killed for any reason.
    fs::write(&marker, "1").unwrap();
    assert!(loader.load("guest", &component).is_ok());
    assert!(!marker.exists(), "a load that ends well takes its mark away");

    fs::write(&marker, "2").unwrap();
    let error = loader.load("guest", &component).unwrap_err();
    assert!(matches!(error.fault, LoadFault::Quarantined { attempts: 2, .. }), "{error}");
    assert!(error.to_string().contains(&format!("Remove {}", marker.display())), "{error}");
    assert!(loader.load("other", &drift("unreachable")).is_ok(), "others are not concerned");

    fs::remove_file(&marker).unwrap();
    assert!(loader.load("guest", &component).is_ok());
}

#[test]
fn a_module_that_rested_for_an_hour_is_tried_again() {
    let (bench, component) = (Bench::new(), drift(SAME));
    let loader = bench.loader(&EngineConfig::default());
    let marker = bench.marker(&component);
    fs::write(&marker, "2").unwrap();
    File::options()
        .write(true)
        .open(&marker)
        .unwrap()
        .set_modified(SystemTime::now() - Duration::from_secs(3601))
        .unwrap();
    assert!(loader.load("guest", &component).is_ok());
}

#[test]
fn each_load_that_ends_its_process_is_counted() {
    /// A compiler that leaves the mark as a killed process would.
    #[derive(Debug)]
    struct Killed(PathBuf);
    impl Compiler for Killed {
        fn compile(&self, _: &Job<'_>) -> Result<Artefact, CompileError> {
            fs::copy(&self.0, self.0.with_extension("copy")).unwrap();
            Err(CompileError::Refused("killed".into()))
        }
    }
    let (bench, component) = (Bench::new(), drift(SAME));
    let marker = bench.marker(&component);
    let loader = bench.loader(&EngineConfig::default()).with_compiler(Killed(marker.clone()));
    let kinds: Vec<_> = (0..3)
        .map(|_| {
            let kind = loader.load("guest", &component).unwrap_err().fault.kind();
            let _ = fs::rename(marker.with_extension("copy"), &marker);
            kind
        })
        .collect();
    assert_eq!(kinds, ["compile", "compile", "quarantined"]);
}
