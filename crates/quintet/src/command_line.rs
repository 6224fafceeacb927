//! What can be typed after `quintet`.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};

use crate::{
    api_proxy, catalog_server, collector, completion, components, crds, down, explain, history_server,
    kubeconfig, logs, manifests, operator, output, queue, registry_server, simulate, simulate_nodes, status,
    submitter, up, version,
};

/// Ray, queues, AppWrappers, model registries and MLflow on Kubernetes, in one program.
///
/// Quintet does the work of five operators (KubeRay, Kueue, CodeFlare with AppWrapper, the Model Registry
/// operator and the MLflow operator) and speaks their APIs, so that manifests made for them work unchanged.
#[derive(Parser)]
#[command(
    name = "quintet",
    version = version::VERSION,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "Start here:
  quintet up                               run the platform on this machine
  quintet status                           what runs, and what is unwell
  quintet logs rayjob/NAME -f              the output of its pods
  quintet down                             stop everything that 'up' has started
  quintet crds --apply                     install the CRDs on a cluster
  quintet manifests | kubectl apply --server-side --field-manager quintet -f -
                                           install the operator
  quintet operator --kubeconfig FILE       run it from here instead
  quintet explain rayjob/NAME              why does this job not run?
  quintet queue pending -A                 what waits for quota, until when, and why
  quintet simulate FILE                    try queues and quotas without a cluster
  quintet simulate-nodes --count 100       add nodes that take pods without running them

See 'quintet SUBCOMMAND --help' for the options of each."
)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) command: Command,
}

// Each command is explained at its arguments.
#[derive(Subcommand)]
pub(crate) enum Command {
    Up(Box<up::Arguments>),
    Status(status::Arguments),
    Logs(logs::Arguments),
    Down(down::Arguments),
    Kubeconfig(kubeconfig::Arguments),
    Crds(crds::Arguments),
    Manifests(manifests::Arguments),
    Operator(Box<operator::Arguments>),
    Explain(Box<explain::Arguments>),
    Queue(Box<queue::Arguments>),
    Components(components::Arguments),
    Simulate(simulate::Arguments),
    SimulateNodes(simulate_nodes::Arguments),
    Submitter(submitter::Arguments),
    ApiProxy(Box<api_proxy::Arguments>),
    RegistryServer(registry_server::Arguments),
    CatalogServer(catalog_server::Arguments),
    HistoryServer(Box<history_server::Arguments>),
    Collector(Box<collector::Arguments>),
    Version(version::Arguments),
    Completion(completion::Arguments),
}

impl CommandLine {
    /// Parses the arguments. An error is printed on one line, with what to do about it.
    pub(crate) fn read() -> Result<Self, ExitCode> {
        let arguments = called_as(std::env::args_os().collect());
        Self::try_parse_from(&arguments).map_err(|error| match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                // Coloured on a terminal only.
                let _ = error.print();
                ExitCode::SUCCESS
            }
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                output::complain(&error.render().to_string());
                ExitCode::from(2)
            }
            _ => {
                output::complain(&one_line(&error.render().to_string(), &command_of(&arguments)));
                ExitCode::from(2)
            }
        })
    }
}

/// The command that was called, as far as it is one: errors about values do not name it.
fn command_of(arguments: &[OsString]) -> String {
    let word = arguments.get(1).and_then(|word| word.to_str());
    match word.filter(|word| CommandLine::command().find_subcommand(word).is_some()) {
        Some(subcommand) => format!("quintet {subcommand}"),
        None => "quintet".to_owned(),
    }
}

/// A program file of the name `submitter` is that command, and one of the name `model-registry` has the commands of
/// upstream's program.
fn called_as(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let program = arguments.first().map(Path::new).and_then(Path::file_name).and_then(OsStr::to_str);
    let (replaced, command) = match (program, arguments.get(1).and_then(|word| word.to_str())) {
        (Some("submitter"), _) => (1, "submitter"),
        (Some("model-registry"), Some("proxy")) => (2, "registry-server"),
        (Some("model-registry"), Some("catalog")) => (2, "catalog-server"),
        _ => return arguments,
    };
    arguments.splice(..replaced, ["quintet".into(), command.into()]);
    arguments
}

/// The message and the tip of clap's several lines, and where to read more.
fn one_line(rendered: &str, command: &str) -> String {
    let mut message = String::new();
    for line in rendered.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(tip) = line.strip_prefix("tip: ") {
            message = format!("{message}; {tip}");
        } else if !line.starts_with("Usage: ") && !line.starts_with("For more information") {
            let separator = if message.is_empty() { "" } else { " " };
            message = format!("{message}{separator}{line}");
        }
    }
    format!("{message}; see '{command} --help'\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        CommandLine::command().debug_assert();
    }

    /// Text that is shown as it is written must fit an ordinary terminal, or it is wrapped twice.
    #[test]
    fn help_is_wrapped_once() {
        for subcommand in CommandLine::command().get_subcommands() {
            let about = subcommand.get_long_about().map(ToString::to_string).unwrap_or_default();
            for paragraph in about.split("\n\n").filter(|paragraph| paragraph.contains('\n')) {
                for line in paragraph.lines() {
                    let name = subcommand.get_name();
                    assert!(line.chars().count() <= 80, "quintet {name} --help: {line}");
                }
            }
        }
    }

    #[test]
    fn help_names_the_default_of_every_setting() {
        let mut command = CommandLine::command();
        let operator = command.find_subcommand_mut("operator").unwrap();
        let help = operator.render_long_help().to_string();
        for default in
            ["127.0.0.1:8081, in a pod :8080", "127.0.0.1:8081, in a pod :8081", "9443", "info", "true", "8"]
        {
            let text = help.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains(&format!("[default: {default}]")), "{default} is not in {help}");
        }
    }

    #[test]
    fn program_files_with_other_names_are_commands() {
        for (called, expected) in [
            (&["/submitter", "--", "a"][..], &["quintet", "submitter", "--", "a"][..]),
            (&["/model-registry", "proxy", "--port=1"], &["quintet", "registry-server", "--port=1"]),
            (&["/model-registry", "catalog"], &["quintet", "catalog-server"]),
            (&["/model-registry", "version"], &["/model-registry", "version"]),
            (&["/bin/quintet", "up"], &["/bin/quintet", "up"]),
        ] {
            let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
            assert_eq!(called_as(words(called)), words(expected));
        }
    }

    #[test]
    fn a_mistake_is_told_in_one_line() {
        for (arguments, expected) in [
            (
                &["quintet", "operator", "--webhok-port", "1"][..],
                "a similar argument exists: '--webhook-port'",
            ),
            (&["quintet", "oprator"], "a similar subcommand exists: 'operator'; see 'quintet --help'"),
            (&["quintet", "operator", "--webhook-port", "x"], "invalid value 'x' for '--webhook-port"),
            (&["quintet", "completion"], "<SHELL>; see 'quintet completion --help'"),
            (&["quintet", "explain", "x"], "such as rayjob/train; see 'quintet explain --help'"),
        ] {
            let Err(error) = CommandLine::try_parse_from(arguments) else {
                panic!("{arguments:?} was accepted")
            };
            let called: Vec<OsString> = arguments.iter().map(Into::into).collect();
            let line = one_line(&error.render().to_string(), &command_of(&called));
            assert!(line.contains(expected), "{line}");
            assert_eq!(line.lines().count(), 1, "{line}");
        }
    }
}
