//! The server on a real socket, with a client that is made from a configuration as any other.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, Config, Error,
    api::{WatchEvent, WatchParams},
    config::AuthInfo,
};
use moorline_sim::server::{Effect, Fault, Identity, Interruption, Matching, ObjectName, Options, Server, Verb};
use serde_json::json;

/// Runs `test` against a server on loopback that knows the token `secret`.
async fn with_server<T>(test: impl AsyncFnOnce(Server, Box<dyn Fn(&str) -> Api<Node>>) -> T) -> T {
    let server = Server::new(Options::default());
    server.apply(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: http::Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let client = Box::new(move |token: &str| {
        let mut config = Config::new(url.clone());
        config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
        Api::all(Client::try_from(config).unwrap())
    });
    let who = |token: Option<&str>| match token {
        Some("secret") => Identity::agent("agent", "default"),
        Some(_) => Identity::unauthenticated("stranger"),
        None => Identity::anonymous(),
    };
    tokio::select! {
        result = test(server.clone(), client) => result,
        failed = server.serve(listener, who) => panic!("{failed:?}"),
    }
}

#[tokio::test]
async fn a_process_of_its_own_sees_the_same_server() {
    with_server(async |server, nodes| {
        let api = nodes("secret");
        let node = api.get("n1").await.unwrap();
        let params = WatchParams::default().fields("metadata.name=n1");
        let mut watch = api.watch(&params, &node.metadata.resource_version.unwrap()).await.unwrap().boxed();
        server.label(&ObjectName::new("nodes", "n1"), "a", Some("b")).unwrap();
        let Some(Ok(WatchEvent::Modified(node))) = watch.next().await else { panic!("no change seen") };
        assert_eq!(node.metadata.labels.unwrap()["a"], "b");
        server.interrupt(&Matching::any(), &Interruption::Close);
        assert!(watch.next().await.is_none());
        let Err(Error::Api(status)) = nodes("wrong").get("n1").await else { panic!("a wrong token was accepted") };
        assert_eq!(status.code, 401);
    })
    .await;
}

#[tokio::test]
async fn lost_connections_surface_as_on_any_network() {
    with_server(async |server, nodes| {
        for effect in [Effect::LostRequest, Effect::LostAnswer] {
            server.fault(Fault::once(Matching::new(Verb::Get, "nodes"), effect));
            let error = nodes("secret").get("n1").await.unwrap_err();
            assert!(matches!(error, Error::Service(_) | Error::HyperError(_)), "{error:?}");
        }
        server.fault(Fault::once(Matching::new(Verb::Get, "nodes"), Effect::HalfBody));
        assert!(!matches!(nodes("secret").get("n1").await.unwrap_err(), Error::Api(_)));
        nodes("secret").get("n1").await.unwrap();
    })
    .await;
}
