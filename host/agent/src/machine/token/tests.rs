#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

use super::*;

fn token(claims: &str) -> String {
    format!("{}.{}.c2ln\n", URL_SAFE_NO_PAD.encode("{\"alg\":\"RS256\"}"), URL_SAFE_NO_PAD.encode(claims))
}

fn read_text(text: &str) -> Result<Option<Identity>, TokenError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, text).unwrap();
    read(&path)
}

const CLAIMS: &str = r#"{"aud":["https://kubernetes.default.svc"],"exp":1,"kubernetes.io":{"namespace":"kube-system",
    "node":{"name":"node-1","uid":"n"},"pod":{"name":"moorline-x","uid":"p-1"},
    "serviceaccount":{"name":"moorline","uid":"s"},"warnafter":2},"sub":"system:serviceaccount:kube-system:moorline"}"#;

fn told(pod_uid: &str, node: &str) -> Identity {
    Identity {
        namespace: Some("kube-system".to_owned()),
        pod_name: Some("moorline-x".to_owned()),
        pod_uid: Some(pod_uid.to_owned()),
        node_name: Some(node.to_owned()),
    }
}

#[test]
fn a_bound_token_tells_for_whom_it_was_made() {
    let identity = read_text(&token(CLAIMS)).unwrap().unwrap();
    assert_eq!(identity, told("p-1", "node-1"));
    assert_eq!(compare(&identity, &told("p-1", "node-1")), Ok(()));
}

#[test]
fn every_difference_is_told_with_the_way_out() {
    let identity = read_text(&token(CLAIMS)).unwrap().unwrap();
    let error = compare(&identity, &told("p-2", "node-2")).unwrap_err();
    insta::assert_snapshot!(error, @r#"the service account token was made for another identity: its Pod UID is "p-1" and the agent was told "p-2", its Node name is "node-1" and the agent was told "node-2". Set NODE_NAME, POD_NAME, POD_NAMESPACE and POD_UID from the downward API, and let each Pod mount its own token"#);
}

#[test]
fn no_token_and_a_token_without_these_claims_contradict_nothing() {
    assert_eq!(read(Path::new("/nonexistent/token")).unwrap(), None);
    for claims in ["{}", r#"{"kubernetes.io":{"namespace":"kube-system"}}"#, r#"{"kubernetes.io":{"pod":{}}}"#] {
        let identity = read_text(&token(claims)).unwrap().unwrap();
        assert_eq!(compare(&identity, &told("p-1", "node-1")), Ok(()));
    }
}

#[test]
fn what_is_no_token_is_said_without_repeating_it() {
    for (text, problem) in [
        ("", "three parts"),
        ("a.b", "three parts"),
        ("a.secret!.c", "base64url"),
        (&token("5"), "JSON that is expected"),
        (&token("secret"), "JSON that is expected"),
    ] {
        let error = read_text(text).unwrap_err().to_string();
        assert!(error.contains(problem) && error.contains("`pod.tokenFile`"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}
