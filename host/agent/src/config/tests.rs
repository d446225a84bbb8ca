#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

use std::path::PathBuf;
use std::time::Duration;

use super::*;

/// A folder with a configuration file in it.
struct Given {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Given {
    fn file(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        std::fs::write(&path, text).unwrap();
        Self { _folder: folder, path }
    }

    fn sources(&self) -> Sources {
        Sources { file: Some(self.path.clone()), ..Sources::default() }
    }

    fn without_folder(&self, text: &str) -> String {
        text.replace(self.path.to_str().unwrap(), "config.yaml")
    }

    fn problems(&self) -> String {
        self.without_folder(&load(&self.sources()).unwrap_err().to_string())
    }
}

fn problems(text: &str) -> String {
    Given::file(text).problems()
}

fn config(text: &str) -> Config {
    load(&Given::file(text).sources()).unwrap().config
}

fn from_environment(variables: &[(&str, &str)]) -> Result<Loaded, Problems> {
    let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    load(&Sources { environment, ..Sources::default() })
}

#[test]
fn the_defaults_are_good_and_an_empty_file_says_nothing() {
    assert_eq!(load(&Sources::default()).unwrap().config, Config::default());
    for text in ["", "---\n", "# nothing\n", "machine:\nlog: {}\npolicies:\n  limits:\n"] {
        assert_eq!(config(text), Config::default(), "{text:?}");
    }
}

#[test]
fn three_mistakes_are_told_at_once_with_file_line_field_and_the_way_out() {
    let told = problems("machine:\n  cniFiel: 10-mine.conflist\ndeadlines:\n  end: 5\nlog:\n  format: xml\n");
    insta::assert_snapshot!(told, @r#"
    The configuration has 3 problems:
      config.yaml:2: `machine.cniFiel` is no key of the configuration. Did you mean `cniFile`? The keys here are `cniDirectory`, `cniFile`, `takeover`, `stateDirectory`, `cacheDirectory`, `network`.
      config.yaml:4: `deadlines.end` is `5`, which can't be used here. Write a length of time such as `500ms`, `30s` or `5m`.
      config.yaml:6: `log.format` is "xml", which is none of its choices. Use one of `text`, `json`.
    "#);
}

#[test]
fn every_kind_of_wrong_value_is_told_in_words() {
    let told = problems(
        "node: {name: 5}\n\
         events: {enabled: yes}\n\
         health: {address: localhost}\n\
         log: debug\n\
         floors:\n  allowedTaints: [a, true]\n  cni: {maxSize: 64K}\n\
         cluster: {siteApi: v1alpha3}\n\
         dataPlane:\n  environment: {A: 1}\n  command: /bin/true\n\
         policies:\n  limits: {fuel: lots}\n  grants:\n    my.drift: {mayTolerat: true}\n    b: [true]\n\
         machine: []\n\
         watches: {a: 1, b: 2}\n",
    );
    insta::assert_snapshot!(told, @r#"
    The configuration has 14 problems:
      config.yaml:1: `node.name` is `5`, which can't be used here. Write text: put it in quotes.
      config.yaml:2: `events.enabled` is "yes", which can't be used here. Write `true` or `false`.
      config.yaml:3: `health.address` is "localhost", which can't be used here. Write an IP address and a port such as `127.0.0.1:9998` or `[::1]:9998`.
      config.yaml:4: `log` is "debug", which can't be used here. Write a section with keys of its own.
      config.yaml:6: `floors.allowedTaints.1` is `true`, which can't be used here. Write text: put it in quotes.
      config.yaml:7: `floors.cni.maxSize` is "64K", which can't be used here. Write a size such as `512KiB` or `16MiB`.
      config.yaml:8: `cluster.siteApi` is "v1alpha3", which can't be used here. Write an API group and version such as `unbounded-cloud.io/v1alpha3`.
      config.yaml:10: `dataPlane.environment.A` is `1`, which can't be used here. Write text: put it in quotes.
      config.yaml:11: `dataPlane.command` is "/bin/true", which can't be used here. Write a list.
      config.yaml:13: `policies.limits.fuel` is "lots", which can't be used here. Write a whole number.
      config.yaml:15: `policies.grants.my.drift.mayTolerat` is no key of the configuration. Did you mean `mayTolerate`? The keys here are `sha256`, `mayTolerate`, `pluginTypes`, `wasi`, `limits`.
      config.yaml:16: `policies.grants.b` is a list, which can't be used here. Write a section with keys of its own.
      config.yaml:17: `machine` is a list, which can't be used here. Write a section with keys of its own.
      config.yaml:18: `watches` is no key of the configuration. The keys here are `node`, `pod`, `cluster`, `machine`, `policies`, `floors`, `dataPlane`, `health`, `deadlines`, `events`, `log`.
    "#);
}

#[test]
fn settings_that_contradict_each_other_are_told_where_they_stand() {
    let told = problems(
        "cluster:\n  apiServer: https://kubernetes.default.svc\n  kubeconfig: kube.config\n  watchTimeout: {min: 2m, max: 90s}\n\
         machine:\n  cniFile: ../10.conf\n  stateDirectory: /etc/cni/net.d/state\n\
         dataPlane:\n  kind: command\n\
         policies:\n  grants:\n    my.drift: {limits: {fuel: 1}}\n\
         floors:\n  gatewayTaint: example.com/gateway\n  annotationPrefixes: [moorline.dev, x.k8s.io/]\n  cni:\n    bridgeNames: [a-name-that-is-too-long]\n    dataDirs: [networks]\n\
         health:\n  metricsAddress: 0.0.0.0:9998\n\
         log: {filter: 'info,inof'}\n\
         deadlines: {end: 10m}\n",
    );
    insta::assert_snapshot!(told, @r#"
    The configuration has 17 problems:
      config.yaml:2: `cluster.apiServer` names "kubernetes.default.svc", which only cluster DNS knows, and the agent starts before that. Write the server's address, or a name that the machine itself resolves.
      config.yaml:3: `cluster.kubeconfig` is set together with `cluster.apiServer`. Keep one of the two; a kubeconfig names its server itself.
      config.yaml:3: `cluster.kubeconfig` is "kube.config", which is no absolute path. Write the whole path, from `/` on, without `..`.
      config.yaml:4: `cluster.watchTimeout.min` is 2m, and `cluster.watchTimeout.max` is 1m 30s. Let the shortest watch not be longer than the longest.
      config.yaml:4: `cluster.watchIdleLimit` is 5m, and watches last from 2m on. Choose at least 1m 30s, since bookmarks come about once a minute, and less than `cluster.watchTimeout.min`.
      config.yaml:6: `machine.cniFile` is "../10.conf", which no container runtime would read. Write a file name such as `10-unbounded.conflist`, without a folder.
      config.yaml:7: `machine.stateDirectory` lies in `machine.cniDirectory`, where the container runtime reads every file. Choose a folder of its own.
      config.yaml:9: `dataPlane.kind` is `command`, and `dataPlane.command` is empty. Name the executable and its arguments as a list in `dataPlane.command`, or choose `none`.
      config.yaml:12: `policies.grants.my.drift.limits.fuel` is 1. Choose a value from 10000 to 100000000000.
      config.yaml:14: `floors.allowedTaints` doesn't have `floors.gatewayTaint` (example.com/gateway), so that no worker with it is ever done. Add it.
      config.yaml:15: `floors.annotationPrefixes` has "moorline.dev", which is no prefix of annotation keys. Write prefixes with their slash, such as `moorline.dev/`.
      config.yaml:15: `floors.annotationPrefixes` has "x.k8s.io/", which belongs to Kubernetes itself. Use a domain of your own.
      config.yaml:17: `floors.cni.bridgeNames` has "a-name-that-is-too-long", which no network interface can be called. Write at most 15 characters, without spaces, `/` and `:`.
      config.yaml:18: `floors.cni.dataDirs` has "networks", which is no absolute path. Write the whole path, from `/` on, without `..`.
      config.yaml:20: `health.metricsAddress` is 0.0.0.0:9998, and `health.address` is 127.0.0.1:9998: both would take the same port. Choose another port.
      config.yaml:21: `log.filter` has "inof", which is neither a level nor a module with a level. Write a level (error, warn, info, debug, trace, off), or modules with levels too, such as `info,moorline=debug`.
      config.yaml:22: `deadlines.end` is 10m. Choose a value from 1s to 5m.
    "#);
}

#[test]
fn marks_that_others_may_have_and_a_list_that_is_not_exact_are_refused() {
    let told = problems(
        "machine:\n  network:\n    routeProtocol: 12\n    linkAlias: 'moor line'\n    legacy:\n\
         \x20     links: [{name: unbounded*}, {name: lo}, {name: a-name-that-is-too-long}]\n\
         \x20     routes:\n      - {destination: 10.0.0.1/8, table: 0, protocol: 2}\n      - {destination: fd00::/8, table: 254, protocol: 12}\n\
         \x20     rules: [{family: ipv4, priority: 9, protocol: 3, source: 'fd00::/8', mask: 1}]\n",
    );
    insta::assert_snapshot!(told, @r#"
    The configuration has 11 problems:
      config.yaml:3: `machine.network.routeProtocol` is 12, which is bird's. Choose a number that nobody else uses, such as 158.
      config.yaml:4: `machine.network.linkAlias` is "moor line", which can't begin an alias. Write 1 to 64 letters, digits, `-`, `_`, `.` and `/`.
      config.yaml:6: `machine.network.legacy.links` has "unbounded*", which no link can be called. Write the whole name, at most 15 characters; a pattern is never enough.
      config.yaml:6: `machine.network.legacy.links` has `lo`, which is the machine's own. Take it out.
      config.yaml:6: `machine.network.legacy.links` has "a-name-that-is-too-long", which no link can be called. Write the whole name, at most 15 characters; a pattern is never enough.
      config.yaml:7: `machine.network.legacy.routes` has 10.0.0.1/8, which has bits behind its prefix. Write 10.0.0.0/8, if that is meant.
      config.yaml:7: `machine.network.legacy.routes` has 10.0.0.1/8 in table 0, which is no table. The main table is 254.
      config.yaml:7: `machine.network.legacy.routes` has 10.0.0.1/8 with protocol 2, by which the kernel marks its own. Name the protocol with which the older agent put it there.
      config.yaml:7: `machine.network.legacy.routes` has fd00::/8 with protocol 12, which is `machine.network.routeProtocol` too. The agent removes its own by itself.
      config.yaml:10: `machine.network.legacy.rules` has fd00::/8 in rule 9, which is of another family. Correct the one or the other.
      config.yaml:10: `machine.network.legacy.rules` has a mask without a mark in rule 9. Add `mark`.
    "#);
    let told = problems(
        "machine:\n  network:\n    routeProtocol: 300\n    legacy:\n      links: [unbounded0, {kind: vxlan}]\n\
         \x20     routes:\n      - {destination: 10.0.0.0, table: 254, protocol: 3}\n      - {destination: 10.0.0.0/8, protocol: 3}\n\
         \x20     rules: [{family: ipv4, priority: 9, protocol: 3, dev: eth0}]\n",
    );
    insta::assert_snapshot!(told, @r#"
    The configuration has 6 problems:
      config.yaml:3: `machine.network.routeProtocol` is `300`, which can't be used here. Write a whole number from 0 to 255.
      config.yaml:5: `machine.network.legacy.links.1` lacks `name`. Add it.
      config.yaml:5: `machine.network.legacy.links.0` is "unbounded0", which can't be used here. Write a section with keys of its own.
      config.yaml:7: `machine.network.legacy.routes.0.destination` is "10.0.0.0", which can't be used here. Write a network such as `10.0.0.0/8` or `fd00::/48`.
      config.yaml:8: `machine.network.legacy.routes.1` lacks `table`. Add it.
      config.yaml:9: `machine.network.legacy.rules.0.dev` is no key of the configuration. The keys here are `family`, `priority`, `protocol`, `table`, `source`, `destination`, `mark`, `mask`, `inputDevice`, `outputDevice`.
    "#);
}

#[test]
fn a_contradiction_is_not_told_about_a_key_that_is_wrong_already() {
    let told = problems("dataPlane:\n  kind: comand\n  command: [/bin/true]\n");
    assert!(told.starts_with("The configuration has 1 problem:\n") && told.contains("`dataPlane.kind`"), "{told}");
}

#[test]
fn a_file_that_is_no_yaml_or_has_no_keys_is_told_with_its_line() {
    insta::assert_snapshot!(problems("node:\n  name: [a\n"), @r#"
    The configuration has 1 problem:
      config.yaml:2: the file isn't YAML: unclosed bracket '[' at line 2, column 9. Correct it; nothing of the file can be judged before that.
    "#);
    insta::assert_snapshot!(problems("node: {name: a}\nlog: {}\nnode: {name: b}\n"), @r#"
    The configuration has 1 problem:
      config.yaml:3: the file isn't YAML: the key `node` stands there twice. Correct it; nothing of the file can be judged before that.
    "#);
    insta::assert_snapshot!(problems("- node\n"), @r#"
    The configuration has 1 problem:
      config.yaml: the file has no keys. Write sections with their keys, such as `node:` and below it `name: node-1`.
    "#);
    insta::assert_snapshot!(problems("node: {}\n---\nnode: {}\n"), @r#"
    The configuration has 1 problem:
      config.yaml:3: the file isn't YAML: only single YAML document expected but multiple found at line 3, column 1. Correct it; nothing of the file can be judged before that.
    "#);
}

#[test]
fn a_file_that_was_named_has_to_be_there_and_the_usual_one_has_not() {
    let sources = Sources { file: Some("/nonexistent/config.yaml".into()), ..Sources::default() };
    let told = load(&sources).unwrap_err().to_string();
    assert!(told.contains("/nonexistent/config.yaml: the configuration file can't be read"), "{told}");
    assert!(told.contains("--config"), "{told}");
    assert!(load(&Sources { file_may_be_absent: true, ..sources }).is_ok());
}

#[test]
fn a_file_without_end_is_refused() {
    let sources = Sources { file: Some("/dev/zero".into()), ..Sources::default() };
    let told = load(&sources).unwrap_err().to_string();
    assert!(told.contains("more than 1048576 bytes"), "{told}");
}

#[test]
fn flags_win_over_variables_and_variables_over_the_file_and_show_says_which() {
    let given = Given::file("node: {name: from-file}\npod:\n  name: from-file\nlog: {filter: warn}\n");
    let sources = Sources {
        environment: vec![
            ("MOORLINE_LOG__FILTER".into(), "info".into()),
            ("MOORLINE_POD__NAME".into(), "from-own-variable".into()),
            ("POD_NAME".into(), "from-downward".into()),
            ("POD_UID".into(), "u-1".into()),
        ],
        flags: vec![Flag { name: "--log".into(), key: "log.filter".into(), value: "debug".into() }],
        ..given.sources()
    };
    let loaded = load(&sources).unwrap();
    assert_eq!(loaded.config.node.name.as_deref(), Some("from-file"));
    assert_eq!(loaded.config.pod.name.as_deref(), Some("from-own-variable"));
    assert_eq!(loaded.config.log.filter, "debug");
    let shown = given.without_folder(&loaded.show());
    let origin = |key: &str| {
        let line = shown.lines().find(|line| line.trim_start().starts_with(key)).unwrap();
        line.split_once("# ").unwrap().1.to_owned()
    };
    assert_eq!(origin("filter: debug"), "--log");
    assert_eq!(origin("name: from-file"), "config.yaml:1");
    assert_eq!(origin("name: from-own-variable"), "$MOORLINE_POD__NAME");
    assert_eq!(origin("uid: u-1"), "$POD_UID");
    assert_eq!(origin("cniDirectory: /etc/cni/net.d"), "default");
}

#[test]
fn what_show_prints_is_a_file_that_says_the_same() {
    let text = "node: {name: '123'}\npod: {uid: 'yes'}\ndataPlane:\n  kind: command\n  command: [/bin/sh, -c, 'echo \"a: b # c\"']\n  \
                environment: {N: 'no', X: '1e5', 'A B': '', 'T': '10:20'}\n\
                machine: {network: {routeProtocol: 250, legacy: {links: [{name: wg0, kind: wireguard}], routes: [{destination: 'fd00::/8', table: 7, protocol: 9}], \
                rules: [{family: ipv6, priority: 5, protocol: 0, table: 7, mark: 1}]}}}\n\
                policies: {grants: {a.b: {mayTolerate: true, limits: {fuel: 20000}}}}\n";
    let loaded = load(&Given::file(text).sources()).unwrap();
    assert_eq!(config(&loaded.show()), loaded.config);
    insta::assert_snapshot!(load(&Sources::default()).unwrap().show(), @r#"
    cluster:
      apiServer: null                                             # default
      gatewayApi: net.unbounded-cloud.io/v1alpha1                 # default
      kubeconfig: null                                            # default
      requestTimeout: 15s                                         # default
      siteApi: unbounded-cloud.io/v1alpha3                        # default
      watchIdleLimit: 5m                                          # default
      watchTimeout:
        max: 1h                                                   # default
        min: 30m                                                  # default
    dataPlane:
      command: []                                                 # default
      environment: {}                                             # default
      kind: none                                                  # default
      outputLimit: 1MiB                                           # default
      timeLimit: 1m                                               # default
    deadlines:
      cleanup: 10s                                                # default
      denialInterval: 5m                                          # default
      end: 10s                                                    # default
    events:
      enabled: true                                               # default
    floors:
      allowedTaints: [net.unbounded-cloud.io/gateway-node]        # default
      annotationPrefixes: [moorline.dev/]                         # default
      cni:
        bridgeNames: [cbr0]                                       # default
        dataDirs: [/var/lib/cni/networks]                         # default
        maxSize: 64KiB                                            # default
        pluginTypes: []                                           # default
      gatewayTaint: net.unbounded-cloud.io/gateway-node           # default
    health:
      address: "127.0.0.1:9998"                                   # default
      metricsAddress: null                                        # default
    log:
      filter: info                                                # default
      format: json                                                # default
    machine:
      cacheDirectory: /var/cache/moorline                         # default
      cniDirectory: /etc/cni/net.d                                # default
      cniFile: 10-unbounded.conflist                              # default
      network:
        legacy:
          links: []                                               # default
          routes: []                                              # default
          rules: []                                               # default
        linkAlias: moorline                                       # default
        routeProtocol: 158                                        # default
      stateDirectory: /var/lib/moorline                           # default
      takeover: none                                              # default
    node:
      name: null                                                  # default
    pod:
      name: null                                                  # default
      namespace: null                                             # default
      terminationLog: /dev/termination-log                        # default
      tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token  # default
      uid: null                                                   # default
    policies:
      directory: null                                             # default
      grants: {}                                                  # default
      limits:
        compileDeadline: 20s                                      # default
        compileMemory: 192MiB                                     # default
        deadline: 500ms                                           # default
        fuel: 100000000                                           # default
        inputString: 64KiB                                        # default
        instances: 32                                             # default
        logLevel: info                                            # default
        logLines: 64                                              # default
        logSize: 16KiB                                            # default
        memory: 16MiB                                             # default
        moduleSize: 4MiB                                          # default
        output: 256KiB                                            # default
        reason: 1KiB                                              # default
        stack: 512KiB                                             # default
        tableElements: 10000                                      # default
      lookInterval: 10s                                           # default
      mode: at-start                                              # default
    "#);
}

#[test]
fn variables_set_every_kind_of_key() {
    let loaded = from_environment(&[
        ("PATH", "/bin"),
        ("NODE_NAME", "123"),
        ("POD_NAME", ""),
        ("MOORLINE_CONFIG", "/elsewhere"),
        ("MOORLINE_EVENTS__ENABLED", "false"),
        ("MOORLINE_DATA_PLANE__TIME_LIMIT", "90s"),
        ("MOORLINE_DATA_PLANE__KIND", "command"),
        ("MOORLINE_DATA_PLANE__COMMAND", "[/bin/true, '-x']"),
        ("MOORLINE_POLICIES__LIMITS__FUEL", "20000"),
        ("MOORLINE_POLICIES__GRANTS", "{my-drift: {mayTolerate: true}}"),
        ("MOORLINE_FLOORS__CNI__MAX_SIZE", "32KiB"),
        ("MOORLINE_HEALTH__METRICS_ADDRESS", "[::]:9100"),
    ]);
    let config = loaded.unwrap().config;
    assert_eq!(config.node.name.as_deref(), Some("123"));
    assert_eq!(config.pod.name, None, "a downward variable that is empty isn't set");
    assert!(!config.events.enabled);
    assert_eq!(config.data_plane.time_limit.get(), Duration::from_secs(90));
    assert_eq!(config.data_plane.command, ["/bin/true", "-x"]);
    assert_eq!(config.policies.limits.fuel, 20_000);
    assert!(config.policies.grants["my-drift"].may_tolerate);
    assert_eq!(config.floors.cni.max_size.bytes(), 32 << 10);
    assert_eq!(config.health.metrics_address, Some("[::]:9100".parse().unwrap()));
}

#[test]
fn variables_that_name_no_key_and_wrong_values_are_told_by_the_variables_name() {
    let told = from_environment(&[
        ("MOORLINE_DATA_PLANE__TIMELIMIT", "5s"),
        ("MOORLINE_WHATEVER", "5s"),
        ("MOORLINE_EVENTS__ENABLED", "maybe"),
        ("MOORLINE_LOG", "debug"),
        ("MOORLINE_MACHINE__CNI_FILE", ""),
    ]);
    insta::assert_snapshot!(told.unwrap_err(), @r#"
    The configuration has 5 problems:
      $MOORLINE_DATA_PLANE__TIMELIMIT: the name of this variable is no key of the configuration. Did you mean MOORLINE_DATA_PLANE__TIME_LIMIT? If not, take it away.
      $MOORLINE_EVENTS__ENABLED: `events.enabled` is "maybe", which can't be used here. Write `true` or `false`.
      $MOORLINE_LOG: `log` is "debug", which can't be used here. Write a section with keys of its own.
      $MOORLINE_WHATEVER: the name of this variable is no key of the configuration. Every variable that begins with MOORLINE_ has to name a key; take it away.
      $MOORLINE_MACHINE__CNI_FILE: `machine.cniFile` is "", which no container runtime would read. Write a file name such as `10-unbounded.conflist`, without a folder.
    "#);
}

#[test]
fn variables_that_kubelet_makes_for_a_service_called_moorline_are_passed_over() {
    let loaded = from_environment(&[
        ("MOORLINE_SERVICE_HOST", "10.0.0.1"),
        ("MOORLINE_SERVICE_PORT", "9998"),
        ("MOORLINE_SERVICE_PORT_METRICS", "9998"),
        ("MOORLINE_PORT", "tcp://10.0.0.1:9998"),
        ("MOORLINE_PORT_9998_TCP", "tcp://10.0.0.1:9998"),
        ("MOORLINE_PORT_9998_TCP_ADDR", "10.0.0.1"),
        ("MOORLINE_METRICS_SERVICE_HOST", "10.0.0.1"),
        ("MOORLINE_METRICS_PORT_9998_TCP_PROTO", "tcp"),
    ]);
    assert_eq!(loaded.unwrap().config, Config::default());
}

#[test]
fn flags_that_name_no_key_are_told() {
    let flags = vec![Flag { name: "--set log.filtr".into(), key: "log.filtr".into(), value: "debug".into() }];
    let told = load(&Sources { flags, ..Sources::default() }).unwrap_err().to_string();
    assert!(
        told.contains("--set log.filtr: `log.filtr` is no key of the configuration. Did you mean `filter`?"),
        "{told}"
    );
}

#[test]
fn run_is_told_every_name_that_it_misses() {
    let loaded = from_environment(&[("NODE_NAME", "node-1"), ("POD_NAME", "a")]).unwrap();
    let told = loaded.require_identity().unwrap_err().to_string();
    assert!(told.contains("2 problems") && told.contains("POD_NAMESPACE") && told.contains("POD_UID"), "{told}");
    let all = [("NODE_NAME", "n"), ("POD_NAME", "p"), ("POD_NAMESPACE", "ns"), ("POD_UID", "u")];
    assert_eq!(from_environment(&all).unwrap().require_identity(), Ok(()));
}

#[test]
fn lengths_of_time_and_sizes_are_read_with_their_unit_only_and_printed_as_people_write_them() {
    for (text, millis) in [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("1h 30m", 5_400_000), ("0s", 0)] {
        let period: Period = text.parse().unwrap();
        assert_eq!(period, Period::from_millis(millis));
        assert_eq!(period.to_string(), text);
    }
    for text in ["", "5", "-5s", "5 parsecs", "5s ago", "99999999999999999999s"] {
        assert_eq!(text.parse::<Period>(), Err(()), "{text:?}");
    }
    for (text, bytes) in [("0B", 0), ("1000B", 1000), ("64KiB", 64 << 10), ("16MiB", 16 << 20), ("3GiB", 3 << 30)] {
        let size: Size = text.parse().unwrap();
        assert_eq!(size.bytes(), bytes);
        assert_eq!(size.to_string(), text);
    }
    for text in ["", "5", "MiB", "-1MiB", "1.5MiB", "16Mi", "16MB", "99999999999GiB"] {
        assert_eq!(text.parse::<Size>(), Err(()), "{text:?}");
    }
}

#[test]
fn a_grant_overrides_only_what_it_says() {
    let config = config("policies: {limits: {fuel: 30000}, grants: {a: {limits: {memory: 32MiB}}}}");
    let limits = config.policies.grants["a"].limits.over(&config.policies.limits);
    assert_eq!((limits.fuel, limits.memory), (30_000, Size::from_mib(32)));
    assert_eq!(limits.deadline, Period::from_millis(500));
}

#[test]
fn the_schema_knows_every_key_says_what_it_means_and_refuses_others() {
    let schema = schema();
    let mut keys = Vec::new();
    for (name, definition) in schema["$defs"].as_object().unwrap().iter().chain([(&"Config".to_owned(), &schema)]) {
        if let Some(properties) = definition["properties"].as_object() {
            assert_eq!(definition["additionalProperties"], false, "{name}");
            for (key, property) in properties {
                assert!(property["description"].is_string(), "{name}.{key} has no description");
                keys.push(key.clone());
            }
        }
    }
    for entry in load(&Sources::default()).unwrap().entries() {
        assert!(keys.contains(entry.keys.last().unwrap()), "{:?}", entry.keys);
    }
}
