//! The hidden commands alone, for tests of this crate; `quintet` has them too.

use std::process::ExitCode;

fn main() -> ExitCode {
    quintet_kubelet::hidden_command().unwrap_or(ExitCode::FAILURE)
}
