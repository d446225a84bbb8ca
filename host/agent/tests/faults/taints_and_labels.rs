//! Kinds of faults about taints and labels.

use std::time::Duration;

use moorline_sim::server::{Admission, Answer, Denial, Effect, Fault, Matching, Server, Verb};
use serde_json::{Value, json};

use crate::kinds::{Running, shortest_pause};
use crate::stage::{self, Machine};
use crate::world::{self, GATEWAY_TAINT};

fn taint(key: &str, effect: &str) -> Value {
    json!({"key": key, "value": "true", "effect": effect})
}

fn put_taints(server: &Server, taints: &[Value]) {
    server.merge_patch(&world::node_name(), &json!({"spec": {"taints": taints}})).unwrap();
}

/// Somebody else writes the Node.
fn touch(server: &Server, turn: u32) {
    let patch = json!({"metadata": {"annotations": {"example.com/turn": turn.to_string()}}});
    server.merge_patch(&world::node_name(), &patch).unwrap();
}

fn refused(code: u16, reason: &str, message: &str) -> Effect {
    Effect::Answer(Answer::status(code, reason, message))
}

#[tokio::test(start_paused = true)]
async fn a_retry_begins_with_a_fresh_read() {
    let server = stage::server();
    let race = refused(409, "Conflict", "the object has been modified");
    server.fault(Fault::once(Matching::new(Verb::Patch, "nodes"), race).times(3));
    let mut running = Running::start(server, Machine::new());
    running.live(60).await;
    running.assert_settled();
    let requests = stage::requests(&running.server);
    let made: Vec<_> =
        requests.iter().filter(|request| request.contains(" nodes ") && !request.contains("watch")).collect();
    let each = ["patch nodes 409", "get nodes 200"];
    let wanted = [&["get nodes 200"][..], &each, &each, &each, &["patch nodes 200"]].concat();
    assert_eq!(made, wanted);
}

#[tokio::test(start_paused = true)]
async fn a_retry_of_everything_does_not_hammer_the_server_for_hours() {
    let server = stage::server();
    server.fault(Fault::always(Matching::new(Verb::Patch, "nodes"), refused(500, "InternalError", "not well")));
    let mut running = Running::start(server, Machine::new());
    running.live(6 * 3600).await;
    assert!(world::acknowledgment(&running.server).is_none());
    // Of two minutes a random part is waited, a minute on the whole; then comes a read and a write.
    let made = stage::requests(&running.server).len();
    assert!(made < 6 * 60 * 3, "{made} requests in six hours");
    assert!(running.machine.path(world::CNI).exists(), "the Node has its network all the same");
}

#[tokio::test(start_paused = true)]
async fn two_parties_that_fight_over_a_taint_do_so_ever_more_slowly() {
    let mut running = Running::start(stage::server(), Machine::new());
    for _ in 0..3600 {
        running.live(1).await;
        if !world::taints(&running.server).to_string().contains(GATEWAY_TAINT) {
            // It may settle in the moment between two looks; the taint came back then after all was true.
            if world::acknowledgment(&running.server).is_some() {
                return;
            }
            put_taints(&running.server, &[taint(GATEWAY_TAINT, "NoSchedule")]);
        }
    }
    let removed = running.requests(Verb::Patch, "nodes").len();
    assert!(removed < 60, "{removed} removals in an hour");
}

#[tokio::test(start_paused = true)]
async fn someone_elses_taint_and_its_time_are_kept() {
    let server = stage::server();
    let others = [
        json!({"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}),
        json!({"key": "example.com/disk", "value": "slow", "effect": "PreferNoSchedule"}),
    ];
    put_taints(&server, &[others[0].clone(), taint(GATEWAY_TAINT, "NoSchedule"), others[1].clone()]);
    let mut running = Running::start(server, Machine::new());
    running.live(60).await;
    running.assert_settled();
    assert_eq!(world::taints(&running.server), json!(others));
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_stands_there_twice_goes_as_a_whole_and_no_other_is_doubled() {
    let server = stage::server();
    let other = taint("example.com/disk", "NoSchedule");
    put_taints(&server, &[taint(GATEWAY_TAINT, "NoSchedule"), other.clone(), taint(GATEWAY_TAINT, "NoExecute")]);
    let mut running = Running::start(server, Machine::new());
    running.live(60).await;
    running.assert_settled();
    assert_eq!(world::taints(&running.server), json!([other]));
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_no_conflict_whatever_its_code() {
    let denials = [
        Denial::policy("no-taints", "agents don't edit taints"),
        Denial::Webhook { name: "w.example.com".into(), message: "no".into(), code: 409, reason: "Conflict".into() },
    ];
    for denial in denials {
        let server = stage::server();
        server.admit(Admission::deny(Matching::new(Verb::Patch, "nodes"), denial));
        let mut running = Running::start(server, Machine::new());
        running.live(290).await;
        assert_eq!(running.requests(Verb::Patch, "nodes").len(), 1, "a denial is not tried again");
        assert!(running.machine.told.has("TaintRemovalDenied"), "{:#?}", running.machine.told.lines());
        assert!(world::acknowledgment(&running.server).is_none());
        running.live(600).await;
        let tries = running.requests(Verb::Patch, "nodes");
        assert!(shortest_pause(&tries) >= Duration::from_secs(300), "{tries:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_no_denial() {
    let server = stage::server();
    server.fault(Fault::delay(Matching::new(Verb::Patch, "nodes"), Duration::from_millis(200)));
    let mut running = Running::start(server, Machine::new());
    // A write of somebody else overtakes the patch, which is a race on a real server too.
    while running.requests(Verb::Patch, "nodes").is_empty() {
        running.live_for(Duration::from_millis(10)).await;
    }
    touch(&running.server, 1);
    running.live(60).await;
    running.assert_settled();
    let requests = stage::requests(&running.server);
    assert!(requests.contains(&"patch nodes 409".to_owned()), "{requests:?}");
    assert!(!running.machine.told.has("TaintRemovalDenied"));
}
