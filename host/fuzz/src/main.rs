//! Puts made-up and damaged policies through the policy host: many through the look that comes before compiling, some through
//! compiling, linking, probing and every hook. Whatever they are, the host doesn't panic, refuses with a short sentence,
//! gives the same answer twice, goes on answering with a good policy, and keeps neither memory nor descriptors nor files.

mod corpus;
mod inputs;

use std::{
    any::Any,
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use clap::Parser;
use fastrand::Rng;
use moorline_policy::{
    Allocation, CallError, ChildProcess, CompileCache, Engine, EngineConfig, Hook, Limits, Loader, Policy, Pool, Reply,
    Wasi, compile_child,
    hooks::{Drift, DriftVerdict},
};

use inputs::{Origin, Sources};

/// Bytes of an error's text: a guest must not be able to fill a log with its own names.
const LONGEST_ERROR: usize = 8 << 10;
/// What resident memory may grow by in the second half of a pass: pages that the allocator hasn't given back yet.
const GROWTH_BYTES: u64 = 24 << 20;

/// Puts made-up and damaged policies through the policy host.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// How many to put through the look before compiling.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    check: u64,
    /// How many to compile, link, probe and ask.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    load: u64,
    /// What the inputs follow from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Put through this input alone, of both kinds, and write it to the folder of finds.
    #[arg(long, value_name = "INPUT")]
    only: Option<u64>,
    /// Where inputs are written that the host got wrong.
    #[arg(long, value_name = "FOLDER", default_value = "finds")]
    finds: PathBuf,
    /// Write down what comes of each file of the corpus, instead of comparing.
    #[arg(long)]
    update_corpus: bool,
    /// Compiles one component and ends: what the host starts.
    #[arg(long, hide = true)]
    compile_child: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.compile_child {
        return compile_child();
    }
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    // A caught panic is reported with its input; the line that the runtime prints by itself says where.
    let sources = Sources::new()?;
    let folder = tempfile::tempdir()?;
    let cache = folder.path().join("cache");
    let host = Host::new(&cache)?;
    let mut sound = corpus::run(&host, arguments.update_corpus)?;
    if arguments.update_corpus {
        return Ok(sound);
    }
    let passes = [("check", arguments.check, false), ("load", arguments.load, true)];
    for (name, inputs, load) in passes {
        let pass =
            Pass { name, load, arguments, sources: &sources, host: &host, cache: &cache, table: Mutex::default() };
        sound &= pass.run(inputs)?;
    }
    drop(host);
    let left = leftovers(&cache)?;
    for file in &left {
        eprintln!("This file was left in the cache's folder: {file}");
    }
    println!("{} files left beside finished entries of the cache.", left.len());
    Ok(sound && left.is_empty())
}

/// The host under test.
pub struct Host {
    plain: Loader,
    /// With another allocator and WASI: what a component may import is other there.
    wide: Loader,
    good: Policy,
    answer: (DriftVerdict, u64),
}

impl Host {
    fn new(cache: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        // Enough for what is real, and so little that endless loops end at once; time decides nothing.
        let limits = Limits { fuel: 2_000_000, deadline: std::time::Duration::from_secs(30), ..Limits::default() };
        let engine = Engine::new(&EngineConfig::default())?;
        // Each of the places that were once used keeps this much: with more, a hundred modules look like a leak.
        let pool = Pool { keep_resident_bytes: 64 << 10, ..Pool::default() };
        let pooled = Engine::new(&EngineConfig { allocation: Allocation::Pooled(pool) })?;
        let loader = |engine| {
            let compiler = ChildProcess::this_program(["--compile-child"]);
            Ok::<_, moorline_policy::CacheError>(
                Loader::new(engine)
                    .with_limits(limits.clone())
                    .with_cache(CompileCache::open(cache)?)
                    .with_compiler(compiler),
            )
        };
        let plain = loader(&engine)?;
        let good = plain.load("good", Sources::new()?.good())?;
        let answer = ask(&good).map_err(|error| error.to_string())?;
        Ok(Self { wide: loader(&pooled)?.with_wasi(Wasi::Isolated), plain, good, answer })
    }

    /// What came of an input, in a word or two, or what the host did wrong.
    pub fn put_through(&self, input: &[u8], load: bool) -> Result<String, String> {
        let through = AssertUnwindSafe(|| if load { self.load(input) } else { self.check(input) });
        catch_unwind(through).unwrap_or_else(|panic| Err(format!("the host panicked: {}", text_of(&*panic))))
    }

    fn check(&self, input: &[u8]) -> Result<String, String> {
        match self.plain.check(input) {
            Ok(_) => Ok("fine".into()),
            Err(fault) => sentence(&fault.to_string()).map(|()| fault.kind().into()),
        }
    }

    fn load(&self, input: &[u8]) -> Result<String, String> {
        let policy = match (self.plain.load("input", input), self.wide.load("input", input)) {
            (Ok(policy), Ok(wide)) => {
                self.ask_all(&wide)?;
                policy
            }
            (Err(error), _) => {
                sentence(&error.to_string())?;
                return Ok(match &error.fault {
                    moorline_policy::LoadFault::Unusable(why) => format!("unusable: {}", why.kind()),
                    _ => error.fault.kind().into(),
                });
            }
            // A pool has fewer places than the limits allow.
            (Ok(policy), Err(error)) => {
                sentence(&error.to_string())?;
                policy
            }
        };
        let answers = self.ask_all(&policy)?;
        match ask(&self.good) {
            Ok(answer) if answer == self.answer => Ok(format!("loaded: {answers}")),
            other => Err(format!("the good policy answered {other:?} afterwards, and {:?} before", self.answer)),
        }
    }

    /// Asks all hooks twice; the word is that of the first one.
    fn ask_all(&self, policy: &Policy) -> Result<String, String> {
        let mut first = None;
        let hooks: Vec<_> = policy.hooks().copied().collect();
        for hook in hooks {
            let ask = || match policy.call_json(hook.name, hook.sample(), "{}") {
                Some(Ok(outcome)) => Ok(outcome),
                Some(Err(error)) => Err(format!("the sample of `{}` isn't one of its inputs: {error}", hook.name)),
                None => Err(format!("`{}` is listed and can't be asked", hook.name)),
            };
            let (once, again) = (ask()?, ask()?);
            if (&once.result, once.fuel, &once.logs) != (&again.result, again.fuel, &again.logs) {
                return Err(format!(
                    "asked `{}` twice, it gave {:?} for {} units of fuel and then {:?} for {}",
                    hook.name, once.result, once.fuel, again.result, again.fuel
                ));
            }
            let word = match &once.result {
                Ok(Reply::Verdict(_)) => "verdict",
                Ok(Reply::NotApplicable) => "not-applicable",
                Err(error) => {
                    sentence(&error.to_string())?;
                    error.kind()
                }
            };
            first.get_or_insert(word);
        }
        first.map(str::to_owned).ok_or_else(|| "it was loaded and answers no hook".into())
    }
}

fn ask(policy: &Policy) -> Result<(DriftVerdict, u64), CallError> {
    let outcome = policy.call::<Drift>(&Drift::sample(), "{}");
    match outcome.result? {
        Reply::Verdict(verdict) => Ok((verdict, outcome.fuel)),
        Reply::NotApplicable => Ok((DriftVerdict::Same(String::new()), outcome.fuel)),
    }
}

/// Whether a refusal is fit to be read.
fn sentence(text: &str) -> Result<(), String> {
    let short: String = text.chars().take(200).collect();
    if text.len() > LONGEST_ERROR {
        return Err(format!("an error has {} bytes: {short}", text.len()));
    }
    if text.is_empty() || text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
        return Err(format!("an error isn't fit to be read: {short:?}"));
    }
    Ok(())
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?")
}

/// Many inputs of one kind.
struct Pass<'a> {
    name: &'static str,
    load: bool,
    arguments: &'a Arguments,
    sources: &'a Sources,
    host: &'a Host,
    cache: &'a Path,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    outcomes: BTreeMap<(Origin, String), u64>,
    wrong: u64,
    panicked_makers: u64,
}

impl Pass<'_> {
    fn run(&self, inputs: u64) -> io::Result<bool> {
        let (from, to) = match self.arguments.only {
            Some(input) => (input, input + 1),
            None => (0, inputs),
        };
        println!("\n{} {} inputs of seed {}.", self.name, to - from, self.arguments.seed);
        let half = from + (to - from) / 2;
        self.run_range(from, half, to);
        let before = Held::now(self.cache)?;
        self.run_range(half, to, to);
        let after = Held::now(self.cache)?;

        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        println!("{:>10}  {:<18} outcome", "inputs", "origin");
        for ((origin, outcome), times) in &table.outcomes {
            println!("{times:>10}  {:<18} {outcome}", origin.name());
        }
        if table.panicked_makers > 0 {
            println!(
                "{:>10}  of which the maker itself broke down over its seed; noise was put in their place",
                table.panicked_makers
            );
        }
        println!("half way: {before}\nat the end: {after}");
        let flat = after.resident <= before.resident + GROWTH_BYTES && after.descriptors <= before.descriptors;
        if !flat {
            eprintln!("Memory or descriptors grew.");
        }
        if table.wrong > 0 {
            eprintln!("The host got {} inputs wrong; they are in {}.", table.wrong, self.arguments.finds.display());
        }
        Ok(flat && table.wrong == 0)
    }

    fn run_range(&self, from: u64, to: u64, all: u64) {
        let next = AtomicU64::new(from);
        let step = (all / 20).max(1);
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Relaxed);
                        if number >= to {
                            break;
                        }
                        self.one(number);
                        if number % step == step - 1 {
                            println!("  {} of {all}", number + 1);
                        }
                    }
                });
            }
        });
    }

    fn one(&self, number: u64) {
        let origins: &[Origin] = if self.load { &Origin::LOADABLE } else { &Origin::ALL };
        let mut rng = Rng::with_seed(self.arguments.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
        let origin = origins[rng.usize(..origins.len())];
        // The makers are programs as well.
        let made = catch_unwind(AssertUnwindSafe(|| self.sources.make(origin, &mut rng)));
        let input = made.as_ref().map_or(&[][..], Vec::as_slice);
        let outcome = self.host.put_through(input, self.load);
        let wrong = outcome.as_ref().err().cloned();
        if wrong.is_some() || self.arguments.only.is_some() {
            if let Err(error) = self.keep(number, input) {
                eprintln!("Input {number} can't be written to {}: {error}.", self.arguments.finds.display());
            }
            eprintln!("{}", outcome.as_deref().unwrap_or_else(|wrong| wrong));
        }
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.panicked_makers += u64::from(made.is_err());
        table.wrong += u64::from(wrong.is_some());
        *table.outcomes.entry((origin, outcome.unwrap_or_else(|_| "WRONG".into()))).or_default() += 1;
    }

    fn keep(&self, number: u64, input: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.arguments.finds)?;
        let file = self.arguments.finds.join(format!("{}-{}-{number}.wasm", self.name, self.arguments.seed));
        fs::write(&file, input)?;
        eprintln!("{} (again with `--seed {} --only {number}`):", file.display(), self.arguments.seed);
        io::stderr().flush()
    }
}

/// What the process holds.
struct Held {
    resident: u64,
    descriptors: usize,
    mappings: usize,
    files: usize,
}

impl Held {
    fn now(cache: &Path) -> io::Result<Self> {
        let status = fs::read_to_string("/proc/self/status")?;
        let kibibytes = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok())
            .ok_or_else(|| io::Error::other("/proc/self/status has no VmRSS"))?;
        Ok(Self {
            resident: kibibytes << 10,
            descriptors: fs::read_dir("/proc/self/fd")?.count(),
            mappings: fs::read_to_string("/proc/self/maps")?.lines().count(),
            files: fs::read_dir(cache)?.count(),
        })
    }
}

impl std::fmt::Display for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { resident, descriptors, mappings, files } = self;
        write!(
            f,
            "{} KiB resident, {descriptors} descriptors, {mappings} mappings, {files} files in the cache",
            resident >> 10
        )
    }
}

/// Files that are no finished entries of the cache.
fn leftovers(cache: &Path) -> io::Result<Vec<String>> {
    let mut left = Vec::new();
    for entry in fs::read_dir(cache)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.ends_with(".cwasm") {
            left.push(name);
        }
    }
    Ok(left)
}
