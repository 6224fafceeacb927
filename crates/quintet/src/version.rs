//! `quintet version`.

use clap::Args;
use serde_json::json;

use crate::output::{self, Format};

/// Tell which version this is.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Print YAML or JSON instead of text.
    #[arg(short, long)]
    output: Option<Format>,
}

/// The version of Kubernetes whose types Quintet is built with.
const KUBERNETES: &str = "1.36";
/// Set by the build script.
const COMMIT: &str = env!("QUINTET_COMMIT");
/// What `--version` prints after the name.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("QUINTET_COMMIT"), ")");

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let facts = json!({ "version": version, "commit": COMMIT, "kubernetes": KUBERNETES });
    match arguments.output {
        Some(Format::Json) => output::print_json(&facts),
        Some(Format::Yaml) => output::print_yaml(&facts),
        None => {
            output::print(&format!("quintet {version} (commit {COMMIT}, Kubernetes {KUBERNETES} types)\n"))
        }
    }
}
