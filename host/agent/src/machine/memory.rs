//! The memory that the container may have, and whether compiling a policy fits into it. The kernel ends what takes more
//! without a word in any log but its own, so it is said beforehand.

use std::{fs, path::Path};

use crate::config::{Config, Size};

/// Where the kernel shows the limits of the control group that a container is in.
pub const CGROUP: &str = "/sys/fs/cgroup";

/// What the agent itself needs while a policy is compiled beside it.
const AGENT: Size = Size::from_mib(64);

/// More than any machine has: version 1 of control groups says so when there is no limit.
const NO_LIMIT: u64 = 1 << 60;

/// The memory limit of the container, if it has one. `cgroup` is [`CGROUP`], with version 2 or version 1 in it.
#[must_use]
pub fn limit(cgroup: &Path) -> Option<Size> {
    let read = |file| fs::read_to_string(cgroup.join(file)).ok();
    let text = read("memory.max").or_else(|| read("memory/memory.limit_in_bytes"))?;
    // Version 2 says `max` when there is no limit.
    let bytes = text.trim().parse().ok()?;
    (bytes < NO_LIMIT).then(|| Size::from_bytes(bytes))
}

/// What is to be said when this limit leaves no room for compiling a policy under this configuration.
#[must_use]
pub fn no_room(config: &Config, limit: Size) -> Option<String> {
    let general = ("policies.limits.compileMemory".to_owned(), config.policies.limits.compile_memory);
    let own = config.policies.grants.iter().filter_map(|(binding, grant)| {
        Some((format!("policies.grants.{binding}.limits.compileMemory"), grant.limits.compile_memory?))
    });
    let (key, compile) = own.fold(general, |most, next| if next.1 > most.1 { next } else { most });
    let needed = Size::from_bytes(compile.bytes().saturating_add(AGENT.bytes()));
    (limit < needed).then(|| {
        format!(
            "The container may have {limit} of memory, which leaves no room for compiling a policy: `{key}` is {compile}, \
             and the agent itself needs up to {AGENT} beside it. Raise the container's memory limit to {needed}, or lower \
             that key."
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

    use super::*;

    #[test]
    fn the_limit_of_either_version_is_found_and_none_where_there_is_none() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(limit(folder.path()), None);
        fs::create_dir(folder.path().join("memory")).unwrap();
        let old = folder.path().join("memory/memory.limit_in_bytes");
        fs::write(&old, "9223372036854771712\n").unwrap();
        assert_eq!(limit(folder.path()), None);
        fs::write(&old, "268435456\n").unwrap();
        assert_eq!(limit(folder.path()), Some(Size::from_mib(256)));
        let new = folder.path().join("memory.max");
        fs::write(&new, "max\n").unwrap();
        assert_eq!(limit(folder.path()), None);
        fs::write(&new, "134217728\n").unwrap();
        assert_eq!(limit(folder.path()), Some(Size::from_mib(128)));
    }

    #[test]
    fn a_container_without_room_for_the_largest_compiler_is_told_with_the_key_and_what_would_do() {
        let mut config = Config::default();
        assert_eq!(no_room(&config, Size::from_mib(256)), None);
        let said = no_room(&config, Size::from_mib(255)).unwrap();
        assert!(said.contains("`policies.limits.compileMemory` is 192MiB"), "{said}");
        assert!(said.contains("to 256MiB"), "{said}");
        let large = config.policies.grants.entry("big".into()).or_default();
        large.limits.compile_memory = Some(Size::from_mib(512));
        let said = no_room(&config, Size::from_mib(512)).unwrap();
        assert!(said.contains("`policies.grants.big.limits.compileMemory` is 512MiB"), "{said}");
        assert_eq!(no_room(&config, Size::from_mib(576)), None);
    }
}
