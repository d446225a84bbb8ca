//! What starts the agents of scenarios in tests.

use std::path::Path;
use std::sync::LazyLock;

use moorline::simulate::Launcher;
use moorline_policy::{CompileCache, Engine, EngineConfig, Loader};

/// One engine for all, and what is compiled is kept for the next run.
pub(crate) static LAUNCHER: LazyLock<Launcher> = LazyLock::new(|| {
    let engine = Engine::new(&EngineConfig::default()).unwrap();
    let cache = CompileCache::open(Path::new(env!("CARGO_TARGET_TMPDIR")).join("policies")).unwrap();
    let loader = Loader::new(&engine).with_cache(cache);
    let default_policy = loader.load("default", moorline::DEFAULT_POLICY).unwrap();
    Launcher { loader, default_policy, journal: None }
});
