//! The `quintet` program: arguments, configuration, wiring. Everything else is in the other crates.

mod cluster;
mod command_line;
mod completion;
mod crds;
mod logging;
mod manifests;
mod operator;
mod output;
mod signals;
mod simulate;
mod simulate_nodes;
mod submitter;
mod up;
mod version;

use std::process::ExitCode;

use crate::command_line::{Command, CommandLine};

// Gives memory back to the system: a start, or a busy hour, takes several times what is kept of it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let command_line = match CommandLine::read() {
        Ok(command_line) => command_line,
        Err(code) => return code,
    };
    let outcome = match command_line.command {
        Command::Up(arguments) => up::run(arguments),
        Command::Crds(arguments) => crds::run(arguments),
        Command::Manifests(arguments) => manifests::run(arguments),
        Command::Operator(arguments) => operator::run(*arguments),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::SimulateNodes(arguments) => simulate_nodes::run(arguments),
        Command::Submitter(arguments) => submitter::run(&arguments),
        Command::Version(arguments) => version::run(&arguments),
        Command::Completion(arguments) => completion::run(&arguments),
    };
    output::exit_code(outcome)
}
