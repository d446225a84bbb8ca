//! Finds, among all links, routes and rules of the machine, what is the agent's own and what only looks like it. Ledger and
//! mark have to agree; a name, a prefix or a number alone never makes anything the agent's.

use std::collections::HashMap;

use ipnet::IpNet;

use super::kernel::{Link, Object, Route, Rule};
use super::marks::is_own_alias;
use super::plan::{LinkPlan, RecordedPlan, RoutePlan, RulePlan};
use crate::config::{LegacyConfig, NetworkConfig};

/// What is looked for.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    links: Vec<WantedLink>,
    /// By destination: a machine may have a great many routes.
    routes: HashMap<IpNet, Vec<(RoutePlan, u8)>>,
    rules: Vec<(RulePlan, u8)>,
    /// Alias prefix and protocol: everything that carries such marks.
    marks: Option<(String, u8)>,
}

#[derive(Debug, Clone)]
enum WantedLink {
    /// With the alias of a plan, and with its index where that counts.
    Marked { link: LinkPlan, alias: String },
    /// From the operator's list; `own` is what the aliases of the agent's own begin with.
    Legacy { name: String, kind: Option<String>, own: String },
}

/// What an object of the machine is to what is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Judgement {
    Unrelated,
    /// It is what is looked for.
    Own,
    /// It only looks like it: why it is left alone.
    Foreign(String),
}

impl Wanted {
    /// Nothing.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// What recorded plans list, on a machine with this boot id.
    pub fn of<'a>(plans: impl IntoIterator<Item = &'a RecordedPlan>, boot_id: Option<&str>) -> Self {
        let mut wanted = Self::default();
        for RecordedPlan { marks, boot_id: recorded, plan } in plans {
            let same_boot = boot_id.is_some() && recorded.as_deref() == boot_id;
            wanted.links.extend(plan.links.iter().map(|link| WantedLink::Marked {
                link: LinkPlan { index: link.index.filter(|_| same_boot), ..link.clone() },
                alias: marks.link_alias.clone(),
            }));
            for route in &plan.routes {
                wanted.want_route(route.clone(), marks.route_protocol);
            }
            wanted.rules.extend(plan.rules.iter().map(|rule| (rule.clone(), marks.route_protocol)));
        }
        wanted
    }

    /// Everything that carries the agent's marks, for whatever assignment: what is left to go by without a ledger.
    pub fn marked(config: &NetworkConfig) -> Self {
        Self { marks: Some((config.link_alias.clone(), config.route_protocol)), ..Self::default() }
    }

    /// What the operator lists.
    pub fn legacy(config: &NetworkConfig) -> Self {
        let LegacyConfig { links, routes, rules } = &config.legacy;
        let links = links.iter().map(|link| WantedLink::Legacy {
            name: link.name.clone(),
            kind: link.kind.clone(),
            own: config.link_alias.clone(),
        });
        let rules = rules.iter().map(|rule| {
            let plan = RulePlan {
                family: rule.family,
                priority: rule.priority,
                table: rule.table,
                source: rule.source,
                destination: rule.destination,
                mark: rule.mark,
                mask: rule.mask,
                input_device: rule.input_device.clone(),
                output_device: rule.output_device.clone(),
            };
            (plan, rule.protocol)
        });
        let mut wanted = Self { links: links.collect(), rules: rules.collect(), ..Self::default() };
        for route in routes {
            let (destination, gateway, device) = (route.destination, route.gateway, route.device.clone());
            let plan = RoutePlan { destination, table: route.table, gateway, device, metric: None };
            wanted.want_route(plan, route.protocol);
        }
        wanted
    }

    fn want_route(&mut self, route: RoutePlan, protocol: u8) {
        self.routes.entry(route.destination).or_default().push((route, protocol));
    }

    /// Whether nothing is looked for.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty() && self.routes.is_empty() && self.rules.is_empty() && self.marks.is_none()
    }

    pub(super) fn judge(&self, object: &Object, links: &[Link]) -> Judgement {
        match object {
            Object::Link(link) => self.judge_link(link),
            Object::Route(route) => self.judge_route(route, links),
            Object::Rule(rule) => self.judge_rule(rule),
        }
    }

    fn judge_link(&self, link: &Link) -> Judgement {
        let alias = link.alias.as_deref();
        if let (Some((prefix, _)), Some(alias)) = (&self.marks, alias)
            && is_own_alias(prefix, alias)
        {
            return Judgement::Own;
        }
        strongest(self.links.iter().map(|wanted| wanted.judge(link)))
    }

    fn judge_route(&self, route: &Route, links: &[Link]) -> Judgement {
        if self.marks.as_ref().is_some_and(|(_, protocol)| route.protocol() == *protocol) {
            return Judgement::Own;
        }
        let name_of = |index: u32| links.iter().find(|link| link.index == index).map(|link| link.name.as_str());
        let wanted = route.destination().and_then(|destination| self.routes.get(&destination));
        let judge = |(plan, protocol): &(RoutePlan, u8)| {
            let device = route.device().and_then(name_of);
            let is_meant = route.table() == plan.table
                && plan.gateway.is_none_or(|gateway| route.gateway() == Some(gateway))
                && plan.device.as_deref().is_none_or(|wanted| device == Some(wanted))
                && plan.metric.is_none_or(|metric| route.metric() == metric);
            judge_protocol(is_meant, route.protocol(), *protocol)
        };
        strongest(wanted.into_iter().flatten().map(judge))
    }

    fn judge_rule(&self, rule: &Rule) -> Judgement {
        if self.marks.as_ref().is_some_and(|(_, protocol)| rule.protocol() == *protocol) {
            return Judgement::Own;
        }
        let judge = |(plan, protocol): &(RulePlan, u8)| {
            if rule.is(plan) {
                return judge_protocol(true, rule.protocol(), *protocol);
            }
            let looks_like = rule.family() == Some(plan.family)
                && rule.priority() == plan.priority
                && rule.table() == plan.table.unwrap_or(0);
            match looks_like {
                true => Judgement::Foreign("it selects something else".into()),
                false => Judgement::Unrelated,
            }
        };
        strongest(self.rules.iter().map(judge))
    }
}

impl WantedLink {
    fn judge(&self, link: &Link) -> Judgement {
        let alias = link.alias.as_deref();
        match self {
            Self::Marked { link: LinkPlan { name, index }, alias: wanted } => {
                let is_named = link.name == *name;
                match (alias == Some(wanted.as_str()), index) {
                    (true, Some(index)) if link.index == *index => Judgement::Own,
                    (true, Some(index)) if is_named => Judgement::Foreign(format!(
                        "its index is {}, and the ledger's link of that name has {index}",
                        link.index
                    )),
                    (true, None) if is_named => Judgement::Own,
                    (false, _) if is_named => Judgement::Foreign(match alias {
                        Some(alias) => format!("its alias is {alias:?} and not {wanted:?}"),
                        None => format!("it has no alias, and {wanted:?} would be the agent's"),
                    }),
                    _ => Judgement::Unrelated,
                }
            }
            Self::Legacy { name, kind, own } => match kind {
                _ if link.name != *name => Judgement::Unrelated,
                // The agent's own new link has taken the name.
                _ if alias.is_some_and(|alias| is_own_alias(own, alias)) => Judgement::Unrelated,
                Some(kind) if link.kind.as_ref() != Some(kind) => Judgement::Foreign(format!(
                    "it is {}, and `machine.network.legacy` says {kind}",
                    link.kind.as_deref().unwrap_or("of no kind")
                )),
                _ => Judgement::Own,
            },
        }
    }
}

fn judge_protocol(is_meant: bool, found: u8, wanted: u8) -> Judgement {
    match is_meant {
        true if found == wanted => Judgement::Own,
        true => Judgement::Foreign(format!("its protocol is {found} and not {wanted}")),
        false => Judgement::Unrelated,
    }
}

/// What one of several says about an object: that it is meant, or else that it looks like it.
fn strongest(judgements: impl Iterator<Item = Judgement>) -> Judgement {
    judgements.fold(Judgement::Unrelated, |so_far, next| match (&so_far, &next) {
        (Judgement::Own, _) | (Judgement::Foreign(_), Judgement::Unrelated | Judgement::Foreign(_)) => so_far,
        _ => next,
    })
}
