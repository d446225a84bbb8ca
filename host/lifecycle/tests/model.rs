//! The life in a bounded world, checked through: every promise in every state that can be reached within the bounds.
//!
//! `cargo test --workspace --test model -- --nocapture` is the short form, within the short bounds. The long one, with what
//! it covers: `MOORLINE_MODEL=long cargo test -p moorline-lifecycle --release --test model -- --nocapture --test-threads 1`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests may fail by panicking, and tell")]
#![allow(unreachable_pub, reason = "a test binary has no outside")]

mod lives;
mod world;

use lives::{Alphabet, Bounds, check};

#[test]
fn every_promise_holds_with_one_trouble_of_any_kind_at_any_moment() {
    let long = Bounds { alphabet: Alphabet::All, troubles: 1, detours: 2, ticks: 8, starts: 3, rest: 4 };
    check(long.or(Bounds { detours: 0, ticks: 4, starts: 2, rest: 16, ..long }));
}

#[test]
fn every_promise_holds_with_two_of_the_worst_troubles_at_any_two_moments() {
    let long = Bounds { alphabet: Alphabet::Core, troubles: 2, detours: 0, ticks: 8, starts: 3, rest: 16 };
    check(long.or(Bounds { alphabet: Alphabet::Core, troubles: 1, detours: 1, ticks: 3, starts: 2, rest: 32 }));
}
