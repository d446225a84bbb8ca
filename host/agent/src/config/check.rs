//! What types alone can't say about a configuration: bounds, names, and settings that contradict each other. It judges;
//! where a value came from is the loader's affair.

use std::ops::RangeInclusive;
use std::path::Path;

use moorline_policy::Digest;

use super::problem::{Origin, Problem};
use super::value::is_dns_name;
use super::{
    Config, DataPlaneKind, IpFamily, LegacyConfig, LegacyLink, LegacyRoute, LegacyRule, NetworkConfig, Period,
    PolicyLimits, Size,
};

/// Something that is wrong with a value that has the right type.
pub(super) struct Finding {
    key: Vec<String>,
    /// The key that it contradicts, if it is about two.
    other: Option<Vec<String>>,
    message: String,
    way_out: String,
}

impl Finding {
    /// The keys that it is about, the one that is blamed first.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[String]> {
        std::iter::once(&self.key).chain(&self.other).map(Vec::as_slice)
    }

    /// The same as a problem that was said somewhere.
    pub(super) fn at(self, origin: Origin) -> Problem {
        Problem { origin, key: self.key.join("."), message: self.message, way_out: self.way_out }
    }
}

/// Everything that is wrong.
pub(super) fn findings(config: &Config) -> Vec<Finding> {
    let mut check = Check(Vec::new());
    check.names(config);
    check.cluster(config);
    check.machine(config);
    check.policies(config);
    check.floors(config);
    check.data_plane(config);
    check.rest(config);
    check.0
}

struct Check(Vec<Finding>);

/// Protocols up to this one are the kernel's and what people and scripts use without thinking of it.
const LAST_RESERVED_PROTOCOL: u8 = 4;
const KERNEL_PROTOCOL: u8 = 2;
/// Protocols that have an owner, as in `/etc/iproute2/rt_protos`.
const TAKEN_PROTOCOLS: [(RangeInclusive<u8>, &str); 12] = [
    (8..=8, "gated"),
    (9..=9, "router advertisements"),
    (10..=10, "mrtd"),
    (11..=11, "zebra"),
    (12..=12, "bird"),
    (13..=15, "an old routing daemon"),
    (16..=16, "DHCP"),
    (17..=18, "mrouted or keepalived"),
    (42..=42, "babel"),
    (80..=84, "OVN"),
    (99..=99, "Open/R"),
    (186..=192, "FRR"),
];

fn parts(key: &str) -> Vec<String> {
    key.split('.').map(str::to_owned).collect()
}

const SECOND: Period = Period::from_secs(1);
const MINUTE: Period = Period::from_minutes(1);
const FIVE_MINUTES: Period = Period::from_minutes(5);
const HOUR: Period = Period::from_minutes(60);
const DAY: Period = Period::from_minutes(24 * 60);

impl Check {
    fn blame(&mut self, key: &str, message: impl Into<String>, way_out: impl Into<String>) {
        let finding = Finding { key: parts(key), other: None, message: message.into(), way_out: way_out.into() };
        self.0.push(finding);
    }

    /// Blames a key for contradicting another one.
    fn contradict(&mut self, key: &str, other: &str, message: impl Into<String>, way_out: impl Into<String>) {
        self.blame(key, message, way_out);
        if let Some(finding) = self.0.last_mut() {
            finding.other = Some(parts(other));
        }
    }

    fn within<T: PartialOrd + std::fmt::Display>(&mut self, key: &str, value: T, range: RangeInclusive<T>) {
        if !range.contains(&value) {
            let (low, high) = range.into_inner();
            self.blame(key, format!("is {value}"), format!("Choose a value from {low} to {high}"));
        }
    }

    fn absolute(&mut self, key: &str, path: &Path) {
        if !is_whole(path) {
            let message = format!("is {:?}, which is no absolute path", path.display().to_string());
            self.blame(key, message, WRITE_WHOLE);
        }
    }

    fn names(&mut self, Config { node, pod, .. }: &Config) {
        for (key, name) in [("node.name", &node.name), ("pod.name", &pod.name), ("pod.namespace", &pod.namespace)] {
            if let Some(name) = name
                && !is_dns_name(name)
            {
                let way_out = "Write the name as `kubectl get` prints it: lower-case letters, digits, `-` and `.`";
                self.blame(key, format!("is {name:?}, which no object can be called"), way_out);
            }
        }
        if pod.uid.as_deref().is_some_and(|uid| uid.trim().is_empty()) {
            self.blame("pod.uid", "is empty", "Set it from `metadata.uid` by the downward API, or leave it out");
        }
        self.absolute("pod.tokenFile", &pod.token_file);
        self.absolute("pod.terminationLog", &pod.termination_log);
    }

    fn cluster(&mut self, Config { cluster, .. }: &Config) {
        if let Some(url) = &cluster.api_server {
            self.api_server(url);
            if cluster.kubeconfig.is_some() {
                let way_out = "Keep one of the two; a kubeconfig names its server itself";
                self.contradict(
                    "cluster.kubeconfig",
                    "cluster.apiServer",
                    "is set together with `cluster.apiServer`",
                    way_out,
                );
            }
        }
        if let Some(path) = &cluster.kubeconfig {
            self.absolute("cluster.kubeconfig", path);
        }
        let watch = cluster.watch_timeout;
        self.within("cluster.watchTimeout.min", watch.min, MINUTE..=DAY);
        self.within("cluster.watchTimeout.max", watch.max, MINUTE..=DAY);
        if watch.min > watch.max {
            let message = format!("is {}, and `cluster.watchTimeout.max` is {}", watch.min, watch.max);
            let way_out = "Let the shortest watch not be longer than the longest";
            self.contradict("cluster.watchTimeout.min", "cluster.watchTimeout.max", message, way_out);
        }
        let idle = cluster.watch_idle_limit;
        if idle < Period::from_secs(90) || idle >= watch.min {
            let message = format!("is {idle}, and watches last from {} on", watch.min);
            let way_out = "Choose at least 1m 30s, since bookmarks come about once a minute, and less than \
                           `cluster.watchTimeout.min`";
            self.contradict("cluster.watchIdleLimit", "cluster.watchTimeout.min", message, way_out);
        }
        self.within("cluster.requestTimeout", cluster.request_timeout, SECOND..=FIVE_MINUTES);
    }

    fn api_server(&mut self, url: &str) {
        let key = "cluster.apiServer";
        let uri = url.parse::<http::Uri>().ok().filter(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
        });
        let Some(uri) = uri else {
            let message = format!("is {url:?}, which is no URL of a server");
            return self.blame(key, message, "Write it like `https://10.0.0.1:6443`");
        };
        let host = uri.host().unwrap_or_default();
        if host == "kubernetes"
            || host.starts_with("kubernetes.default")
            || host.ends_with(".svc")
            || host.contains(".svc.")
        {
            let message = format!("names {host:?}, which only cluster DNS knows, and the agent starts before that");
            self.blame(key, message, "Write the server's address, or a name that the machine itself resolves");
        }
    }

    fn machine(&mut self, Config { machine, .. }: &Config) {
        let file = &machine.cni_file;
        let is_plain = !file.starts_with('.') && !file.contains('/') && file.len() <= 200;
        if !is_plain || !file.ends_with(".conflist") {
            let way_out = "Write a file name such as `10-unbounded.conflist`, without a folder";
            self.blame("machine.cniFile", format!("is {file:?}, which no container runtime would read"), way_out);
        }
        let folders = [
            ("machine.cniDirectory", &machine.cni_directory),
            ("machine.stateDirectory", &machine.state_directory),
            ("machine.cacheDirectory", &machine.cache_directory),
        ];
        for (key, folder) in folders {
            self.absolute(key, folder);
        }
        for (key, folder) in &folders[1..] {
            if folder.starts_with(&machine.cni_directory) {
                let message = "lies in `machine.cniDirectory`, where the container runtime reads every file";
                self.contradict(key, "machine.cniDirectory", message, "Choose a folder of its own");
            }
        }
        self.network(&machine.network);
        if machine.cache_directory == machine.state_directory {
            let message = "is `machine.stateDirectory` too, and a cache may be emptied at any time";
            self.contradict("machine.cacheDirectory", "machine.stateDirectory", message, "Choose a folder of its own");
        }
    }

    fn network(&mut self, network: &NetworkConfig) {
        let own = network.route_protocol;
        if own <= LAST_RESERVED_PROTOCOL {
            let message = format!("is {own}, which every other route on the machine may carry");
            self.blame("machine.network.routeProtocol", message, "Choose a number from 5 to 255 that nobody else uses");
        } else if let Some((_, owner)) = TAKEN_PROTOCOLS.iter().find(|(numbers, _)| numbers.contains(&own)) {
            let message = format!("is {own}, which is {owner}'s");
            self.blame("machine.network.routeProtocol", message, "Choose a number that nobody else uses, such as 158");
        }
        let alias = &network.link_alias;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/');
        if alias.is_empty() || alias.len() > 64 || !alias.bytes().all(is_plain) {
            let message = format!("is {alias:?}, which can't begin an alias");
            self.blame("machine.network.linkAlias", message, "Write 1 to 64 letters, digits, `-`, `_`, `.` and `/`");
        }
        self.legacy(&network.legacy, own);
    }

    fn legacy(&mut self, LegacyConfig { links, routes, rules }: &LegacyConfig, own: u8) {
        let key = "machine.network.legacy.links";
        for LegacyLink { name, .. } in links {
            if name == "lo" {
                self.blame(key, "has `lo`, which is the machine's own", "Take it out");
            } else if !is_interface_name(name) || name.contains(['*', '?', '[']) {
                let way_out = "Write the whole name, at most 15 characters; a pattern is never enough";
                self.blame(key, format!("has {name:?}, which no link can be called"), way_out);
            }
        }
        let way_out = "Name the protocol with which the older agent put it there";
        for LegacyRoute { destination, table, protocol, device, .. } in routes {
            let key = "machine.network.legacy.routes";
            if *destination != destination.trunc() {
                let message = format!("has {destination}, which has bits behind its prefix");
                self.blame(key, message, format!("Write {}, if that is meant", destination.trunc()));
            }
            if *table == 0 {
                self.blame(key, format!("has {destination} in table 0, which is no table"), "The main table is 254");
            }
            if let Some(device) = device.as_ref().filter(|device| !is_interface_name(device)) {
                let message = format!("has {destination} by {device:?}, which no link can be called");
                self.blame(key, message, "Write the whole name");
            }
            self.legacy_protocol(key, &destination.to_string(), *protocol, own, way_out);
        }
        for LegacyRule { family, priority, protocol, source, destination, mark, mask, .. } in rules {
            let key = "machine.network.legacy.rules";
            let other = [source, destination].into_iter().flatten().find(|network| IpFamily::of(network) != *family);
            if let Some(network) = other {
                let message = format!("has {network} in rule {priority}, which is of another family");
                self.blame(key, message, "Correct the one or the other");
            }
            if mask.is_some() && mark.is_none() {
                self.blame(key, format!("has a mask without a mark in rule {priority}"), "Add `mark`");
            }
            self.legacy_protocol(key, &format!("rule {priority}"), *protocol, own, way_out);
        }
    }

    fn legacy_protocol(&mut self, key: &str, what: &str, protocol: u8, own: u8, way_out: &str) {
        if protocol == KERNEL_PROTOCOL {
            let message = format!("has {what} with protocol {protocol}, by which the kernel marks its own");
            self.blame(key, message, way_out);
        } else if protocol == own {
            let message = format!("has {what} with protocol {protocol}, which is `machine.network.routeProtocol` too");
            self.contradict(key, "machine.network.routeProtocol", message, "The agent removes its own by itself");
        }
    }

    fn policies(&mut self, Config { policies, .. }: &Config) {
        if let Some(directory) = &policies.directory {
            self.absolute("policies.directory", directory);
        }
        let look = Period::from_secs(1)..=Period::from_minutes(60);
        self.within("policies.lookInterval", policies.look_interval, look);
        self.limits(&["policies", "limits"], &policies.limits);
        for (name, grant) in &policies.grants {
            if name.trim().is_empty() {
                self.blame("policies.grants", "has a grant for no binding", "Write the binding's name as its key");
            }
            if let Some(digest) = grant.sha256.as_deref().filter(|digest| digest.parse::<Digest>().is_err()) {
                let from = self.0.len();
                let message = format!("is {digest:?}, which is no SHA-256 digest");
                self.blame("sha256", message, "Write the 64 hexadecimal digits that `sha256sum` prints for the module");
                self.place_below(from, &["policies", "grants", name]);
            }
            // What isn't a grant's own was judged above.
            let own = grant.limits.over(&PolicyLimits::default());
            self.limits(&["policies", "grants", name, "limits"], &own);
        }
    }

    fn limits(&mut self, section: &[&str], limits: &PolicyLimits) {
        let from = self.0.len();
        self.within("fuel", limits.fuel, 10_000..=100_000_000_000);
        self.within("deadline", limits.deadline, Period::from_millis(10)..=Period::from_secs(10));
        self.within("memory", limits.memory, Size::from_mib(1)..=Size::from_mib(256));
        self.within("tableElements", limits.table_elements, 100..=10_000_000);
        self.within("instances", limits.instances, 1..=10_000);
        self.within("output", limits.output, Size::from_kib(1)..=Size::from_mib(3));
        self.within("stack", limits.stack, Size::from_kib(64)..=Size::from_mib(1));
        self.within("reason", limits.reason, Size::from_bytes(64)..=Size::from_kib(16));
        self.within("logLines", limits.log_lines, 0..=10_000);
        self.within("logSize", limits.log_size, Size::from_bytes(0)..=Size::from_mib(1));
        self.within("inputString", limits.input_string, Size::from_kib(1)..=Size::from_mib(1));
        self.within("moduleSize", limits.module_size, Size::from_kib(1)..=Size::from_mib(64));
        self.within("compileMemory", limits.compile_memory, Size::from_mib(32)..=Size::from_mib(4096));
        self.within("compileDeadline", limits.compile_deadline, Period::from_secs(1)..=Period::from_minutes(10));
        self.place_below(from, section);
    }

    /// The findings from this one on are about keys of this section.
    fn place_below(&mut self, from: usize, section: &[&str]) {
        for finding in self.0.iter_mut().skip(from) {
            finding.key.splice(0..0, section.iter().map(|part| (*part).to_owned()));
        }
    }

    fn floors(&mut self, Config { floors, .. }: &Config) {
        for key in floors.allowed_taints.iter().filter(|key| !is_qualified(key)) {
            let message = format!("has {key:?}, which no taint's key can be");
            self.blame("floors.allowedTaints", message, "Write keys such as `example.com/not-ready`");
        }
        let gateway = &floors.gateway_taint;
        if !is_qualified(gateway) {
            let message = format!("is {gateway:?}, which no taint's key can be");
            self.blame("floors.gatewayTaint", message, "Write a key such as `net.unbounded-cloud.io/gateway-node`");
        } else if !floors.allowed_taints.contains(gateway) {
            let message =
                format!("doesn't have `floors.gatewayTaint` ({gateway}), so that no worker with it is ever done");
            self.contradict("floors.allowedTaints", "floors.gatewayTaint", message, "Add it");
        }
        for prefix in &floors.annotation_prefixes {
            let domain = prefix.split_once('/').map(|(domain, _)| domain);
            if !domain.is_some_and(is_dns_name) {
                let message = format!("has {prefix:?}, which is no prefix of annotation keys");
                self.blame(
                    "floors.annotationPrefixes",
                    message,
                    "Write prefixes with their slash, such as `moorline.dev/`",
                );
            } else if domain.is_some_and(is_reserved) {
                let message = format!("has {prefix:?}, which belongs to Kubernetes itself");
                self.blame("floors.annotationPrefixes", message, "Use a domain of your own");
            }
        }
        for name in floors.cni.bridge_names.iter().filter(|name| !is_interface_name(name)) {
            let message = format!("has {name:?}, which no network interface can be called");
            self.blame("floors.cni.bridgeNames", message, "Write at most 15 characters, without spaces, `/` and `:`");
        }
        for folder in floors.cni.data_dirs.iter().filter(|folder| !is_whole(Path::new(folder))) {
            let message = format!("has {folder:?}, which is no absolute path");
            self.blame("floors.cni.dataDirs", message, WRITE_WHOLE);
        }
        self.within("floors.cni.maxSize", floors.cni.max_size, Size::from_kib(1)..=Size::from_mib(1));
    }

    fn data_plane(&mut self, Config { data_plane, .. }: &Config) {
        match (data_plane.kind, data_plane.command.first()) {
            (DataPlaneKind::Command, None) => {
                let way_out =
                    "Name the executable and its arguments as a list in `dataPlane.command`, or choose `none`";
                let message = "is `command`, and `dataPlane.command` is empty";
                self.contradict("dataPlane.kind", "dataPlane.command", message, way_out);
            }
            (DataPlaneKind::Command, Some(executable)) => {
                if !Path::new(executable).is_absolute() {
                    let message = format!("begins with {executable:?}, which is no absolute path");
                    self.blame("dataPlane.command", message, "Write the executable's whole path, from `/` on");
                }
            }
            (DataPlaneKind::None, Some(_)) => {
                let way_out = "Choose `command` as `dataPlane.kind`, or take the command away";
                let message = "is set, and `dataPlane.kind` is `none`";
                self.contradict("dataPlane.command", "dataPlane.kind", message, way_out);
            }
            (DataPlaneKind::None, None) => {}
        }
        if data_plane.command.iter().any(|argument| argument.contains('\0')) {
            self.blame("dataPlane.command", "has an argument with a NUL byte", "Take it out");
        }
        self.within("dataPlane.timeLimit", data_plane.time_limit, SECOND..=HOUR);
        self.within("dataPlane.outputLimit", data_plane.output_limit, Size::from_kib(1)..=Size::from_mib(16));
        for (name, value) in &data_plane.environment {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                let message = format!("has {name:?}, which can't be set as a variable");
                self.blame("dataPlane.environment", message, "Use a name without `=`, and no NUL byte");
            }
        }
    }

    fn rest(&mut self, Config { health, deadlines, log, .. }: &Config) {
        if let Some(metrics) = health.metrics_address
            && let Some(address) = health.address
            && metrics.port() == address.port()
            && metrics.port() != 0
            && (metrics.ip() == address.ip() || metrics.ip().is_unspecified() || address.ip().is_unspecified())
        {
            let message = format!("is {metrics}, and `health.address` is {address}: both would take the same port");
            self.contradict("health.metricsAddress", "health.address", message, "Choose another port");
        }
        self.within("deadlines.end", deadlines.end, SECOND..=FIVE_MINUTES);
        self.within("deadlines.cleanup", deadlines.cleanup, SECOND..=FIVE_MINUTES);
        self.within("deadlines.denialInterval", deadlines.denial_interval, Period::from_secs(10)..=DAY);
        if let Some(part) = log.filter.split(',').find(|part| !is_log_directive(part)) {
            let message = format!("has {part:?}, which is neither a level nor a module with a level");
            let way_out = "Write a level (error, warn, info, debug, trace, off), or modules with levels too, such as \
                           `info,moorline=debug`";
            self.blame("log.filter", message, way_out);
        }
    }
}

/// Whether one part of a log filter says what people mean: a bare word that is no level would be taken for a module.
fn is_log_directive(part: &str) -> bool {
    let is_level = |level: &str| level.trim().parse::<tracing_subscriber::filter::LevelFilter>().is_ok();
    match part.split_once('=') {
        Some((module, level)) => !module.trim().is_empty() && is_level(level),
        None => is_level(part),
    }
}

/// Whether a text can be the key of a taint or label: a name, with a DNS prefix or without.
fn is_qualified(key: &str) -> bool {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    domain.is_none_or(is_dns_name)
        && name.len() <= 63
        && edge(name.bytes().next())
        && edge(name.bytes().last())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Whether a domain is one of those that Kubernetes keeps for itself.
fn is_reserved(domain: &str) -> bool {
    ["kubernetes.io", "k8s.io"]
        .iter()
        .any(|kept| domain.strip_suffix(kept).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

const WRITE_WHOLE: &str = "Write the whole path, from `/` on, without `..`";

fn is_whole(path: &Path) -> bool {
    path.is_absolute() && !path.components().any(|part| part == std::path::Component::ParentDir)
}

pub(crate) fn is_interface_name(name: &str) -> bool {
    (1..=15).contains(&name.len())
        && !matches!(name, "." | "..")
        && name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':'))
}
