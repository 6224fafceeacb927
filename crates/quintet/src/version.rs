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
/// Set by release builds.
const COMMIT: Option<&str> = option_env!("QUINTET_COMMIT");

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let commit = COMMIT.unwrap_or("unknown");
    let facts = json!({ "version": version, "commit": commit, "kubernetes": KUBERNETES });
    match arguments.output {
        Some(Format::Json) => output::print_json(&facts),
        Some(Format::Yaml) => output::print_yaml(&facts),
        None => {
            output::print(&format!("quintet {version} (commit {commit}, Kubernetes {KUBERNETES} types)\n"))
        }
    }
}
