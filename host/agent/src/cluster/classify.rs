//! What an answer of the API server means for the life: the class of a failure, whether it is an admission verdict,
//! whether the request may have taken effect all the same. Pure; nothing here sends or reads anything.

use std::time::Duration;

use moorline_lifecycle::{Failure, FailureKind};
use serde::Deserialize;

use super::target::{Target, Verb};

/// What a server says is cut to so many bytes.
const MESSAGE_CAP: usize = 1024;

/// The body of an unsuccessful answer, and the object of an ERROR event, as far as it is looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status {
    kind: String,
    code: u16,
    reason: String,
    message: String,
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    name: String,
    group: String,
    /// The plural, although the field is called kind.
    kind: String,
    retry_after_seconds: u64,
}

/// The failure behind an answer without success. `retry_after` is the header's.
pub(super) fn answered(verb: Verb, target: &Target, code: u16, retry_after: Option<Duration>, body: &[u8]) -> Failure {
    match serde_json::from_slice::<Status>(body) {
        Ok(status) if status.kind == "Status" => from_status(verb, target, code, retry_after, &status),
        _ => {
            let status = Status { message: String::from_utf8_lossy(body).into_owned(), ..Status::default() };
            from_status(verb, target, code, retry_after, &status)
        }
    }
}

/// The failure behind an ERROR event of a watch.
pub(super) fn error_event(target: &Target, status: &Status) -> Failure {
    let failure = from_status(Verb::Watch, target, status.code, None, status);
    Failure { message: format!("The stream gave an error event. {}", failure.message), ..failure }
}

fn from_status(verb: Verb, target: &Target, code: u16, retry_after: Option<Duration>, status: &Status) -> Failure {
    let denied = is_denial(verb, code, status);
    let kind = match code {
        // A denial says nothing about the object's state, so it belongs to none of the classes that do.
        _ if denied => FailureKind::Other,
        401 => FailureKind::Unauthorized,
        403 => FailureKind::Forbidden,
        404 if is_about(target, status) => FailureKind::NotFound,
        408 | 504 => FailureKind::Timeout,
        409 if status.reason == "Conflict" => FailureKind::Conflict,
        410 => FailureKind::Expired,
        429 => FailureKind::Throttled,
        400 | 422 => FailureKind::Invalid,
        404 | 500.. | ..400 => FailureKind::Unavailable,
        _ => FailureKind::Other,
    };
    let from_details =
        status.details.as_ref().map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0);
    let mut message = format!("The {verb} of {target} was answered with {code}{}", phrase(code, &status.reason));
    if code == 404 && kind == FailureKind::Unavailable {
        message.push_str(", which is not about this object (is the API server's address right, and is the kind installed in this version?)");
    }
    message.push_str(&said(&status.message));
    if kind == FailureKind::Forbidden && !denied {
        let group = if target.group.is_empty() { "the core API group" } else { target.group.as_str() };
        message.push_str(&format!(
            " Grant `{}` on `{}` of {group} to the agent's service account; `deploy/base/rbac.yaml` has all that it needs.",
            verb.word(),
            target.resource()
        ));
    }
    Failure {
        kind,
        denied,
        effect_unknown: verb.writes() && !denied && !(400..500).contains(&code),
        retry_after: retry_after.max(from_details.map(Duration::from_secs)),
        message,
    }
}

/// An answer that says success but makes no sense.
pub(super) fn nonsense(verb: Verb, target: &Target, what: &str) -> Failure {
    Failure {
        effect_unknown: verb.writes(),
        ..Failure::new(
            FailureKind::Unavailable,
            format!("The {verb} of {target} gave an answer that makes no sense{}", said(what)),
        )
    }
}

/// No answer, since the request did not get out or the connection broke. `sent` is false only where the server can't
/// have seen the request.
pub(super) fn unanswered(verb: Verb, target: &Target, sent: bool, cause: &str) -> Failure {
    Failure {
        effect_unknown: verb.writes() && sent,
        ..Failure::new(FailureKind::Unavailable, format!("The {verb} of {target} got no answer{}", said(cause)))
    }
}

/// No answer in time.
pub(super) fn late(verb: Verb, target: &Target, limit: Duration) -> Failure {
    Failure {
        effect_unknown: verb.writes(),
        ..Failure::new(FailureKind::Timeout, format!("The {verb} of {target} got no answer within {limit:?}."))
    }
}

/// A stream that broke or went silent.
pub(super) fn broken(kind: FailureKind, target: &Target, what: &str) -> Failure {
    Failure::new(kind, format!("The WATCH of {target} ended early{}", said(what)))
}

/// Whether an admission policy, webhook or plugin said no. The code says nothing about that: a ValidatingAdmissionPolicy
/// answers with 422, 403 or 413, a webhook with whatever it likes, so the API server's own wording decides.
fn is_denial(verb: Verb, code: u16, status: &Status) -> bool {
    let text = status.message.as_str();
    let by_policy = text.contains("ValidatingAdmissionPolicy '") && text.contains(" denied request");
    let by_webhook = text.contains("admission webhook \"") && text.contains("denied the request");
    // What is built in (NodeRestriction, for example) answers with 403 too; there, only the authorizer begins with the user.
    let by_plugin = code == 403
        && status.reason == "Forbidden"
        && text.split_once("forbidden: ").is_some_and(|(_, why)| !why.starts_with("User \""));
    verb.writes() && code >= 400 && (by_policy || by_webhook || by_plugin)
}

/// Whether a NotFound is about this very object, and not about a namespace, a kind or a path.
fn is_about(target: &Target, status: &Status) -> bool {
    status.reason == "NotFound"
        && status.details.as_ref().is_some_and(|details| {
            details.name == target.name && details.kind == target.plural && details.group == target.group
        })
}

fn phrase(code: u16, reason: &str) -> String {
    let reason = reason.chars().take(64).filter(|c| c.is_ascii_alphanumeric()).collect::<String>();
    let canonical = http::StatusCode::from_u16(code).ok().and_then(|code| code.canonical_reason());
    match (reason.is_empty(), canonical) {
        (false, _) => format!(" {reason}"),
        (true, Some(canonical)) => format!(" {canonical}"),
        (true, None) => String::new(),
    }
}

/// What the other side said as the end of a sentence: on one line, without control characters, cut to a cap with a mark.
fn said(text: &str) -> String {
    let text = text.trim();
    let cut = &text[..text.floor_char_boundary(MESSAGE_CAP)];
    let mut line: String = cut.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if cut.len() < text.len() {
        line.push_str(&format!("… (cut from {} bytes)", text.len()));
    }
    if line.is_empty() {
        return ".".into();
    }
    if !line.ends_with(['.', '!', '?']) {
        line.push('.');
    }
    format!(": {line}")
}

#[cfg(test)]
mod tests;
