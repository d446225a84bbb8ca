//! The configuration in the words of those who are configured: the life, the policy host, the cluster. Nothing is read here
//! but the configuration.

use moorline_lifecycle::Settings;
use moorline_policy::{Grants, Level, LimitOverrides, Limits, Wasi};

use crate::cluster::{GroupVersion, Names, Timeouts};
use crate::config::{ApiVersion, Config, Grant, Period, PolicyLimits, PolicyLogLevel, Size, WasiGrant};

/// The life's part; none where Node or Pod are not named.
pub(super) fn life(config: &Config) -> Option<Settings> {
    let Config { node, pod, cluster, floors, deadlines, events, .. } = config;
    let mut settings = Settings::new(node.name.clone()?, pod.name.clone()?, pod.namespace.clone()?, pod.uid.clone()?);
    settings.allowed_taints.clone_from(&floors.allowed_taints);
    settings.gateway_taint.clone_from(&floors.gateway_taint);
    settings.annotation_prefixes.clone_from(&floors.annotation_prefixes);
    settings.cni.plugin_types.clone_from(&floors.cni.plugin_types);
    settings.cni.bridge_names.clone_from(&floors.cni.bridge_names);
    settings.cni.data_dirs.clone_from(&floors.cni.data_dirs);
    settings.cni.max_bytes = floors.cni.max_size.as_usize();
    settings.end_deadline = deadlines.end.get();
    settings.cleanup_deadline = deadlines.cleanup.get();
    settings.denial_interval = deadlines.denial_interval.get();
    settings.watch_lifetime = (cluster.watch_timeout.min.get(), cluster.watch_timeout.max.get());
    settings.events = events.enabled;
    Some(settings)
}

pub(super) fn names(config: &Config, settings: &Settings) -> Names {
    let api = |api: &ApiVersion| GroupVersion { group: api.group.clone(), version: api.version.clone() };
    Names {
        node: settings.node_name.clone(),
        pod: settings.pod_name.clone(),
        namespace: settings.pod_namespace.clone(),
        site_api: api(&config.cluster.site_api),
        gateway_api: api(&config.cluster.gateway_api),
    }
}

pub(super) fn timeouts(config: &Config) -> Timeouts {
    Timeouts { request: config.cluster.request_timeout.get(), idle: config.cluster.watch_idle_limit.get() }
}

/// What every policy may use; a grant may say otherwise for a binding.
pub fn limits(limits: &PolicyLimits) -> Limits {
    Limits {
        fuel: limits.fuel,
        deadline: limits.deadline.get(),
        memory_bytes: limits.memory.as_usize(),
        table_elements: to_usize(limits.table_elements),
        stack_bytes: limits.stack.as_usize(),
        instances: to_usize(limits.instances),
        output_bytes: limits.output.as_usize(),
        reason_bytes: limits.reason.as_usize(),
        log_lines: to_usize(limits.log_lines),
        log_bytes: limits.log_size.as_usize(),
        log_level: level(limits.log_level),
        input_string_bytes: limits.input_string.as_usize(),
        component_bytes: limits.module_size.as_usize(),
        compile_memory_bytes: limits.compile_memory.as_usize(),
        compile_deadline: limits.compile_deadline.get(),
    }
}

pub(super) fn grants(grant: &Grant) -> Grants {
    let limits = &grant.limits;
    Grants {
        // What isn't a digest was refused with the configuration.
        sha256: grant.sha256.as_deref().and_then(|digest| digest.parse().ok()),
        wasi: match grant.wasi {
            WasiGrant::None => Wasi::None,
            WasiGrant::Isolated => Wasi::Isolated,
        },
        may_tolerate: grant.may_tolerate,
        permits: grant.plugin_types.clone(),
        limits: LimitOverrides {
            fuel: limits.fuel,
            deadline: limits.deadline.map(Period::get),
            memory: limits.memory.map(Size::as_usize),
            table_elements: limits.table_elements.map(to_usize),
            stack: limits.stack.map(Size::as_usize),
            instances: limits.instances.map(to_usize),
            output: limits.output.map(Size::as_usize),
            reason: limits.reason.map(Size::as_usize),
            log_lines: limits.log_lines.map(to_usize),
            log_size: limits.log_size.map(Size::as_usize),
            log_level: limits.log_level.map(level),
            input_string: limits.input_string.map(Size::as_usize),
            module_size: limits.module_size.map(Size::as_usize),
            compile_memory: limits.compile_memory.map(Size::as_usize),
            compile_deadline: limits.compile_deadline.map(Period::get),
        },
    }
}

fn level(level: PolicyLogLevel) -> Level {
    match level {
        PolicyLogLevel::Trace => Level::Trace,
        PolicyLogLevel::Debug => Level::Debug,
        PolicyLogLevel::Info => Level::Info,
        PolicyLogLevel::Warn => Level::Warn,
        PolicyLogLevel::Error => Level::Error,
    }
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
