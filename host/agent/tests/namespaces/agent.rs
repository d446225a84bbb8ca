//! A whole agent with a data plane that is a script (`examples/data-planes/links.sh`), from one Site to the next.

use std::path::Path;

use crate::Test;
use crate::stage::{Machine, ip, ips, picture};

pub(crate) const TESTS: &[Test] = &[
    ("agent::a_handoff_leaves_nothing_of_the_old_site_and_all_of_the_strangers", a_handoff_leaves_nothing),
    ("agent::a_lost_ledger_leaves_nothing_of_the_old_site_either", a_lost_ledger_leaves_nothing),
    ("agent::what_an_older_agent_left_goes_before_the_new_is_there", what_an_older_agent_left_goes),
];

const STRANGERS: &str = r"
    link add moor-alien type bridge
    link set moor-alien alias moorline:east
    route add 10.99.0.0/16 dev lo table 98 proto static
    rule add priority 999 from 10.97.0.0/16 lookup 99 protocol static
";

fn script() -> [(&'static str, String); 2] {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data-planes/links.sh");
    let command = format!("[/bin/sh, {}]", script.display());
    [("dataPlane.kind", "command".into()), ("dataPlane.command", command)]
}

fn settle(machine: &Machine, more: &[(&str, &str)]) {
    let script = script();
    let keys: Vec<_> = script.iter().map(|(key, value)| (*key, value.as_str())).chain(more.iter().copied()).collect();
    machine.settle(&keys);
}

fn a_handoff_leaves_nothing() {
    let machine = Machine::new(&["10.244.3.0/24"]);
    let empty = picture();
    settle(&machine, &[]);
    let of_east = picture();
    assert!(
        of_east.contains("moor-east: moorline:") && of_east.contains("10.99.0.0/16 dev moor-east table 99 proto 158")
    );
    assert!(of_east.contains("from 10.98.0.0/16 lookup 99 proto 158"), "{of_east}");
    // A start for the same assignment changes nothing.
    settle(&machine, &[]);
    assert_eq!(picture(), of_east);

    machine.relabel("west");
    ip("rule del priority 999");
    ips(STRANGERS);
    settle(&machine, &[]);
    let of_west = picture();
    assert!(of_west.contains("moor-west: moorline:") && !of_west.contains("moor-east"), "{of_west}");
    assert!(
        of_west.contains("moor-alien: moorline:east") && of_west.contains("from 10.97.0.0/16 lookup 99 proto static")
    );
    ips("link del moor-west\nlink del moor-alien\nroute del 10.99.0.0/16 table 98\nrule del priority 999");
    assert_eq!(picture(), empty);
}

fn a_lost_ledger_leaves_nothing() {
    let machine = Machine::new(&["10.244.3.0/24"]);
    settle(&machine, &[]);
    machine.relabel("west");
    std::fs::remove_file(machine.path("state/ledger.json")).unwrap();
    ip("link add moor-alien type bridge");
    ip("link set moor-alien alias moorline:east");
    settle(&machine, &[]);
    let of_west = picture();
    assert!(of_west.contains("moor-west: moorline:") && !of_west.contains("moor-east"), "{of_west}");
    assert!(of_west.contains("moor-alien: moorline:east"), "{of_west}");
}

fn what_an_older_agent_left_goes() {
    let machine = Machine::new(&["10.244.3.0/24"]);
    // It has the very name that the new data plane wants, and is of another kind.
    ip("link add moor-east type vxlan id 5 dstport 4789");
    let list = [("machine.network.legacy", "{links: [{name: moor-east, kind: vxlan}]}")];
    settle(&machine, &list);
    let settled = picture();
    assert!(settled.contains("moor-east: moorline:"), "{settled}");
    assert!(ip("-d link show moor-east").contains("bridge"));
    settle(&machine, &list);
    assert_eq!(picture(), settled);
}
