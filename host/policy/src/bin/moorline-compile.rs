//! Compiles one component and ends: the child of [`moorline_policy::ChildProcess`], for programs that can't be started as a
//! child of themselves.

use std::process::ExitCode;

fn main() -> ExitCode {
    moorline_policy::compile_child()
}
