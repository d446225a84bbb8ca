//! The floor of the cni hook: a configuration list is parsed strictly, plugin by plugin, and refused when it names a
//! plugin, a field, a bridge, a folder or a subnet that the operator and the Node don't allow.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::boot::CniBounds;

/// Versions of the CNI specification whose lists have this form.
const VERSIONS: [&str; 4] = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"];
const MTU: std::ops::RangeInclusive<u32> = 576..=65535;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct List {
    cni_version: String,
    name: String,
    #[serde(default)]
    #[allow(dead_code, reason = "known and free of choice: it is parsed so that it is not refused as unknown")]
    disable_check: bool,
    plugins: Vec<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(dead_code, reason = "a field that is free of choice is parsed so that it is not refused as unknown")]
struct Bridge {
    r#type: String,
    bridge: String,
    #[serde(default)]
    is_gateway: bool,
    #[serde(default)]
    is_default_gateway: bool,
    #[serde(default)]
    force_address: bool,
    #[serde(default)]
    ip_masq: bool,
    #[serde(default)]
    hairpin_mode: bool,
    #[serde(default)]
    promisc_mode: bool,
    mtu: Option<u32>,
    ipam: HostLocal,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(dead_code, reason = "a field that is free of choice is parsed so that it is not refused as unknown")]
struct HostLocal {
    r#type: String,
    ranges: Vec<Vec<Range>>,
    routes: Option<Vec<Route>>,
    data_dir: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Range {
    subnet: IpNet,
    range_start: Option<std::net::IpAddr>,
    range_end: Option<std::net::IpAddr>,
    gateway: Option<std::net::IpAddr>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "parsed so that only routes with these fields and valid addresses pass")]
struct Route {
    dst: IpNet,
    gw: Option<std::net::IpAddr>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(dead_code, reason = "parsed so that only these fields pass")]
struct PortMap {
    r#type: String,
    capabilities: PortMapCapabilities,
    snat: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(dead_code, reason = "parsed so that only this capability passes")]
struct PortMapCapabilities {
    port_mappings: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[allow(dead_code, reason = "parsed so that only these fields pass")]
struct Bandwidth {
    r#type: String,
    capabilities: BandwidthCapabilities,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "parsed so that only this capability passes")]
struct BandwidthCapabilities {
    bandwidth: bool,
}

/// A configuration list that may be written as it is (with a newline at its end), or why it may not.
pub(crate) fn conflist(
    text: &str,
    pod_cidrs: &[String],
    bounds: &CniBounds,
    granted: &BTreeSet<String>,
) -> Result<String, String> {
    if text.len() > bounds.max_bytes {
        return Err(format!("It has {} bytes, and {} are allowed.", text.len(), bounds.max_bytes));
    }
    let list: List = serde_json::from_str(text).map_err(|error| format!("It is no configuration list: {error}."))?;
    if !VERSIONS.contains(&list.cni_version.as_str()) {
        return Err(format!("cniVersion {:?} is none of {}.", list.cni_version, VERSIONS.join(", ")));
    }
    let name_is_plain = list.name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if list.name.is_empty() || !name_is_plain {
        return Err(format!("The name {:?} is not made of letters, digits, dots, dashes and underscores.", list.name));
    }
    if list.plugins.is_empty() {
        return Err("It has no plugins.".into());
    }
    for (index, plugin) in list.plugins.into_iter().enumerate() {
        let place = format!("/plugins/{index}");
        let kind = plugin.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        match kind.as_str() {
            "bridge" => {
                bridge(strictly(plugin, &place)?, pod_cidrs, bounds).map_err(|why| format!("{place}: {why}"))?
            }
            "portmap" => drop(strictly::<PortMap>(plugin, &place)?),
            "bandwidth" => drop(strictly::<Bandwidth>(plugin, &place)?),
            "" => return Err(format!("{place} has no type.")),
            _ if bounds.plugin_types.contains(&kind) || granted.contains(&kind) => {}
            _ => {
                return Err(format!(
                    "{place}: the plugin type {kind:?} is not known, and the operator does not list it in \
                     floors.cni.pluginTypes or in a grant of this binding."
                ));
            }
        }
    }
    let end = if text.ends_with('\n') { "" } else { "\n" };
    Ok(format!("{text}{end}"))
}

fn strictly<T: for<'de> Deserialize<'de>>(plugin: Map<String, Value>, place: &str) -> Result<T, String> {
    serde_json::from_value(Value::Object(plugin)).map_err(|error| format!("{place}: {error}."))
}

fn bridge(bridge: Bridge, pod_cidrs: &[String], bounds: &CniBounds) -> Result<(), String> {
    if !bounds.bridge_names.contains(&bridge.bridge) {
        return Err(format!("the bridge name {:?} is not in floors.cni.bridgeNames.", bridge.bridge));
    }
    if let Some(mtu) = bridge.mtu
        && !MTU.contains(&mtu)
    {
        return Err(format!("the mtu {mtu} is not between {} and {}.", MTU.start(), MTU.end()));
    }
    if bridge.ipam.r#type != "host-local" {
        return Err(format!("the ipam type {:?} is not host-local.", bridge.ipam.r#type));
    }
    if let Some(data_dir) = &bridge.ipam.data_dir
        && !bounds.data_dirs.contains(data_dir)
    {
        return Err(format!("the dataDir {data_dir:?} is not in floors.cni.dataDirs."));
    }
    let allowed: Vec<IpNet> = pod_cidrs.iter().filter_map(|cidr| cidr.parse().ok()).collect();
    let sets = bridge.ipam.ranges;
    if sets.is_empty() || sets.iter().any(Vec::is_empty) {
        return Err("ipam/ranges has no range, or an empty set.".into());
    }
    for range in sets.into_iter().flatten() {
        if !allowed.iter().any(|cidr| cidr.contains(&range.subnet)) {
            return Err(format!(
                "the subnet {} is not inside the Node's podCIDRs {}.",
                range.subnet,
                pod_cidrs.join(", ")
            ));
        }
        for address in [range.range_start, range.range_end, range.gateway].into_iter().flatten() {
            if !range.subnet.contains(&address) {
                return Err(format!("the address {address} is not inside its subnet {}.", range.subnet));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn good() -> Value {
        json!({"cniVersion": "1.0.0", "name": "unbounded-net", "plugins": [
            {"type": "bridge", "bridge": "cbr0", "isGateway": true, "mtu": 1400, "ipam": {
                "type": "host-local", "ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00:1::/64"}]]}},
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ]})
    }

    fn check(list: &Value) -> Result<String, String> {
        let cidrs = ["10.1.2.0/24".to_owned(), "fd00:1::/64".to_owned()];
        conflist(&list.to_string(), &cidrs, &CniBounds::default(), &BTreeSet::new())
    }

    #[test]
    fn a_good_list_is_written_as_it_is() {
        assert_eq!(check(&good()), Ok(format!("{}\n", good())));
    }

    #[test]
    fn what_the_operator_or_the_node_does_not_allow_is_refused_by_name() {
        let cases: [(&str, Value, &str); 11] = [
            ("/cniVersion", json!("9"), "cniVersion"),
            ("/name", json!("a/b"), "name"),
            ("/plugins", json!([]), "no plugins"),
            ("/plugins/0/bridge", json!("docker0"), "bridgeNames"),
            ("/plugins/0/mtu", json!(1), "mtu"),
            ("/plugins/0/ipam/type", json!("dhcp"), "host-local"),
            ("/plugins/0/ipam/ranges/0/0/subnet", json!("10.9.0.0/24"), "podCIDRs"),
            ("/plugins/0/ipam/ranges/0/0/subnet", json!("10.1.0.0/16"), "podCIDRs"),
            ("/plugins/0/ipam/ranges", json!([[]]), "empty set"),
            ("/plugins/1/type", json!("evil"), "pluginTypes"),
            ("/plugins/1/capabilities", json!({"portMappings": true, "other": true}), "other"),
        ];
        for (pointer, value, word) in cases {
            let mut list = good();
            *list.pointer_mut(pointer).unwrap() = value;
            let problem = check(&list).unwrap_err();
            assert!(problem.contains(word), "{pointer}: {problem}");
        }
        let mut list = good();
        list["plugins"][0]["ipam"]["dataDir"] = json!("/etc");
        assert!(check(&list).unwrap_err().contains("dataDirs"));
        list = good();
        list["plugins"][0]["vlan"] = json!(7);
        assert!(check(&list).unwrap_err().contains("vlan"));
    }

    #[test]
    fn a_list_may_be_as_long_as_the_operator_says_and_no_longer() {
        let text = good().to_string();
        let cidrs = ["10.1.2.0/24".to_owned(), "fd00:1::/64".to_owned()];
        let within =
            |max_bytes| conflist(&text, &cidrs, &CniBounds { max_bytes, ..CniBounds::default() }, &BTreeSet::new());
        assert!(within(text.len()).is_ok());
        assert!(within(text.len() - 1).unwrap_err().contains("allowed"));
    }

    #[test]
    fn what_is_known_and_within_its_bounds_is_allowed() {
        let mut list = good();
        list["plugins"][1] = json!({"type": "bandwidth", "capabilities": {"bandwidth": true}});
        list["plugins"][0]["ipam"]["dataDir"] = json!("/run/moorline/ipam");
        let range = &mut list["plugins"][0]["ipam"]["ranges"][0][0];
        (range["rangeStart"], range["rangeEnd"], range["gateway"]) =
            (json!("10.1.2.10"), json!("10.1.2.99"), json!("10.1.2.1"));
        let cidrs = ["10.1.2.0/24".to_owned(), "fd00:1::/64".to_owned()];
        let data_dirs = BTreeSet::from(["/run/moorline/ipam".to_owned()]);
        let bounds = CniBounds { data_dirs, ..CniBounds::default() };
        assert_eq!(conflist(&list.to_string(), &cidrs, &bounds, &BTreeSet::new()), Ok(format!("{list}\n")));
        for address in ["rangeStart", "rangeEnd", "gateway"] {
            let mut list = good();
            list["plugins"][0]["ipam"]["ranges"][0][0][address] = json!("10.1.3.1");
            assert!(check(&list).unwrap_err().contains("not inside its subnet"), "{address}");
        }
    }

    #[test]
    fn a_plugin_without_a_type_is_said_to_have_none() {
        let mut list = good();
        list["plugins"][1] = json!({"capabilities": {}});
        assert_eq!(check(&list), Err("/plugins/1 has no type.".into()));
    }

    #[test]
    fn a_list_that_ends_its_line_gets_no_second_end() {
        let cidrs = ["10.1.2.0/24".to_owned(), "fd00:1::/64".to_owned()];
        let text = format!("{}\n", good());
        assert_eq!(conflist(&text, &cidrs, &CniBounds::default(), &BTreeSet::new()), Ok(text));
    }

    #[test]
    fn a_plugin_type_that_the_operator_lists_or_grants_is_allowed() {
        let mut list = good();
        list["plugins"][1] = json!({"type": "tuning", "sysctl": {}});
        assert!(check(&list).is_err());
        let cidrs = ["10.1.2.0/24".to_owned(), "fd00:1::/64".to_owned()];
        let granted = BTreeSet::from(["tuning".to_owned()]);
        assert!(conflist(&list.to_string(), &cidrs, &CniBounds::default(), &granted).is_ok());
    }
}
