//! The CNI configuration that a Site wants: a bridge with host-local addresses from the Node's podCIDRs, and portmap.
//! The host validates it against the operator's bounds and writes it.

use ipnet::IpNet;
use moorline_policy_sdk::{
    PolicyError, Problems, Settings, Site,
    cni::{Hook, ManagedConfiguration, Subject, Verdict},
};
use serde::{Deserialize, Serialize};

use crate::{DefaultPolicy, DefaultSettings};

/// What the configuration says beside the Node's podCIDRs.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct CniSettings {
    /// The version of the CNI specification that the configuration is written for.
    pub cni_version: CniVersion,
    /// The network's name.
    pub network: String,
    /// The bridge's name.
    pub bridge: String,
    /// MTU of the bridge and the Pods' links; where absent the Site's `tunnelMTU`, and without that the plugin's own default.
    pub mtu: Option<u16>,
    /// Masquerade what leaves the bridge for elsewhere.
    pub ip_masq: bool,
    /// A Pod may reach itself through a Service.
    pub hairpin_mode: bool,
    /// The bridge is the Pods' default gateway.
    pub default_gateway: bool,
    /// Another address on the bridge is replaced when the podCIDR changed.
    pub force_address: bool,
    /// Host ports, by the portmap plugin.
    pub host_ports: bool,
}

/// A version of the CNI specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CniVersion {
    /// 0.4.0, for old container runtimes.
    #[serde(rename = "0.4.0")]
    V0_4_0,
    /// 1.0.0.
    #[serde(rename = "1.0.0")]
    V1_0_0,
}

/// What an MTU may be; the same bounds as a Site's `tunnelMTU`.
const MTU: std::ops::RangeInclusive<u16> = 576..=9000;

impl Default for CniSettings {
    fn default() -> Self {
        Self {
            cni_version: CniVersion::V1_0_0,
            network: "unbounded-net".to_owned(),
            bridge: "cbr0".to_owned(),
            mtu: None,
            ip_masq: false,
            hairpin_mode: true,
            default_gateway: true,
            force_address: true,
            host_ports: true,
        }
    }
}

impl Settings for CniSettings {
    fn check(&self, problems: &mut Problems) {
        let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if self.network.is_empty()
            || !plain(&self.network)
            || !self.network.starts_with(|c: char| c.is_ascii_alphanumeric())
        {
            problems.add(
                "/network",
                "a network's name is letters, digits, '-', '_' and '.', and begins with a letter or digit",
            );
        }
        if self.bridge.is_empty() || self.bridge.len() > 15 || !plain(&self.bridge) || self.bridge.starts_with('.') {
            problems.add(
                "/bridge",
                "a link's name is 1 to 15 letters, digits, '-', '_' and '.', and doesn't begin with '.'",
            );
        }
        if self.mtu.is_some_and(|mtu| !MTU.contains(&mtu)) {
            problems.add("/mtu", format!("an MTU is from {} to {}", MTU.start(), MTU.end()));
        }
    }
}

impl Hook for DefaultPolicy {
    fn render(subject: Subject, settings: DefaultSettings) -> Result<Verdict, PolicyError> {
        let settings = settings.cni;
        let Subject { node, site, .. } = subject;
        // A Site that doesn't say wants its CNI managed.
        if site.manage_cni == Some(false) {
            return Ok(Verdict::Unmanaged(format!("Site \"{}\" says manageCniPlugin: false", site.name)));
        }
        if node.pod_cidrs.is_empty() {
            return Ok(Verdict::Wait(format!("Node {} has no podCIDRs yet", node.name)));
        }
        let subnets = node.pod_cidrs.iter().map(|cidr| subnet(cidr)).collect::<Result<Vec<_>, _>>()?;
        let mtu = match settings.mtu {
            Some(mtu) => Some(mtu),
            None => tunnel_mtu(&site)?,
        };
        let managed = match site.manage_cni {
            Some(_) => "says manageCniPlugin: true",
            None => "doesn't say otherwise",
        };
        let reason = format!(
            "Site \"{}\" {managed}: bridge {} with {}",
            site.name,
            settings.bridge,
            subnets.iter().map(|subnet| subnet.subnet.to_string()).collect::<Vec<_>>().join(", ")
        );
        let conflist = serde_json::to_string_pretty(&conflist(subnets, mtu, settings)).map_err(|error| {
            PolicyError::Internal(format!("the configuration could not be written as JSON: {error}"))
        })?;
        Ok(Verdict::Managed(ManagedConfiguration { conflist, reason }))
    }
}

fn subnet(cidr: &str) -> Result<Subnet, PolicyError> {
    let subnet: IpNet = cidr.parse().map_err(|_| {
        PolicyError::InvalidInput(format!("podCIDR \"{cidr}\" is not an IP network such as 10.244.1.0/24"))
    })?;
    Ok(Subnet { subnet: subnet.trunc() })
}

/// The MTU of the tunnels that the Pods' packets travel through, where the Site sets one.
fn tunnel_mtu(site: &Site) -> Result<Option<u16>, PolicyError> {
    #[derive(Deserialize)]
    struct Spec {
        #[serde(rename = "tunnelMTU")]
        tunnel_mtu: Option<u16>,
    }
    let invalid = |what: String| PolicyError::InvalidInput(format!("spec of Site \"{}\": {what}", site.name));
    let spec: Spec = serde_json::from_str(&site.spec).map_err(|error| invalid(error.to_string()))?;
    match spec.tunnel_mtu {
        Some(mtu) if !MTU.contains(&mtu) => {
            Err(invalid(format!("tunnelMTU is {mtu}, not from {} to {}", MTU.start(), MTU.end())))
        }
        mtu => Ok(mtu),
    }
}

fn conflist(subnets: Vec<Subnet>, mtu: Option<u16>, settings: CniSettings) -> Conflist {
    let bridge = Plugin::Bridge {
        bridge: settings.bridge,
        is_gateway: true,
        is_default_gateway: settings.default_gateway,
        force_address: settings.force_address,
        ip_masq: settings.ip_masq,
        hairpin_mode: settings.hairpin_mode,
        mtu,
        // One set for each podCIDR: the plugin takes one address from each set, so that a dual-stack Pod gets both.
        ipam: Ipam { kind: "host-local", ranges: subnets.into_iter().map(|subnet| [subnet]).collect() },
    };
    let mut plugins = vec![bridge];
    if settings.host_ports {
        plugins.push(Plugin::Portmap { capabilities: Capabilities { port_mappings: true } });
    }
    Conflist { cni_version: settings.cni_version, name: settings.network, plugins }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Conflist {
    cni_version: CniVersion,
    name: String,
    plugins: Vec<Plugin>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Plugin {
    Bridge {
        bridge: String,
        is_gateway: bool,
        is_default_gateway: bool,
        force_address: bool,
        ip_masq: bool,
        hairpin_mode: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        mtu: Option<u16>,
        ipam: Ipam,
    },
    Portmap {
        capabilities: Capabilities,
    },
}

#[derive(Serialize)]
struct Ipam {
    #[serde(rename = "type")]
    kind: &'static str,
    ranges: Vec<[Subnet; 1]>,
}

#[derive(Serialize)]
struct Subnet {
    #[serde(serialize_with = "as_text")]
    subnet: IpNet,
}

fn as_text<S: serde::Serializer>(subnet: &IpNet, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(subnet)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Capabilities {
    port_mappings: bool,
}
