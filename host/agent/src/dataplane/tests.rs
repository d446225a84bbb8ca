#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use moorline_lifecycle::{Assignment, Pool, Site};
use serde_json::json;

use super::*;
use crate::config::{DataPlaneConfig, Period, Size};

fn desired() -> Desired {
    let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
    let pool = Pool {
        name: "pool-1".to_owned(),
        uid: "pool-uid".to_owned(),
        generation: 2,
        labels: BTreeMap::new(),
        spec: r#"{"type":"External"}"#.to_owned(),
    };
    let site = Site {
        name: "site-1".to_owned(),
        uid: "site-uid".to_owned(),
        generation: 7,
        labels,
        manage_cni: Some(true),
        spec: r#"{"nodeCidrs":["10.0.0.0/16"]}"#.to_owned(),
    };
    Desired {
        assignment: Assignment { node_uid: "node-uid".into(), site: "site-1".into(), pool: Some("pool-1".into()) },
        site,
        pool: Some(pool),
        pod_cidrs: vec!["10.244.0.0/24".to_owned()],
    }
}

/// A shell script as data plane.
struct Script {
    folder: tempfile::TempDir,
    config: DataPlaneConfig,
}

impl Script {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plane");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        // By way of the shell, since a file that another thread's child still holds open can't be executed.
        let config = DataPlaneConfig {
            kind: DataPlaneKind::Command,
            command: vec!["/bin/sh".to_owned(), path.to_str().unwrap().to_owned()],
            environment: BTreeMap::from([("DIR".to_owned(), folder.path().to_str().unwrap().to_owned())]),
            ..DataPlaneConfig::default()
        };
        Self { folder, config }
    }

    fn plane(&self) -> Box<dyn DataPlane> {
        from_config(&with(self.config.clone()), "node-1")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn apply(&self) -> Result<Routes, DataPlaneError> {
        self.plane().apply(&desired(), CancellationToken::new()).await
    }
}

fn with(data_plane: DataPlaneConfig) -> Config {
    Config { data_plane, ..Config::default() }
}

/// Waits, without a guess at how long, until a script has made a file.
fn wait_for(path: &Path) -> String {
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => std::thread::yield_now(),
        }
    }
}

/// Whether a process is gone, or a zombie that nobody has reaped.
fn is_gone(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
}

#[tokio::test]
async fn none_puts_nothing_anywhere_and_advertises_nothing() {
    let plane = from_config(&Config::default(), "node-1");
    let cancel = CancellationToken::new();
    assert_eq!(plane.plan(&desired(), cancel.clone()).await.unwrap(), Value::Null);
    assert_eq!(plane.apply(&desired(), cancel.clone()).await.unwrap(), Routes::NotMine);
    plane.teardown(&Value::Null, cancel).await.unwrap();
    plane.join().await;
    assert!(plane.workers().is_empty());
}

#[tokio::test]
async fn a_command_is_given_the_whole_desired_state() {
    let script = Script::new("cat > $DIR/asked; env > $DIR/env; pwd >> $DIR/env");
    script.apply().await.unwrap();
    let asked: Value = serde_json::from_str(&std::fs::read_to_string(script.path("asked")).unwrap()).unwrap();
    assert_eq!(
        asked,
        json!({
            "action": "apply",
            "assignment": { "nodeUid": "node-uid", "site": "site-1", "pool": "pool-1" },
            "marks": { "routeProtocol": 158, "linkAlias": "moorline:17e46d4499cbbb8c7c7124751a7621fc" },
            "node": { "name": "node-1", "uid": "node-uid", "podCIDRs": ["10.244.0.0/24"] },
            "site": { "name": "site-1", "uid": "site-uid", "generation": 7, "labels": { "zone": "a" },
                      "spec": { "nodeCidrs": ["10.0.0.0/16"] } },
            "pool": { "name": "pool-1", "uid": "pool-uid", "generation": 2, "labels": {},
                      "spec": { "type": "External" } },
        })
    );
    let env = std::fs::read_to_string(script.path("env")).unwrap();
    assert!(!env.contains("CARGO"), "nothing but PATH and what the configuration says is handed on: {env}");
}

#[tokio::test]
async fn no_routes_no_answer_and_an_empty_map_are_told_apart() {
    assert_eq!(Script::new("echo '{}'").apply().await.unwrap(), Routes::NotMine);
    assert_eq!(Script::new("true").apply().await.unwrap(), Routes::NotMine);
    assert_eq!(Script::new(r#"echo '{"routes":{}}'"#).apply().await.unwrap(), Routes::Map(BTreeMap::new()));
    let route = r#"echo '{"routes":{"10.1.0.0/16":{"type":"NodeCidr"},"fd00::/64":{}}}'"#;
    let Routes::Map(routes) = Script::new(route).apply().await.unwrap() else { panic!("routes were given") };
    assert_eq!(routes["10.1.0.0/16"], json!({ "type": "NodeCidr" }));
    assert_eq!(routes.len(), 2);
}

#[tokio::test]
async fn a_plan_comes_back_to_the_teardown() {
    let script = Script::new(
        r#"asked=$(cat)
           case "$asked" in
             *'"action":"plan"'*) echo '{"plan":{"links":["wg0"]}}' ;;
             *'"action":"teardown"'*) echo "$asked" > $DIR/teardown ;;
           esac"#,
    );
    let plane = script.plane();
    let plan = plane.plan(&desired(), CancellationToken::new()).await.unwrap();
    assert_eq!(plan, json!({ "links": ["wg0"] }));
    plane.teardown(&plan, CancellationToken::new()).await.unwrap();
    let asked: Value = serde_json::from_str(&std::fs::read_to_string(script.path("teardown")).unwrap()).unwrap();
    assert_eq!(asked, json!({ "action": "teardown", "node": { "name": "node-1" }, "plan": plan }));
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_is_told_with_what_is_wrong() {
    for (answer, problem) in [
        ("echo done", "expected"),
        (r#"echo '{"route":{}}'"#, "unknown field `route`"),
        (r#"echo '{"routes":{"10.0.0.1/99":{}}}'"#, "\"10.0.0.1/99\" isn't named after a CIDR"),
        (r#"echo '{"routes":{"10.0.0.0/8":5}}'"#, "is no JSON object"),
        (r"printf '\377'", "UTF-8"),
    ] {
        let error = Script::new(answer).apply().await.unwrap_err();
        assert!(matches!(error, DataPlaneError::Answer { .. }), "{error:?}");
        assert!(error.to_string().contains(problem), "{error}");
    }
    let many: BTreeMap<_, _> =
        (0..=MOST_ROUTES).map(|n| (format!("10.{}.{}.0/24", n / 256, n % 256), json!({}))).collect();
    assert!(check_routes(&many).unwrap_err().contains("1001 routes"));
}

#[tokio::test]
async fn a_command_that_fails_is_told_with_its_status_and_first_words() {
    let error = Script::new("echo starting >&2; echo >&2; echo 'no device wg0' >&2; exit 3").apply().await.unwrap_err();
    insta::assert_snapshot!(error, @"the data plane command /bin/sh failed at apply with exit status: 3. It said: starting | no device wg0");
    let error = Script::new("kill -9 $$").apply().await.unwrap_err();
    assert!(error.to_string().contains("signal: 9"), "{error}");
}

#[tokio::test]
async fn a_command_that_is_not_there_is_told_with_the_way_out() {
    let config = DataPlaneConfig { command: vec!["/nonexistent".to_owned()], ..Script::new("").config };
    let error = from_config(&with(config), "node-1").apply(&desired(), CancellationToken::new()).await.unwrap_err();
    assert!(matches!(&error, DataPlaneError::Start { command, .. } if command == "/nonexistent"), "{error:?}");
    assert!(error.to_string().contains("`dataPlane.command`"), "{error}");
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_ended_with_everything_that_it_started() {
    // Neither it nor what it started heeds SIGTERM.
    let mut script = Script::new(
        "trap '' TERM; echo 'still at it' >&2; sleep 1000 & echo $! > $DIR/child; while :; do sleep 1000; done",
    );
    script.config.time_limit = Period::from_millis(300);
    let error = script.apply().await.unwrap_err();
    assert!(matches!(error, DataPlaneError::TimedOut { .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.contains("300ms") && said.contains("`dataPlane.timeLimit`") && said.contains("still at it"), "{said}");
    assert!(is_gone(&wait_for(&script.path("child"))));
}

#[tokio::test]
async fn a_cancelled_command_is_ended_and_joined_before_it_answers() {
    let script = Script::new("sleep 1000 & echo $! > $DIR/child; wait");
    let plane = script.plane();
    let cancel = CancellationToken::new();
    let (child, canceller) = (script.path("child"), cancel.clone());
    let wanted = desired();
    let ((), result) = tokio::join!(
        async {
            tokio::task::spawn_blocking(move || wait_for(&child)).await.unwrap();
            assert_eq!(plane.workers(), ["/bin/sh apply"]);
            canceller.cancel();
        },
        plane.apply(&wanted, cancel)
    );
    assert!(matches!(result, Err(DataPlaneError::Cancelled { action: "apply" })), "{result:?}");
    assert!(is_gone(&wait_for(&script.path("child"))));
    assert!(plane.workers().is_empty());
    plane.join().await;
}

#[tokio::test]
async fn a_command_that_nobody_waits_for_any_more_is_ended_and_join_waits_for_it() {
    let script = Script::new("sleep 1000 & echo $! > $DIR/child; wait");
    let plane = script.plane();
    let (wanted, child) = (desired(), script.path("child"));
    let started = tokio::task::spawn_blocking(move || wait_for(&child));
    tokio::select! {
        result = plane.apply(&wanted, CancellationToken::new()) => panic!("{result:?}"),
        started = started => drop(started.unwrap()),
    }
    plane.join().await;
    assert!(is_gone(&wait_for(&script.path("child"))));
    assert!(plane.workers().is_empty());
}

#[tokio::test]
async fn what_a_command_leaves_behind_in_its_group_is_ended() {
    let script = Script::new("sleep 1000 & echo $! > $DIR/child; echo '{\"routes\":{}}'");
    assert_eq!(script.apply().await.unwrap(), Routes::Map(BTreeMap::new()));
    assert!(is_gone(&wait_for(&script.path("child"))));
}

#[tokio::test]
async fn what_a_command_leaves_behind_outside_of_its_group_is_told_when_it_holds_the_output() {
    // The stranger ends by itself, so that the test leaves nothing behind.
    let script =
        Script::new("setsid sleep 3 & echo '{}'; while [ -z \"$(cat /proc/$!/comm | grep sleep)\" ]; do :; done");
    let error = script.apply().await.unwrap_err();
    assert!(matches!(error, DataPlaneError::HeldOpen { .. }), "{error:?}");
}

#[tokio::test]
async fn output_is_capped_and_errors_are_cut() {
    let mut script = Script::new("yes");
    script.config.output_limit = Size::from_kib(4);
    let error = script.apply().await.unwrap_err();
    assert!(matches!(error, DataPlaneError::TooMuchOutput { limit: 4096, .. }), "{error:?}");
    assert!(error.to_string().contains("`dataPlane.outputLimit`"), "{error}");

    let mut script = Script::new("yes é | head -c 1000000 | tr -d '\\n' >&2; exit 1");
    script.config.output_limit = Size::from_kib(4);
    let error = script.apply().await.unwrap_err();
    assert!(matches!(&error, DataPlaneError::Failed { stderr, .. } if stderr.len() <= 500), "{error:?}");
}

#[tokio::test]
async fn a_command_that_does_not_read_its_input_is_no_failure() {
    let mut wanted = desired();
    wanted.site.spec = format!("\"{}\"", "x".repeat(1 << 20));
    let script = Script::new("exec <&-; echo '{}'");
    assert_eq!(script.plane().apply(&wanted, CancellationToken::new()).await.unwrap(), Routes::NotMine);
}

#[tokio::test(start_paused = true)]
async fn virtual_time_stands_still_while_a_command_runs() {
    let before = tokio::time::Instant::now();
    let script = Script::new("sleep 0.2; echo '{}'");
    let plane = script.plane();
    let wanted = desired();
    tokio::select! {
        result = plane.apply(&wanted, CancellationToken::new()) => assert_eq!(result.unwrap(), Routes::NotMine),
        () = tokio::time::sleep(Duration::from_secs(3600)) => panic!("an hour went by"),
    }
    assert_eq!(before.elapsed(), Duration::ZERO);
}
