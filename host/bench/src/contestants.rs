//! The decision of examples/policies/rust-drift, made by the host and by others. All of them are given the same Rust value
//! anew for each call and give a verdict of the host's type; what can be prepared once is prepared once.

use mlua::LuaSerdeExt as _;
use moorline_example_rust_drift::{Maintenance, ToleratePoolChange};
use moorline_policy::{
    Hook as _, Policy, Reply,
    hooks::{Assignment, Drift, DriftVerdict, Node, Observation, Taint},
};
use moorline_policy_sdk::drift as sdk;

use crate::{Failed, RUST_DRIFT, loader};

/// The label that means maintenance; the one that the policy takes without settings.
const LABEL: &str = "moorline.dev/maintenance";
const RHAI: &str = include_str!("contestants/drift.rhai");
const CEL: &str = include_str!("contestants/drift.cel");
const REGO: &str = include_str!("contestants/drift.rego");
const LUA: &str = include_str!("contestants/drift.lua");

/// Who makes the decision.
pub struct Contestant {
    pub name: &'static str,
    pub kind: Kind,
    decide: Decide,
}

type Decide = Box<dyn FnMut(&Observation) -> Result<DriftVerdict, Failed>>;

/// What a contestant is to the comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The one whose time is 1.
    Ours,
    /// The host in other ways.
    Host,
    /// An interpreter.
    Interpreter,
    /// No sandbox.
    Native,
}

impl Contestant {
    fn new(
        name: &'static str,
        kind: Kind,
        decide: impl FnMut(&Observation) -> Result<DriftVerdict, Failed> + 'static,
    ) -> Self {
        Self { name, kind, decide: Box::new(decide) }
    }

    pub fn decide(&mut self, seen: &Observation) -> Result<DriftVerdict, Failed> {
        (self.decide)(seen)
    }
}

/// All of them; ours first.
pub fn all() -> Result<Vec<Contestant>, Failed> {
    Ok(vec![
        host("moorline, pooled", Kind::Ours, loader(true)?.load("rust-drift", RUST_DRIFT)?),
        host("moorline, on demand", Kind::Host, loader(false)?.load("rust-drift", RUST_DRIFT)?),
        rhai()?,
        cel()?,
        rego()?,
        lua()?,
        new_lua()?,
        native(),
    ])
}

pub fn host(name: &'static str, kind: Kind, policy: Policy) -> Contestant {
    Contestant::new(name, kind, move |seen| match policy.call::<Drift>(seen, "{}").result? {
        Reply::Verdict(verdict) => Ok(verdict),
        Reply::NotApplicable => Err("It has no opinion.".into()),
    })
}

fn rhai() -> Result<Contestant, Failed> {
    let engine = rhai::Engine::new();
    let script = engine.compile(RHAI)?;
    Ok(Contestant::new("rhai, new scope", Kind::Interpreter, move |seen| {
        let arguments = (rhai::serde::to_dynamic(seen)?, LABEL);
        let verdict: rhai::Dynamic = engine.call_fn(&mut rhai::Scope::new(), &script, "assess", arguments)?;
        Ok(rhai::serde::from_dynamic(&verdict)?)
    }))
}

fn cel() -> Result<Contestant, Failed> {
    let program = cel::Program::compile(CEL)?;
    Ok(Contestant::new("CEL, new context", Kind::Interpreter, move |seen| {
        let mut context = cel::Context::default();
        context.add_variable("seen", seen)?;
        context.add_variable("label", LABEL)?;
        let verdict = program.execute(&context)?;
        let verdict = verdict.json().map_err(|error| error.to_string())?;
        Ok(serde_json::from_value(verdict)?)
    }))
}

fn rego() -> Result<Contestant, Failed> {
    let mut engine = regorus::Engine::new();
    engine.add_policy("drift.rego".into(), REGO.into()).map_err(|error| error.to_string())?;
    Ok(Contestant::new("Rego (regorus), new input", Kind::Interpreter, move |seen| {
        engine.set_input(regorus::Value::from(serde_json::json!({"seen": seen, "label": LABEL})));
        let verdict = engine.eval_rule("data.moorline.drift.verdict".into()).map_err(|error| error.to_string())?;
        Ok(serde_json::from_value(serde_json::to_value(verdict)?)?)
    }))
}

fn lua() -> Result<Contestant, Failed> {
    let lua = lua_machine()?;
    Ok(Contestant::new("Lua, one machine for all", Kind::Interpreter, move |seen| lua_decides(&lua, seen)))
}

fn new_lua() -> Result<Contestant, Failed> {
    Ok(Contestant::new("Lua, new machine", Kind::Interpreter, |seen| lua_decides(&lua_machine()?, seen)))
}

fn lua_machine() -> Result<mlua::Lua, Failed> {
    let lua = mlua::Lua::new();
    lua.globals().set("null", lua.null())?;
    lua.load(LUA).exec()?;
    Ok(lua)
}

fn lua_decides(lua: &mlua::Lua, seen: &Observation) -> Result<DriftVerdict, Failed> {
    let assess: mlua::Function = lua.globals().get("assess")?;
    let verdict: mlua::Value = assess.call((lua.to_value(seen)?, LABEL))?;
    Ok(lua.from_value(verdict)?)
}

fn native() -> Contestant {
    Contestant::new("native Rust, no sandbox", Kind::Native, |seen| {
        let settings = Maintenance { maintenance_label: LABEL.into() };
        match <ToleratePoolChange as sdk::Hook>::assess(to_sdk(seen.clone()), settings) {
            Ok(sdk::Verdict::Same(reason)) => Ok(DriftVerdict::Same(reason)),
            Ok(sdk::Verdict::Drifted(reason)) => Ok(DriftVerdict::Drifted(reason)),
            Err(error) => Err(format!("{error:?}").into()),
        }
    })
}

fn to_sdk(seen: Observation) -> sdk::Observation {
    let Observation { adopted, adopted_node, observed, projected, extra } = seen;
    sdk::Observation {
        adopted: assignment(adopted),
        adopted_node: node(adopted_node),
        observed: node(observed),
        projected: projected.map(assignment),
        extra,
    }
}

fn assignment(given: Assignment) -> moorline_policy_sdk::Assignment {
    let Assignment { node_uid, site, pool, extra } = given;
    moorline_policy_sdk::Assignment { node_uid, site, pool, extra }
}

fn node(given: Node) -> moorline_policy_sdk::Node {
    let Node { name, uid, labels, annotations, taints, pod_cidrs, deleting, extra } = given;
    let taint =
        |Taint { key, value, effect, time_added }| moorline_policy_sdk::Taint { key, value, effect, time_added };
    let taints = taints.into_iter().map(taint).collect();
    moorline_policy_sdk::Node { name, uid, labels, annotations, taints, pod_cidrs, deleting, extra }
}

/// Observations with each of the decision's outcomes.
pub fn cases(labels: usize) -> Result<Vec<Observation>, Failed> {
    let seen = || crate::input::<Drift>(labels);
    let (same, mut uid, mut site, mut pool, mut tolerated, mut none) =
        (seen()?, seen()?, seen()?, seen()?, seen()?, seen()?);
    uid.observed.uid = "another".into();
    let moved = |pool: Option<&str>| Assignment {
        pool: pool.map(str::to_owned),
        ..Drift::sample().projected.unwrap_or_default()
    };
    site.projected = Some(Assignment { site: "west".into(), ..moved(None) });
    pool.projected = Some(moved(Some("another")));
    tolerated.projected = Some(moved(None));
    tolerated.adopted.pool = Some("edge".into());
    tolerated.observed.labels.push((LABEL.into(), "yes".into()));
    tolerated.observed.labels.sort();
    none.projected = None;
    Ok(vec![same, uid, site, pool, tolerated, none])
}

/// Whether everyone decides every case as the native code does.
pub fn agree(contestants: &mut [Contestant]) -> Result<usize, Failed> {
    let cases = cases(crate::SIZES[0].1)?;
    let mut native = native();
    for case in &cases {
        let expected = native.decide(case)?;
        for contestant in &mut *contestants {
            let verdict = contestant.decide(case)?;
            if verdict != expected {
                return Err(format!("{} says {verdict:?} where native code says {expected:?}.", contestant.name).into());
            }
        }
    }
    Ok(cases.len())
}
