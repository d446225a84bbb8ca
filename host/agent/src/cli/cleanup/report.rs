//! What `moorline cleanup` says, as text and as JSON. It only collects and prints.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

/// How the result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Lines for people.
    Text,
    /// One JSON document.
    Json,
}

/// What became, or would become, of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// Something to know.
    Note,
    /// A file is out of the container runtime's sight.
    Disabled,
    /// A data plane has undone its plan.
    TornDown,
    /// It is gone.
    Removed,
    /// It isn't the agent's, and stays.
    Left,
    /// It is in the cluster, and stays there until someone removes it.
    Owed,
}

impl Kind {
    fn words(self, dry_run: bool) -> &'static str {
        match (self, dry_run) {
            (Self::Note, _) => "",
            (Self::Disabled, false) => "disabled",
            (Self::Disabled, true) => "would disable",
            (Self::TornDown, false) => "torn down",
            (Self::TornDown, true) => "would tear down",
            (Self::Removed, false) => "removed",
            (Self::Removed, true) => "would remove",
            (Self::Left, false) => "left alone",
            (Self::Left, true) => "would leave alone",
            (Self::Owed, _) => "still to remove",
        }
    }
}

/// Everything that is said.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    dry_run: bool,
    entries: Vec<Entry>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Entry {
    kind: Kind,
    what: String,
}

impl Report {
    pub(super) fn new(dry_run: bool) -> Self {
        Self { dry_run, entries: Vec::new() }
    }

    /// Adds something; what was said already isn't said again.
    pub(super) fn add(&mut self, kind: Kind, what: String) {
        let entry = Entry { kind, what };
        if !self.entries.contains(&entry) {
            self.entries.push(entry);
        }
    }

    pub(super) fn print(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        if format == Format::Json {
            serde_json::to_writer_pretty(&mut *out, self)?;
            return writeln!(out);
        }
        for Entry { kind, what } in &self.entries {
            match kind {
                Kind::Note => writeln!(out, "{what}")?,
                kind => writeln!(out, "{:<18} {what}", kind.words(self.dry_run))?,
            }
        }
        let is_done = |entry: &Entry| matches!(entry.kind, Kind::Disabled | Kind::TornDown | Kind::Removed);
        if !self.entries.iter().any(is_done) {
            writeln!(out, "Nothing of the agent's is on this machine.")?;
        }
        Ok(())
    }
}
