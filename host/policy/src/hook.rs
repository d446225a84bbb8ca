//! A hook as a type, and the set of hooks that a host knows. Nothing here calls a guest by itself.

use std::fmt::Debug;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use wasmtime::component::{ComponentExportIndex, ComponentType, InstancePre, Lift, Lower, types::ComponentItem};

use crate::{
    CallOutcome, Policy, Reply,
    hooks::{Acknowledgment, Adoption, Cni, Drift, Retry, Taints},
    store::Host,
};

/// One kind of question that a host asks policies.
///
/// The type that implements it carries no data. Its WIT interface exports one function with two parameters, the input and the
/// settings (a JSON document), and the result `result<verdict, policy-error>`, where `policy-error` is the variant of
/// `moorline:policy/types` or one like it:
///
/// ```wit
/// package acme:valves@1.0.0;
/// interface flow {
///   variant policy-error { not-applicable, invalid-input(string), internal(string) }
///   record reading { valve: string, litres: u32 }
///   record verdict { open: bool, reason: string }
///   judge: func(reading: reading, settings: string) -> result<verdict, policy-error>;
/// }
/// ```
///
/// `Input` and `Verdict` derive wasmtime's `ComponentType` with `Lower` and `Lift`, and mirror the interface's types field by
/// field; that they do is checked against each component at load. A component also exports `moorline:policy/policy`.
pub trait Hook: Sized + Send + Sync + 'static {
    /// What people and configuration call the hook: the interface's name, such as `drift`.
    const NAME: &'static str;
    /// The interface with package and version, such as `moorline:policy/drift@0.1.0`. Components built for another version
    /// of the same semver track are accepted.
    const INTERFACE: &'static str;
    /// The interface's function.
    const FUNCTION: &'static str;
    /// What a binding of this hook may say, and what it means when it says nothing.
    const RULES: Rules = Rules::HOLD;

    /// What the policy is told. Serialization is for records of calls, and for calls made from JSON.
    type Input: ComponentType + Lower + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// What the policy answers.
    type Verdict: ComponentType + Lift + Clone + Debug + Serialize + Send + Sync + 'static;

    /// The verdict's reason, for people. Its length is capped by [`Limits::reason_bytes`](crate::Limits::reason_bytes).
    fn reason(verdict: &Self::Verdict) -> &str;

    /// A plausible input, for trying and measuring policies.
    fn sample() -> Self::Input;

    /// Whether none of the strings that anyone may make long has more than `longest` bytes.
    fn fits(_input: &Self::Input, _longest: usize) -> bool {
        true
    }

    /// Cuts those strings, each with a mark. Called on a copy of an input that doesn't fit.
    fn cut(_input: &mut Self::Input, _longest: usize) {}

    /// Refuses a verdict that no later code should have to expect, and says why.
    ///
    /// # Errors
    /// A sentence for the policy's author.
    fn check(_verdict: &Self::Verdict) -> Result<(), String> {
        Ok(())
    }
}

/// What happens when the policy that a binding names doesn't answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// The operation waits.
    Hold,
    /// The next binding is asked.
    FallThrough,
}

/// What a hook's bindings may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Where a binding doesn't say.
    pub on_failure: OnFailure,
    /// Whether `on-failure: hold` is allowed.
    pub may_hold: bool,
    /// Whether `sites:` is allowed.
    pub may_name_sites: bool,
}

impl Rules {
    /// A failed policy holds the operation, unless its binding says otherwise.
    pub const HOLD: Self = Self { on_failure: OnFailure::Hold, may_hold: true, may_name_sites: true };
    /// A failed policy is passed over, always.
    pub const FALL_THROUGH: Self = Self { on_failure: OnFailure::FallThrough, may_hold: false, may_name_sites: true };
}

/// The variant `policy-error` of the contract.
#[derive(Clone, Debug, ComponentType, Lift, Lower)]
#[component(variant)]
pub(crate) enum PolicyError {
    #[component(name = "not-applicable")]
    NotApplicable,
    #[component(name = "invalid-input")]
    InvalidInput(String),
    #[component(name = "internal")]
    Internal(String),
}

/// Parameters of every hook's function.
pub(crate) type Params<'a, H> = (&'a <H as Hook>::Input, &'a str);
/// Results of every hook's function.
pub(crate) type Results<H> = (Result<<H as Hook>::Verdict, PolicyError>,);

/// The hooks that a host knows: what it looks for in a component.
#[derive(Clone, Debug)]
pub struct Hooks {
    known: Vec<KnownHook>,
}

impl Default for Hooks {
    /// The six hooks of the Moorline agent.
    fn default() -> Self {
        Self::none()
            .with::<Adoption>()
            .with::<Drift>()
            .with::<Retry>()
            .with::<Taints>()
            .with::<Cni>()
            .with::<Acknowledgment>()
    }
}

impl Hooks {
    /// No hooks, for a host that has only its own.
    #[must_use]
    pub fn none() -> Self {
        Self { known: Vec::new() }
    }

    /// These hooks and one more. A hook of the same name is replaced.
    #[must_use]
    pub fn with<H: Hook>(mut self) -> Self {
        self.known.retain(|known| known.name != H::NAME);
        self.known.push(KnownHook {
            name: H::NAME,
            interface: H::INTERFACE,
            function: H::FUNCTION,
            rules: H::RULES,
            look_up: look_up::<H>,
            call_json: call_json::<H>,
            sample: sample::<H>,
        });
        self
    }

    /// All of them, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &KnownHook> {
        self.known.iter()
    }

    /// The hook of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&KnownHook> {
        self.known.iter().find(|known| known.name == name)
    }
}

/// A hook whose type is forgotten, for what only needs its name or speaks JSON.
#[derive(Clone, Copy, Debug)]
pub struct KnownHook {
    /// [`Hook::NAME`].
    pub name: &'static str,
    /// [`Hook::INTERFACE`].
    pub interface: &'static str,
    /// [`Hook::FUNCTION`].
    pub function: &'static str,
    /// [`Hook::RULES`].
    pub rules: Rules,
    pub(crate) look_up: fn(&InstancePre<Host>) -> Result<ComponentExportIndex, String>,
    pub(crate) call_json: fn(&Policy, Value, &str) -> Result<CallOutcome<Value>, serde_json::Error>,
    sample: fn() -> Value,
}

impl KnownHook {
    /// [`Hook::sample`] as JSON.
    #[must_use]
    pub fn sample(&self) -> Value {
        (self.sample)()
    }
}

/// Finds a hook's function in a component and compares its signature with the hook's types.
fn look_up<H: Hook>(pre: &InstancePre<Host>) -> Result<ComponentExportIndex, String> {
    find::<Params<'_, H>, Results<H>>(pre, H::INTERFACE, H::FUNCTION)
}

/// Finds a function in an exported interface and compares its signature. What is wrong comes back as a clause.
pub(crate) fn find<P, R>(
    pre: &InstancePre<Host>,
    interface: &str,
    function: &str,
) -> Result<ComponentExportIndex, String>
where
    P: wasmtime::component::ComponentNamedList + Lower,
    R: wasmtime::component::ComponentNamedList + Lift,
{
    let component = pre.component();
    let instance = component.get_export_index(None, interface).ok_or_else(|| "it is not exported".to_owned())?;
    match component.get_export(Some(&instance), function) {
        Some((ComponentItem::ComponentFunc(found), index)) => {
            found.typecheck::<P, R>(&pre.instance_type()).map_err(|error| format!("{error:#}"))?;
            Ok(index)
        }
        _ => Err(format!("it has no function `{function}`")),
    }
}

fn call_json<H: Hook>(policy: &Policy, input: Value, settings: &str) -> Result<CallOutcome<Value>, serde_json::Error> {
    let outcome = policy.call::<H>(&serde_json::from_value(input)?, settings);
    let result = match outcome.result {
        Ok(Reply::Verdict(verdict)) => Ok(Reply::Verdict(serde_json::to_value(verdict)?)),
        Ok(Reply::NotApplicable) => Ok(Reply::NotApplicable),
        Err(error) => Err(error),
    };
    Ok(CallOutcome { result, fuel: outcome.fuel, elapsed: outcome.elapsed, logs: outcome.logs })
}

fn sample<H: Hook>() -> Value {
    serde_json::to_value(H::sample()).unwrap_or_default()
}
