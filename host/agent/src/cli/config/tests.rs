#![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: ConfigCommand,
}

/// Exit code, output, errors.
fn run(arguments: &[&str]) -> (u8, String, String) {
    let cli = Cli::try_parse_from(["config"].iter().chain(arguments)).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = cli.command.run(Vec::new(), &mut out, &mut err).unwrap();
    (code.number(), String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

#[test]
fn check_ends_with_2_and_lists_everything_and_with_0_when_all_is_good() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    let file = path.to_str().unwrap();
    std::fs::write(&path, "logg: {}\nevents: {enabled: 5}\ndeadlines: {end: 1h}\n").unwrap();
    for arguments in [["check", file].as_slice(), &["check", "--config", file], &["show", file]] {
        let (code, out, err) = run(arguments);
        assert_eq!((code, out.as_str()), (2, ""));
        assert!(err.starts_with("The configuration has 3 problems:\n"), "{err}");
        for line in 1..=3 {
            assert!(err.contains(&format!("{file}:{line}: ")), "{err}");
        }
    }
    std::fs::write(&path, "events: {enabled: false}\n").unwrap();
    assert_eq!(run(&["check", file]), (0, "The configuration is good.\n".to_owned(), String::new()));
}

#[test]
fn show_says_where_a_flag_won_and_schema_prints_json() {
    let (code, out, _) = run(&["show", "--set", "log.filter=info,moorline=debug"]);
    assert_eq!(code, 0);
    let line = out.lines().find(|line| line.trim_start().starts_with("filter:")).unwrap();
    assert!(line.contains("\"info,moorline=debug\"") && line.ends_with("# --set log.filter"), "{line}");
    let (code, out, _) = run(&["schema"]);
    assert_eq!(code, 0);
    assert!(serde_json::from_str::<serde_json::Value>(&out).unwrap()["properties"]["machine"].is_object());
}

#[test]
fn a_set_flag_without_a_value_is_refused() {
    assert!(Cli::try_parse_from(["config", "show", "--set", "log.filter"]).is_err());
}
