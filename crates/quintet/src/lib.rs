//! The `quintet` program: arguments, configuration, wiring. Everything else is in the other crates.
//!
//! It knows operators only by their descriptors; [`components`] is the one list of them.

mod catalog;
mod cluster;
mod command_line;
mod completion;
mod components;
mod crds;
mod explain;
mod logging;
mod manifests;
mod names;
mod operator;
mod output;
mod signals;
mod simulate;
mod simulate_nodes;
mod submitter;
mod up;
mod version;

use std::process::ExitCode;

use quintet_component::Component;

use catalog::Catalog;
use command_line::{Command, CommandLine};

/// The operators of this program, in the order they start.
pub fn components() -> Vec<Component> {
    vec![
        quintet_ray::component(),
        quintet_queue::component(),
        quintet_codeflare::component(),
        quintet_registry::component(),
        quintet_mlflow::component(),
    ]
}

/// Runs the program with these operators and the arguments of the process.
pub fn run(components: Vec<Component>) -> ExitCode {
    let command_line = match CommandLine::read() {
        Ok(command_line) => command_line,
        Err(code) => return code,
    };
    let catalog = Catalog::new(components);
    let outcome = match command_line.command {
        Command::Up(arguments) => up::run(arguments, catalog),
        Command::Crds(arguments) => crds::run(arguments, &catalog),
        Command::Manifests(arguments) => manifests::run(arguments, &catalog),
        Command::Operator(arguments) => operator::run(*arguments, &catalog),
        Command::Explain(arguments) => explain::run(*arguments, &catalog),
        Command::Components(arguments) => components::run(&arguments, &catalog),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::SimulateNodes(arguments) => simulate_nodes::run(arguments),
        Command::Submitter(arguments) => submitter::run(&arguments),
        Command::Version(arguments) => version::run(&arguments),
        Command::Completion(arguments) => completion::run(&arguments),
    };
    output::exit_code(outcome)
}
