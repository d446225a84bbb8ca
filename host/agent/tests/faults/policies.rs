//! Kinds of faults around policies and their folder.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use moorline::config::{self, Flag, Sources};
use moorline::driver::{self, Agent};
use moorline_policy::Digest;
use moorline_sim::server::{Options, Server};
use serde_json::Value;

use crate::guests::{SAME, drift};
use crate::kinds::Running;
use crate::stage::{self, Machine};

/// A drift policy that answers `same` with this reason of four letters.
fn saying(word: &str) -> Vec<u8> {
    let word = i32::from_le_bytes(word.as_bytes().try_into().unwrap());
    drift(&format!(
        "(i32.store (i32.const 200) (i32.const {word})) {SAME}
         (i32.store (i32.const 72) (i32.const 200)) (i32.store (i32.const 76) (i32.const 4))"
    ))
}

/// A version of the policy volume, with one drift binding, and `..data` turned to it as kubelet does.
fn mount(volume: &Path, version: &str, module: &[u8], more: &str) {
    let folder = volume.join(version);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("drift.wasm"), module).unwrap();
    let pin = Digest::of(module);
    let text = format!(
        "modules:\n  drift: {{file: drift.wasm, sha256: {pin}}}\nbindings:\n  drift:\n    - {{name: mine, module: drift}}\n{more}"
    );
    fs::write(folder.join("policies.yaml"), text).unwrap();
    symlink(version, volume.join("..data_tmp")).unwrap();
    fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    for name in ["drift.wasm", "policies.yaml"] {
        let _ = symlink(Path::new("..data").join(name), volume.join(name));
    }
}

fn start(mode: &str, module: &[u8]) -> Running {
    let machine = Machine::new();
    let volume = machine.path("policies");
    mount(&volume, "..1", module, "");
    let config = machine.config(&[("policies.directory", volume.to_str().unwrap()), ("policies.mode", mode)]);
    // Without the Site: an agent that has settled asks drift no more.
    let server = Server::new(Options::default());
    for object in [stage::node(), stage::pod()] {
        server.apply(object).unwrap();
    }
    Running::start_as(server, machine, |agent| Agent { config, ..agent })
}

impl Running {
    fn mount(&self, version: &str, module: &[u8], more: &str) {
        mount(&self.machine.path("policies"), version, module, more);
    }

    fn page(&self) -> Value {
        self.health.borrow().status.as_ref().clone()
    }

    fn drift_says(&self) -> String {
        self.page()["lastVerdicts"]["drift"]["reason"].as_str().unwrap().to_owned()
    }
}

#[tokio::test(start_paused = true)]
async fn the_swap_of_the_data_symlink_is_not_missed() {
    let mut agent = start("live", &saying("one."));
    agent.live(60).await;
    let before = agent.page()["policySet"].clone();
    assert_eq!((agent.drift_says().as_str(), before["mode"].as_str()), ("one.", Some("live")));

    agent.mount("..2", &saying("two."), "");
    agent.live(60).await;
    let after = agent.page()["policySet"].clone();
    assert_eq!(agent.drift_says(), "two.", "the last observation is assessed again");
    assert!(after["digest"] != before["digest"] && after["sinceSeconds"].as_f64() > Some(60.0), "{after}");
    agent.server.apply(stage::site()).unwrap();
    agent.live(60).await;
    agent.assert_settled();
    let pod = agent.server.list("pods").unwrap().remove(0);
    let acknowledged = pod["metadata"]["annotations"].to_string();
    assert!(acknowledged.contains(&Digest::of(&saying("two.")).to_string()), "{acknowledged}");
}

#[tokio::test(start_paused = true)]
async fn a_set_that_is_refused_changes_nothing_but_is_told() {
    let mut agent = start("live", &saying("one."));
    agent.live(60).await;
    let before = agent.page()["policySet"]["digest"].clone();
    for (version, module, part) in [
        ("..2", b"garbage".to_vec(), "not a WebAssembly component"),
        ("..3", drift("unreachable")[..200].to_vec(), "damaged"),
    ] {
        agent.mount(version, &module, "");
        agent.live(60).await;
        let set = agent.page()["policySet"].clone();
        let reason = set["refused"]["reason"].as_str().unwrap().to_owned();
        assert!(reason.contains("`mine`") && reason.contains(part), "{reason}");
        assert_eq!(set["digest"], before);
        assert_eq!(agent.page()["state"], "adopted");
    }
    let events = agent.server.list("events").unwrap();
    assert!(events.iter().any(|event| event["reason"] == "PolicyRefused"), "{events:#?}");

    agent.mount("..4", &saying("four"), "");
    agent.live(60).await;
    assert_eq!((agent.drift_says().as_str(), &agent.page()["policySet"]["refused"]), ("four", &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn half_of_an_update_is_not_used() {
    let mut agent = start("live", &saying("one."));
    agent.live(60).await;
    // Only the text is new: it names a module that isn't there yet.
    let volume = agent.machine.path("policies");
    let text = fs::read_to_string(volume.join("policies.yaml")).unwrap();
    let (one, two) = (saying("one."), saying("two."));
    fs::write(volume.join("policies.yaml"), text.replace(&Digest::of(&one).to_string(), &Digest::of(&two).to_string()))
        .unwrap();
    agent.live(60).await;
    assert_eq!(agent.drift_says(), "one.");
    assert!(agent.page()["policySet"]["refused"]["reason"].as_str().unwrap().contains("is pinned"));

    fs::write(volume.join("drift.wasm"), two).unwrap();
    agent.live(60).await;
    assert_eq!(agent.drift_says(), "two.");
}

#[tokio::test(start_paused = true)]
async fn at_start_a_changed_set_waits_for_the_next_start_or_to_be_asked_for() {
    let mut agent = start("at-start", &saying("one."));
    let reload = agent.reload.clone();
    agent.live(60).await;
    agent.mount("..2", &saying("two."), "");
    agent.live(3600).await;
    assert_eq!(agent.drift_says(), "one.");
    reload.notify_one();
    agent.live(1).await;
    assert_eq!(agent.drift_says(), "two.");
}

#[tokio::test(start_paused = true)]
async fn a_config_map_that_is_mounted_by_sub_path_is_seen_where_it_is_a_plain_folder() {
    // By subPath a file is bound by its inode and never changes: nothing can be seen, and nothing may break. What is
    // written to the same file in place is seen all the same.
    let mut agent = start("live", &saying("one."));
    agent.live(60).await;
    let volume = agent.machine.path("policies");
    let file = volume.join("policies.yaml");
    let text = fs::read_to_string(&file).unwrap();
    agent.live(3600).await;
    assert_eq!(agent.drift_says(), "one.");
    fs::write(&file, format!("{text}default:\n  settings: {{}}\n# the same file, written in place\n")).unwrap();
    let before = agent.page()["policySet"]["digest"].clone();
    agent.live(60).await;
    assert_ne!(agent.page()["policySet"]["digest"], before);
}

#[tokio::test(start_paused = true)]
async fn looking_at_the_folder_needs_no_inotify_watch() {
    let mut agent = start("live", &saying("one."));
    agent.live(60).await;
    let links = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let watches = links.filter(|link| link.to_string_lossy().contains("inotify")).count();
    assert_eq!(watches, 0, "watches that could run out");
}

#[tokio::test(start_paused = true)]
async fn one_bad_module_stops_no_other() {
    let machine = Machine::new();
    let volume = machine.path("policies");
    mount(&volume, "..1", &saying("good"), "");
    fs::write(volume.join("bad.wasm"), "garbage").unwrap();
    let text = fs::read_to_string(volume.join("policies.yaml")).unwrap();
    let text = text.replace("modules:\n", "modules:\n  bad: {file: bad.wasm}\n").replace(
        "  drift:\n    -",
        "  taints:\n    - {name: bad, module: bad, on-failure: fall-through}\n  drift:\n    -",
    );
    fs::write(volume.join("policies.yaml"), text).unwrap();
    let config = machine.config(&[("policies.directory", volume.to_str().unwrap())]);
    let mut agent = Running::start_as(stage::server(), machine, |agent| Agent { config, ..agent });
    agent.live(60).await;
    agent.assert_settled();
    assert_eq!(agent.drift_says(), "good");
    assert_eq!(agent.page()["lastVerdicts"]["taints"]["binding"], "default");
}

#[tokio::test(start_paused = true)]
async fn labels_of_metrics_have_no_unbounded_values() {
    let mut agent = start("live", &drift("unreachable"));
    agent.live(120).await;
    for version in 2..6 {
        agent.mount(&format!("..{version}"), format!("garbage {version}").as_bytes(), "");
        agent.live(60).await;
    }
    let metrics = agent.metrics().await;
    assert!(metrics.contains("moorline_policy_reloads_total{outcome=\"refused\"} 4"), "{metrics}");
    assert!(metrics.contains("outcome=\"trap\""), "{metrics}");
    for text in ["unreachable", "garbage", "n1", "east"] {
        assert!(!metrics.contains(text), "{text:?} is in {metrics}");
    }
}

/// A value of a limit that is another one than this, and may be chosen.
fn another(value: &Value) -> String {
    match value {
        Value::Number(number) => (number.as_u64().unwrap() / 2).to_string(),
        Value::String(text) if text == "info" => "trace".into(),
        Value::String(text) => {
            let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap();
            format!("{}{}", 2 * text[..digits].parse::<u64>().unwrap(), &text[digits..])
        }
        other => panic!("{other}"),
    }
}

#[test]
fn every_documented_limit_is_wired_in() {
    let machine = Machine::new();
    let usual = machine.config(&[]);
    let limits = serde_json::to_value(&usual.policies.limits).unwrap();
    let of = |more: &[(&str, &str)]| {
        let config = machine.config(more);
        let general = driver::limits(&config.policies.limits);
        let granted = config.policies.grants.get("mine").cloned().unwrap_or_default();
        (format!("{general:?}"), format!("{:?}", driver::limits(&granted.limits.over(&config.policies.limits))))
    };
    let before = of(&[]);
    for (name, value) in limits.as_object().unwrap() {
        let value = another(value);
        let general = of(&[(&format!("policies.limits.{name}"), &value)]);
        assert_ne!(general.0, before.0, "policies.limits.{name}");
        let granted = of(&[("policies.grants", &format!("{{mine: {{limits: {{{name}: {value}}}}}}}"))]);
        assert_eq!(granted.0, before.0, "{name}");
        assert_eq!(granted.1, general.0, "policies.grants.mine.limits.{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_field_of_the_policy_folder_is_ignored_in_silence() {
    let mut agent = start("live", &saying("one."));
    agent.live(60).await;
    for (number, (field, key)) in [
        ("bindigns: {drift: []}", "bindigns"),
        ("default: {setings: {}}", "setings"),
        ("timeout: 5s", "timeout"),
        ("lookInterval: 5s", "lookInterval"),
    ]
    .into_iter()
    .enumerate()
    {
        agent.mount(&format!("..{}", number + 2), &saying("two."), &format!("{field}\n"));
        agent.live(60).await;
        let reason = agent.page()["policySet"]["refused"]["reason"].as_str().unwrap().to_owned();
        assert!(reason.contains("policies.yaml has mistakes.\n  line 6: ") && reason.contains(key), "{reason}");
        assert_eq!(agent.drift_says(), "one.");
    }
}

#[test]
fn no_field_of_the_configuration_is_ignored_in_silence() {
    for (key, hint) in [
        ("policies.limits.deadlin", "`deadline`"),
        ("policies.limits.timeout", "`deadline`"),
        ("policies.folder", "`directory`"),
        ("dataPlane.timelimit", "`timeLimit`"),
    ] {
        let flag = Flag { name: "--set".into(), key: key.into(), value: "5s".into() };
        let problems = config::load(&Sources { flags: vec![flag], ..Sources::default() }).unwrap_err().to_string();
        assert!(problems.contains(&format!("`{key}` is no key")) && problems.contains(hint), "{problems}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_module_that_failed_once_is_tried_again_and_its_failure_is_not_kept() {
    // A copy that hasn't come to its end, as of a download: its digest is not the pinned one.
    let machine = Machine::new();
    let volume = machine.path("policies");
    mount(&volume, "..1", &saying("good"), "");
    fs::write(volume.join("drift.wasm"), &saying("good")[..100]).unwrap();
    let config = machine.config(&[("policies.directory", volume.to_str().unwrap()), ("policies.mode", "live")]);
    let mut agent = Running::start_as(stage::server(), machine, |agent| Agent { config, ..agent });
    agent.live(60).await;
    let bindings = agent.page()["bindings"].to_string();
    assert!(bindings.contains("is pinned"), "{bindings}");
    assert_ne!(agent.page()["state"], "settled", "drift holds while its policy is refused");

    fs::write(volume.join("drift.wasm"), saying("good")).unwrap();
    agent.live(60).await;
    agent.assert_settled();
    assert_eq!(agent.drift_says(), "good");
}
