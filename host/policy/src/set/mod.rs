//! A policy set: which policy, with which settings, is asked which hook. It is read whole from a folder with `policies.yaml`,
//! and never changes after that; only each binding's breaker has a memory. What a verdict is good for is not decided here.

mod answer;
mod binding;
mod breaker;
mod file;
mod grants;
mod reload;

use std::{collections::BTreeMap, fmt, path::Path, sync::Arc, time::Duration};

pub use answer::{Answer, Decision, Trouble, TroubleCause};
pub use binding::{Asked, Binding, BindingStatus};
pub use file::{Problem, SetError};
pub use grants::{Grants, Wasi};
pub use reload::{ReloadError, Reloader};

use crate::{Digest, Hook, KnownHook, Limits, LoadError, LoadFault, Loader, Observer, Policy, Rules};
use binding::BindingParts;
use file::{BindingEntry, ModuleEntry, SetFile};

/// The name of the built-in policy's bindings, which are asked last.
pub const DEFAULT: &str = "default";

/// What a set gets from its embedder rather than from the folder: whoever may write the folder has no say in it.
#[derive(Clone, Default)]
pub struct SetOptions {
    /// The policy that is asked after all others, for every hook that it answers.
    pub default: Option<Policy>,
    /// What bindings may do beyond the usual, by name.
    pub grants: BTreeMap<String, Grants>,
    /// Who hears of every call.
    pub observer: Option<Arc<dyn Observer>>,
}

impl fmt::Debug for SetOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetOptions")
            .field("default", &self.default)
            .field("grants", &self.grants)
            .finish_non_exhaustive()
    }
}

/// All bindings of a process.
#[derive(Debug)]
pub struct PolicySet {
    /// By hook, and in the order in which they are asked.
    bindings: Vec<Arc<Binding>>,
    digest: Digest,
    warnings: Vec<String>,
}

impl PolicySet {
    /// Reads `policies.yaml` in the folder and loads the modules that it binds. Without a folder there is only the default.
    ///
    /// A module that is refused doesn't make this fail: the bindings that name it fail when they are asked, each in its way,
    /// and [`refusals`](Self::refusals) tells why.
    ///
    /// # Errors
    /// When the file can't be read or has mistakes; all of them are listed.
    pub fn load(loader: &Loader, folder: Option<&Path>, options: SetOptions) -> Result<Self, SetError> {
        Self::load_after(loader, folder, options, None)
    }

    /// As [`load`](Self::load). What is the same as in the set before is taken from it: policies are not loaded again, and
    /// the breaker of a binding that stays goes on.
    fn load_after(
        loader: &Loader,
        folder: Option<&Path>,
        options: SetOptions,
        before: Option<&Self>,
    ) -> Result<Self, SetError> {
        let (file, text) = match folder {
            Some(folder) => file::read(folder, loader.hooks())?,
            None => (SetFile::default(), String::new()),
        };
        let mut warnings = Vec::new();
        for name in options.grants.keys().filter(|name| *name != DEFAULT && !file.binds(name)) {
            warnings.push(format!("There is a grant for the binding `{name}`, but no such binding."));
        }
        for (name, _) in file.modules.iter().filter(|(name, _)| !file.uses(name)) {
            warnings.push(format!("The module `{name}` is in no binding, so it is not loaded."));
        }
        for (name, _) in file.modules.iter().filter(|(_, module)| module.sha256.is_none()) {
            warnings.push(format!("The module `{name}` has no `sha256`, so any file of that name is taken for it."));
        }
        let mut bench =
            Bench { loader, folder, modules: &file.modules, loaded: Vec::new(), before, options: &options, warnings };
        let mut bindings = Vec::new();
        for hook in loader.hooks().iter() {
            for entry in file.bindings.get(hook.name).map(|spanned| spanned.value.as_slice()).unwrap_or_default() {
                bindings.push(bench.binding(hook, entry));
            }
            bindings.extend(bench.default_binding(hook, &file.default.settings_json()));
        }
        let default_digest = options.default.as_ref().map(Policy::digest);
        let digests: Vec<Digest> =
            bench.loaded.iter().filter_map(|(.., policy)| Some(policy.as_ref().ok()?.digest())).collect();
        let digest = Digest::of_all(
            default_digest.iter().chain(&digests).map(|digest| digest.as_bytes().as_slice()).chain([text.as_bytes()]),
        );
        let kept = |binding: &Binding| before?.bindings.iter().find(|before| before.is_same(binding)).cloned();
        let bindings =
            bindings.into_iter().map(|binding| kept(&binding).unwrap_or_else(|| Arc::new(binding))).collect();
        Ok(Self { bindings, digest, warnings: bench.warnings })
    }

    /// Asks a hook: the first binding that matches the Site and doesn't answer `not-applicable` decides. `now` is any clock
    /// that only goes forward, the same for all calls.
    ///
    /// This blocks for as long as the deadlines of the bindings allow: call it on a thread that may wait.
    #[must_use]
    pub fn ask<H: Hook>(&self, input: &H::Input, site: Option<&str>, now: Duration) -> Answer<H::Verdict> {
        let mut passed_over = Vec::new();
        for binding in self.bindings.iter().filter(|binding| binding.hook() == H::NAME && binding.matches(site)) {
            match binding.ask::<H>(input, now) {
                Asked::Verdict(verdict) => {
                    return Answer { decision: Decision::Decided { verdict, by: binding.clone() }, passed_over };
                }
                Asked::NotApplicable => {}
                Asked::Failed(trouble) if binding.holds() => {
                    return Answer { decision: Decision::Held(trouble), passed_over };
                }
                Asked::Failed(trouble) => passed_over.push(trouble),
            }
        }
        Answer { decision: Decision::NoBinding, passed_over }
    }

    /// All bindings, by hook and in the order in which they are asked.
    pub fn bindings(&self) -> impl Iterator<Item = &Arc<Binding>> {
        self.bindings.iter()
    }

    /// The bindings whose policy was refused, with the reason.
    pub fn refusals(&self) -> impl Iterator<Item = (&Arc<Binding>, &Arc<LoadError>)> {
        self.bindings.iter().filter_map(|binding| Some((binding, binding.policy().err()?)))
    }

    /// What an operator may want to know, though nothing is refused for it.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Names the whole set: bindings, settings and modules. It changes when anything of it does.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

/// A module's name, the limits and imports that it was loaded under, and what came of it.
type LoadedModule<'a> = (&'a str, Limits, Wasi, Result<Policy, Arc<LoadError>>);

/// What is at hand while a set is put together.
struct Bench<'a> {
    loader: &'a Loader,
    folder: Option<&'a Path>,
    modules: &'a BTreeMap<String, ModuleEntry>,
    /// What was loaded, by module and limits: usually once each.
    loaded: Vec<LoadedModule<'a>>,
    before: Option<&'a PolicySet>,
    options: &'a SetOptions,
    warnings: Vec<String>,
}

impl<'a> Bench<'a> {
    fn binding(&mut self, hook: &KnownHook, entry: &'a BindingEntry) -> Binding {
        let name = &entry.name.value;
        let pinned = self.modules.get(&entry.module.value).and_then(|module| module.sha256);
        let grants = match self.options.grants.get(name) {
            Some(grants) if grants.sha256.is_some() && grants.sha256 != pinned => {
                self.warnings.push(format!(
                    "The grant for the binding `{name}` is for another module, by its sha256, so it doesn't count."
                ));
                Grants::default()
            }
            Some(grants) => {
                if grants.sha256.is_none() {
                    self.warnings.push(format!(
                        "The grant for the binding `{name}` names no `sha256`, so whoever may change the policy folder \
                         chooses the module that has it."
                    ));
                }
                grants.clone()
            }
            None => Grants::default(),
        };
        let settings = entry.settings_json();
        let policy = self.policy(&entry.module.value, &grants).and_then(|policy| usable(policy, hook, &settings));
        Binding::new(BindingParts {
            hook: hook.name,
            name: name.clone(),
            module: entry.module.value.clone(),
            sites: entry.sites.clone(),
            settings,
            on_failure: entry.on_failure.as_ref().map_or(hook.rules.on_failure, |on_failure| on_failure.value),
            grants,
            policy,
            observer: self.options.observer.clone(),
        })
    }

    fn default_binding(&self, hook: &KnownHook, settings: &str) -> Option<Binding> {
        let policy =
            self.options.default.as_ref().filter(|policy| policy.hooks().any(|answered| answered.name == hook.name))?;
        let meant = |grants: &&Grants| grants.sha256.is_none_or(|sha256| sha256 == policy.digest());
        let grants = self.options.grants.get(DEFAULT).filter(meant).cloned().unwrap_or_default();
        let policy = policy.with_limits(policy.limits().with(&grants.limits));
        let Rules { on_failure, .. } = hook.rules;
        Some(Binding::new(BindingParts {
            hook: hook.name,
            name: DEFAULT.to_owned(),
            module: policy.name().to_owned(),
            sites: None,
            settings: settings.to_owned(),
            on_failure,
            grants,
            policy: usable(policy, hook, settings),
            observer: self.options.observer.clone(),
        }))
    }

    /// The module under the limits that its binding was granted.
    fn policy(&mut self, module: &'a str, grants: &Grants) -> Result<Policy, Arc<LoadError>> {
        let limits = self.loader.limits().with(&grants.limits);
        let same =
            |(name, under, wasi, _): &&LoadedModule<'_>| *name == module && *under == limits && *wasi == grants.wasi;
        if let Some((.., policy)) = self.loaded.iter().find(same) {
            return policy.clone();
        }
        let policy = match (self.folder, self.modules.get(module)) {
            (Some(folder), Some(entry)) => {
                let loader = self.loader.clone().with_limits(limits.clone()).with_wasi(grants.wasi);
                let there = |digest| {
                    let bindings = self.before?.bindings.iter().filter(|binding| binding.grants().wasi == grants.wasi);
                    let mut policies = bindings.filter_map(|binding| binding.policy().ok());
                    let is_it = |policy: &&Policy| {
                        policy.digest() == digest && policy.name() == module && *policy.limits() == limits
                    };
                    policies.find(is_it).cloned()
                };
                let file = folder.join(&entry.file.value);
                loader.load_file_or_take(module, &file, entry.sha256, there).map_err(Arc::new)
            }
            _ => Err(Arc::new(LoadError {
                name: module.to_owned(),
                digest: None,
                file: None,
                fault: LoadFault::Unreadable(Arc::new(std::io::ErrorKind::NotFound.into())),
            })),
        };
        self.loaded.push((module, limits, grants.wasi, policy.clone()));
        policy
    }
}

/// Whether a policy answers the hook that it is bound to, and likes its settings.
fn usable(policy: Policy, hook: &KnownHook, settings: &str) -> Result<Policy, Arc<LoadError>> {
    let fault = if policy.hooks().all(|answered| answered.name != hook.name) {
        let answers = policy.hooks().map(|hook| hook.name).collect::<Vec<_>>().join(", ");
        LoadFault::HookMissing { hook: hook.name, answers }
    } else {
        match policy.validate_settings(hook.name, settings) {
            Ok(errors) if errors.is_empty() => return Ok(policy),
            Ok(errors) => LoadFault::Settings { hook: hook.name, errors },
            Err(error) => LoadFault::Unusable(Box::new(error)),
        }
    };
    Err(Arc::new(LoadError { name: policy.name().to_owned(), digest: Some(policy.digest()), file: None, fault }))
}
