//! `moorline cleanup`, the agent and a data plane that is a script, on a real network.

use std::process::{Command, Output};

use moorline_lifecycle::Ledger;
use serde_json::{Value, json};

use crate::Test;
use crate::stage::{assignment, ip, ips, picture, recorded};

pub(crate) const TESTS: &[Test] = &[
    ("cleanup::what_the_ledger_lists_goes_and_a_second_run_finds_nothing", what_the_ledger_lists_goes),
    ("cleanup::without_a_ledger_it_goes_by_marks", without_a_ledger_it_goes_by_marks),
    ("cleanup::a_missing_capability_is_told_with_the_way_out", a_missing_capability_is_told),
];

const STRANGERS: &str = r"
    link add eth9 type veth peer name eth9p
    link set eth9p up
    link set eth9 up
    address add 192.0.2.1/24 dev eth9
    link add moor-alien type bridge
    link set moor-alien alias moorline:gateway
    route add 10.0.0.0/8 via 192.0.2.9 dev eth9 proto static
    rule add priority 1000 lookup 100 protocol static
";

const OWN: &str = r"
    link add moor0 type bridge
    link set moor0 alias \alias up
    route add 10.1.0.0/16 dev moor0 proto \proto
    rule add priority 1000 fwmark 0x1 lookup 100 protocol \proto
";

fn plan() -> Value {
    json!({
        "links": [{ "name": "moor0" }, { "name": "moor-alien" }],
        "routes": [{ "destination": "10.1.0.0/16", "device": "moor0" }],
        "rules": [{ "family": "ipv4", "priority": 1000, "table": 100, "mark": 1 }],
    })
}

/// A machine's folders.
struct Folders(tempfile::TempDir);

impl Folders {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn ledger(&self, network: Value) {
        let mut plan = json!({});
        recorded(network, Some("an-earlier-boot")).record(&mut plan).unwrap();
        let ledger = Ledger { assignment: Some(assignment()), data_plane: vec![plan], ..Ledger::empty("n1") };
        std::fs::create_dir_all(self.0.path().join("state")).unwrap();
        std::fs::write(self.0.path().join("state/ledger.json"), serde_json::to_vec(&ledger).unwrap()).unwrap();
    }

    fn cleanup(&self, before: &[&str], more: &[&str]) -> Output {
        let set = |key: &str, folder: &str| format!("machine.{key}={}", self.0.path().join(folder).display());
        let mut words: Vec<String> = before.iter().map(|word| (*word).to_owned()).collect();
        words.extend([env!("CARGO_BIN_EXE_moorline").to_owned(), "cleanup".into()]);
        for set in [set("stateDirectory", "state"), set("cniDirectory", "cni")] {
            words.extend(["--set".into(), set]);
        }
        words.extend(more.iter().map(|word| (*word).to_owned()));
        Command::new(&words[0]).args(&words[1..]).env_remove("MOORLINE_CONFIG").output().unwrap()
    }

    fn said(&self, output: &Output) -> String {
        let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
        String::from_utf8(both).unwrap().replace(self.0.path().to_str().unwrap(), "")
    }
}

fn what_the_ledger_lists_goes() {
    let folders = Folders::new();
    ips(STRANGERS);
    let before = picture();
    ips(OWN);
    folders.ledger(plan());
    let with_own = picture();

    let dry = folders.cleanup(&[], &["--dry-run"]);
    assert_eq!((dry.status.code(), picture()), (Some(0), with_own.clone()), "{}", folders.said(&dry));
    insta::assert_snapshot!(folders.said(&dry), @r#"
    The ledger /state/ledger.json is of Node n1, worker in Site east.
    would remove       IPv4 rule 1000: fwmark 0x1 table 100 protocol 158
    would remove       route 10.1.0.0/16 dev moor0 table 254 protocol 158
    would remove       link moor0 (bridge, alias moorline:b39bae8f758450e17abf48202d5932e5)
    would leave alone  IPv4 rule 1000: table 100 protocol 4: it selects something else
    would leave alone  link moor-alien (bridge, alias moorline:gateway): its alias is "moorline:gateway" and not "moorline:b39bae8f758450e17abf48202d5932e5"
    "#);

    let done = folders.cleanup(&[], &[]);
    assert_eq!((done.status.code(), picture()), (Some(0), before.clone()), "{}", folders.said(&done));
    let again = folders.cleanup(&[], &[]);
    assert_eq!(again.status.code(), Some(0));
    assert!(folders.said(&again).contains("Nothing of the agent's is on this machine."), "{}", folders.said(&again));
    assert_eq!(picture(), before);
}

fn without_a_ledger_it_goes_by_marks() {
    for damaged in [false, true] {
        let folders = Folders::new();
        let before = picture();
        ips(STRANGERS);
        let with_strangers = picture();
        ips(OWN);
        if damaged {
            std::fs::create_dir_all(folders.0.path().join("state")).unwrap();
            std::fs::write(folders.0.path().join("state/ledger.json"), "{").unwrap();
        }
        let done = folders.cleanup(&[], &[]);
        assert_eq!((done.status.code(), picture()), (Some(0), with_strangers), "{}", folders.said(&done));
        let word = if damaged { "It is kept as" } else { "There is no ledger" };
        assert!(folders.said(&done).contains(word), "{}", folders.said(&done));
        ips("rule del priority 1000\nlink del moor-alien\nlink del eth9");
        assert_eq!(picture(), before);
    }
}

fn a_missing_capability_is_told() {
    let folders = Folders::new();
    ips(OWN);
    folders.ledger(plan());
    let before = picture();
    let done = folders.cleanup(&["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"], &[]);
    assert_eq!((done.status.code(), picture()), (Some(1), before));
    let said = folders.said(&done);
    assert!(said.contains("NET_ADMIN") && said.contains("securityContext.capabilities.add"), "{said}");
    assert!(ip("-o link show moor0").contains("moor0"));
}
