//! Turns what the API server sends into the objects of the life, and taints back. What is sent is checked before
//! anything depends on it: another object's answer, an empty UID or a field of the wrong type is told, never guessed at.

use std::collections::BTreeMap;

use moorline_lifecycle::{GatewayPoolNode, Node, Pod, Pool, Site, Taint};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::target::Target;

/// An annotation's value that policies see is cut to so many bytes: anyone may annotate a Node with 256 KiB.
const ANNOTATION_CAP: usize = 16 * 1024;

/// The metadata that the life looks at.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    name: String,
    uid: String,
    resource_version: String,
    generation: i64,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    deletion_timestamp: Option<String>,
}

/// An object of the life as the API server spells it: metadata and one half, the spec or the status.
pub(super) trait Wire: Sized {
    /// The name of the half that matters.
    const HALF: &'static str;
    /// Its form.
    type Half: DeserializeOwned + Default;
    /// The object, or what is wrong with it.
    fn assemble(metadata: Metadata, half: Self::Half) -> Result<Self, String>;
}

/// Reads an object that has to be `target`. The error is the end of a sentence about it.
pub(super) fn read<T: Wire>(target: &Target, mut json: Value) -> Result<T, String> {
    if json["kind"] != target.kind {
        return Err(format!("its kind is {}, not {}", json["kind"], target.kind));
    }
    let metadata: Metadata = part(&mut json, "metadata")?;
    if metadata.name != target.name {
        return Err(format!("it is about {:?}", metadata.name));
    }
    for (field, text) in [("uid", &metadata.uid), ("resourceVersion", &metadata.resource_version)] {
        if text.is_empty() {
            return Err(format!("its metadata.{field} is missing"));
        }
    }
    let half = part(&mut json, T::HALF)?;
    T::assemble(metadata, half)
}

fn part<T: DeserializeOwned + Default>(json: &mut Value, field: &str) -> Result<T, String> {
    let part = json.get_mut(field).map(Value::take).unwrap_or_default();
    serde_path_to_error::deserialize::<_, Option<T>>(part)
        .map(Option::unwrap_or_default)
        .map_err(|error| format!("its {field}.{} is not as expected: {}", error.path(), error.inner()))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NodeSpec {
    taints: Option<Vec<WireTaint>>,
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Option<Vec<String>>,
}

/// A taint as the API server spells it. `timeAdded` goes back as it came.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireTaint {
    key: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    value: String,
    effect: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time_added: Option<String>,
}

impl From<Taint> for WireTaint {
    fn from(Taint { key, value, effect, time_added }: Taint) -> Self {
        Self { key, value, effect, time_added }
    }
}

impl From<WireTaint> for Taint {
    fn from(WireTaint { key, value, effect, time_added }: WireTaint) -> Self {
        Self { key, value, effect, time_added }
    }
}

impl Wire for Node {
    const HALF: &'static str = "spec";
    type Half = NodeSpec;

    fn assemble(metadata: Metadata, spec: NodeSpec) -> Result<Self, String> {
        let mut annotations = metadata.annotations.unwrap_or_default();
        annotations.values_mut().for_each(cut);
        Ok(Self {
            name: metadata.name,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            labels: metadata.labels.unwrap_or_default(),
            annotations,
            taints: spec.taints.unwrap_or_default().into_iter().map(Taint::from).collect(),
            pod_cidrs: spec.pod_cidrs.unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
        })
    }
}

impl Wire for Pod {
    const HALF: &'static str = "spec";
    type Half = serde::de::IgnoredAny;

    fn assemble(metadata: Metadata, _: serde::de::IgnoredAny) -> Result<Self, String> {
        Ok(Self { uid: metadata.uid, annotations: metadata.annotations.unwrap_or_default() })
    }
}

impl Wire for Site {
    const HALF: &'static str = "spec";
    type Half = Value;

    fn assemble(metadata: Metadata, spec: Value) -> Result<Self, String> {
        let manage_cni = match spec.get("manageCniPlugin") {
            None | Some(Value::Null) => None,
            Some(Value::Bool(manage)) => Some(*manage),
            Some(other) => return Err(format!("its spec.manageCniPlugin is {other}, neither true nor false")),
        };
        Ok(Self {
            name: metadata.name,
            uid: metadata.uid,
            generation: metadata.generation,
            labels: metadata.labels.unwrap_or_default(),
            manage_cni,
            spec: canonical(spec),
        })
    }
}

impl Wire for Pool {
    const HALF: &'static str = "spec";
    type Half = Value;

    fn assemble(metadata: Metadata, spec: Value) -> Result<Self, String> {
        Ok(Self {
            name: metadata.name,
            uid: metadata.uid,
            generation: metadata.generation,
            labels: metadata.labels.unwrap_or_default(),
            spec: canonical(spec),
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct RoutesStatus {
    routes: Option<BTreeMap<String, Value>>,
}

impl Wire for GatewayPoolNode {
    const HALF: &'static str = "status";
    type Half = RoutesStatus;

    fn assemble(metadata: Metadata, status: RoutesStatus) -> Result<Self, String> {
        Ok(Self {
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            routes: status.routes.unwrap_or_default(),
        })
    }
}

/// The same spec gives the same text, whatever the order of its keys was on the way.
fn canonical(mut spec: Value) -> String {
    if spec.is_null() {
        spec = Value::Object(serde_json::Map::new());
    }
    spec.sort_all_objects();
    spec.to_string()
}

fn cut(text: &mut String) {
    if text.len() > ANNOTATION_CAP {
        let whole = text.len();
        text.truncate(text.floor_char_boundary(ANNOTATION_CAP));
        text.push_str(&format!("…[cut: {whole} bytes]"));
    }
}

#[cfg(test)]
mod tests;
