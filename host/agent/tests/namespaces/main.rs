//! What the agent does to a real network, in network namespaces that these tests make: each test is a process of its own
//! in namespaces of its own, which end with it. Nothing outside of them is changed and nothing leaves them.
//!
//! Needs root, `ip` and the CNI plugins (Debian: iproute2, containernetworking-plugins); otherwise it says so and skips.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "tests may fail by panicking")]

mod agent;
mod cleanup;
mod cni;
mod file_systems;
mod links;
mod stage;

use std::path::Path;
use std::process::{Command, ExitCode};

type Test = (&'static str, fn());

const TESTS: &[&[Test]] = &[links::TESTS, agent::TESTS, cleanup::TESTS, cni::TESTS, file_systems::TESTS];
/// The argument that makes this process one test.
const ALONE: &str = "--alone-in-its-namespaces";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let tests = || TESTS.iter().copied().flatten();
    if let [flag, name] = arguments.as_slice()
        && flag == ALONE
    {
        let (_, test) = tests().find(|(known, _)| known == name).expect("a test of this name");
        stage::enter();
        test();
        return ExitCode::SUCCESS;
    }
    if arguments.iter().any(|argument| argument == "--list") {
        tests().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let mut filters = arguments.iter().filter(|argument| !argument.starts_with('-')).peekable();
    let any = filters.peek().is_none();
    let filters: Vec<_> = filters.collect();
    let chosen: Vec<_> = tests().filter(|(name, _)| any || filters.iter().any(|part| name.contains(*part))).collect();
    if let Err(missing) = requirements() {
        println!("skipped: the tests in network namespaces: {missing}");
        println!("test result: ok. 0 passed; 0 failed; {} ignored", chosen.len());
        return ExitCode::SUCCESS;
    }
    println!("running {} tests", chosen.len());
    let failed = chosen.iter().filter(|(name, _)| !passes(name)).count();
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {word}. {} passed; {failed} failed; 0 ignored", chosen.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn passes(name: &str) -> bool {
    let output = Command::new(std::env::current_exe().unwrap()).args([ALONE, name]).output().unwrap();
    println!("test {name} ... {}", if output.status.success() { "ok" } else { "FAILED" });
    if !output.status.success() {
        println!("{}", String::from_utf8_lossy(&output.stdout));
        println!("{}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}

fn requirements() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("they need root".into());
    }
    if !Command::new("unshare").args(["--net", "--mount", "true"]).status().is_ok_and(|status| status.success()) {
        return Err("no network namespace can be made here".into());
    }
    let ip = Command::new("ip").arg("-Version").output();
    let plugins =
        ["bridge", "host-local", "portmap"].iter().all(|plugin| Path::new(cni::PLUGINS).join(plugin).exists());
    if ip.is_err() || !plugins {
        return Err("they need `apt-get install iproute2 containernetworking-plugins`".into());
    }
    Ok(())
}
