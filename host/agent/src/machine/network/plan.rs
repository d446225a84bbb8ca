//! What a data plane says that it puts into the machine's network: checked when it comes in, and kept in the ledger with
//! the marks and the boot that it belongs to. It is only read here, nothing is looked for.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::marks::Marks;
use crate::config::{IpFamily, is_interface_name};

/// The field of a data plane's plan that is a [`NetworkPlan`].
const FIELD: &str = "network";
/// So many of each a plan may list: more than any machine has, less than a ledger holds.
const MOST_LINKS: usize = 1024;
const MOST_ROUTES: usize = 8192;
const MOST_RULES: usize = 1024;
const MAIN_TABLE: u32 = 254;

/// Links, routes and rules that a data plane puts on this machine, each with the agent's [`Marks`]. As the field `network`
/// of what it plans, they are recorded in the ledger before any of them is there, and what is left of them after its own
/// teardown is removed by the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkPlan {
    /// Links.
    pub links: Vec<LinkPlan>,
    /// Routes.
    pub routes: Vec<RoutePlan>,
    /// Rules of the routing policy.
    pub rules: Vec<RulePlan>,
}

/// A link, known by its name and the alias that [`Marks`] has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LinkPlan {
    /// Its name.
    pub name: String,
    /// Its index, where that is known: until the machine boots again, it then has to be this link, whatever its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
}

/// A route, known by all that is said here and the protocol number that [`Marks`] has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RoutePlan {
    /// Its destination.
    pub destination: IpNet,
    /// The number of its table; the main one where it isn't said.
    #[serde(default = "main_table")]
    pub table: u32,
    /// Its gateway; without it, whatever the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The name of the link that it leads to; without it, whatever the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Its metric; without it, whatever the metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
}

fn main_table() -> u32 {
    MAIN_TABLE
}

/// A rule of the routing policy, known by exactly what is said here (what isn't said is absent from the rule) and the
/// protocol number that [`Marks`] has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RulePlan {
    /// The family of addresses.
    pub family: IpFamily,
    /// Its priority.
    pub priority: u32,
    /// The number of the table that it looks up; without it, the rule does something else than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// The source that it selects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpNet>,
    /// The destination that it selects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpNet>,
    /// The firewall mark that it selects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<u32>,
    /// The mask of that mark; all bits where it isn't said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<u32>,
    /// The link that a packet came in by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_device: Option<String>,
    /// The link that a packet goes out by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_device: Option<String>,
}

impl NetworkPlan {
    /// The network in a data plane's plan, checked; none where the plan has no such field.
    ///
    /// # Errors
    /// What is wrong with it, with the place in it.
    pub fn of(plan: &Value) -> Result<Option<Self>, String> {
        let Some(network) = plan.get(FIELD) else { return Ok(None) };
        if !network.is_object() {
            return Err(format!("`{FIELD}` is no object with `links`, `routes` and `rules`"));
        }
        let plan: Self = serde_path_to_error::deserialize(network).map_err(|error| {
            let path = error.path().to_string();
            format!("`{FIELD}.{path}`: {}", error.into_inner())
        })?;
        plan.check().map_err(|(path, problem)| format!("`{FIELD}.{path}` {problem}"))?;
        Ok(Some(plan))
    }

    fn check(&self) -> Result<(), (String, String)> {
        let sizes = [
            ("links", self.links.len(), MOST_LINKS),
            ("routes", self.routes.len(), MOST_ROUTES),
            ("rules", self.rules.len(), MOST_RULES),
        ];
        if let Some((key, count, most)) = sizes.into_iter().find(|(_, count, most)| count > most) {
            return Err((key.into(), format!("has {count} entries and may have {most}")));
        }
        each("links", &self.links, |link| check_device("name", Some(&link.name)))?;
        each("routes", &self.routes, check_route)?;
        each("rules", &self.rules, check_rule)
    }
}

/// A field, and what is wrong with it.
type Wrong = (&'static str, String);

fn each<T>(key: &str, entries: &[T], check: impl Fn(&T) -> Result<(), Wrong>) -> Result<(), (String, String)> {
    entries.iter().enumerate().try_for_each(|(number, entry)| {
        check(entry).map_err(|(field, problem)| (format!("{key}[{number}].{field}"), problem))
    })
}

fn check_device(field: &'static str, name: Option<&String>) -> Result<(), Wrong> {
    match name {
        Some(name) if !is_interface_name(name) => Err((field, format!("is {name:?}, which no link can be called"))),
        Some(name) if field == "name" && name == "lo" => Err((field, "is `lo`, which is the machine's".into())),
        _ => Ok(()),
    }
}

fn check_network(field: &'static str, network: &IpNet) -> Result<(), Wrong> {
    if *network == network.trunc() {
        return Ok(());
    }
    Err((field, format!("is {network}, which has bits behind its prefix; {} is meant?", network.trunc())))
}

fn check_route(route: &RoutePlan) -> Result<(), Wrong> {
    check_network("destination", &route.destination)?;
    if route.table == 0 {
        return Err(("table", "is 0, which is no table".into()));
    }
    check_device("device", route.device.as_ref())
}

fn check_rule(rule: &RulePlan) -> Result<(), Wrong> {
    for (field, network) in [("source", &rule.source), ("destination", &rule.destination)] {
        if let Some(network) = network {
            check_network(field, network)?;
            if IpFamily::of(network) != rule.family {
                return Err((field, format!("is {network}, which is not of the rule's family")));
            }
        }
    }
    if rule.table == Some(0) {
        return Err(("table", "is 0, which is no table".into()));
    }
    if rule.mask.is_some() && rule.mark.is_none() {
        return Err(("mask", "is there without `mark`".into()));
    }
    check_device("inputDevice", rule.input_device.as_ref())?;
    check_device("outputDevice", rule.output_device.as_ref())
}

/// A plan as the ledger keeps it: with the marks and the boot of the machine that it was made for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedPlan {
    /// The marks of all that the plan lists.
    pub marks: Marks,
    /// The boot in which it was made: the indexes of another boot mean nothing.
    pub boot_id: Option<String>,
    /// What is planned.
    pub plan: NetworkPlan,
}

impl RecordedPlan {
    /// Puts this into a data plane's plan, in the place of the network that stood there.
    ///
    /// # Errors
    /// Where it can't be written as JSON.
    pub fn record(&self, plan: &mut Value) -> Result<(), serde_json::Error> {
        plan[FIELD] = serde_json::to_value(self)?;
        Ok(())
    }

    /// The one in a recorded plan of a data plane; none where that had no network.
    ///
    /// # Errors
    /// Where it makes no sense.
    pub fn of(plan: &Value) -> Result<Option<Self>, serde_json::Error> {
        plan.get(FIELD).map(Self::deserialize).transpose()
    }
}
