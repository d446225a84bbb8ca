//! What can go wrong with a policy: at load ([`LoadError`]) and in a call ([`CallError`]). Every text names the policy and says
//! what to do; `kind()` gives a stable word for metrics, which never carry text.

use std::{
    fmt::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crate::{
    Digest, Limits, SettingError,
    inspect::WASI,
    store::{Failure, Ran},
    wasi::HANDLES,
};

/// A module that was refused at load. Others are not concerned.
#[derive(Clone, Debug, thiserror::Error)]
#[error("The policy {} was refused: {fault}", Named(.name, .digest.as_ref(), .file.as_deref()))]
pub struct LoadError {
    /// What the module is called.
    pub name: String,
    /// Its digest, if it could be read.
    pub digest: Option<Digest>,
    /// Its file, if it came from one.
    pub file: Option<PathBuf>,
    /// What is wrong with it.
    #[source]
    pub fault: LoadFault,
}

/// Why a module, or its use by one binding, was refused.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadFault {
    /// The file can't be read.
    #[error("it can't be read ({0}).")]
    Unreadable(Arc<std::io::Error>),
    /// The component is larger than allowed.
    #[error("it has more than {limit} bytes{}.{}", if *.packed { " when it is unpacked" } else { "" }, Raise("moduleSize"))]
    TooLarge {
        /// Whether that is so only after it was unpacked.
        packed: bool,
        /// [`Limits::component_bytes`].
        limit: usize,
    },
    /// The module isn't the one that was pinned.
    #[error(
        "its SHA-256 digest is {found}, but {pinned} is pinned. {}",
        if *.compressed { "That is the digest of the compressed file: pin that of the component inside." }
        else { "Pin the new digest if the change is intended." }
    )]
    WrongDigest {
        /// Whether the pinned digest is that of the compressed file.
        compressed: bool,
        /// What the configuration says.
        pinned: Digest,
        /// What the file has.
        found: Digest,
    },
    /// Not a component in the binary format.
    #[error("this file is not a WebAssembly component, it is {kind}.")]
    NotAComponent {
        /// What it looks like instead.
        kind: &'static str,
    },
    /// A component that can't be parsed.
    #[error("this file is a damaged WebAssembly component ({}).", Guests(.0))]
    Malformed(String),
    /// Compressed data that can't be unpacked.
    #[error("its {format} data can't be unpacked ({}).", Guests(.why))]
    Packed {
        /// How it is compressed.
        format: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// An import that no policy may have.
    #[error(
        "it imports `{}`. A policy may import `moorline:policy/host-log` and nothing else: \
         no clock, no randomness, no files, no network. {}", Guests(.import), WayOut(.import)
    )]
    ForbiddenImport {
        /// The import's name.
        import: String,
    },
    /// Built for another version of a contract.
    #[error("it was built for `{}`, and this host speaks `{spoken}`. Build it again against that version.", Guests(.found))]
    OtherContract {
        /// Package and version of the component.
        found: String,
        /// Package and version of the host.
        spoken: String,
    },
    /// A component that isn't a policy.
    #[error("it doesn't export `moorline:policy/policy@0.1.0`, as every policy does.")]
    NoPolicyInterface,
    /// A policy that answers no known hook.
    #[error("it exports no hook that this host knows. They are: {known}.")]
    NoHook {
        /// The known interfaces.
        known: String,
    },
    /// An export whose types are not the hook's.
    #[error("its `{interface}` doesn't fit: {}. Build it again against the contract's current text.", Guests(.why))]
    WrongSignature {
        /// The interface.
        interface: String,
        /// The first difference.
        why: String,
    },
    /// Loading it ended the process, or the compiler's, more than once.
    #[error(
        "loading it ended the process or its compiler {attempts} times, so it isn't tried before {} more minutes have passed. \
         Remove {} to have it tried at once.", .again_after.as_secs().div_ceil(60), .marker.display()
    )]
    Quarantined {
        /// How often.
        attempts: u32,
        /// The file that says so.
        marker: PathBuf,
        /// How long from now.
        again_after: Duration,
    },
    /// The compiler refuses it.
    #[error("it can't be compiled ({}).", Guests(.0))]
    Compile(String),
    /// Compiling it takes too long.
    #[error("it can't be compiled within {}.{}", Milliseconds(*.0), Raise("compileDeadline"))]
    CompileDeadline(Duration),
    /// Compiling it takes too much memory.
    #[error("it can't be compiled with {limit} bytes of memory.{raise}", limit = .0, raise = Raise("compileMemory"))]
    CompileMemory(usize),
    /// The compiler broke down over it.
    #[error("the compiler broke down over it ({}).", Guests(.0))]
    CompilerDied(String),
    /// The compiler can't be used; the module may be fine.
    #[error("the compiler can't be started ({0}).")]
    NoCompiler(Arc<std::io::Error>),
    /// It doesn't describe itself, or can't check settings.
    #[error("{0}")]
    Unusable(Box<CallError>),
    /// Its settings don't please it.
    #[error("it refuses its settings for the hook `{hook}`:{}", List(.errors))]
    Settings {
        /// The hook.
        hook: &'static str,
        /// What it says.
        errors: Vec<SettingError>,
    },
    /// A binding names a hook that the module doesn't answer.
    #[error("it doesn't answer the hook `{hook}` that it is bound to. It answers: {answers}.")]
    HookMissing {
        /// The hook.
        hook: &'static str,
        /// Those it answers.
        answers: String,
    },
}

impl LoadFault {
    /// A stable word for metrics and machine-readable output.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "unreadable",
            Self::TooLarge { .. } => "too-large",
            Self::WrongDigest { .. } => "wrong-digest",
            Self::NotAComponent { .. } => "not-a-component",
            Self::Malformed(_) => "malformed",
            Self::Packed { .. } => "packed",
            Self::ForbiddenImport { .. } => "forbidden-import",
            Self::OtherContract { .. } => "other-contract",
            Self::NoPolicyInterface => "no-policy-interface",
            Self::NoHook { .. } => "no-hook",
            Self::WrongSignature { .. } => "wrong-signature",
            Self::Quarantined { .. } => "quarantined",
            Self::Compile(_) => "compile",
            Self::CompileDeadline(_) => "compile-deadline",
            Self::CompileMemory(_) => "compile-memory",
            Self::CompilerDied(_) => "compiler-died",
            Self::NoCompiler(_) => "no-compiler",
            Self::Unusable(_) => "unusable",
            Self::Settings { .. } => "settings",
            Self::HookMissing { .. } => "hook-missing",
        }
    }
}

impl LoadFault {
    /// Whether the compiler broke down or had to be ended, so that trying again at each start would cost each start dear.
    pub(crate) fn is_of_the_compiler(&self) -> bool {
        matches!(self, Self::CompileDeadline(_) | Self::CompileMemory(_) | Self::CompilerDied(_))
    }
}

/// A call that gave no verdict.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The policy {} failed in `{function}`: {fault}{}", Named(.policy, Some(.digest), None), Said(.said.as_deref()))]
pub struct CallError {
    /// What the module is called.
    pub policy: String,
    /// Its digest.
    pub digest: Digest,
    /// The hook, or the function of interface `policy`, that was called.
    pub function: &'static str,
    /// What went wrong.
    #[source]
    pub fault: CallFault,
    /// The last line that the policy logged as an error: its panic text.
    pub said: Option<String>,
}

impl CallError {
    /// A stable word for metrics and machine-readable output.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.fault.kind()
    }
}

/// Why a call gave no verdict.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallFault {
    /// The fuel ran out.
    #[error("it used up its {limit} units of fuel.{raise}", limit = .0, raise = Raise("fuel"))]
    Fuel(u64),
    /// The time ran out.
    #[error("it didn't answer within {}.{}", Milliseconds(*.0), Raise("deadline"))]
    Deadline(Duration),
    /// It wanted more memory.
    #[error("it wanted {wanted} bytes of memory and may have {limit}.{}", Raise("memory"))]
    Memory {
        /// Bytes that it would have had.
        wanted: usize,
        /// [`Limits::memory_bytes`].
        limit: usize,
    },
    /// It wanted larger tables.
    #[error("it wanted {wanted} table elements and may have {limit}.{}", Raise("tableElements"))]
    Table {
        /// Elements that it would have had.
        wanted: usize,
        /// [`Limits::table_elements`].
        limit: usize,
    },
    /// It has too many parts.
    #[error("it needs more than {limit} core instances, memories or tables.{raise}", limit = .0, raise = Raise("instances"))]
    Instances(usize),
    /// All places of the engine's pool are taken by other calls: no fault of the policy, and none that its breaker counts.
    #[error(
        "the engine's pool has no place left for it. The program that embeds the engine can give its pool more `calls` or \
         `instances`."
    )]
    PoolFull,
    /// It called itself too deeply.
    #[error("it used up its {limit} bytes of stack.{raise}", limit = .0, raise = Raise("stack"))]
    Stack(usize),
    /// It trapped.
    #[error("it trapped ({}).", Guests(.0))]
    Trap(String),
    /// It answered something that can't be taken.
    #[error("its answer can't be taken: {}", Guests(.0))]
    BadOutput(String),
    /// It says that the input or the settings make no sense.
    #[error("it says that input or settings make no sense to it: {}", Guests(.0))]
    InvalidInput(String),
    /// It says that something went wrong inside of it.
    #[error("it gave up: {}", Guests(.0))]
    Internal(String),
    /// It doesn't answer this hook.
    #[error("it doesn't answer this hook.")]
    NotExported,
}

impl CallFault {
    /// A stable word for metrics and machine-readable output.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Fuel(_) => "fuel",
            Self::Deadline(_) => "deadline",
            Self::Memory { .. } => "memory",
            Self::Table { .. } => "table",
            Self::Instances(_) => "instances",
            Self::PoolFull => "pool-full",
            Self::Stack(_) => "stack",
            Self::Trap(_) => "trap",
            Self::BadOutput(_) => "bad-output",
            Self::InvalidInput(_) => "invalid-input",
            Self::Internal(_) => "internal",
            Self::NotExported => "not-exported",
        }
    }

    pub(crate) fn of(failure: Failure, limits: &Limits) -> Self {
        match failure {
            Failure::Fuel => Self::Fuel(limits.fuel),
            Failure::Deadline => Self::Deadline(limits.deadline),
            Failure::Memory { wanted } => Self::Memory { wanted, limit: limits.memory_bytes },
            Failure::Table { wanted } => Self::Table { wanted, limit: limits.table_elements },
            Failure::Instances => Self::Instances(limits.instances),
            Failure::PoolFull => Self::PoolFull,
            Failure::Stack => Self::Stack(limits.stack_bytes),
            Failure::Output => {
                Self::BadOutput(format!("it has more than {} bytes.{}", limits.output_bytes, Raise("output")))
            }
            Failure::Trap(trap) => Self::Trap(trap.to_string().trim_start_matches("wasm trap: ").to_owned()),
            Failure::Abi(text) => Self::BadOutput(format!("{text}.")),
            Failure::Exited(status) => Self::Trap(format!("it ended itself with status {status}")),
            Failure::Handles => Self::Trap(format!("it holds more than {HANDLES} handles of its isolated WASI")),
            Failure::Missing(called) => {
                Self::Trap(format!("it called `{called}`, which an isolated WASI doesn't have"))
            }
        }
    }
}

impl<R> Ran<R> {
    /// This call's result as its caller reports it.
    pub(crate) fn reported(
        self,
        policy: &str,
        digest: Digest,
        function: &'static str,
        limits: &Limits,
    ) -> Result<R, CallError> {
        self.result.map_err(|failure| CallError {
            policy: policy.to_owned(),
            digest,
            function,
            fault: CallFault::of(failure, limits),
            said: self.panic,
        })
    }
}

struct Named<'a>(&'a str, Option<&'a Digest>, Option<&'a Path>);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0)?;
        match (self.1, self.2) {
            (Some(digest), Some(file)) => write!(f, " (sha256 {}, {})", digest.short(), file.display()),
            (Some(digest), None) => write!(f, " (sha256 {})", digest.short()),
            (None, Some(file)) => write!(f, " ({})", file.display()),
            (None, None) => Ok(()),
        }
    }
}

/// Text that a guest had a hand in: its control characters must not reach a terminal or forge lines of a log. Line breaks
/// stay, since panics have them and log formats mask them.
struct Guests<'a>(&'a str);

impl fmt::Display for Guests<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\n' | '\t' => f.write_char(c),
            c if c.is_control() => write!(f, "{}", c.escape_default()),
            c => f.write_char(c),
        })
    }
}

struct Said<'a>(Option<&'a str>);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |text| write!(f, " It said: {}", Guests(text)))
    }
}

/// The way out of a limit, by its key.
pub(crate) struct Raise(pub(crate) &'static str);

impl fmt::Display for Raise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " If it needs more, raise `limits.{}` in the grants of its binding.", self.0)
    }
}

/// What an author can do about an import.
struct WayOut<'a>(&'a str);

impl fmt::Display for WayOut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.starts_with(WASI) {
            "Build it for a target without WASI; where its toolchain can't, the operator may grant `wasi: isolated` to its \
             binding, which gives it a WASI with nothing in it."
        } else {
            "Build it without that import."
        })
    }
}

struct Milliseconds(Duration);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0.as_millis())
    }
}

struct List<'a>(&'a [SettingError]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|error| {
            write!(
                f,
                " at `{}`, {};",
                Guests(if error.path.is_empty() { "/" } else { &error.path }),
                Guests(error.message.trim_end_matches('.'))
            )
        })
    }
}
