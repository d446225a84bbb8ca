//! Kinds of faults about watches and requests.

use std::time::Duration;

use moorline_lifecycle::ExitCode;
use moorline_sim::server::{Answer, Effect, Fault, Interruption, Matching, Server, Verb};
use serde_json::json;

use crate::kinds::{Running, shortest_pause};
use crate::stage::{self, Machine};
use crate::world::{self, SITE_LABEL};

/// A cluster in which the agent waits for the Site label of its Node.
fn unassigned() -> Server {
    let server = stage::server();
    server.label(&world::node_name(), SITE_LABEL, None).unwrap();
    server
}

fn node_watches() -> Matching {
    Matching::new(Verb::Watch, "nodes")
}

fn stream(after: u64, interruption: Interruption) -> Effect {
    Effect::Stream { after: Duration::from_secs(after), interruption }
}

/// Waits for an hour without an assignment, while every watch on the Node meets this.
async fn waits_with(effect: Effect) -> Running {
    let server = unassigned();
    server.fault(Fault::always(node_watches(), effect));
    let mut running = Running::start(server, Machine::new());
    running.live(3600).await;
    running
}

/// The label comes, watches are well again, and the agent settles.
async fn settles(mut running: Running) {
    running.server.clear_faults();
    running.server.label(&world::node_name(), SITE_LABEL, Some("east")).unwrap();
    running.live(900).await;
    running.assert_settled();
}

/// There is a pause before each GET, each WATCH comes after one, and there are few of both.
#[track_caller]
fn assert_patient(running: &Running) {
    let gets = running.requests(Verb::Get, "nodes");
    assert!(shortest_pause(&gets) >= Duration::from_millis(50), "{gets:?}");
    assert!(gets.len() > 20 && gets.len() < 240, "{} in an hour", gets.len());
    assert!(running.requests(Verb::Watch, "nodes").len() <= gets.len());
}

#[tokio::test(start_paused = true)]
async fn a_closed_stream_is_not_reopened_at_once() {
    for (after, interruption) in [(0, Interruption::Close), (1, Interruption::Close), (0, Interruption::Break)] {
        let running = waits_with(stream(after, interruption)).await;
        assert_patient(&running);
        settles(running).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_410_as_an_error_event_under_200_begins_anew_after_a_pause() {
    let gone = Answer::status(410, "Expired", "too old resource version: 1 (9)");
    let running = waits_with(stream(0, Interruption::Error(gone))).await;
    assert_patient(&running);
    settles(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_410_as_a_plain_status_begins_anew_after_a_pause() {
    let running = waits_with(Effect::Answer(Answer::status(410, "Expired", "too old resource version: 1 (9)"))).await;
    assert_patient(&running);
    settles(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_goes_silent_without_closing_is_given_up() {
    let server = unassigned();
    server.fault(Fault::once(node_watches(), stream(1, Interruption::Silence)));
    let mut running = Running::start(server, Machine::new());
    running.live(10).await;
    // Nobody tells the agent.
    running.server.label(&world::node_name(), SITE_LABEL, Some("east")).unwrap();
    running.live(120).await;
    assert!(world::acknowledgment(&running.server).is_none());
    running.live(600).await;
    running.assert_settled();
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_is_lost_is_neither_repeated_nor_assumed() {
    for (verb, resource) in [(Verb::Patch, "pods"), (Verb::Patch, "nodes")] {
        for (effect, writes) in [(Effect::LostAnswer, 1), (Effect::LostRequest, 2), (Effect::HalfBody, 1)] {
            let server = stage::server();
            server.fault(Fault::once(Matching::new(verb, resource), effect.clone()));
            let mut running = Running::start(server, Machine::new());
            running.live(120).await;
            running.assert_settled();
            assert_eq!(running.requests(verb, resource).len(), writes, "{resource}, {effect:?}");
            // Only a read can tell whether it took effect; what became of the Node, its watch tells.
            if resource == "nodes" {
                continue;
            }
            let requests = stage::requests(&running.server);
            let write = requests.iter().position(|request| request.starts_with(&format!("patch {resource}"))).unwrap();
            let read = requests[write..].iter().any(|request| *request == format!("get {resource} 200"));
            assert!(read, "{resource}, {effect:?}: {requests:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_is_kept_to() {
    for (verb, resource) in [(Verb::Get, "nodes"), (Verb::Watch, "sites"), (Verb::Patch, "pods")] {
        let server = stage::server();
        let throttled = Effect::Answer(Answer::too_many_requests(90));
        server.fault(Fault::once(Matching::new(verb, resource), throttled).times(2));
        let mut running = Running::start(server, Machine::new());
        running.live(900).await;
        running.assert_settled();
        let made = running.requests(verb, resource);
        // Records have their times in microseconds.
        assert!(shortest_pause(&made[..3]) >= Duration::from_millis(89_999), "{made:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_library_retries_beneath_the_agents_limits() {
    for effect in
        [Effect::Answer(Answer::text(503, "down")), Effect::LostRequest, Effect::Answer(Answer::too_many_requests(1))]
    {
        let server = stage::server();
        server.fault(Fault::always(Matching::any(), effect));
        let mut running = Running::start(server, Machine::new());
        running.live(600).await;
        let asked = running.machine.told.lines().iter().filter(|line| line.contains("Action(ReadNode(")).count();
        assert_eq!(running.requests(Verb::Get, "nodes").len(), asked);
        assert!(asked > 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_created_again_under_its_name_is_another_node() {
    // While its agent watches it, which ends the process; and while none does.
    let server = stage::server();
    server.fault(Fault::delay(Matching::new(Verb::Patch, "pods"), Duration::from_secs(10)));
    let mut running = Running::start(server, Machine::new());
    running.live(5).await;
    let again = json!({"metadata": {"uid": "uid-again"}});
    let mut node = running.server.get(&world::node_name()).unwrap();
    node["metadata"]["uid"] = again["metadata"]["uid"].clone();
    running.server.apply(node).unwrap();
    let exit = running.end().await;
    assert!(matches!(exit.code, ExitCode::AssignmentChanged | ExitCode::NodeDeleted), "{exit:?}");
    let mut running = running.restart().await;
    running.live(120).await;
    running.assert_settled();
    assert_eq!(world::acknowledgment(&running.server).unwrap()["nodeUID"], "uid-again");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_created_again_under_its_name_is_not_written_to() {
    let server = unassigned();
    let mut running = Running::start(server, Machine::new());
    running.live(5).await;
    let mut pod = running.server.get(&world::pod_name()).unwrap();
    pod["metadata"]["uid"] = json!("uid-other");
    running.server.apply(pod).unwrap();
    running.server.label(&world::node_name(), SITE_LABEL, Some("east")).unwrap();
    let exit = running.end().await;
    assert_eq!(exit.code, ExitCode::Environment, "{exit:?}");
    assert!(exit.reason.contains("uid-agent"), "{}", exit.reason);
    assert!(world::acknowledgment(&running.server).is_none());
}

#[tokio::test(start_paused = true)]
async fn an_object_without_a_uid_is_no_answer() {
    let server = stage::server();
    let mut node = server.get(&world::node_name()).unwrap();
    node["metadata"]["uid"] = json!("");
    let answer = Answer { code: 200, ..Answer::text(200, node.to_string()) };
    server.fault(Fault::once(Matching::new(Verb::Get, "nodes"), Effect::Answer(answer)).times(3));
    let mut running = Running::start(server, Machine::new());
    running.live_for(Duration::from_millis(20)).await;
    let (ready, text) = running.probe("/readyz").await;
    assert!(!ready && text.contains("makes no sense"), "{text}");
    running.live(120).await;
    running.assert_settled();
    assert_eq!(world::acknowledgment(&running.server).unwrap()["nodeUID"], "uid-n1");
}

#[tokio::test(start_paused = true)]
async fn an_empty_label_is_no_site() {
    let server = stage::server();
    server.label(&world::node_name(), SITE_LABEL, Some("")).unwrap();
    let mut running = Running::start(server, Machine::new());
    running.live(600).await;
    let (ready, text) = running.probe("/readyz").await;
    assert!(ready && text.contains("assignment"), "{text}");
    assert!(world::files(&running.machine.path("cni")).is_empty());
    settles(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_label_that_flaps_makes_no_storm_and_no_second_adoption() {
    // Between none and an empty one, which is no assignment either way: it is watched, and nothing is asked.
    let mut running = Running::start(unassigned(), Machine::new());
    running.live(10).await;
    let before = stage::requests(&running.server).len();
    for turn in 0..600 {
        let label = (turn % 2 == 0).then_some("");
        running.server.label(&world::node_name(), SITE_LABEL, label).unwrap();
        running.live(1).await;
    }
    assert_eq!(stage::requests(&running.server).len(), before);
    // With a Site that doesn't exist: the first adoption is the only one, and the change ends the process.
    running.server.label(&world::node_name(), SITE_LABEL, Some("nowhere")).unwrap();
    running.live(1).await;
    running.server.label(&world::node_name(), SITE_LABEL, None).unwrap();
    assert_eq!(running.end().await.code, ExitCode::AssignmentChanged);
    let adopted = running.machine.told.lines().iter().filter(|line| line.contains("Adopted {")).count();
    assert_eq!(adopted, 1, "{:#?}", running.machine.told.lines());
    assert!(stage::requests(&running.server).len() <= before + 3);
}
