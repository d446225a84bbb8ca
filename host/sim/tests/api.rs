//! What the embedded API server promises, seen through an unchanged `kube::Client`. The modules follow the table of what
//! a real API server answers, so that the same requests can be put to one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may fail by panicking")]

#[path = "api/common.rs"]
mod common;

#[path = "api/admin.rs"]
mod admin;
#[path = "api/audit.rs"]
mod audit;
#[path = "api/faults.rs"]
mod faults;
#[path = "api/refusals.rs"]
mod refusals;
#[path = "api/rights.rs"]
mod rights;
#[path = "api/watches.rs"]
mod watches;
#[path = "api/writes.rs"]
mod writes;
