//! Requests that are refused, and the words of the refusal.

use kube::{
    Api,
    api::{DeleteParams, GetParams, ListParams, Patch, PostParams, Preconditions, VersionMatch},
};
use moorline_sim::server::{Admission, Denial, Matching, PolicyReason, Verb};
use serde_json::{Value, json};

use crate::common::*;

#[tokio::test(start_paused = true)]
async fn a_stale_or_future_version_is_a_conflict_even_where_nothing_would_change() {
    let server = server();
    for version in ["1", "99999"] {
        let noop = json!({"metadata": {"resourceVersion": version}});
        let status = refusal(nodes(&server).patch("n1", &plain(), &merge(noop)).await);
        assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
        assert_eq!(
            status.message,
            "Operation cannot be fulfilled on nodes \"n1\": the object has been modified; please apply your changes \
             to the latest version and try again"
        );
        let details = status.details.unwrap();
        assert_eq!((details.name.as_str(), details.kind.as_str()), ("n1", "nodes"));
        assert!(details.causes.is_empty());
    }
    let replace = json!([{"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}]);
    assert_eq!(refusal(json_patch(&server, "/api/v1/nodes/n1", replace).await).code, 409);
    let mut node = nodes(&server).get("n1").await.unwrap();
    node.metadata.resource_version = Some("1".into());
    assert_eq!(refusal(nodes(&server).replace("n1", &PostParams::default(), &node).await).code, 409);
    let stale = json!({"metadata": {"resourceVersion": "1"}, "status": {"routes": null}});
    let status = refusal(gateways(&server).patch_status("n1", &plain(), &merge(stale)).await);
    assert_eq!(status.code, 409);
    assert!(status.message.starts_with(
        "Operation cannot be fulfilled on gatewaypoolnodes.net.unbounded-cloud.io \"n1\": the object has been modified"
    ));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_no_number_is_an_error_without_a_reason() {
    let server = server();
    let patch = json!({"metadata": {"resourceVersion": "abc"}});
    let status = refusal(nodes(&server).patch("n1", &plain(), &merge(patch)).await);
    assert_eq!((status.code, status.reason.as_str()), (500, ""));
    assert_eq!(status.message, "strconv.ParseUint: parsing \"abc\": invalid syntax");
}

#[tokio::test(start_paused = true)]
async fn a_json_patch_whose_test_fails_reads_like_one_that_removes_what_is_not_there() {
    let server = server();
    let mut seen = Vec::new();
    for operations in [
        json!([{"op": "test", "path": "/metadata/name", "value": "other"}]),
        json!([{"op": "remove", "path": "/metadata/annotations/none"}]),
    ] {
        let status = refusal(json_patch(&server, "/api/v1/nodes/n1", operations).await);
        assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
        assert_eq!(status.message, "the server rejected our request due to an error in our request");
        assert!(fields(&status).is_empty());
        seen.push(status);
    }
    assert_eq!(seen[0], seen[1]);
}

#[tokio::test(start_paused = true)]
async fn a_malformed_patch_is_a_bad_request() {
    let server = server();
    for kind in ["application/json-patch+json", "application/merge-patch+json"] {
        let request = http::Request::patch("/api/v1/nodes/n1").header("content-type", kind);
        let status = refusal(admin(&server).request::<Value>(request.body(b"{".to_vec()).unwrap()).await);
        assert_eq!((status.code, status.reason.as_str()), (400, "BadRequest"));
    }
}

#[tokio::test(start_paused = true)]
async fn another_uid_is_invalid_on_the_object_with_the_current_version_and_a_conflict_with_a_stale_one() {
    let server = server();
    let current = nodes(&server).get("n1").await.unwrap().metadata.resource_version.unwrap();
    for meta in [json!({"uid": "other"}), json!({"uid": "other", "resourceVersion": current})] {
        let status = refusal(nodes(&server).patch("n1", &plain(), &merge(json!({"metadata": meta}))).await);
        assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
        assert_eq!(
            status.message,
            "Node \"n1\" is invalid: metadata.uid: Invalid value: \"other\": field is immutable"
        );
        assert_eq!(fields(&status), ["metadata.uid"]);
        let details = status.details.unwrap();
        assert_eq!((details.kind.as_str(), details.causes[0].reason.as_str()), ("Node", "FieldValueInvalid"));
        assert_eq!(details.causes[0].message, "Invalid value: \"other\": field is immutable");
    }
    let stale = json!({"metadata": {"uid": "other", "resourceVersion": "1"}});
    assert_eq!(refusal(nodes(&server).patch("n1", &plain(), &merge(stale)).await).code, 409);
}

#[tokio::test(start_paused = true)]
async fn a_put_with_another_uid_is_a_conflict_of_its_precondition() {
    let server = server();
    let mut node = nodes(&server).get("n1").await.unwrap();
    node.metadata.uid = Some("other".into());
    let status = refusal(nodes(&server).replace("n1", &PostParams::default(), &node).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    assert!(status.message.ends_with("Precondition failed: UID in precondition: other, UID in object meta: uid-n1"));
}

#[tokio::test(start_paused = true)]
async fn a_delete_whose_precondition_fails_is_a_conflict() {
    let server = server();
    let with = |uid: Option<&str>, version: Option<&str>| DeleteParams {
        preconditions: Some(Preconditions { uid: uid.map(Into::into), resource_version: version.map(Into::into) }),
        ..DeleteParams::default()
    };
    let status = refusal(nodes(&server).delete("n1", &with(Some("other"), None)).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    assert_eq!(
        status.message,
        "Operation cannot be fulfilled on Node \"n1\": the UID in the precondition (other) does not match the UID in \
         record (uid-n1). The object might have been deleted and then recreated"
    );
    let status = refusal(nodes(&server).delete("n1", &with(Some("uid-n1"), Some("1"))).await);
    assert!(status.message.contains("the ResourceVersion in the precondition (1) does not match"));
    assert!(nodes(&server).delete("n1", &with(Some("uid-n1"), None)).await.unwrap().is_right());
}

#[tokio::test(start_paused = true)]
async fn a_policy_denies_as_invalid_unless_it_says_otherwise() {
    for (reason, code, word) in [
        (PolicyReason::Invalid, 422, "Invalid"),
        (PolicyReason::Forbidden, 403, "Forbidden"),
        (PolicyReason::RequestEntityTooLarge, 413, "RequestEntityTooLarge"),
    ] {
        let server = server();
        let denial =
            Denial::Policy { policy: "p".into(), binding: "b".into(), message: "taints may not change".into(), reason };
        server.admit(Admission::deny(Matching::new(Verb::Patch, "nodes"), denial).changing("/spec/taints"));
        let status = refusal(nodes(&server).patch("n1", &plain(), &merge(json!({"spec": {"taints": null}}))).await);
        assert_eq!((status.code, status.reason.as_str()), (code, word));
        let text = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: taints may not change";
        assert_eq!(status.message, format!("nodes \"n1\" is forbidden: {text}"));
        let details = status.details.unwrap();
        assert_eq!((details.name.as_str(), details.kind.as_str()), ("n1", "nodes"));
        assert_eq!(details.causes.len(), 1);
        let cause = &details.causes[0];
        assert_eq!((cause.reason.as_str(), cause.field.as_str(), cause.message.as_str()), ("", "", text));
        let other = json!({"metadata": {"labels": {"a": "b"}}});
        nodes(&server).patch("n1", &plain(), &merge(other)).await.expect("what the rule isn't about is let through");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_on_nodes_does_not_match_their_status() {
    let server = server();
    server.admit(Admission::deny(
        Matching { resource: Some("nodes".into()), ..Matching::any() },
        Denial::policy("p", "no"),
    ));
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(refusal(nodes(&server).patch("n1", &plain(), &merge(patch.clone())).await).code, 422);
    nodes(&server).patch_status("n1", &plain(), &merge(patch)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_webhook_denies_with_any_code() {
    let deny = |code, reason: &str, message: &str| Denial::Webhook {
        name: "w.example.com".into(),
        code,
        reason: reason.into(),
        message: message.into(),
    };
    let unreachable = Denial::Unreachable { name: "w.example.com".into(), cause: "Post \"https://w\": EOF".into() };
    for (denial, code, reason, message) in [
        (
            deny(409, "Conflict", "busy"),
            409,
            "Conflict",
            "admission webhook \"w.example.com\" denied the request: busy",
        ),
        (deny(0, "", ""), 400, "", "admission webhook \"w.example.com\" denied the request without explanation"),
        (
            unreachable,
            500,
            "InternalError",
            "Internal error occurred: failed calling webhook \"w.example.com\": failed to call webhook: Post \
             \"https://w\": EOF",
        ),
    ] {
        let server = server();
        server.admit(Admission::deny(Matching::any(), denial));
        let status = refusal(nodes(&server).patch("n1", &plain(), &merge(json!({"spec": {"taints": null}}))).await);
        assert_eq!((status.code, status.reason.as_str(), status.message.as_str()), (code, reason, message));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_absent_is_not_found_by_name() {
    let server = server();
    let status = refusal(nodes(&server).patch("n2", &plain(), &merge(json!({}))).await);
    assert_eq!(
        (status.code, status.reason.as_str(), status.message.as_str()),
        (404, "NotFound", "nodes \"n2\" not found")
    );
    let details = status.details.unwrap();
    assert_eq!((details.name.as_str(), details.kind.as_str(), details.group.as_str()), ("n2", "nodes", ""));
    let status = refusal(sites(admin(&server)).get("s2").await);
    assert_eq!(status.message, "sites.unbounded-cloud.io \"s2\" not found");
    assert_eq!(status.details.unwrap().group, "unbounded-cloud.io");
}

#[tokio::test(start_paused = true)]
async fn a_404_for_an_unknown_resource_names_no_object() {
    let server = server();
    let status =
        refusal(admin(&server).request::<Value>(http::Request::get("/apis/a.b/v1/c/n1").body(vec![]).unwrap()).await);
    assert_eq!((status.code, status.message.as_str()), (404, "404 page not found"));
    assert!(status.details.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_order_of_checks_is_rights_then_existence_then_version_then_validity_then_admission() {
    let server = server();
    server.admit(Admission::deny(Matching::any(), Denial::policy("p", "no")));
    let wrong = json!({"metadata": {"resourceVersion": "1", "uid": "other"}, "spec": {"taints": []}});
    let nobody: Api<k8s_openapi::api::core::v1::Node> =
        Api::all(server.client(moorline_sim::server::Identity::anonymous()));
    assert_eq!(refusal(nobody.patch("absent", &plain(), &merge(wrong.clone())).await).code, 403);
    assert_eq!(refusal(nodes(&server).patch("absent", &plain(), &merge(wrong.clone())).await).code, 404);
    assert_eq!(refusal(nodes(&server).patch("n1", &plain(), &merge(wrong)).await).reason, "Conflict");
    let invalid = json!({"metadata": {"uid": "other"}});
    let status = refusal(nodes(&server).patch("n1", &plain(), &merge(invalid)).await);
    assert_eq!(fields(&status), ["metadata.uid"]);
    let status = refusal(nodes(&server).patch("n1", &plain(), &merge(json!({"spec": {"taints": null}}))).await);
    assert!(status.message.contains("ValidatingAdmissionPolicy"));
}

#[tokio::test(start_paused = true)]
async fn annotations_have_a_limit_of_262144_bytes_in_all() {
    let server = server();
    let with = |bytes: usize| json!({"metadata": {"annotations": {"key": "x".repeat(bytes - "key".len())}}});
    pods(&server).patch("agent", &plain(), &merge(with(262_144))).await.expect("the limit itself is allowed");
    let status = refusal(pods(&server).patch("agent", &plain(), &merge(with(262_145))).await);
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    assert_eq!(
        status.message,
        "Pod \"agent\" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes"
    );
    let details = status.details.unwrap();
    assert_eq!(
        (details.causes[0].reason.as_str(), details.causes[0].field.as_str()),
        ("FieldValueTooLong", "metadata.annotations")
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_over_three_mebibytes_is_too_large() {
    let server = server();
    let patch = json!({"metadata": {"annotations": {"key": "x".repeat(3 * 1024 * 1024)}}});
    let status = refusal(pods(&server).patch("agent", &plain(), &merge(patch)).await);
    assert_eq!((status.code, status.reason.as_str()), (413, "RequestEntityTooLarge"));
    assert_eq!(status.message, "Request entity too large: limit is 3145728");
}

#[tokio::test(start_paused = true)]
async fn a_custom_resource_takes_no_strategic_merge_patch() {
    let server = server();
    let status = refusal(sites(admin(&server)).patch("s1", &plain(), &Patch::Strategic(json!({}))).await);
    assert_eq!((status.code, status.reason.as_str()), (415, "UnsupportedMediaType"));
    assert_eq!(
        status.message,
        "the body of the request was in an unknown format - accepted media types include: \
         application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    );
}

#[tokio::test(start_paused = true)]
async fn a_patch_type_that_only_the_real_server_has_is_refused_and_never_misread() {
    let server = server();
    let before = server.version();
    let patch = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"labels": {"a": "b"}}});
    assert_eq!(refusal(nodes(&server).patch("n1", &plain(), &Patch::Strategic(patch.clone())).await).code, 415);
    let params = kube::api::PatchParams::apply("test");
    assert_eq!(refusal(nodes(&server).patch("n1", &params, &Patch::Apply(patch)).await).code, 415);
    assert_eq!(server.version(), before);
}

#[tokio::test(start_paused = true)]
async fn a_read_from_the_future_times_out() {
    let server = server();
    let ahead = (server.version() + 1).to_string();
    let list = ListParams::default().at(&ahead).matching(VersionMatch::NotOlderThan);
    for status in [
        refusal(nodes(&server).list(&list).await),
        refusal(nodes(&server).get_with("n1", &GetParams::at(&ahead)).await),
    ] {
        assert_eq!((status.code, status.reason.as_str()), (504, "Timeout"));
        assert_eq!(status.details.unwrap().causes[0].reason, "ResourceVersionTooLarge");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_of_a_version_that_is_gone_is_expired() {
    let server = server();
    let old = server.version().to_string();
    server.label(&moorline_sim::server::ObjectName::new("nodes", "n1"), "a", Some("b")).unwrap();
    let list = ListParams::default().at(&old).matching(VersionMatch::Exact);
    let status = refusal(nodes(&server).list(&list).await);
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
}

#[tokio::test(start_paused = true)]
async fn what_this_server_cannot_select_by_is_refused_rather_than_ignored() {
    let server = server();
    for list in [
        ListParams::default().labels("a=b"),
        ListParams::default().fields("spec.unschedulable=true"),
        ListParams::default().fields("metadata.name!=n1"),
    ] {
        assert_eq!(refusal(nodes(&server).list(&list).await).reason, "BadRequest");
    }
}

#[tokio::test(start_paused = true)]
async fn a_method_that_a_resource_does_not_have_is_named() {
    let server = server();
    let status = refusal(nodes(&server).delete_collection(&DeleteParams::default(), &ListParams::default()).await);
    assert_eq!((status.code, status.reason.as_str()), (405, "MethodNotAllowed"));
}
