#![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

use std::collections::BTreeSet;
use std::path::PathBuf;

use moorline_lifecycle::{Acknowledged, Assignment};
use serde_json::json;

use super::*;
use crate::dataplane::from_config;
use crate::machine::cni;

const CONFLIST: &str = r#"{"cniVersion": "1.0.0", "name": "site-net", "plugins": [{"type": "bridge"}]}"#;

/// A machine with a ledger that lists a bit of everything but links, routes and rules.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        let script = "#!/bin/sh\ncat >> \"$MACHINE/asked\"\nrm -f \"$MACHINE/run\"\n";
        std::fs::write(machine.path("plane"), script).unwrap();
        std::fs::write(machine.path("run"), "up").unwrap();
        std::fs::create_dir(machine.path("cni")).unwrap();
        std::fs::write(machine.path("cni/10-unbounded.conflist"), cni::form(CONFLIST).unwrap()).unwrap();
        let assignment = Assignment { node_uid: "uid-n1".into(), site: "east".into(), pool: Some("edge".into()) };
        let keys = BTreeSet::from(["moorline.dev/acknowledgment".to_owned()]);
        let ledger = Ledger {
            assignment: Some(assignment),
            cni: BTreeSet::from([CONFLIST.to_owned()]),
            data_plane: vec![json!({ "file": "run" })],
            advertised: true,
            acknowledgment: Some(Acknowledged { pod_uid: "uid-agent".into(), keys, owed: false }),
            ..Ledger::empty("n1")
        };
        LedgerStore::new(machine.path("state")).save(&ledger).unwrap();
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn ledger(&self) -> Vec<u8> {
        std::fs::read(self.path("state/ledger.json")).unwrap()
    }

    /// Exit code, output and errors.
    fn cleanup(&self, dry_run: bool, format: Format) -> (u8, String) {
        let folder = |path: &str| self.path(path).display().to_string();
        let set = [
            ("machine.stateDirectory", folder("state")),
            ("machine.cniDirectory", folder("cni")),
            ("dataPlane.kind", "command".into()),
            ("dataPlane.command", format!("[/bin/sh, {}]", folder("plane"))),
            ("dataPlane.environment", format!("{{MACHINE: {}}}", self.0.path().display())),
        ];
        let set = set.map(|(key, value)| (key.to_owned(), value)).to_vec();
        let command = CleanupCommand { flags: ConfigFlags { config: None, set }, dry_run, format };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = command.run(Vec::new(), from_config, &mut out, &mut err).unwrap();
        let said = String::from_utf8([out, err].concat()).unwrap();
        (code.number(), said.replace(self.0.path().to_str().unwrap(), ""))
    }
}

#[test]
fn a_dry_run_shows_everything_and_changes_nothing() {
    let machine = Machine::new();
    let before = machine.ledger();
    let (code, said) = machine.cleanup(true, Format::Text);
    assert_eq!(code, 0, "{said}");
    insta::assert_snapshot!(said, @r#"
    The ledger /state/ledger.json is of Node n1, gateway in Site east and GatewayPool edge.
    would disable      CNI configuration /cni/10-unbounded.conflist
    would tear down    data plane command: {"file":"run"}
    still to remove    the acknowledgment on the Pod with UID uid-agent, if that is still there: kubectl -n NAMESPACE annotate pod POD moorline.dev/acknowledgment-
    still to remove    the routes that are advertised for the Node: kubectl patch gatewaypoolnode n1 --subresource status --type merge -p '{"status":{"routes":null}}'
    "#);
    assert_eq!(machine.ledger(), before);
    assert!(machine.path("cni/10-unbounded.conflist").exists() && machine.path("run").exists());
    assert!(!machine.path("asked").exists() && !machine.path("state/lock").exists());
}

#[test]
fn it_undoes_what_the_ledger_lists_keeps_what_is_owed_and_finds_nothing_the_second_time() {
    let machine = Machine::new();
    let (code, said) = machine.cleanup(false, Format::Text);
    assert_eq!(code, 0, "{said}");
    insta::assert_snapshot!(said, @r#"
    The ledger /state/ledger.json is of Node n1, gateway in Site east and GatewayPool edge.
    disabled           CNI configuration /cni/10-unbounded.conflist
    torn down          data plane command: {"file":"run"}
    still to remove    the acknowledgment on the Pod with UID uid-agent, if that is still there: kubectl -n NAMESPACE annotate pod POD moorline.dev/acknowledgment-
    still to remove    the routes that are advertised for the Node: kubectl patch gatewaypoolnode n1 --subresource status --type merge -p '{"status":{"routes":null}}'
    "#);
    assert!(!machine.path("cni/10-unbounded.conflist").exists() && !machine.path("run").exists());
    let asked: Value = serde_json::from_slice(&std::fs::read(machine.path("asked")).unwrap()).unwrap();
    assert_eq!(asked, json!({ "action": "teardown", "node": { "name": "n1" }, "plan": { "file": "run" } }));
    let ledger: Ledger = serde_json::from_slice(&machine.ledger()).unwrap();
    assert_eq!((ledger.assignment, ledger.cni.len(), ledger.data_plane.len()), (None, 0, 0));
    assert!(ledger.advertised && ledger.acknowledgment.unwrap().owed);

    let (code, said) = machine.cleanup(false, Format::Json);
    assert_eq!(code, 0, "{said}");
    insta::assert_snapshot!(said, @r#"
    {
      "dryRun": false,
      "entries": [
        {
          "kind": "note",
          "what": "The ledger /state/ledger.json is of Node n1."
        },
        {
          "kind": "owed",
          "what": "the acknowledgment on the Pod with UID uid-agent, if that is still there: kubectl -n NAMESPACE annotate pod POD moorline.dev/acknowledgment-"
        },
        {
          "kind": "owed",
          "what": "the routes that are advertised for the Node: kubectl patch gatewaypoolnode n1 --subresource status --type merge -p '{\"status\":{\"routes\":null}}'"
        }
      ]
    }
    "#);
}

#[test]
fn a_failure_is_told_and_the_next_run_goes_on_where_it_was() {
    let machine = Machine::new();
    std::fs::write(machine.path("plane"), "echo no such link >&2\nexit 3\n").unwrap();
    let (code, said) = machine.cleanup(false, Format::Text);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("no such link") && said.contains("run the command again"), "{said}");
    assert!(!machine.path("cni/10-unbounded.conflist").exists());
    std::fs::write(machine.path("plane"), "rm \"$MACHINE/run\"\n").unwrap();
    let (code, said) = machine.cleanup(false, Format::Text);
    assert_eq!(code, 0, "{said}");
    assert!(!machine.path("run").exists() && !said.contains("CNI configuration"), "{said}");
}

#[test]
fn a_running_agent_is_in_the_way_and_a_dry_run_says_so() {
    let machine = Machine::new();
    let before = machine.ledger();
    let lock = StateLock::try_acquire(&machine.path("state"), Timestamp::UNIX_EPOCH).unwrap();
    let (code, said) = machine.cleanup(false, Format::Text);
    assert_eq!(code, 3, "{said}");
    let process = format!("process {}, started 1970-01-01T00:00:00Z", std::process::id());
    assert!(said.contains(&process) && said.contains("DaemonSet"), "{said}");
    let (code, said) = machine.cleanup(true, Format::Text);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains(&process) && said.contains("would disable"), "{said}");
    assert_eq!(machine.ledger(), before);
    drop(lock);
}

#[test]
fn a_cni_configuration_that_someone_changed_stays() {
    let machine = Machine::new();
    std::fs::write(machine.path("cni/10-unbounded.conflist"), CONFLIST).unwrap();
    let (code, said) = machine.cleanup(false, Format::Text);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("left alone") && said.contains("written or changed by someone else"), "{said}");
    assert!(machine.path("cni/10-unbounded.conflist").exists());
}
