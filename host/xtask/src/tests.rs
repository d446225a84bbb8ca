//! The README's test command: every suite of this repository, and one count at the end. A suite that needs more than Rust
//! and a C compiler runs where that is there, and is otherwise named as skipped in one line.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    error::Error,
    policies,
    toolchain::{self, Toolchain},
};

/// Tests that passed, failed or were skipped.
#[derive(Default, Debug, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
    skipped: u64,
}

/// Runs every suite. With `deny_skips` a skipped one is an error.
pub(crate) fn run(workspace: &Path, deny_skips: bool) -> Result<(), Error> {
    let mut count = Count::default();
    // Not xtask's own target folder lock: cargo runs it from there, and has let go of it by now.
    cargo_test(workspace, &mut count)?;
    components(workspace, &mut count);
    println!();
    println!("{} passed, {} failed, {} skipped", count.passed, count.failed, count.skipped);
    match count {
        Count { failed: 1.., .. } => Err(Error::Tests { failed: count.failed }),
        Count { skipped: 1.., .. } if deny_skips => Err(Error::Skipped { skipped: count.skipped }),
        _ => Ok(()),
    }
}

/// Unit, integration and documentation tests of every crate.
fn cargo_test(workspace: &Path, count: &mut Count) -> Result<(), Error> {
    let mut cargo = Command::new(toolchain::cargo());
    cargo
        .current_dir(workspace)
        .args(["test", "--workspace", "--locked", "--no-fail-fast"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let command = format!("{cargo:?}");
    let mut child = cargo.spawn().map_err(|source| Error::Start { command: command.clone(), source })?;
    if let Some(output) = child.stdout.take() {
        let mut shown = std::io::stdout().lock();
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // A reader that has gone away changes nothing about the tests.
            let _ = writeln!(shown, "{line}");
            count.add(&line);
        }
    }
    let status = child.wait().map_err(|source| Error::Start { command: command.clone(), source })?;
    // A crate that does not compile, or a test process that dies, prints no count of its own.
    if !status.success() && count.failed == 0 {
        return Err(Error::Command { command, status });
    }
    Ok(())
}

/// The committed policy components are what their source gives.
fn components(workspace: &Path, count: &mut Count) {
    println!();
    if let Err(missing) = Toolchain::find(None) {
        println!("skipped: the rebuild of the committed policy components: {missing}");
        count.skipped += 1;
        return;
    }
    match policies::check(workspace) {
        Ok(()) => count.passed += 1,
        Err(error) => {
            println!("The rebuild of the committed policy components failed: {error}");
            count.failed += 1;
        }
    }
}

impl Count {
    /// Adds what a line like `test result: ok. 8 passed; 0 failed; 1 ignored; …` says.
    fn add(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let number = |word: &str| -> u64 {
            let before = result.split(word).next().unwrap_or_default().trim_end();
            before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default()
        };
        self.passed += number("passed");
        self.failed += number("failed");
        self.skipped += number("ignored");
    }
}

#[cfg(test)]
mod counting {
    use super::*;

    #[test]
    fn counts_are_summed_over_crates() {
        let mut count = Count::default();
        count.add("test result: ok. 8 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s");
        count.add("test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s");
        count.add("running 8 tests");
        assert_eq!(count, Count { passed: 10, failed: 3, skipped: 1 });
    }
}
