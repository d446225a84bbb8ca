//! Reads the configuration from its sources and judges it whole. Each setting is first judged alone, against the
//! defaults, so that one wrong setting doesn't hide another; then all of them together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use figment::error::{Actual, Kind};
use figment::providers::Serialized;
use figment::value::{Dict, Map, Tag, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::explain::{explain, nearest};
use super::problem::{Origin, Problem, Problems};
use super::{Config, Grant, check, yaml};

/// What every variable of the agent's begins with.
const PREFIX: &str = "MOORLINE_";
/// The variable that names the configuration file; it is a flag's, not a key's.
pub const FILE_VARIABLE: &str = "MOORLINE_CONFIG";
/// What the downward API usually calls them.
const DOWNWARD: [(&str, [&str; 2]); 4] = [
    ("NODE_NAME", ["node", "name"]),
    ("POD_NAME", ["pod", "name"]),
    ("POD_NAMESPACE", ["pod", "namespace"]),
    ("POD_UID", ["pod", "uid"]),
];
/// A configuration has a few kilobytes.
const FILE_CAP: usize = 1 << 20;

/// Where the configuration comes from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The YAML file.
    pub file: Option<PathBuf>,
    /// A missing file is fine: it is the usual place, and nobody named it.
    pub file_may_be_absent: bool,
    /// The environment; what isn't the agent's is passed over.
    pub environment: Vec<(String, String)>,
    /// Flags, in order.
    pub flags: Vec<Flag>,
}

/// A flag that sets a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    /// The flag as it was typed, such as `--log`.
    pub name: String,
    /// The key, such as `log.filter`.
    pub key: String,
    /// The value: text, or YAML where the key wants something else.
    pub value: String,
}

/// A configuration that has been judged, and where each value comes from.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    pub(super) figment: Figment,
    pub(super) origins: Vec<Origin>,
}

/// Reads the sources and judges the result.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn load(sources: &Sources) -> Result<Loaded, Problems> {
    let mut loader = Loader::new();
    loader.add_file(sources);
    loader.add_environment(&sources.environment);
    loader.add_flags(&sources.flags);
    loader.finish()
}

impl Loaded {
    /// Whether `run` knows who and where it is.
    ///
    /// # Errors
    /// Every name that is missing.
    pub fn require_identity(&self) -> Result<(), Problems> {
        let Config { node, pod, .. } = &self.config;
        let needed = [&node.name, &pod.name, &pod.namespace, &pod.uid];
        let missing = DOWNWARD.iter().zip(needed).filter(|(_, value)| value.is_none());
        let problems: Vec<_> = missing
            .map(|((variable, keys), _)| Problem {
                origin: Origin::Default,
                key: keys.join("."),
                message: "is needed to run and isn't set".to_owned(),
                way_out: format!("Set {variable} from the downward API, as the shipped DaemonSet does"),
            })
            .collect();
        if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
    }
}

/// Where the value of a key comes from. The parts of a key are walked one by one, since a binding's name may have dots.
fn origin_of(figment: &Figment, origins: &[Origin], keys: &[String]) -> Origin {
    let root = figment.find_value("").ok();
    let value = root.as_ref().and_then(|root| find(root, keys));
    value.map_or(Origin::Default, |value| origin_of_value(figment, origins, value))
}

/// The value of a key. `*` stands for any name.
fn find<'a>(root: &'a Value, keys: &[String]) -> Option<&'a Value> {
    keys.iter().try_fold(root, |value, key| value.as_dict().and_then(|dict| dict.get(key).or_else(|| dict.get("*"))))
}

fn shape() -> Value {
    let mut config = Config::default();
    config.policies.grants.insert("*".to_owned(), Grant::default());
    Value::serialize(config).unwrap_or_else(|_| Value::Dict(Tag::Default, Dict::new()))
}

/// Where a merged value comes from.
pub(super) fn origin_of_value(figment: &Figment, origins: &[Origin], value: &Value) -> Origin {
    let metadata = figment.get_metadata(value.tag());
    let index = metadata.and_then(|metadata| metadata.name.parse::<usize>().ok());
    index.and_then(|index| origins.get(index).cloned()).unwrap_or(Origin::Default)
}

/// One value of one source, as figment takes it. Its name is the index of its origin.
struct Setting<'a> {
    keys: &'a [String],
    value: &'a Value,
    origin: usize,
}

impl Provider for Setting<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.origin.to_string())
    }

    fn data(&self) -> figment::error::Result<Map<Profile, Dict>> {
        let value = self
            .keys
            .iter()
            .rev()
            .fold(self.value.clone(), |value, key| Value::Dict(Tag::Default, Dict::from([(key.clone(), value)])));
        let dict = value.into_dict().ok_or(Kind::InvalidType(Actual::Unit, "a map of sections".to_owned()))?;
        Ok(Profile::Default.collect(dict))
    }
}

struct Loader {
    defaults: Figment,
    /// The defaults with a grant for any name: which keys are sections.
    shape: Value,
    /// Every key that there is, sections included, with its name as a variable.
    known: BTreeMap<String, Vec<String>>,
    merged: Figment,
    origins: Vec<Origin>,
    problems: Vec<Problem>,
    /// Keys of the problems, so that nothing is said twice.
    blamed: BTreeSet<String>,
}

impl Loader {
    fn new() -> Self {
        let defaults = Figment::from(Serialized::defaults(Config::default()));
        let mut known = BTreeMap::new();
        if let Ok(sections) = defaults.find_value("") {
            name_variables(&mut Vec::new(), &sections, &mut known);
        }
        Self {
            merged: defaults.clone(),
            defaults,
            shape: shape(),
            known,
            origins: Vec::new(),
            problems: Vec::new(),
            blamed: BTreeSet::new(),
        }
    }

    fn add_file(&mut self, sources: &Sources) {
        let Some(path) = &sources.file else { return };
        let whole = |message: String, way_out: &str| Problem {
            origin: Origin::File(path.clone(), None),
            key: String::new(),
            message,
            way_out: way_out.to_owned(),
        };
        let text = match read_capped(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && sources.file_may_be_absent => return,
            Err(error) => {
                let message = format!("the configuration file can't be read ({error})");
                self.problems.push(whole(message, "Mount it there, or name another one with `--config`"));
                return;
            }
        };
        match yaml::read(&text) {
            Err(yaml::NotYaml { line, message }) => {
                let message = format!("the file isn't YAML: {message}");
                let problem = whole(message, "Correct it; nothing of the file can be judged before that");
                self.problems.push(Problem { origin: Origin::File(path.clone(), line), ..problem });
            }
            Ok(document) if document.leaves.iter().any(|(keys, _)| keys.is_empty()) => {
                let way_out = "Write sections with their keys, such as `node:` and below it `name: node-1`";
                self.problems.push(whole("the file has no keys".to_owned(), way_out));
            }
            Ok(document) => {
                for (keys, value) in &document.leaves {
                    let line_of = |keys: &[String]| Origin::File(path.clone(), document.lines.get(keys).copied());
                    self.add(keys, std::slice::from_ref(value), line_of);
                }
            }
        }
    }

    fn add_environment(&mut self, environment: &[(String, String)]) {
        let mut environment: Vec<_> = environment.iter().collect();
        environment.sort();
        for (name, keys) in DOWNWARD {
            let given = environment.iter().find(|(given, value)| given == name && !value.is_empty());
            if let Some((name, value)) = given {
                self.add_text(&keys.map(str::to_owned), value, &Origin::Variable(name.clone()));
            }
        }
        for (name, value) in environment {
            let Some(rest) = name.strip_prefix(PREFIX).filter(|_| name != FILE_VARIABLE) else { continue };
            if is_service_link(rest) {
                continue;
            }
            let origin = Origin::Variable(name.clone());
            match self.known.get(rest).cloned() {
                Some(keys) => self.add_text(&keys, value, &origin),
                None => {
                    let nearest = nearest(rest, self.known.keys().map(String::as_str));
                    let way_out = nearest.map_or_else(
                        || format!("Every variable that begins with {PREFIX} has to name a key; take it away"),
                        |nearest| format!("Did you mean {PREFIX}{nearest}? If not, take it away"),
                    );
                    let message = "the name of this variable is no key of the configuration".to_owned();
                    self.problems.push(Problem { origin, key: String::new(), message, way_out });
                }
            }
        }
    }

    fn add_flags(&mut self, flags: &[Flag]) {
        for Flag { name, key, value } in flags {
            let keys: Vec<_> = key.split('.').map(str::to_owned).collect();
            self.add_text(&keys, value, &Origin::Flag(name.clone()));
        }
    }

    /// Adds a value that a variable or a flag gives as text. Where text isn't what the key wants, it is read as YAML.
    fn add_text(&mut self, keys: &[String], text: &str, origin: &Origin) {
        let mut candidates = vec![Value::from(text)];
        if let Some(value) = yaml::value(text)
            && value.as_str().is_none()
        {
            candidates.push(value);
        }
        self.add(keys, &candidates, |_| origin.clone());
    }

    /// Takes the first of several readings of a value that its key accepts. Where none is accepted, the last is blamed.
    fn add(&mut self, keys: &[String], candidates: &[Value], origin_of: impl Fn(&[String]) -> Origin) {
        let is_section = find(&self.shape, keys).is_some_and(|value| value.as_dict().is_some());
        let mut blame = None;
        for value in candidates {
            // A section with nothing in it, as templates like to leave behind, says nothing.
            let is_empty = value.to_empty().is_some() || value.as_dict().is_some_and(Dict::is_empty);
            if is_section && is_empty {
                return;
            }
            // serde would take a list for the keys of a section in their order.
            if is_section && value.as_array().is_some() {
                let mut error = figment::Error::from(Kind::InvalidType(Actual::Seq, "a map".to_owned()));
                error.path = keys.to_vec();
                blame = Some(error);
                continue;
            }
            let setting = Setting { keys, value, origin: self.origins.len() };
            match self.defaults.clone().merge(&setting).extract::<Config>() {
                Ok(_) => {
                    let merged = std::mem::take(&mut self.merged);
                    self.merged = merged.merge(&setting);
                    self.origins.push(origin_of(keys));
                    return;
                }
                Err(error) => blame = Some(self.each_entry(keys, value).unwrap_or(error)),
            }
        }
        for error in blame.into_iter().flatten() {
            let key = error.path.join(".");
            if self.blamed.insert(key.clone()) {
                let (message, way_out) = explain(&error.kind, error.path.last().map_or("", String::as_str));
                self.problems.push(Problem { origin: origin_of(&error.path), key, message, way_out });
            }
        }
    }

    /// What is wrong with the entries of a list, each by itself: a list as a whole is told about only the first.
    fn each_entry(&self, keys: &[String], list: &Value) -> Option<figment::Error> {
        let alone = |(index, entry): (usize, &Value)| {
            let value = Value::from(vec![entry.clone()]);
            let setting = Setting { keys, value: &value, origin: self.origins.len() };
            let mut errors: Vec<_> =
                self.defaults.clone().merge(&setting).extract::<Config>().err().into_iter().flatten().collect();
            for error in &mut errors {
                // Alone, each is the first.
                if let Some(place) = error.path.get_mut(keys.len()) {
                    *place = index.to_string();
                }
            }
            errors
        };
        list.as_array()?.iter().enumerate().flat_map(alone).reduce(figment::Error::chain)
    }

    fn finish(mut self) -> Result<Loaded, Problems> {
        match self.merged.extract::<Config>() {
            Ok(config) => {
                for finding in check::findings(&config) {
                    // What was said about one of its keys already is the cause, or comes first.
                    if !finding.keys().any(|key| self.blamed.contains(&key.join("."))) {
                        let origins = finding.keys().map(|key| origin_of(&self.merged, &self.origins, key));
                        let said = origins.into_iter().find(|origin| *origin != Origin::Default);
                        self.problems.push(finding.at(said.unwrap_or(Origin::Default)));
                    }
                }
                if self.problems.is_empty() {
                    return Ok(Loaded { config, figment: self.merged, origins: self.origins });
                }
            }
            // Each setting was accepted alone, so this says that two of them don't go together.
            Err(errors) => self.problems.extend(errors.into_iter().map(|error| {
                let (message, way_out) = explain(&error.kind, "");
                Problem { origin: Origin::Default, key: error.path.join("."), message, way_out }
            })),
        }
        self.problems.sort_by_key(|problem| match &problem.origin {
            Origin::File(_, line) => line.unwrap_or(0),
            _ => u64::MAX,
        });
        Err(Problems(self.problems))
    }
}

fn read_capped(path: &std::path::Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_CAP as u64 + 1).read_to_string(&mut text)?;
    if text.len() > FILE_CAP {
        return Err(std::io::Error::new(
            std::io::ErrorKind::FileTooLarge,
            format!("it has more than {FILE_CAP} bytes"),
        ));
    }
    Ok(text)
}

/// Lists the keys that there are by the variables that set them: `dataPlane.timeLimit` is `DATA_PLANE__TIME_LIMIT`.
fn name_variables(path: &mut Vec<String>, value: &Value, known: &mut BTreeMap<String, Vec<String>>) {
    for (key, value) in value.as_dict().into_iter().flatten() {
        path.push(key.clone());
        let parts: Vec<_> = path.iter().map(|part| in_capitals(part)).collect();
        known.insert(parts.join("__"), path.clone());
        name_variables(path, value, known);
        path.pop();
    }
}

fn in_capitals(key: &str) -> String {
    key.chars().fold(String::new(), |mut name, c| {
        if c.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(c.to_ascii_uppercase());
        name
    })
}

/// Whether kubelet made this variable for a Service whose name begins with `moorline`.
fn is_service_link(rest: &str) -> bool {
    let words: Vec<_> = rest.split('_').collect();
    let tail_is = |tail: &[&str]| words.ends_with(tail);
    let port = words.iter().position(|word| *word == "PORT");
    let is_number = |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    !rest.contains("__")
        && (tail_is(&["SERVICE", "HOST"])
            || words.windows(2).any(|pair| pair == ["SERVICE", "PORT"])
            || port.is_some_and(|at| words.get(at + 1).is_none_or(is_number)))
}
