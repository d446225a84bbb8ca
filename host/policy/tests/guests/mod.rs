//! Guests for tests: a core module in text and a world of the contract make a component.
#![allow(dead_code, reason = "every test file uses some of this")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

use moorline_policy::{CallOutcome, Engine, EngineConfig, Hook, Limits, LoadError, Loader, Policy};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

pub(crate) const CONTRACT: &str = include_str!("../../../../wit/policy.wit");

/// A component for a world of `wit`, with a core module in text.
pub(crate) fn component(wit: &str, world: &str, core: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let package = resolve.push_str("guest.wit", wit).unwrap();
    let world = resolve.select_world(&[package], Some(world)).unwrap();
    let mut module = wat::parse_str(core).unwrap_or_else(|error| panic!("{error}"));
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    let mut encoder =
        ComponentEncoder::default().validate(true).module(&module).unwrap_or_else(|error| panic!("{error:#}"));
    encoder.encode().unwrap_or_else(|error| panic!("{error:#}"))
}

/// What every guest here has: a memory, an allocator that never frees, a description and settings that always please.
/// Strings at fixed places: 16 is `drift-guest`, 32 is `0.1.0`. The area for results is at 64.
pub(crate) const BASE: &str = r#"
  (memory (export "memory") 1)
  (global $free (mut i32) (i32.const 4096))
  (data (i32.const 16) "drift-guest")
  (data (i32.const 32) "0.1.0")
  (func (export "cabi_realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
    (global.set $free (i32.add (local.get $at) (local.get $size)))
    (block $enough
      (loop $grow
        (br_if $enough (i32.le_u (global.get $free) (i32.shl (memory.size) (i32.const 16))))
        (br_if $enough (i32.eq (memory.grow (i32.const 1)) (i32.const -1)))
        (br $grow)))
    (local.get $at))
"#;

pub(crate) const DESCRIBE: &str = r#"
  (func (export "moorline:policy/policy@0.1.0#describe") (result i32)
    (i32.store (i32.const 64) (i32.const 16)) (i32.store (i32.const 68) (i32.const 11))
    (i32.store (i32.const 72) (i32.const 32)) (i32.store (i32.const 76) (i32.const 5))
    (i32.store (i32.const 80) (i32.const 16)) (i32.store (i32.const 84) (i32.const 11))
    (i32.store8 (i32.const 88) (i32.const 0))
    (i32.const 64))
"#;

pub(crate) const VALIDATE: &str = r#"
  (func (export "moorline:policy/policy@0.1.0#validate-settings") (param i32 i32 i32 i32) (result i32)
    (i32.store8 (i32.const 64) (i32.const 0))
    (i32.const 64))
"#;

/// The body of `assess` that answers `same("drift-guest")`.
pub(crate) const SAME: &str = r#"
    (i32.store8 (i32.const 64) (i32.const 0))
    (i32.store8 (i32.const 68) (i32.const 0))
    (i32.store (i32.const 72) (i32.const 16)) (i32.store (i32.const 76) (i32.const 11))
    (i32.const 64)
"#;

/// A core module: what `before` declares (imports come first), the usual, what `more` declares, and `assess` with this body.
pub(crate) fn drift_core(before: &str, more: &str, assess: &str) -> String {
    format!(
        r#"(module {before} {BASE} {DESCRIBE} {VALIDATE} {more}
             (func (export "moorline:policy/drift@0.1.0#assess") (param i32) (result i32) (local $i i32) {assess}))"#
    )
}

/// A component that answers drift with this body of `assess`.
pub(crate) fn drift(assess: &str) -> Vec<u8> {
    component(CONTRACT, "drift-only", &drift_core("", "", assess))
}

pub(crate) fn engine() -> Engine {
    Engine::new(&EngineConfig::default()).unwrap()
}

pub(crate) fn load(component: &[u8]) -> Result<Policy, LoadError> {
    Loader::new(&engine()).load("guest", component)
}

/// Loads a component and asks it a hook's sample under these limits.
pub(crate) fn ask<H: Hook>(component: &[u8], limits: Limits) -> CallOutcome<H::Verdict> {
    load(component).unwrap().with_limits(limits).call::<H>(&H::sample(), "{}")
}
