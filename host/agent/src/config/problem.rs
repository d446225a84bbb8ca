//! What is wrong with a configuration, where it was said, and the way out. Nothing here decides what is wrong.

use std::fmt;
use std::path::PathBuf;

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Built in.
    Default,
    /// A line of the file, counted from 1; none for the file as a whole.
    File(PathBuf, Option<u64>),
    /// A variable of the environment.
    Variable(String),
    /// A flag of the command line.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, Some(line)) => write!(f, "{}:{line}", path.display()),
            Self::File(path, None) => write!(f, "{}", path.display()),
            Self::Variable(name) => write!(f, "${name}"),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it was said.
    pub origin: Origin,
    /// The key, its parts joined by dots; empty when the file as a whole is meant.
    pub key: String,
    /// What is wrong, as the rest of a sentence that begins with the key.
    pub message: String,
    /// What to do.
    pub way_out: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, key, message, way_out } = self;
        if key.is_empty() {
            write!(f, "{origin}: {message}. {way_out}.")
        } else {
            write!(f, "{origin}: `{key}` {message}. {way_out}.")
        }
    }
}

/// Everything that is wrong with a configuration; what a file says in the order of its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => f.write_str("The configuration has 1 problem:")?,
            count => write!(f, "The configuration has {count} problems:")?,
        }
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for Problems {}
