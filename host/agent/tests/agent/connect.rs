//! Connecting: the client that an agent really has, up to the wire.

use std::io::Write as _;
use std::path::PathBuf;

use moorline::cluster::{Access, ConnectError, connect};
use moorline_lifecycle::FailureKind;
use moorline_sim::server::{Answer, Effect, Fault, Identity, Matching};
use tempfile::TempDir;

use super::cluster::cluster;
use super::stage;

/// A CA that has signed nothing but itself.
const CA: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBdTCCARugAwIBAgIULk0anSQtZCitS3obtBwtDxLffO4wCgYIKoZIzj0EAwIw\n\
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjEyMDEwNjQyNDhaGA8yMTI2MTEwNzA2NDI0\n\
OFowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABFM6\n\
o3FwQPY65TqHl6u5GhkPCS/cMCt7gu/oeL7867fzbNEv5pDjrgcMKsYrKj+DmoGO\n\
f0M4d/Z0bpKg5q2eV9+jUzBRMB0GA1UdDgQWBBSqRw9nT++d9M6Vv3tOzED5L8p1\n\
BTAfBgNVHSMEGDAWgBSqRw9nT++d9M6Vv3tOzED5L8p1BTAPBgNVHRMBAf8EBTAD\n\
AQH/MAoGCCqGSM49BAMCA0gAMEUCIH5LfBMC9Snfsd/eonipnGJ++PG6RtjWa/B6\n\
z1+3jZ4eAiEA2A5wUD9OmV69QWh7QiX60DnCnnB0T+VWtzfTegDn1ag=\n\
-----END CERTIFICATE-----\n\n";

fn file(folder: &TempDir, name: &str, content: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::File::create(&path).unwrap().write_all(content.as_bytes()).unwrap();
    path
}

#[tokio::test]
async fn the_client_makes_each_request_once_and_hides_no_header() {
    let folder = tempfile::tempdir().unwrap();
    let server = stage::server();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = server.clone();
    tokio::spawn(async move { serving.serve(listener, |_token| Identity::admin("agent")).await });

    let cluster = cluster(
        connect(&Access::Kubeconfig(stage::kubeconfig(folder.path(), &format!("http://{address}")))).await.unwrap(),
    );
    assert_eq!(cluster.read_node().await.unwrap().uid, "uid-n1");
    server.fault(Fault::always(Matching::any(), Effect::Answer(Answer::too_many_requests(7))));
    let throttled = cluster.read_node().await.unwrap_err();
    assert_eq!(throttled.kind, FailureKind::Throttled);
    assert_eq!(throttled.retry_after.map(|after| after.as_secs()), Some(7));
    assert_eq!(server.audit().len(), 2);
}

#[tokio::test]
async fn a_write_that_found_no_server_has_no_effect() {
    let folder = tempfile::tempdir().unwrap();
    // A port that was free a moment ago.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let access = Access::Server {
        url: format!("https://{address}"),
        token: file(&folder, "token", "t"),
        ca: file(&folder, "ca.crt", CA),
    };
    let cluster = cluster(connect(&access).await.unwrap());
    let failure = cluster.patch_pod("uid-agent", Default::default()).await.unwrap_err();
    assert_eq!((failure.kind, failure.effect_unknown), (FailureKind::Unavailable, false), "{failure:?}");
    assert!(failure.message.contains("onnection refused"), "{}", failure.message);
}

#[tokio::test]
async fn what_is_wrong_with_the_access_is_said_before_any_request() {
    let folder = tempfile::tempdir().unwrap();
    let (token, ca) = (file(&folder, "token", "t"), file(&folder, "ca.crt", CA));
    for url in ["10.0.0.1:6443", "http://10.0.0.1", "https://", "not a url"] {
        let access = Access::Server { url: url.into(), token: token.clone(), ca: ca.clone() };
        let error = connect(&access).await.err().unwrap();
        assert!(matches!(&error, ConnectError::Url { url: said } if said == url), "{error:?}");
    }
    let access = Access::Server { url: "https://10.0.0.1".into(), token, ca: folder.path().join("absent") };
    assert!(matches!(connect(&access).await.err().unwrap(), ConnectError::Client(_)));

    let absent = folder.path().join("absent");
    let error = connect(&Access::Kubeconfig(absent.clone())).await.err().unwrap();
    assert!(error.to_string().contains(absent.to_str().unwrap()), "{error}");
}
