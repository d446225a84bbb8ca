#![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

use moorline_lifecycle::Assignment;
use serde_json::{Value, json};

use super::*;
use crate::config::NetworkConfig;

fn assignment(pool: Option<&str>) -> Assignment {
    Assignment { node_uid: "uid".into(), site: "east".into(), pool: pool.map(str::to_owned) }
}

#[test]
fn each_assignment_has_an_alias_of_its_own_and_only_that_form_is_the_agents() {
    let config = NetworkConfig::default();
    let of = |pool| Marks::new(&config, &assignment(pool)).link_alias;
    assert_eq!(of(None), of(None));
    assert_ne!(of(None), of(Some("edge")));
    assert_ne!(of(Some("")), of(None));
    assert!(marks::is_own_alias("moorline", &of(None)), "{}", of(None));
    let digits = of(None).split_off("moorline:".len());
    for other in ["moorline", "moorline:", "moorline:gateway", &format!("moorlin:{digits}"), &digits] {
        assert!(!marks::is_own_alias("moorline", other), "{other}");
    }
    for other in [format!("moorline:{digits}0"), format!("moorline:{}", digits.to_uppercase())] {
        assert!(!marks::is_own_alias("moorline", &other), "{other}");
    }
}

fn wrong(network: Value) -> String {
    NetworkPlan::of(&json!({ "network": network, "else": 1 })).unwrap_err()
}

#[test]
fn a_wrong_network_is_told_with_its_place() {
    let said = [
        wrong(json!([])),
        wrong(json!({ "link": [] })),
        wrong(json!({ "links": [{ "name": "a" }, { "name": "a/b" }] })),
        wrong(json!({ "links": [{ "name": "lo" }] })),
        wrong(json!({ "links": [{ "name": "a", "alias": "mine" }] })),
        wrong(json!({ "routes": [{ "destination": "10.0.0.1/8" }] })),
        wrong(json!({ "routes": [{ "destination": "10/8" }] })),
        wrong(json!({ "routes": [{ "destination": "::/0", "table": 0 }] })),
        wrong(json!({ "routes": [{ "destination": "::/0", "table": -1 }] })),
        wrong(json!({ "routes": [{ "destination": "::/0", "protocol": 3 }] })),
        wrong(json!({ "rules": [{ "family": "ipv5", "priority": 1 }] })),
        wrong(json!({ "rules": [{ "family": "ipv4", "priority": 1, "source": "fd00::/8" }] })),
        wrong(json!({ "rules": [{ "family": "ipv4", "priority": 1, "mask": 1 }] })),
        wrong(json!({ "rules": [{ "family": "ipv4" }] })),
        wrong(json!({ "links": vec![json!({ "name": "a" }); 1025] })),
    ];
    insta::assert_snapshot!(said.join("\n"), @r#"
    `network` is no object with `links`, `routes` and `rules`
    `network.link`: unknown field `link`, expected one of `links`, `routes`, `rules`
    `network.links[1].name` is "a/b", which no link can be called
    `network.links[0].name` is `lo`, which is the machine's
    `network.links[0].alias`: unknown field `alias`, expected `name` or `index`
    `network.routes[0].destination` is 10.0.0.1/8, which has bits behind its prefix; 10.0.0.0/8 is meant?
    `network.routes[0].destination`: invalid IP address syntax
    `network.routes[0].table` is 0, which is no table
    `network.routes[0].table`: invalid value: integer `-1`, expected u32
    `network.routes[0].protocol`: unknown field `protocol`, expected one of `destination`, `table`, `gateway`, `device`, `metric`
    `network.rules[0].family`: unknown variant `ipv5`, expected `ipv4` or `ipv6`
    `network.rules[0].source` is fd00::/8, which is not of the rule's family
    `network.rules[0].mask` is there without `mark`
    `network.rules[0]`: missing field `priority`
    `network.links` has 1025 entries and may have 1024
    "#);
}

#[test]
fn a_plan_without_the_field_has_no_network() {
    for plan in [Value::Null, json!({}), json!([1]), json!("network")] {
        assert_eq!(NetworkPlan::of(&plan), Ok(None));
    }
    assert_eq!(NetworkPlan::of(&json!({ "network": {} })), Ok(Some(NetworkPlan::default())));
}

#[test]
fn what_is_recorded_is_read_again_beside_the_rest_of_the_plan() {
    let mut plan = json!({ "file": "a", "network": {
        "links": [{ "name": "moor0", "index": 7 }],
        "routes": [{ "destination": "fd00::/48", "device": "moor0", "table": 100, "metric": 5 }],
        "rules": [{ "family": "ipv6", "priority": 10, "table": 100, "mark": 1, "mask": 255 }],
    }});
    let recorded = RecordedPlan {
        marks: Marks::new(&NetworkConfig::default(), &assignment(None)),
        boot_id: Some("boot".into()),
        plan: NetworkPlan::of(&plan).unwrap().unwrap(),
    };
    recorded.record(&mut plan).unwrap();
    assert_eq!(plan["file"], "a");
    assert_eq!(RecordedPlan::of(&plan).unwrap(), Some(recorded));
}
