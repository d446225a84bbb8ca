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

    /// What is wrong, with the folder's name taken out.
    fn problems(&self) -> String {
        let problems = load(&self.sources()).unwrap_err();
        problems.to_string().replace(self.path.to_str().unwrap(), "config.yaml")
    }
}

fn from_environment(variables: &[(&str, &str)]) -> Result<Loaded, Problems> {
    let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    load(&Sources { environment, ..Sources::default() })
}

#[test]
fn three() {
    println!(
        "{}",
        Given::file(
            "
machine:
  cniFiel: x
  takeover: published
health:
  address: 9998
watches: {a: 1, b: 2}
dataPlane:
  kind: command
  outputLimit: 16Mi
  environment: {A: 1}
deadlines:
  end: 5
floors:
  allowedTaints: [true]
log:
events: {}
policies:
  mode: lively
  grants:
    b.c: {limits: {fuel: 1}}
    d: {mayTolerat: true}
"
        )
        .problems()
    );
    println!("{}", Given::file("a: [\nb").problems());
    println!("{}", Given::file("node: {name: a}\nnode: {name: a}").problems());
    println!("{}", Given::file("- a").problems());
    println!("{}", Given::file("hello").problems());
    println!(
        "{}",
        from_environment(&[
            ("MOORLINE_DATA_PLANE__TIMELIMIT", "5s"),
            ("MOORLINE_FLOORS__ALLOWED_TAINTS", "x"),
            ("MOORLINE_LOG", "debug"),
            ("MOORLINE_POLICIES__LIMITS__FUEL", "many"),
            ("MOORLINE_EVENTS__ENABLED", "yes")
        ])
        .unwrap_err()
    );
    let g = Given::file("node: {name: n1}\ndataPlane: {environment: {A: 'yes'}}");
    let mut s = g.sources();
    s.flags.push(Flag { name: "--log".into(), key: "log.filter".into(), value: "debug".into() });
    println!("{}", load(&s).unwrap().show());
}
