//! The `Status` objects that Kubernetes refuses requests with, word for word.

use bytes::Bytes;
use kube::core::{
    Status,
    response::{StatusCause, StatusDetails, StatusSummary, reason},
};
use serde::Serialize;

use super::{Attributes, resource::Resource};

/// What a request is refused with.
pub(crate) type Refusal = Box<Status>;

/// One thing that is wrong with one field: a `field.Error` of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldError {
    reason: &'static str,
    field: String,
    text: String,
}

impl FieldError {
    pub(crate) fn invalid(field: impl Into<String>, value: impl Serialize, detail: impl AsRef<str>) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {}: {}", shown(value), detail.as_ref()))
    }

    pub(crate) fn wrong_type(field: impl Into<String>, found: &str, detail: impl AsRef<str>) -> Self {
        Self::new("FieldValueTypeInvalid", field, format!("Invalid value: {found:?}: {}", detail.as_ref()))
    }

    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        let text = if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        Self::new("FieldValueRequired", field, text)
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: impl Serialize, detail: &str) -> Self {
        Self::new("FieldValueDuplicate", field, format!("Duplicate value: {}: {detail}", shown(value)))
    }

    pub(crate) fn not_supported(field: impl Into<String>, value: impl Serialize, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|word| format!("{word:?}")).collect();
        let text = format!("Unsupported value: {}: supported values: {}", shown(value), supported.join(", "));
        Self::new("FieldValueNotSupported", field, text)
    }

    pub(crate) fn forbidden(field: impl Into<String>, detail: impl AsRef<str>) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {}", detail.as_ref()))
    }

    pub(crate) fn too_long(field: impl Into<String>, limit: u64) -> Self {
        Self::new("FieldValueTooLong", field, format!("Too long: may not be more than {limit} bytes"))
    }

    pub(crate) fn too_many(field: impl Into<String>, found: usize, limit: u64) -> Self {
        Self::new("FieldValueTooMany", field, format!("Too many: {found}: must have at most {limit} items"))
    }

    fn new(reason: &'static str, field: impl Into<String>, text: String) -> Self {
        Self { reason, field: field.into(), text }
    }
}

/// Strings in quotes, everything else as JSON: how Kubernetes prints a bad value.
fn shown(value: impl Serialize) -> String {
    serde_json::to_string(&value).unwrap_or_default()
}

fn failure(code: u16, reason: &str, message: impl Into<String>, details: Option<StatusDetails>) -> Refusal {
    Box::new(Status {
        status: Some(StatusSummary::Failure),
        code,
        message: message.into(),
        metadata: None,
        reason: reason.to_owned(),
        details,
    })
}

fn details(group: &str, kind: &str, name: &str, causes: Vec<StatusCause>) -> StatusDetails {
    StatusDetails {
        name: name.to_owned(),
        group: group.to_owned(),
        kind: kind.to_owned(),
        uid: String::new(),
        causes,
        retry_after_seconds: 0,
    }
}

fn said(message: impl Into<String>) -> StatusCause {
    StatusCause { reason: String::new(), message: message.into(), field: String::new() }
}

pub(crate) fn not_found(resource: &Resource, name: &str) -> Refusal {
    let message = format!("{} {name:?} not found", resource.qualified());
    failure(404, reason::NOT_FOUND, message, Some(details(resource.group, resource.plural, name, vec![])))
}

pub(crate) fn already_exists(resource: &Resource, name: &str) -> Refusal {
    let message = format!("{} {name:?} already exists", resource.qualified());
    failure(409, reason::ALREADY_EXISTS, message, Some(details(resource.group, resource.plural, name, vec![])))
}

/// The race: someone else wrote first.
pub(crate) fn conflict(resource: &Resource, name: &str) -> Refusal {
    conflict_because(
        resource,
        resource.plural,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )
}

/// A conflict with another reason; `kind` is what Kubernetes calls the resource there, its plural or its kind.
pub(crate) fn conflict_because(resource: &Resource, kind: &str, name: &str, why: &str) -> Refusal {
    let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.with_group(kind));
    failure(409, reason::CONFLICT, message, Some(details(resource.group, kind, name, vec![])))
}

pub(crate) fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Refusal {
    let causes = errors
        .iter()
        .map(|e| StatusCause { reason: e.reason.to_owned(), message: e.text.clone(), field: e.field.clone() })
        .collect();
    let mut texts: Vec<String> = Vec::new();
    for error in errors {
        let text = format!("{}: {}", error.field, error.text);
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    let joined = if texts.len() == 1 { texts.concat() } else { format!("[{}]", texts.join(", ")) };
    let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    let message = format!("{qualified} {name:?} is invalid: {joined}");
    failure(422, reason::INVALID, message, Some(details(group, kind, name, causes)))
}

/// What Kubernetes says of a JSON patch that can't be applied, whatever the cause.
pub(crate) fn patch_failed() -> Refusal {
    failure(
        422,
        reason::INVALID,
        "the server rejected our request due to an error in our request",
        Some(details("", "", "", vec![])),
    )
}

pub(crate) fn bad_request(message: impl Into<String>) -> Refusal {
    failure(400, reason::BAD_REQUEST, message, None)
}

/// An error that Kubernetes passes on without a reason.
pub(crate) fn unknown(message: impl Into<String>) -> Refusal {
    failure(500, reason::UNKNOWN, message, None)
}

pub(crate) fn unauthorized() -> Refusal {
    failure(401, reason::UNAUTHORIZED, "Unauthorized", None)
}

/// RBAC's refusal.
pub(crate) fn forbidden(request: &Attributes, verb: &str) -> Refusal {
    let mut resource = request.resource.clone();
    if !request.subresource.is_empty() {
        resource = format!("{resource}/{}", request.subresource);
    }
    let scope = if request.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {:?}", request.namespace)
    };
    let why = format!(
        "User {:?} cannot {verb} resource {resource:?} in API group {:?} {scope}",
        request.identity, request.group
    );
    let qualified = if request.group.is_empty() {
        request.resource.clone()
    } else {
        format!("{}.{}", request.resource, request.group)
    };
    let message = if request.name.is_empty() {
        format!("{qualified} is forbidden: {why}")
    } else {
        format!("{qualified} {:?} is forbidden: {why}", request.name)
    };
    failure(403, reason::FORBIDDEN, message, Some(details(&request.group, &request.resource, &request.name, vec![])))
}

pub(crate) fn method_not_allowed(resource: &Resource, action: &str) -> Refusal {
    let message = format!("{action} is not supported on resources of kind {:?}", resource.qualified());
    failure(405, reason::METHOD_NOT_ALLOWED, message, Some(details(resource.group, resource.plural, "", vec![])))
}

pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Refusal {
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: {}",
        accepted.join(", ")
    );
    failure(415, reason::UNSUPPORTED_MEDIA_TYPE, message, None)
}

pub(crate) fn entity_too_large(limit: usize) -> Refusal {
    let message = format!("Request entity too large: limit is {limit}");
    failure(413, reason::REQUEST_ENTITY_TOO_LARGE, message, None)
}

pub(crate) fn expired(message: impl Into<String>) -> Refusal {
    failure(410, reason::EXPIRED, message, None)
}

/// A version that this server has not reached yet.
pub(crate) fn version_too_large(asked: u64, current: u64) -> Refusal {
    let cause = StatusCause {
        reason: "ResourceVersionTooLarge".to_owned(),
        message: "Too large resource version".to_owned(),
        field: String::new(),
    };
    let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
    let details = StatusDetails { retry_after_seconds: 1, ..details("", "", "", vec![cause]) };
    failure(504, reason::TIMEOUT, message, Some(details))
}

/// A `ValidatingAdmissionPolicy` denies: an "is forbidden" text under whatever code and reason the policy has.
pub(crate) fn policy_denied(resource: &Resource, name: &str, code: u16, reason: &str, text: String) -> Refusal {
    let message = format!("{} {name:?} is forbidden: {text}", resource.qualified());
    failure(code, reason, message, Some(details(resource.group, resource.plural, name, vec![said(text)])))
}

/// A webhook denies, with any code it likes.
pub(crate) fn webhook_denied(code: u16, reason: &str, text: String) -> Refusal {
    failure(code, reason, text, None)
}

pub(crate) fn internal(why: &str) -> Refusal {
    let message = format!("Internal error occurred: {why}");
    failure(500, reason::INTERNAL_ERROR, message, Some(details("", "", "", vec![said(why)])))
}

/// A failure with a code, a reason and a message of one's own.
pub(crate) fn other(code: u16, reason: &str, message: &str, retry_after: Option<u32>) -> Refusal {
    let details =
        retry_after.map(|seconds| StatusDetails { retry_after_seconds: seconds, ..details("", "", "", vec![]) });
    failure(code, reason, message, details)
}

/// What a DELETE that took effect at once answers.
pub(crate) fn deleted(resource: &Resource, name: &str, uid: &str) -> Status {
    Status {
        status: Some(StatusSummary::Success),
        details: Some(StatusDetails { uid: uid.to_owned(), ..details(resource.group, resource.plural, name, vec![]) }),
        ..Status::default()
    }
}

/// The JSON of a Status, with the `kind`, `apiVersion` and empty `metadata` that the client's type leaves out.
pub(crate) fn json(status: &Status) -> Bytes {
    #[derive(Serialize)]
    struct Empty {}
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Typed<'a> {
        kind: &'static str,
        api_version: &'static str,
        metadata: Empty,
        #[serde(flatten)]
        status: &'a Status,
    }
    let typed = Typed { kind: "Status", api_version: "v1", metadata: Empty {}, status };
    serde_json::to_vec(&typed).map(Bytes::from).unwrap_or_default()
}
