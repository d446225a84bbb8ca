//! Reads the claims of the mounted service account token and compares them with what the agent was told, so that it
//! never writes on someone else's Pod. The token isn't verified, and nothing of it is ever logged but names and UIDs.

use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::files::FileError;

/// Real tokens have one or two kilobytes.
const CAP: u64 = 64 << 10;

/// Whom a token was made for. What it doesn't say is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The Pod's namespace.
    pub namespace: Option<String>,
    /// The Pod's name.
    pub pod_name: Option<String>,
    /// The Pod's UID.
    pub pod_uid: Option<String>,
    /// The Node's name; tokens carry it since Kubernetes 1.30.
    pub node_name: Option<String>,
}

/// Why a token tells nothing.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file system failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// It isn't a token as Kubernetes mounts them.
    #[error(
        "the service account token {} isn't a JSON Web Token ({problem}). Mount the token of the Pod's service account \
         there, or correct `pod.tokenFile`",
        path.display()
    )]
    Malformed {
        /// The token's file.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// The token was made for someone else than the agent was told to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the service account token was made for another identity: {}. Set NODE_NAME, POD_NAME, POD_NAMESPACE and POD_UID \
     from the downward API, and let each Pod mount its own token",
    list(differences)
)]
pub struct TokenMismatch {
    /// Every claim that differs.
    pub differences: Vec<Difference>,
}

/// A claim that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Which one.
    pub what: &'static str,
    /// What the token says.
    pub token: String,
    /// What the agent was told.
    pub told: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its {} is {:?} and the agent was told {:?}", self.what, self.token, self.told)
    }
}

fn list(differences: &[Difference]) -> String {
    differences.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[derive(Deserialize)]
struct Claims {
    #[serde(rename = "kubernetes.io", default)]
    kubernetes: KubernetesClaims,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct KubernetesClaims {
    namespace: Option<String>,
    pod: NamedClaim,
    node: NamedClaim,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedClaim {
    name: Option<String>,
    uid: Option<String>,
}

/// Reads whom a token was made for; none when there is no such file.
pub fn read(path: &Path) -> Result<Option<Identity>, TokenError> {
    use std::io::Read as _;
    let failed = |source| FileError { path: path.to_owned(), participle: "read", source };
    // The mounted token is a symlink into the volume, which is followed.
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(failed)?,
    };
    let mut token = Vec::new();
    file.take(CAP).read_to_end(&mut token).map_err(failed)?;
    decode(&token).map(Some).map_err(|problem| TokenError::Malformed { path: path.to_owned(), problem })
}

fn decode(token: &[u8]) -> Result<Identity, &'static str> {
    let mut parts = token.trim_ascii().split(|byte| *byte == b'.');
    let (Some(_), Some(payload), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err("it does not have three parts");
    };
    let payload = URL_SAFE_NO_PAD.decode(payload).map_err(|_| "its claims aren't base64url")?;
    let claims: Claims = serde_json::from_slice(&payload).map_err(|_| "its claims aren't the JSON that is expected")?;
    let KubernetesClaims { namespace, pod, node } = claims.kubernetes;
    Ok(Identity { namespace, pod_name: pod.name, pod_uid: pod.uid, node_name: node.name })
}

/// Compares what a token says with what the agent was told, as far as both say something.
pub fn compare(token: &Identity, told: &Identity) -> Result<(), TokenMismatch> {
    let pairs = [
        ("namespace", &token.namespace, &told.namespace),
        ("Pod name", &token.pod_name, &told.pod_name),
        ("Pod UID", &token.pod_uid, &told.pod_uid),
        ("Node name", &token.node_name, &told.node_name),
    ];
    let differences: Vec<_> = pairs
        .into_iter()
        .filter_map(|(what, token, told)| match (token, told) {
            (Some(token), Some(told)) if token != told => {
                Some(Difference { what, token: token.clone(), told: told.clone() })
            }
            _ => None,
        })
        .collect();
    if differences.is_empty() { Ok(()) } else { Err(TokenMismatch { differences }) }
}

#[cfg(test)]
mod tests;
