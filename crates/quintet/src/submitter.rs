//! `quintet submitter`.

use std::collections::BTreeMap;

use anyhow::Context as _;
use clap::Args;
use quintet_ray::{dashboard::Submission, submitter};
use serde::de::DeserializeOwned;

use crate::{cluster, output};

/// Submit a job to Ray and show its logs until it ends, without Ray being installed
///
/// This is for submitter pods of RayJobs: an image with this program is much
/// smaller than one with Ray. Use it in `submitterPodTemplate`, where the operator
/// sets the environment:
///
///   submitterPodTemplate:
///     spec:
///       restartPolicy: Never
///       containers:
///       - name: submitter
///         image: quintet
///         command: [quintet, submitter, --, python, /home/ray/samples/train.py]
///
/// A program file named `submitter` does the same without the word `submitter`, so
/// that manifests made for KubeRay's submitter image work unchanged.
///
/// A job that was submitted before is not submitted again. Exits with 0 when the
/// logs have ended, whatever the job's result, which is in the RayJob's status;
/// with 1 when the job or its logs could not be reached.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Host and port of the Ray dashboard.
    #[arg(long, env = "RAY_DASHBOARD_ADDRESS", value_name = "HOST:PORT")]
    address: String,
    /// Name of the job in Ray.
    #[arg(long, env = "RAY_JOB_SUBMISSION_ID", value_name = "ID")]
    submission_id: String,
    /// Runtime environment of the job, as JSON.
    #[arg(long, value_name = "JSON")]
    runtime_env_json: Option<String>,
    /// Metadata of the job, as JSON.
    #[arg(long, value_name = "JSON")]
    metadata_json: Option<String>,
    /// Custom resources for the entrypoint, as JSON.
    #[arg(long, value_name = "JSON")]
    entrypoint_resources: Option<String>,
    /// CPUs for the entrypoint.
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0, hide_default_value = true)]
    entrypoint_num_cpus: f64,
    /// GPUs for the entrypoint.
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0, hide_default_value = true)]
    entrypoint_num_gpus: f64,
    /// The command that Ray runs; its words are joined by spaces.
    #[arg(required = true, trailing_var_arg = true, value_name = "ENTRYPOINT")]
    entrypoint: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let work = work(arguments)?;
    let done = cluster::block_on(submitter::run(&work, |text| {
        // A closed output does not stop the job.
        let _ = output::print(text);
    }))?;
    done.map_err(anyhow::Error::msg)
}

fn work(arguments: &Arguments) -> anyhow::Result<submitter::Work> {
    Ok(submitter::Work {
        address: arguments.address.clone(),
        // Never an argument: others can read those.
        token: std::env::var("RAY_AUTH_TOKEN").ok(),
        submission: Submission {
            entrypoint: arguments.entrypoint.join(" "),
            submission_id: arguments.submission_id.clone(),
            runtime_env: read("runtime-env-json", arguments.runtime_env_json.as_deref())?,
            metadata: read::<BTreeMap<_, _>>("metadata-json", arguments.metadata_json.as_deref())?
                .unwrap_or_default(),
            entrypoint_num_cpus: arguments.entrypoint_num_cpus,
            entrypoint_num_gpus: arguments.entrypoint_num_gpus,
            entrypoint_resources: read("entrypoint-resources", arguments.entrypoint_resources.as_deref())?
                .unwrap_or_default(),
        },
    })
}

fn read<T: DeserializeOwned>(flag: &str, text: Option<&str>) -> anyhow::Result<Option<T>> {
    let text = text.filter(|text| !text.is_empty());
    text.map(|text| {
        serde_json::from_str(text).with_context(|| format!("--{flag} is not a JSON object that Ray takes"))
    })
    .transpose()
}
