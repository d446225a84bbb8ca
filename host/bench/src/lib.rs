//! What is measured, and with what: inputs of a size, and those who make the same decision.

pub mod contestants;

use std::time::Duration;

use moorline_policy::{Allocation, Engine, EngineConfig, Hook, Limits, Loader, Pool};
use serde_json::{Value, json};

/// Labels of a small Node and of a large one.
pub const SIZES: [(&str, usize); 2] = [("small", 15), ("large", 200)];

/// Components that load.
pub const DEFAULT: &[u8] = include_bytes!("../../../policies/default/default.wasm");
pub const RUST_DRIFT: &[u8] = include_bytes!("../../../examples/policies/rust-drift/rust_drift.wasm");
pub const ALWAYS_DRIFTED: &[u8] = include_bytes!("../../../examples/policies/always-drifted/always_drifted.wasm");

pub type Failed = Box<dyn std::error::Error>;

/// A loader with memory mapped for each call, or from a pool. Its calls end by fuel alone.
pub fn loader(pooled: bool) -> Result<Loader, Failed> {
    let allocation = if pooled { Allocation::Pooled(Pool::default()) } else { Allocation::OnDemand };
    let engine = Engine::new(&EngineConfig { allocation })?;
    if pooled && !engine.is_pooled() {
        return Err("This machine can't map the pool.".into());
    }
    let limits = Limits { deadline: Duration::from_secs(60), ..Limits::default() };
    Ok(Loader::new(&engine).with_limits(limits))
}

/// The hook's sample, with so many labels on each Node in it.
pub fn input<H: Hook>(labels: usize) -> Result<H::Input, Failed> {
    let mut sample = serde_json::to_value(H::sample())?;
    grow(&mut sample, labels);
    Ok(serde_json::from_value(sample)?)
}

fn grow(value: &mut Value, labels: usize) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match (name.as_str(), field) {
                    ("labels", Value::Array(list)) => {
                        // In order, as the contract has it: after what is there.
                        for number in list.len()..labels {
                            list.push(json!([
                                format!("zone.example.com/label-{number:03}"),
                                format!("value-{number}")
                            ]));
                        }
                    }
                    (_, field) => grow(field, labels),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| grow(item, labels)),
        _ => {}
    }
}
