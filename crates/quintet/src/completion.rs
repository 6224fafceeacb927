//! `quintet completion`.

use clap::{Args, CommandFactory as _};
use clap_complete::{Shell, generate};

use crate::command_line::CommandLine;
use crate::output;

/// Print a completion script for a shell.
///
/// For bash, put this into ~/.bashrc: source <(quintet completion bash)
#[derive(Args)]
pub(crate) struct Arguments {
    /// The shell to complete for.
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut script = Vec::new();
    generate(arguments.shell, &mut CommandLine::command(), "quintet", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
