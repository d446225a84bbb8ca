//! Valves of a waterworks, judged by sandboxed policies: `cargo run -p embed-host -- inlet 120`.

use std::{env, error::Error, sync::Arc, time::Duration};

use moorline_policy::{CallRecord, Decision, Engine, EngineConfig, Hook, Hooks, Loader, PolicySet, Rules, SetOptions};
use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lift, Lower};

/// May this valve stay open? The question of `wit/valves.wit`.
struct Flow;

#[derive(Clone, Debug, Serialize, Deserialize, ComponentType, Lower)]
#[component(record)]
struct Reading {
    valve: String,
    litres: u32,
}

#[derive(Clone, Debug, Serialize, ComponentType, Lift)]
#[component(record)]
struct Judgement {
    open: bool,
    reason: String,
}

impl Hook for Flow {
    const NAME: &'static str = "flow";
    const INTERFACE: &'static str = "acme:valves/flow@1.0.0";
    const FUNCTION: &'static str = "judge";
    const RULES: Rules = Rules::FALL_THROUGH;
    type Input = Reading;
    type Verdict = Judgement;

    fn reason(judgement: &Judgement) -> &str {
        &judgement.reason
    }

    fn sample() -> Reading {
        Reading { valve: "inlet".into(), litres: 7 }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let (Some(valve), Some(litres)) = (arguments.next(), arguments.next()) else {
        return Err("Name a valve and its litres of the last minute, as in `embed-host inlet 120`.".into());
    };
    let reading = Reading { valve, litres: litres.parse()? };

    let loader = Loader::new(&Engine::new(&EngineConfig::default())?).with_hooks(Hooks::none().with::<Flow>());
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/policies").as_ref();
    let record = |call: &CallRecord<'_>| eprintln!("{} answered for {} units of fuel.", call.binding, call.fuel);
    let set = PolicySet::load(
        &loader,
        Some(folder),
        SetOptions { observer: Some(Arc::new(record)), ..SetOptions::default() },
    )?;

    match set.ask::<Flow>(&reading, None, Duration::ZERO).decision {
        Decision::Decided { verdict, by } if verdict.open => {
            println!("{} stays open: {} ({}).", reading.valve, verdict.reason, by.name());
        }
        Decision::Decided { verdict, by } => println!("{} is shut: {} ({}).", reading.valve, verdict.reason, by.name()),
        // Nobody judged: the safe side is this program's affair.
        other => println!("{} is shut, since no policy judged it: {other:?}.", reading.valve),
    }
    Ok(())
}
