//! The part of the configuration that is about links, routes and rules: the marks by which the agent knows its own, and
//! the operator's exact list of what an older agent left. Nothing here looks at the network.

use std::net::IpAddr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The marks on links, routes and rules of the agent's own, and what an older agent left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkConfig {
    /// The protocol number that every route and rule of the agent's own carries. 5 to 255, and nobody else's on the
    /// machine: without a ledger, it alone tells them apart.
    pub route_protocol: u8,
    /// What the alias of every link of the agent's own begins with; a colon and a digest of the assignment follow.
    pub link_alias: String,
    /// What an older agent left, without marks. Each entry is removed when a process first reconciles, after a handoff,
    /// and by `moorline cleanup`.
    pub legacy: LegacyConfig,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self { route_protocol: 158, link_alias: "moorline".into(), legacy: LegacyConfig::default() }
    }
}

/// An exact list of links, routes and rules that an older agent left.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LegacyConfig {
    /// Links, by their exact names.
    pub links: Vec<LegacyLink>,
    /// Routes.
    pub routes: Vec<LegacyRoute>,
    /// Rules of the routing policy.
    pub rules: Vec<LegacyRule>,
}

impl LegacyConfig {
    /// Whether nothing is listed.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty() && self.routes.is_empty() && self.rules.is_empty()
    }
}

/// A link that an older agent left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LegacyLink {
    /// Its whole name.
    pub name: String,
    /// Its kind, such as `wireguard` or `vxlan`; a link of another kind is left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// A route that an older agent left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LegacyRoute {
    /// Its destination, such as `10.0.0.0/8`.
    #[serde(with = "super::value::network")]
    #[schemars(with = "String")]
    pub destination: IpNet,
    /// The number of its table; the main one is 254.
    pub table: u32,
    /// Its protocol number, as in `/etc/iproute2/rt_protos`.
    pub protocol: u8,
    /// Its gateway; without it, whatever the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The link that it leads to; without it, whatever the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

/// A rule that an older agent left. What isn't named has to be absent from the rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LegacyRule {
    /// `ipv4` or `ipv6`.
    pub family: IpFamily,
    /// Its priority.
    pub priority: u32,
    /// Its protocol number; 0 where none was given.
    pub protocol: u8,
    /// The number of the table that it looks up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// The source that it selects.
    #[serde(default, with = "super::value::optional_network", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub source: Option<IpNet>,
    /// The destination that it selects.
    #[serde(default, with = "super::value::optional_network", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub destination: Option<IpNet>,
    /// The firewall mark that it selects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<u32>,
    /// The mask of that mark; all bits where it isn't named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<u32>,
    /// The link that a packet came in by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_device: Option<String>,
    /// The link that a packet goes out by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_device: Option<String>,
}

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IpFamily {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl IpFamily {
    /// The family of a network.
    pub fn of(network: &IpNet) -> Self {
        match network {
            IpNet::V4(_) => Self::Ipv4,
            IpNet::V6(_) => Self::Ipv6,
        }
    }
}
