//! Links, routes and rules as the kernel tells them, over one netlink socket for each piece of work. A deletion names its
//! object in full, so that the kernel can't take another one for it. Whose something is isn't known here.

use std::fmt;
use std::net::IpAddr;

use futures_util::StreamExt as _;
use ipnet::IpNet;
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::link::{LinkAttribute, LinkInfo, LinkMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteVia};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::Handle;

use super::NetworkError;
use super::plan::RulePlan;
use crate::config::IpFamily;

/// A list that changes while it is read is read again, so many times.
const READ_AGAIN: usize = 5;
/// Bits of all ones: the mask of a mark without one, and "unset" in two fields of a rule.
const ALL_ONES: u32 = u32::MAX;

/// Something in the machine's network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Object {
    Link(Link),
    Route(Route),
    Rule(Rule),
}

/// A link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) alias: Option<String>,
    pub(super) kind: Option<String>,
}

/// A route, as the kernel told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route(RouteMessage);

/// A rule, as the kernel told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule(RuleMessage);

/// Everything that is there, in the order in which the kernel tells it.
#[derive(Debug, Clone, Default)]
pub(super) struct Everything {
    pub(super) rules: Vec<Object>,
    pub(super) routes: Vec<Object>,
    pub(super) links: Vec<Link>,
}

/// Works with a netlink socket of its own, which is closed when the work is done or dropped.
pub(super) async fn with_socket<T, W>(work: impl FnOnce(Handle) -> W) -> Result<T, NetworkError>
where
    W: Future<Output = Result<T, NetworkError>>,
{
    let (connection, handle, _) = rtnetlink::new_connection().map_err(NetworkError::Socket)?;
    tokio::select! {
        // First, since answers end in either case.
        biased;
        // It lives until the socket fails.
        () = connection => Err(NetworkError::Closed),
        done = work(handle) => done,
    }
}

impl Everything {
    /// Reads all of it. Needs no capability.
    pub(super) async fn read(handle: &Handle) -> Result<Self, NetworkError> {
        let mut all = Self::default();
        for message in dump(handle, "links", RouteNetlinkMessage::GetLink(LinkMessage::default())).await? {
            if let RouteNetlinkMessage::NewLink(message) = message {
                all.links.push(Link::from(message));
            }
        }
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = RouteMessage::default();
            request.header.address_family = family;
            for message in dump(handle, "routes", RouteNetlinkMessage::GetRoute(request)).await? {
                if let RouteNetlinkMessage::NewRoute(message) = message {
                    all.routes.push(Object::Route(Route(message)));
                }
            }
            let mut request = RuleMessage::default();
            request.header.family = family;
            for message in dump(handle, "rules", RouteNetlinkMessage::GetRule(request)).await? {
                if let RouteNetlinkMessage::NewRule(message) = message {
                    all.rules.push(Object::Rule(Rule(message)));
                }
            }
        }
        Ok(all)
    }
}

async fn dump(
    handle: &Handle,
    what: &'static str,
    request: RouteNetlinkMessage,
) -> Result<Vec<RouteNetlinkMessage>, NetworkError> {
    let mut handle = handle.clone();
    for _ in 0..READ_AGAIN {
        let mut message = NetlinkMessage::from(request.clone());
        message.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        let failed = |source| NetworkError::Read { what, source };
        let mut answers = handle.request(message).map_err(|_| NetworkError::Closed)?;
        let (mut heard, mut changed) = (Vec::new(), false);
        while let Some(answer) = answers.next().await {
            changed |= answer.header.flags & NLM_F_DUMP_INTR != 0;
            match answer.payload {
                NetlinkPayload::InnerMessage(message) => heard.push(message),
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(failed(error.to_io())),
                NetlinkPayload::Overrun(_) => changed = true,
                _ => {}
            }
        }
        if !changed {
            return Ok(heard);
        }
    }
    Err(NetworkError::Restless { what })
}

/// Sends a request and waits until the kernel says how it went.
pub(super) async fn ask(handle: &Handle, request: RouteNetlinkMessage) -> Result<(), std::io::Error> {
    let mut message = NetlinkMessage::from(request);
    message.header.flags = NLM_F_REQUEST | NLM_F_ACK;
    let closed = |_| std::io::Error::from(std::io::ErrorKind::BrokenPipe);
    let mut answers = handle.clone().request(message).map_err(closed)?;
    // Where it went well, the answers just end.
    while let Some(answer) = answers.next().await {
        if let NetlinkPayload::Error(error) = answer.payload
            && error.code.is_some()
        {
            return Err(error.to_io());
        }
    }
    Ok(())
}

impl Object {
    /// The request that removes exactly this.
    pub(super) fn removal(&self) -> RouteNetlinkMessage {
        match self {
            Self::Link(link) => {
                let mut message = LinkMessage::default();
                message.header.index = link.index;
                RouteNetlinkMessage::DelLink(message)
            }
            Self::Route(route) => RouteNetlinkMessage::DelRoute(route.removal()),
            Self::Rule(rule) => RouteNetlinkMessage::DelRule(rule.removal()),
        }
    }

    /// What only those share of which the kernel may take one for another.
    pub(super) fn place(&self) -> (u8, u32, Option<IpNet>) {
        match self {
            Self::Link(link) => (0, link.index, None),
            Self::Route(route) => (route.protocol(), route.table(), route.destination()),
            Self::Rule(rule) => (rule.protocol(), rule.priority(), None),
        }
    }

    /// Whether the kernel would take this for the other where it is asked to remove that one: what a request doesn't say
    /// is anything to the kernel.
    pub(super) fn is_covered_by_removal_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Route(this), Self::Route(other)) => {
                let (this, other) = (this.removal(), other.removal());
                this.header == other.header && other.attributes.iter().all(|part| this.attributes.contains(part))
            }
            (Self::Rule(this), Self::Rule(other)) => {
                let (this, other) = (this.removal(), other.removal());
                let (a, b) = (&this.header, &other.header);
                let same = |this: u8, other: u8| other == 0 || this == other;
                a.family == b.family
                    && same(a.src_len, b.src_len)
                    && same(a.dst_len, b.dst_len)
                    && same(a.tos, b.tos)
                    && a.action == b.action
                    && other.attributes.iter().all(|part| this.attributes.contains(part))
            }
            _ => false,
        }
    }

    /// What it is, for people; `links` knows the names of the indexes.
    pub(super) fn describe(&self, links: &[Link]) -> String {
        match self {
            Self::Link(link) => link.to_string(),
            Self::Route(route) => route.describe(links),
            Self::Rule(rule) => rule.to_string(),
        }
    }
}

impl From<LinkMessage> for Link {
    fn from(message: LinkMessage) -> Self {
        let mut link = Self { index: message.header.index, name: String::new(), alias: None, kind: None };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name = name,
                LinkAttribute::IfAlias(alias) => link.alias = Some(alias),
                LinkAttribute::LinkInfo(infos) => {
                    let kind = infos.into_iter().find_map(|info| match info {
                        LinkInfo::Kind(kind) => Some(kind.to_string()),
                        _ => None,
                    });
                    link.kind = kind;
                }
                _ => {}
            }
        }
        link
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, alias, kind, .. } = self;
        write!(f, "link {name}")?;
        match (kind, alias) {
            (Some(kind), Some(alias)) => write!(f, " ({kind}, alias {alias})"),
            (Some(kind), None) => write!(f, " ({kind})"),
            (None, Some(alias)) => write!(f, " (alias {alias})"),
            (None, None) => Ok(()),
        }
    }
}

fn address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

impl Route {
    fn find<T>(&self, part: impl Fn(&RouteAttribute) -> Option<T>) -> Option<T> {
        self.0.attributes.iter().find_map(part)
    }

    pub(super) fn protocol(&self) -> u8 {
        self.0.header.protocol.into()
    }

    pub(super) fn table(&self) -> u32 {
        let number = |part: &RouteAttribute| if let RouteAttribute::Table(table) = part { Some(*table) } else { None };
        self.find(number).unwrap_or_else(|| self.0.header.table.into())
    }

    pub(super) fn destination(&self) -> Option<IpNet> {
        let length = self.0.header.destination_prefix_length;
        let part = |part: &RouteAttribute| match part {
            RouteAttribute::Destination(destination) => address(destination),
            _ => None,
        };
        let everything = || match self.0.header.address_family {
            AddressFamily::Inet => Some(IpAddr::from([0; 4])),
            AddressFamily::Inet6 => Some(IpAddr::from([0; 16])),
            _ => None,
        };
        IpNet::new(self.find(part).or_else(everything)?, length).ok()
    }

    pub(super) fn gateway(&self) -> Option<IpAddr> {
        self.find(|part| match part {
            RouteAttribute::Gateway(gateway) => address(gateway),
            RouteAttribute::Via(RouteVia::Inet(gateway)) => Some((*gateway).into()),
            RouteAttribute::Via(RouteVia::Inet6(gateway)) => Some((*gateway).into()),
            _ => None,
        })
    }

    pub(super) fn device(&self) -> Option<u32> {
        self.find(|part| if let RouteAttribute::Oif(index) = part { Some(*index) } else { None })
    }

    pub(super) fn metric(&self) -> u32 {
        self.find(|part| if let RouteAttribute::Priority(metric) = part { Some(*metric) } else { None })
            .unwrap_or_default()
    }

    /// All of it that tells it from other routes, without what the kernel added for readers.
    fn removal(&self) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header = self.0.header.clone();
        message.header.flags = RouteFlags::empty();
        let by_id = self.0.attributes.iter().any(|part| matches!(part, RouteAttribute::NhId(_)));
        let parts = self.0.attributes.iter().filter_map(|part| match part {
            RouteAttribute::Destination(_)
            | RouteAttribute::Source(_)
            | RouteAttribute::Table(_)
            | RouteAttribute::Priority(_)
            | RouteAttribute::NhId(_) => Some(part.clone()),
            // The kernel takes an id or what it stands for, not both.
            RouteAttribute::Gateway(_) | RouteAttribute::Via(_) | RouteAttribute::Oif(_) if !by_id => {
                Some(part.clone())
            }
            RouteAttribute::MultiPath(hops) if !by_id => {
                let mut hops = hops.clone();
                hops.iter_mut().for_each(|hop| hop.flags = Default::default());
                Some(RouteAttribute::MultiPath(hops))
            }
            _ => None,
        });
        message.attributes = parts.collect();
        message
    }

    fn describe(&self, links: &[Link]) -> String {
        let mut text = match self.destination() {
            Some(destination) => format!("route {destination}"),
            None => "route".to_owned(),
        };
        if let Some(gateway) = self.gateway() {
            text += &format!(" via {gateway}");
        }
        if let Some(index) = self.device() {
            match links.iter().find(|link| link.index == index) {
                Some(link) => text += &format!(" dev {}", link.name),
                None => text += &format!(" dev #{index}"),
            }
        }
        if self.metric() != 0 {
            text += &format!(" metric {}", self.metric());
        }
        text + &format!(" table {} protocol {}", self.table(), self.protocol())
    }
}

impl Rule {
    fn find<T>(&self, part: impl Fn(&RuleAttribute) -> Option<T>) -> Option<T> {
        self.0.attributes.iter().find_map(part)
    }

    pub(super) fn family(&self) -> Option<IpFamily> {
        match self.0.header.family {
            AddressFamily::Inet => Some(IpFamily::Ipv4),
            AddressFamily::Inet6 => Some(IpFamily::Ipv6),
            _ => None,
        }
    }

    pub(super) fn protocol(&self) -> u8 {
        self.find(|part| if let RuleAttribute::Protocol(protocol) = part { Some((*protocol).into()) } else { None })
            .unwrap_or_default()
    }

    pub(super) fn priority(&self) -> u32 {
        self.find(|part| if let RuleAttribute::Priority(priority) = part { Some(*priority) } else { None })
            .unwrap_or_default()
    }

    pub(super) fn table(&self) -> u32 {
        self.find(|part| if let RuleAttribute::Table(table) = part { Some(*table) } else { None })
            .unwrap_or_else(|| self.0.header.table.into())
    }

    /// What it selects packets by.
    fn selectors(&self) -> impl Iterator<Item = &RuleAttribute> {
        self.0.attributes.iter().filter(|part| {
            !matches!(
                part,
                RuleAttribute::Priority(_)
                    | RuleAttribute::Table(_)
                    | RuleAttribute::Protocol(_)
                    | RuleAttribute::SuppressPrefixLen(ALL_ONES)
                    | RuleAttribute::SuppressIfGroup(ALL_ONES)
            )
        })
    }

    /// Whether it is exactly this rule, whatever its protocol.
    pub(super) fn is(&self, plan: &RulePlan) -> bool {
        let header = &self.0.header;
        let mark = plan.mark.unwrap_or_default();
        let mask = plan.mask.unwrap_or(if mark == 0 { 0 } else { ALL_ONES });
        // Everything is no selector.
        let source = plan.source.filter(|network| network.prefix_len() > 0);
        let destination = plan.destination.filter(|network| network.prefix_len() > 0);
        let wanted = [
            source.map(|network| RuleAttribute::Source(network.addr())),
            destination.map(|network| RuleAttribute::Destination(network.addr())),
            (mark != 0).then_some(RuleAttribute::FwMark(mark)),
            (mark | mask != 0).then_some(RuleAttribute::FwMask(mask)),
            plan.input_device.clone().map(RuleAttribute::Iifname),
            plan.output_device.clone().map(RuleAttribute::Oifname),
        ];
        let wanted: Vec<_> = wanted.into_iter().flatten().collect();
        let length = |network: Option<IpNet>| network.map_or(0, |network| network.prefix_len());
        self.family() == Some(plan.family)
            && self.priority() == plan.priority
            && self.table() == plan.table.unwrap_or_default()
            && (header.action == RuleAction::ToTable) == plan.table.is_some()
            && !header.flags.contains(RuleFlags::Invert)
            && header.tos == 0
            && header.src_len == length(source)
            && header.dst_len == length(destination)
            && self.selectors().count() == wanted.len()
            && self.selectors().all(|selector| wanted.contains(selector))
    }

    fn removal(&self) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header = self.0.header.clone();
        message.header.flags = self.0.header.flags & RuleFlags::Invert;
        message.attributes.clone_from(&self.0.attributes);
        message
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.family() == Some(IpFamily::Ipv6) { "IPv6" } else { "IPv4" };
        write!(f, "{family} rule {}:", self.priority())?;
        let header = &self.0.header;
        if header.flags.contains(RuleFlags::Invert) {
            write!(f, " not")?;
        }
        for selector in self.selectors() {
            match selector {
                RuleAttribute::Source(source) => write!(f, " from {source}/{}", header.src_len)?,
                RuleAttribute::Destination(destination) => write!(f, " to {destination}/{}", header.dst_len)?,
                RuleAttribute::FwMark(mark) => write!(f, " fwmark {mark:#x}")?,
                RuleAttribute::FwMask(ALL_ONES) => {}
                RuleAttribute::FwMask(mask) => write!(f, " mask {mask:#x}")?,
                RuleAttribute::Iifname(name) => write!(f, " iif {name}")?,
                RuleAttribute::Oifname(name) => write!(f, " oif {name}")?,
                other => write!(f, " {other:?}")?,
            }
        }
        match header.action {
            RuleAction::ToTable => write!(f, " table {}", self.table())?,
            action => write!(f, " {action:?}")?,
        }
        write!(f, " protocol {}", self.protocol())
    }
}
