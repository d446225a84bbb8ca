//! The default policy as an agent asks it: the built component in the real host, hook by hook.
//! `MOORLINE_TEST_COMPONENT` names another build of the same source, to hold it to the same answers.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests may fail by panicking")]

mod acknowledgment;
mod adoption;
mod cni;
mod component;
mod drift;
mod retry;
mod settings;
mod taints;

use std::sync::OnceLock;

use moorline_policy_test::{Tested, load};

/// The component, loaded once for all tests.
fn policy() -> Tested {
    static POLICY: OnceLock<Tested> = OnceLock::new();
    let file = || std::env::var_os("MOORLINE_TEST_COMPONENT").unwrap_or_else(|| "default.wasm".into());
    POLICY.get_or_init(|| load(file())).clone()
}
