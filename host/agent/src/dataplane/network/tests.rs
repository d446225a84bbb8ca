#![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

use std::sync::Mutex as StdMutex;

use moorline_lifecycle::{Assignment, Site};
use serde_json::json;

use super::*;

/// A data plane of an embedder's, which remembers what it was asked.
struct Plane {
    plan: Value,
    asked: StdMutex<Vec<String>>,
}

impl Plane {
    fn new(plan: Value) -> Arc<Self> {
        Arc::new(Self { plan, asked: StdMutex::default() })
    }

    fn note(&self, what: &str) {
        self.asked.lock().unwrap().push(what.to_owned());
    }

    fn asked(&self) -> String {
        self.asked.lock().unwrap().join(" ")
    }
}

impl DataPlane for Plane {
    fn name(&self) -> &str {
        "mine"
    }

    fn plan<'a>(&'a self, _: &'a Desired, _: CancellationToken) -> Answer<'a, Value> {
        self.note("plan");
        Box::pin(async { Ok(self.plan.clone()) })
    }

    fn apply<'a>(&'a self, _: &'a Desired, cancel: CancellationToken) -> Answer<'a, Routes> {
        self.note("apply");
        Box::pin(async move {
            cancel.cancel();
            Ok(Routes::NotMine)
        })
    }

    fn teardown<'a>(&'a self, _: &'a Value, cancel: CancellationToken) -> Answer<'a, ()> {
        self.note("teardown");
        Box::pin(async move {
            cancel.cancel();
            Ok(())
        })
    }

    fn join(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn workers(&self) -> Vec<String> {
        Vec::new()
    }
}

fn desired() -> Desired {
    let site = Site {
        name: "east".into(),
        uid: "uid-east".into(),
        generation: 1,
        labels: Default::default(),
        manage_cni: None,
        spec: "{}".into(),
    };
    let assignment = Assignment { node_uid: "uid-n1".into(), site: "east".into(), pool: None };
    Desired { assignment, site, pool: None, pod_cidrs: Vec::new() }
}

fn networked(plane: &Arc<Plane>) -> Networked {
    let start = Start { boot_id: Some("boot".into()), ..Start::default() };
    Networked::new(plane.clone(), start)
}

#[tokio::test]
async fn what_is_planned_is_recorded_with_marks_and_boot_and_the_rest_stays_as_it_is() {
    let plane = Plane::new(json!({ "file": "a", "network": { "links": [{ "name": "moor0" }] } }));
    let plan = networked(&plane).plan(&desired(), CancellationToken::new()).await.unwrap();
    let alias = Marks::new(&NetworkConfig::default(), &desired().assignment).link_alias;
    let network = json!({
        "marks": { "routeProtocol": 158, "linkAlias": alias },
        "bootId": "boot",
        "plan": { "links": [{ "name": "moor0" }], "routes": [], "rules": [] },
    });
    assert_eq!(plan, json!({ "file": "a", "network": network }));
}

#[tokio::test]
async fn a_wrong_network_fails_the_plan_and_nothing_is_applied() {
    let plane = Plane::new(json!({ "network": { "links": [{ "name": "moor0", "alias": "x" }] } }));
    let networked = networked(&plane);
    let error = networked.plan(&desired(), CancellationToken::new()).await.unwrap_err();
    insta::assert_snapshot!(error, @"the plan of the data plane mine can't be used: `network.links[0].alias`: unknown field `alias`, expected `name` or `index`");
    assert!(networked.apply(&desired(), CancellationToken::new()).await.is_err());
    assert_eq!(plane.asked(), "plan plan");
}

/// The plane cancels its own token at its end, as a join that comes right then would.
#[tokio::test]
async fn once_workers_are_being_joined_the_network_is_not_begun_with() {
    let plane = Plane::new(json!({ "network": { "links": [{ "name": "moor0" }] } }));
    let networked = networked(&plane);
    let plan = networked.plan(&desired(), CancellationToken::new()).await.unwrap();
    for done in [
        networked.apply(&desired(), CancellationToken::new()).await.map(drop),
        networked.teardown(&plan, CancellationToken::new()).await,
    ] {
        assert!(matches!(done, Err(DataPlaneError::Cancelled { .. })), "{done:?}");
    }
    networked.join().await;
    assert_eq!(networked.workers(), [""; 0]);
}

#[tokio::test]
async fn a_recorded_network_that_makes_no_sense_is_told_before_anything_is_torn_down() {
    let plane = Plane::new(Value::Null);
    let plan = json!({ "network": { "marks": 5 } });
    let error = networked(&plane).teardown(&plan, CancellationToken::new()).await.unwrap_err();
    assert!(error.to_string().contains("the ledger's `network` makes no sense"), "{error}");
    assert_eq!(plane.asked(), "");
}
