//! Everything that touches this machine: its files (the CNI configuration, the ledger, the lock, the mounted token) and its
//! network. Work on files blocks, so callers run it where blocking is allowed; nothing here ever talks to the API server and never decides what
//! should be where.

pub mod cni;
pub mod files;
pub mod ledger;
pub mod lock;
pub mod memory;
pub mod network;
pub mod token;

/// The id of this boot of the machine, where the kernel tells it.
pub fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

#[cfg(test)]
mod testing;
