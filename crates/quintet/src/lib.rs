//! The `quintet` program: arguments, configuration, wiring. Everything else is in the other crates.
//!
//! It knows operators only by their descriptors; [`components`] is the one list of them.

mod api_proxy;
mod catalog;
mod catalog_server;
mod cluster;
mod collector;
mod command_line;
mod completion;
mod components;
mod crds;
mod down;
mod explain;
mod history_server;
mod kubeconfig;
mod logging;
mod logs;
mod manifests;
mod names;
mod operator;
mod output;
mod queue;
mod registry_server;
mod session;
mod signals;
mod simulate;
mod simulate_nodes;
mod status;
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

/// Runs the program with these operators and the arguments of the process. `before_threads` is called before the first
/// thread is started: a process that enters namespaces must have one only.
pub fn run(components: Vec<Component>, before_threads: fn()) -> ExitCode {
    // The first process of a pod is this program again.
    if let Some(code) = quintet_kubelet::hidden_command() {
        return code;
    }
    cluster::before_threads(before_threads);
    let command_line = match CommandLine::read() {
        Ok(command_line) => command_line,
        Err(code) => return code,
    };
    let catalog = Catalog::new(components);
    let outcome = match command_line.command {
        Command::Up(arguments) => match up::run(*arguments, catalog) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Status(arguments) => status::run(arguments, &catalog),
        Command::Logs(arguments) => logs::run(arguments, &catalog),
        Command::Down(arguments) => match down::run(arguments) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Kubeconfig(arguments) => kubeconfig::run(arguments),
        Command::Crds(arguments) => crds::run(arguments, &catalog),
        Command::Manifests(arguments) => manifests::run(arguments, &catalog),
        Command::Operator(arguments) => operator::run(*arguments, &catalog),
        Command::Explain(arguments) => explain::run(*arguments, &catalog),
        Command::Queue(arguments) => queue::run(*arguments, &catalog),
        Command::Components(arguments) => components::run(&arguments, &catalog),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::SimulateNodes(arguments) => simulate_nodes::run(arguments),
        Command::Submitter(arguments) => submitter::run(&arguments),
        Command::ApiProxy(arguments) => api_proxy::run(*arguments),
        Command::RegistryServer(arguments) => registry_server::run(&arguments),
        Command::CatalogServer(arguments) => catalog_server::run(arguments),
        Command::HistoryServer(arguments) => history_server::run(&arguments),
        Command::Collector(arguments) => collector::run(&arguments),
        Command::Version(arguments) => version::run(&arguments),
        Command::Completion(arguments) => completion::run(&arguments),
    };
    output::exit_code(outcome)
}
