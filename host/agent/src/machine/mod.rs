//! Everything that touches this machine's files: the CNI configuration, the ledger, the lock, the mounted token.
//! It blocks, so callers run it where blocking is allowed; it never talks to the API server and never decides what
//! should be where.

pub mod cni;
pub mod files;
pub mod ledger;
pub mod lock;
pub mod token;

#[cfg(test)]
mod testing;
