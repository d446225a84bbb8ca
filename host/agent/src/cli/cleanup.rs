//! `moorline cleanup`: what the ledger lists on this machine is undone, for a Node that leaves the fleet. It makes no
//! request: what is left in the cluster is told with the command that removes it.

mod report;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use jiff::Timestamp;
use moorline_lifecycle::{ExitCode, Ledger};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::config::ConfigFlags;
use crate::chain;
use crate::config::{self, Config};
use crate::dataplane::{Choice, DataPlane, NoDataPlane};
use crate::machine::boot_id;
use crate::machine::cni::{CniFile, CniState, Ownership};
use crate::machine::files::{Disk, Files, Untouched};
use crate::machine::ledger::{LedgerStore, Loaded};
use crate::machine::lock::{LockError, StateLock};
use crate::machine::network::{self, RecordedPlan, Wanted};
use report::{Format, Kind, Report};

/// Undo what the agent has put on this machine, by its ledger: for a Node that leaves the fleet.
///
/// The CNI configuration is disabled, the data plane torn down, and links, routes and rules with the agent's marks are
/// removed, as is what `machine.network.legacy` lists. It may be run again at any time and goes on where it was. What is
/// left in the cluster is told. Exits with 3 while an agent runs on this machine.
#[derive(Debug, Clone, Args)]
pub struct CleanupCommand {
    /// The flags of every command that reads the configuration.
    #[command(flatten)]
    pub flags: ConfigFlags,
    /// Show what would be done, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// How the result is printed.
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

impl CleanupCommand {
    /// Runs it: what was done to `out`, what went wrong to `err`.
    ///
    /// # Errors
    /// Where one of the two can't be written.
    pub fn run(
        &self,
        environment: Vec<(String, String)>,
        data_plane: Choice,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> io::Result<ExitCode> {
        let config = match config::load(&self.flags.sources(environment)) {
            Ok(loaded) => loaded.config,
            Err(problems) => {
                writeln!(err, "{problems}")?;
                return Ok(ExitCode::Configuration);
            }
        };
        let mut report = Report::new(self.dry_run);
        let folder = &config.machine.state_directory;
        let lock = if self.dry_run {
            StateLock::look(folder).map(|()| None)
        } else {
            StateLock::try_acquire(folder, Timestamp::now()).map(Some)
        };
        let _lock = match lock {
            Ok(lock) => lock,
            Err(error @ LockError::Held { .. }) if self.dry_run => {
                report.add(Kind::Note, held(&error, folder));
                None
            }
            Err(error) => {
                writeln!(err, "{}", held(&error, folder))?;
                return Ok(ExitCode::Environment);
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let done = runtime.block_on(Cleanup::new(&config, data_plane, self.dry_run, &mut report).run());
        report.print(self.format, out)?;
        match done {
            Ok(()) => Ok(ExitCode::Asked),
            Err(problem) => {
                writeln!(err, "{problem}. What was done before that is done; correct it and run the command again.")?;
                Ok(ExitCode::Failed)
            }
        }
    }
}

fn held(error: &LockError, folder: &Path) -> String {
    match error {
        LockError::Held { holder, .. } => format!(
            "An agent runs on this machine: {}it holds the lock in {}. Take its Pod away from this Node first, by a label \
             or a taint that the DaemonSet respects, or delete the DaemonSet.",
            holder.as_ref().map(|by| format!("process {}, started {}; ", by.pid, by.started)).unwrap_or_default(),
            folder.display()
        ),
        LockError::File(error) => format!("{}.", chain(error)),
    }
}

/// The work, step by step; each is recorded when it is done.
struct Cleanup<'a> {
    config: &'a Config,
    choice: Choice,
    dry_run: bool,
    store: LedgerStore<Arc<dyn Files>>,
    cni: CniFile<Arc<dyn Files>>,
    data_plane: Box<dyn DataPlane>,
    boot_id: Option<String>,
    report: &'a mut Report,
}

impl<'a> Cleanup<'a> {
    fn new(config: &'a Config, choice: Choice, dry_run: bool, report: &'a mut Report) -> Self {
        let files: Arc<dyn Files> = if dry_run { Arc::new(Untouched) } else { Arc::new(Disk) };
        let machine = &config.machine;
        Self {
            config,
            choice,
            dry_run,
            store: LedgerStore::with_files(&machine.state_directory, files.clone()),
            cni: CniFile::with_files(&machine.cni_directory, &machine.cni_file, files),
            data_plane: choice(config, config.node.name.as_deref().unwrap_or_default()),
            boot_id: boot_id(),
            report,
        }
    }

    async fn run(mut self) -> Result<(), String> {
        let mut ledger = self.load()?;
        let before = ledger.clone();
        if ledger.node_name != self.config.node.name.as_deref().unwrap_or_default() {
            self.data_plane = (self.choice)(self.config, &ledger.node_name);
        }
        self.disable_cni(&mut ledger)?;
        while let Some(plan) = ledger.data_plane.last().cloned() {
            self.tear_down(&plan).await?;
            ledger.data_plane.pop();
            self.save(&ledger)?;
        }
        if ledger.incomplete {
            self.network(&Wanted::marked(&self.config.machine.network)).await?;
        }
        self.network(&Wanted::legacy(&self.config.machine.network)).await?;
        ledger.assignment = None;
        ledger.incomplete = false;
        self.tell_owed(&mut ledger);
        if ledger != before { self.save(&ledger) } else { Ok(()) }
    }

    /// The ledger; without one, an incomplete one that lists nothing.
    fn load(&mut self) -> Result<Ledger, String> {
        let loaded = if self.dry_run { self.store.look() } else { self.store.load::<Ledger>() };
        let loaded = loaded.map_err(|error| chain(&error))?;
        let path = self.store.path().display().to_string();
        let marks = "What the agent has put on this machine is recognised by its form and marks alone";
        let empty = || {
            let node_name = self.config.node.name.clone().unwrap_or_default();
            Ledger { incomplete: true, ..Ledger::empty(node_name) }
        };
        let (ledger, note) = match loaded {
            Loaded::Found(ledger) => {
                let whose = ledger.assignment.as_ref().map(|of| format!(", {of}")).unwrap_or_default();
                let note = format!("The ledger {path} is of Node {}{whose}", ledger.node_name);
                (ledger, note)
            }
            Loaded::Missing => (empty(), format!("There is no ledger {path}. {marks}")),
            Loaded::Damaged(damaged) => (empty(), damaged.message),
        };
        self.report.add(Kind::Note, format!("{note}."));
        Ok(ledger)
    }

    fn save(&self, ledger: &Ledger) -> Result<(), String> {
        self.store.save(ledger).map_err(|error| chain(&error))
    }

    fn disable_cni(&mut self, ledger: &mut Ledger) -> Result<(), String> {
        if ledger.cni.is_empty() && !ledger.incomplete {
            return Ok(());
        }
        let contents = ledger.cni.iter().map(String::as_str);
        let ownership = Ownership::of(contents, ledger.incomplete, self.config.machine.takeover);
        let path = self.cni.path().display().to_string();
        match self.cni.read(&ownership).map_err(|error| chain(&error))? {
            CniState::Absent => {}
            CniState::Blocked(blocked) => self.report.add(Kind::Left, format!("CNI configuration {blocked}")),
            CniState::Own(_) => {
                self.cni.disable(&ownership).map_err(|error| chain(&error))?;
                self.report.add(Kind::Disabled, format!("CNI configuration {path}"));
            }
        }
        ledger.cni.clear();
        self.save(ledger)
    }

    async fn tear_down(&mut self, plan: &Value) -> Result<(), String> {
        let recorded = RecordedPlan::of(plan)
            .map_err(|error| format!("The `network` of a plan in the ledger makes no sense: {error}"))?;
        let mut rest = plan.clone();
        if let Some(rest) = rest.as_object_mut() {
            rest.remove("network");
        }
        let is_empty = rest.is_null() || rest.as_object().is_some_and(serde_json::Map::is_empty);
        if self.data_plane.name() == NoDataPlane.name() {
            if !is_empty {
                return Err(format!(
                    "The ledger lists what a data plane put on this machine, and `dataPlane.kind` is `none`, which can't \
                     undo it: {rest}. Configure the data plane that planned it"
                ));
            }
        } else {
            if !self.dry_run {
                let torn_down = self.data_plane.teardown(plan, CancellationToken::new()).await;
                torn_down.map_err(|error| chain(&error))?;
            }
            self.report.add(Kind::TornDown, format!("data plane {}: {rest}", self.data_plane.name()));
        }
        self.network(&Wanted::of(&recorded, self.boot_id.as_deref())).await
    }

    async fn network(&mut self, gone: &Wanted) -> Result<(), String> {
        if gone.is_empty() {
            return Ok(());
        }
        let findings = if self.dry_run {
            network::survey(gone, &Wanted::nothing()).await
        } else {
            network::remove(gone, &Wanted::nothing()).await
        };
        let findings = findings.map_err(|error| chain(&error))?;
        findings.own.into_iter().for_each(|what| self.report.add(Kind::Removed, what));
        findings.foreign.into_iter().for_each(|what| self.report.add(Kind::Left, what));
        Ok(())
    }

    /// What only the API server can undo stays in the ledger.
    fn tell_owed(&mut self, ledger: &mut Ledger) {
        if let Some(acknowledged) = &mut ledger.acknowledgment {
            acknowledged.owed = true;
            let pod = &self.config.pod;
            let known = pod.uid.as_ref() == Some(&acknowledged.pod_uid);
            let (namespace, name) = match (&pod.namespace, &pod.name) {
                (Some(namespace), Some(name)) if known => (namespace.as_str(), name.as_str()),
                _ => ("NAMESPACE", "POD"),
            };
            let keys: Vec<_> = acknowledged.keys.iter().map(|key| format!(" {key}-")).collect();
            self.report.add(
                Kind::Owed,
                format!(
                    "the acknowledgment on the Pod with UID {}, if that is still there: kubectl -n {namespace} annotate \
                     pod {name}{}",
                    acknowledged.pod_uid,
                    keys.concat()
                ),
            );
        }
        if ledger.advertised {
            let node = &ledger.node_name;
            self.report.add(
                Kind::Owed,
                format!(
                    "the routes that are advertised for the Node: kubectl patch gatewaypoolnode {node} --subresource \
                     status --type merge -p '{{\"status\":{{\"routes\":null}}}}'"
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests;
