//! Links, routes and rules of the agent and of strangers side by side: exactly the agent's go.

use moorline::config::{LegacyConfig, NetworkConfig};
use moorline::machine::network::{Findings, RecordedPlan, Wanted, remove, survey};
use serde_json::{Value, json};

use crate::Test;
use crate::stage::{block_on, index, ip, ips, picture, recorded};

pub(crate) const TESTS: &[Test] = &[
    ("links::exactly_what_plan_and_mark_agree_on_is_removed", exactly_what_plan_and_mark_agree_on_is_removed),
    ("links::only_looking_changes_nothing", only_looking_changes_nothing),
    ("links::strangers_in_the_agents_place_stay_and_are_told", strangers_in_the_agents_place_stay_and_are_told),
    ("links::the_indexes_of_another_boot_mean_nothing", the_indexes_of_another_boot_mean_nothing),
    ("links::in_the_same_boot_the_index_has_to_agree", in_the_same_boot_the_index_has_to_agree),
    ("links::without_a_ledger_marks_alone_decide", without_a_ledger_marks_alone_decide),
    ("links::what_the_next_plan_lists_too_is_kept", what_the_next_plan_lists_too_is_kept),
    ("links::what_the_kernel_would_confuse_is_left", what_the_kernel_would_confuse_is_left),
    ("links::what_an_older_agent_left_goes_by_the_exact_list", what_an_older_agent_left_goes_by_the_exact_list),
];

/// Everything that strangers have put on the machine.
const STRANGERS: &str = r"
    link add eth9 type veth peer name eth9p
    link set eth9p up
    link set eth9 up
    address add 192.0.2.1/24 dev eth9
    address add 2001:db8::1/64 dev eth9 nodad
    link add moor-alien type bridge
    link set moor-alien alias moorline:gateway
    link add moor1x type bridge
    link set moor1x alias \aliasx
    link add moor9 type bridge
    link set moor9 alias moorline:0123456789abcdef0123456789abcdef-not
    link add vxlan9 type vxlan id 9 dstport 4789 local 192.0.2.1
    route add 10.0.0.0/8 via 192.0.2.9 dev eth9 proto static
    route add 10.1.0.0/16 via 192.0.2.9 dev eth9 table 100 proto bird
    route add 10.1.0.0/16 via 192.0.2.8 dev eth9 table 101 proto 159
    route add 10.1.2.0/24 via 192.0.2.8 dev eth9 table 100 proto static
    route add blackhole 10.250.0.0/16 proto static
    -6 route add 2001:db8:1::/48 via 2001:db8::9 dev eth9 proto static metric 50
    -6 route add 2001:db8:1::/48 via 2001:db8::8 dev eth9 table 100 proto bird
    rule add priority 1000 fwmark 0x2 lookup 100 protocol static
    rule add priority 1000 lookup 101 protocol 159
    -6 rule add priority 1000 from 2001:db8:1::/48 lookup 100 protocol static
";

/// What the agent's data plane has put there.
const OWN: &str = r"
    link add moor0 type bridge
    link set moor0 alias \alias up
    link add moor1 type veth peer name moor1p
    link set moor1 alias \alias up
    link set moor1p alias \alias up
    link add moor2 type bridge
    link set moor2 alias \alias up
    link add moor3 type vxlan id 3 dstport 4790
    link set moor3 alias \alias
    address add 198.51.100.1/24 dev moor0
    address add 2001:db8:ffff::1/64 dev moor0 nodad
    route add 10.0.0.0/8 via 198.51.100.9 dev moor0 metric 7 proto \proto
    route add 10.1.0.0/16 via 192.0.2.9 dev eth9 table 100 metric 7 proto \proto
    route add 10.9.0.0/16 dev eth9 table 100 proto \proto
    route add blackhole 10.251.0.0/16 table 100 proto \proto
    route add 10.252.0.0/16 table 100 proto \proto nexthop via 192.0.2.7 dev eth9 nexthop via 192.0.2.6 dev eth9
    -6 route add 2001:db8:1::/48 via 2001:db8::9 dev eth9 proto \proto metric 60
    -6 route add 2001:db8:2::/48 dev moor0 table 100 proto \proto
    rule add priority 1000 fwmark 0x1/0xff lookup 100 protocol \proto
    rule add priority 1001 from 10.0.0.0/8 iif eth9 lookup 100 protocol \proto
    -6 rule add priority 1000 lookup 100 protocol \proto
    -6 rule add priority 1002 to 2001:db8:2::/48 lookup 100 protocol \proto
";

fn plan() -> Value {
    json!({
        "links": [{ "name": "moor0" }, { "name": "moor1" }, { "name": "moor1p" }, { "name": "moor2" }, { "name": "moor3" }],
        "routes": [
            { "destination": "10.0.0.0/8", "gateway": "198.51.100.9", "device": "moor0" },
            { "destination": "10.1.0.0/16", "table": 100 },
            { "destination": "10.9.0.0/16", "table": 100, "device": "eth9" },
            { "destination": "10.251.0.0/16", "table": 100 },
            { "destination": "10.252.0.0/16", "table": 100 },
            { "destination": "2001:db8:1::/48", "metric": 60 },
            { "destination": "2001:db8:2::/48", "table": 100, "device": "moor0" },
        ],
        "rules": [
            { "family": "ipv4", "priority": 1000, "table": 100, "mark": 1, "mask": 255 },
            { "family": "ipv4", "priority": 1001, "table": 100, "source": "10.0.0.0/8", "inputDevice": "eth9" },
            { "family": "ipv6", "priority": 1000, "table": 100 },
            { "family": "ipv6", "priority": 1002, "table": 100, "destination": "2001:db8:2::/48" },
        ],
    })
}

fn removed(plan: &RecordedPlan, boot_id: Option<&str>) -> Findings {
    block_on(remove(&Wanted::of([plan], boot_id), &Wanted::nothing())).unwrap()
}

fn exactly_what_plan_and_mark_agree_on_is_removed() {
    ips(STRANGERS);
    let before = picture();
    ips(OWN);
    assert_ne!(picture(), before);
    let findings = removed(&recorded(plan(), None), None);
    assert_eq!(picture(), before);
    // A veth's other end goes with it, so it is told once or twice.
    assert!(findings.own.len() >= 13, "{:#?}", findings.own);
    let again = removed(&recorded(plan(), None), None);
    assert_eq!(again.own, [""; 0]);
}

fn only_looking_changes_nothing() {
    ips(STRANGERS);
    ips(OWN);
    let before = picture();
    let findings = block_on(survey(&Wanted::of([&recorded(plan(), None)], None), &Wanted::nothing())).unwrap();
    assert_eq!(findings.own.len(), 16, "{:#?}", findings.own);
    assert_eq!(picture(), before);
}

fn strangers_in_the_agents_place_stay_and_are_told() {
    ips(r"
        link add moor0 type bridge
        link set moor0 up
        address add 192.0.2.1/24 dev moor0
        link add moor1 type bridge
        link set moor1 alias moorline:00000000000000000000000000000000
        route add 10.1.0.0/16 via 192.0.2.9 dev moor0 table 100 proto static
        rule add priority 1000 fwmark 0x1/0xff lookup 100 protocol static
        rule add priority 1001 from 10.0.0.0/8 lookup 100 protocol \proto
    ");
    let before = picture();
    let findings = removed(&recorded(plan(), None), None);
    assert_eq!(picture(), before);
    assert_eq!(findings.own, [""; 0]);
    let told = findings.foreign.join("\n");
    for part in [
        "link moor0 (bridge): it has no alias",
        "link moor1 (bridge, alias moorline:00000000000000000000000000000000): its alias is",
        "route 10.1.0.0/16 via 192.0.2.9 dev moor0 table 100 protocol 4: its protocol is 4 and not 158",
        "IPv4 rule 1000: fwmark 0x1 mask 0xff table 100 protocol 4: its protocol is 4 and not 158",
        "IPv4 rule 1001: from 10.0.0.0/8 table 100 protocol 158: it selects something else",
    ] {
        assert!(told.contains(part), "{part}\nis not in\n{told}");
    }
}

/// After a reboot strangers have the indexes that the ledger knows, and the agent's link has another one.
fn the_indexes_of_another_boot_mean_nothing() {
    ips(STRANGERS);
    let strangers_index = index("eth9");
    let before = picture();
    ips(r"
        link add moor0 type bridge
        link set moor0 alias \alias
    ");
    let network = json!({ "links": [{ "name": "moor0", "index": strangers_index }, { "name": "eth9" }] });
    let ledger = recorded(network, Some("an-earlier-boot"));
    let findings = removed(&ledger, Some("this-boot"));
    assert_eq!(picture(), before);
    assert_eq!(findings.own.len(), 1, "{findings:?}");
    assert!(findings.foreign[0].starts_with("link eth9 (veth): it has no alias"), "{findings:?}");
}

fn in_the_same_boot_the_index_has_to_agree() {
    ips(r"
        link add moor0 type bridge
        link set moor0 alias \alias
    ");
    let own = index("moor0");
    // Someone has renamed the agent's link, and made another one that looks like it.
    ip("link set moor0 name renamed0");
    let before_stranger = picture();
    ips(r"
        link add moor0 type bridge
        link set moor0 alias \alias
    ");
    let ledger = recorded(json!({ "links": [{ "name": "moor0", "index": own }] }), Some("boot"));
    let findings = removed(&ledger, Some("boot"));
    assert_eq!(findings.own.len(), 1, "{findings:?}");
    assert!(findings.own[0].starts_with("link renamed0"), "{findings:?}");
    assert!(findings.foreign[0].contains("its index is"), "{findings:?}");
    assert!(picture().contains("moor0") && !picture().contains("renamed0") && before_stranger.contains("renamed0"));
}

fn without_a_ledger_marks_alone_decide() {
    ips(STRANGERS);
    let before = picture();
    ips(OWN);
    // Of another assignment of the agent's, and on a name of nobody's.
    ips(r"
        link add anything type bridge
        link set anything alias moorline:00112233445566778899aabbccddeeff
        route add 203.0.113.0/24 dev eth9 proto \proto
    ");
    let marked = Wanted::marked(&NetworkConfig::default());
    let findings = block_on(remove(&marked, &Wanted::nothing())).unwrap();
    assert_eq!(picture(), before, "{findings:#?}");
}

fn what_the_next_plan_lists_too_is_kept() {
    ips(STRANGERS);
    ips(r"
        link add moor0 type bridge
        link set moor0 alias \alias
        route add 10.9.0.0/16 dev eth9 table 100 proto \proto
    ");
    let with_the_next = picture();
    ips(r"
        link add moor1 type bridge
        link set moor1 alias \alias
        route add 10.8.0.0/16 dev eth9 table 100 proto \proto
    ");
    let network = |links: [&str; 2], routes: [&str; 2]| {
        json!({
            "links": links.map(|name| json!({ "name": name })),
            "routes": routes.map(|route| json!({ "destination": route, "table": 100 })),
        })
    };
    let earlier = recorded(network(["moor0", "moor1"], ["10.9.0.0/16", "10.8.0.0/16"]), None);
    let next = recorded(network(["moor0", "moor2"], ["10.9.0.0/16", "10.7.0.0/16"]), None);
    for gone in [Wanted::of([&earlier], None), Wanted::marked(&NetworkConfig::default())] {
        block_on(remove(&gone, &Wanted::of([&next], None))).unwrap();
        assert_eq!(picture(), with_the_next);
    }
}

/// A request to remove a route without a gateway is, to the kernel, one to remove the first by that link.
fn what_the_kernel_would_confuse_is_left() {
    ips(STRANGERS);
    ips(r"
        -6 route add 2001:db8:7::/48 via 2001:db8::9 dev eth9 metric 50 proto \proto
        -6 route append 2001:db8:7::/48 dev eth9 metric 50 proto \proto
    ");
    let before = picture();
    let route = |gateway: Value| json!({ "destination": "2001:db8:7::/48", "device": "eth9", "gateway": gateway });
    let gone = recorded(json!({ "routes": [route(Value::Null)] }), None);
    let kept = recorded(json!({ "routes": [route(json!("2001:db8::9"))] }), None);
    let findings = block_on(remove(&Wanted::of([&gone], None), &Wanted::of([&kept], None))).unwrap();
    assert_eq!(picture(), before, "{findings:#?}");
    assert!(findings.foreign.iter().any(|what| what.contains("the kernel would take")), "{findings:#?}");
    // Where both are to go, there is nothing to confuse.
    assert_eq!(removed(&gone, None).own.len(), 2);
    assert!(!picture().contains("2001:db8:7::/48"));
}

fn what_an_older_agent_left_goes_by_the_exact_list() {
    ips(STRANGERS);
    let before = picture();
    ips(r"
        link add unbounded0 type bridge
        link add unbounded1 type vxlan id 77 dstport 4791
        link add unbounded2 type bridge
        link set unbounded2 alias \alias
        route add 10.77.0.0/16 dev eth9 table 200 proto 250
        -6 rule add priority 3000 lookup 200 protocol 250
    ");
    let legacy: LegacyConfig = serde_json::from_value(json!({
        "links": [{ "name": "unbounded0", "kind": "bridge" }, { "name": "unbounded1", "kind": "wireguard" }, { "name": "unbounded2" }],
        "routes": [{ "destination": "10.77.0.0/16", "table": 200, "protocol": 250 },
                   { "destination": "10.0.0.0/8", "table": 254, "protocol": 250 }],
        "rules": [{ "family": "ipv6", "priority": 3000, "table": 200, "protocol": 250 }],
    }))
    .unwrap();
    let config = NetworkConfig { legacy, ..NetworkConfig::default() };
    let findings = block_on(remove(&Wanted::legacy(&config), &Wanted::nothing())).unwrap();
    assert_eq!(findings.own.len(), 3, "{findings:#?}");
    let told = findings.foreign.join("\n");
    assert!(told.contains("link unbounded1 (vxlan): it is vxlan") && told.contains("10.0.0.0/8"), "{told}");
    // What is of another kind, and what the agent itself has put there meanwhile, stays.
    ips("link del unbounded1\nlink del unbounded2");
    assert_eq!(picture(), before);
}
