//! Faults: each is what a client would meet on a real connection.

use std::time::Duration;

use kube::{Error, api::WatchParams};
use moorline_sim::server::{Answer, Effect, Fault, Interruption, Matching, ObjectName, Verb};
use serde_json::json;
use tokio::time::Instant;

use crate::common::*;

fn on(verb: Verb) -> Matching {
    Matching::new(verb, "nodes").name("n1")
}

fn label() -> serde_json::Value {
    json!({"metadata": {"labels": {"a": "b"}}})
}

#[tokio::test(start_paused = true)]
async fn a_fault_hits_as_often_as_it_says_after_what_it_skips() {
    let server = server();
    let busy = Effect::Answer(Answer::status(503, "ServiceUnavailable", "not now"));
    server.fault(Fault::once(on(Verb::Get), busy.clone()).times(2).skip(1));
    let mut codes = Vec::new();
    for _ in 0..4 {
        codes.push(match nodes(&server).get("n1").await {
            Ok(_) => 200,
            Err(error) => refusal(Err::<(), _>(error)).code,
        });
    }
    assert_eq!(codes, [200, 503, 503, 200]);
    let forever = server.fault(Fault::always(on(Verb::Get), busy));
    assert!(nodes(&server).get("n1").await.is_err());
    pods(&server).get("agent").await.expect("another resource isn't hit");
    server.clear_fault(forever);
    nodes(&server).get("n1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn too_many_requests_is_plain_text_with_a_retry_after() {
    let server = server();
    server.fault(Fault::once(on(Verb::Get), Effect::Answer(Answer::too_many_requests(7))));
    let request = http::Request::get("/api/v1/nodes/n1").body(kube::client::Body::empty()).unwrap();
    let response = admin(&server).send(request).await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "7");
    assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
    server.fault(Fault::once(on(Verb::Get), Effect::Answer(Answer::too_many_requests(7))));
    let status = refusal(nodes(&server).get("n1").await);
    assert_eq!(status.message, "Too many requests, please try again later.", "the client makes up a Status");
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_has_no_effect_and_a_lost_answer_has_one() {
    let server = server();
    for (effect, label_is_there) in [(Effect::LostRequest, false), (Effect::LostAnswer, true)] {
        server.fault(Fault::once(on(Verb::Patch), effect));
        let error = nodes(&server).patch("n1", &plain(), &merge(label())).await.unwrap_err();
        assert!(matches!(error, Error::Service(_)), "{error:?}");
        let node = server.get(&ObjectName::new("nodes", "n1")).unwrap();
        assert_eq!(node["metadata"]["labels"]["a"] == "b", label_is_there);
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_may_come_after_the_write_has_happened() {
    let server = server();
    let timeout = Answer::status(504, "Timeout", "Timeout: request did not complete within the allotted timeout");
    server.fault(Fault::once(on(Verb::Patch), Effect::AnswerAfterEffect(timeout)));
    assert_eq!(refusal(nodes(&server).patch("n1", &plain(), &merge(label())).await).code, 504);
    assert_eq!(server.get(&ObjectName::new("nodes", "n1")).unwrap()["metadata"]["labels"]["a"], "b");
}

#[tokio::test(start_paused = true)]
async fn a_delay_holds_the_request_before_its_effect_or_the_answer_after_it() {
    let server = server();
    let node = || server.get(&ObjectName::new("nodes", "n1")).unwrap()["metadata"]["labels"]["a"].clone();
    let second = Duration::from_secs(1);
    for (before, after, in_between) in
        [(2 * second, Duration::ZERO, json!(null)), (Duration::ZERO, 2 * second, json!("b"))]
    {
        server.label(&ObjectName::new("nodes", "n1"), "a", None).unwrap();
        server.fault(Fault { before, after, ..Fault::once(on(Verb::Patch), Effect::None) });
        let started = Instant::now();
        let api = nodes(&server);
        let (answer, seen) = tokio::join!(async { api.patch("n1", &plain(), &merge(label())).await }, async {
            tokio::time::sleep(second).await;
            node()
        });
        answer.unwrap();
        assert_eq!((started.elapsed(), seen), (2 * second, in_between));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_client_gives_up_while_it_is_held_has_no_effect() {
    let server = server();
    server.fault(Fault::delay(on(Verb::Patch), Duration::from_secs(10)));
    let api = nodes(&server);
    let patch = merge(label());
    assert!(tokio::time::timeout(Duration::from_secs(1), api.patch("n1", &plain(), &patch)).await.is_err());
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(server.get(&ObjectName::new("nodes", "n1")).unwrap()["metadata"]["labels"].get("a"), None);
    assert_eq!(server.audit().last().unwrap().code, None);
}

#[tokio::test(start_paused = true)]
async fn half_a_body_breaks_the_connection() {
    let server = server();
    server.fault(Fault::once(on(Verb::Get), Effect::HalfBody));
    let error = nodes(&server).get("n1").await.unwrap_err();
    assert!(matches!(error, Error::Service(_)), "{error:?}");
    server.fault(Fault::once(on(Verb::Watch), Effect::HalfBody));
    let mut watch = watch(&server, on_n1(), "0").await;
    let (seen, ended) = within(&mut watch, SOON).await;
    assert!(ended && seen.len() == 1 && seen[0].starts_with("broken"), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn garbage_is_passed_on_as_it_is() {
    let server = server();
    server.fault(Fault::once(on(Verb::Get), Effect::Answer(Answer::text(200, "<html>login</html>"))));
    assert!(matches!(nodes(&server).get("n1").await.unwrap_err(), Error::SerdeError(_)));
    let garbage = Effect::Stream { after: Duration::ZERO, interruption: Interruption::Garbage("<html>".into()) };
    server.fault(Fault::once(on(Verb::Watch), garbage));
    let mut watch = watch(&server, on_n1(), "0").await;
    let (seen, ended) = within(&mut watch, SOON).await;
    assert!(seen[0].starts_with("broken") && seen[1] == "ADDED n1 uid-n1" && !ended, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_closed_broken_or_ended_by_an_error_event_after_a_while() {
    let server = server();
    let internal = Answer::status(500, "InternalError", "etcd is away");
    let minute = Duration::from_secs(60);
    for (interruption, seen) in [
        (Interruption::Close, vec![]),
        (Interruption::Break, vec!["broken"]),
        (Interruption::Error(internal), vec!["ERROR 500 InternalError"]),
    ] {
        server.fault(Fault::once(on(Verb::Watch), Effect::Stream { after: minute / 2, interruption }));
        let started = Instant::now();
        let mut watch = watch(&server, on_n1(), &server.version().to_string()).await;
        let (events, ended) = within(&mut watch, 2 * minute).await;
        let events: Vec<&str> = events.iter().map(|e| if e.starts_with("broken") { "broken" } else { e }).collect();
        assert_eq!((events, ended, started.elapsed()), (seen, true, minute / 2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_sends_nothing_and_never_ends_until_it_is_broken() {
    let server = server();
    let silence = Effect::Stream { after: Duration::ZERO, interruption: Interruption::Silence };
    server.fault(Fault::once(on(Verb::Watch), silence));
    let mut watch = watch(&server, on_n1().timeout(60), "0").await;
    server.label(&ObjectName::new("nodes", "n1"), "a", Some("b")).unwrap();
    assert_eq!(within(&mut watch, Duration::from_secs(86_400)).await, (vec![], false));
    assert_eq!(server.interrupt(&on(Verb::Watch), &Interruption::Close), 1);
    assert_eq!(within(&mut watch, SOON).await, (vec![], true));
}

#[tokio::test(start_paused = true)]
async fn open_watches_can_be_interrupted_at_any_time() {
    let server = server();
    let mut one = watch(&server, on_n1(), "0").await;
    let mut all = watch(&server, WatchParams::default(), "0").await;
    within(&mut one, SOON).await;
    within(&mut all, SOON).await;
    assert_eq!(server.interrupt(&on(Verb::Watch), &Interruption::Close), 1);
    assert_eq!(within(&mut one, SOON).await, (vec![], true));
    assert_eq!(within(&mut all, SOON).await, (vec![], false));
    assert_eq!(server.interrupt(&Matching::any(), &Interruption::Close), 1);
    assert_eq!(within(&mut all, SOON).await, (vec![], true));
}

#[tokio::test(start_paused = true)]
async fn a_stream_fault_waits_for_a_watch() {
    let server = server();
    let close = Effect::Stream { after: Duration::ZERO, interruption: Interruption::Close };
    server.fault(Fault::once(Matching::any(), close));
    nodes(&server).get("n1").await.unwrap();
    let mut watch = watch(&server, on_n1(), "0").await;
    assert_eq!(within(&mut watch, SOON).await, (vec![], true));
}

#[tokio::test(start_paused = true)]
async fn a_watch_can_be_refused_like_any_request() {
    let server = server();
    server.fault(Fault::once(on(Verb::Watch), Effect::Answer(Answer::status(410, "Expired", "too old"))));
    let watch = nodes(&server).watch(&on_n1(), "1").await;
    assert_eq!(refusal(watch.map(drop)).code, 410);
}
