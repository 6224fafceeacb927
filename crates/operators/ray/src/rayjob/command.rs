//! The command line by which a submitter hands a job to Ray.

use quintet_api::ray::v1::RayJobSpec;

use crate::{rayjob::validation::runtime_env, version::RayVersion};

/// The first version of Ray that takes metadata.
const METADATA_SINCE: RayVersion = RayVersion::new(2, 6, 0);

/// Where the submitter runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In a pod of its own; the dashboard is at this host and port.
    OwnPod(String),
    /// In the head pod; the dashboard listens on this port.
    HeadPod {
        /// Port of the dashboard.
        port: i32,
        /// Whether it is started again when it fails, and so must not submit twice.
        restarts: bool,
    },
}

impl Place {
    fn address(&self) -> String {
        match self {
            Self::OwnPod(host) if host.starts_with("http://") => host.clone(),
            Self::OwnPod(host) => format!("http://{host}"),
            Self::HeadPod { port, .. } => format!("http://127.0.0.1:{port}"),
        }
    }

    fn health_address(&self) -> String {
        match self {
            Self::OwnPod(_) => self.address(),
            Self::HeadPod { port, .. } => format!("http://localhost:{port}"),
        }
    }
}

/// The text that a shell runs. The entrypoint is the user's shell text and goes in as it is.
pub(super) fn command(spec: &RayJobSpec, job_id: &str, place: &Place) -> Result<String, String> {
    let address = place.address();
    let health = format!(
        "python -c \"import sys, urllib.request; \
         sys.exit(b'success' not in urllib.request.urlopen('{}/api/gcs_healthz', timeout=10).read())\"",
        place.health_address()
    );
    let mut words = vec![format!(
        "until {health} >/dev/null 2>&1 ; do \
         echo \"Waiting for Ray Dashboard GCS to become healthy at {address} ...\" ; sleep 2 ; done ;"
    )];
    // A submitter that runs once submits and waits in one go.
    let once = matches!(place, Place::HeadPod { restarts: false, .. });
    if !once {
        words.push(format!("if ! ray job status --address {address} {job_id} >/dev/null 2>&1 ; then"));
    }
    words.push(format!("ray job submit --address {address}"));
    if !once {
        words.push("--no-wait".to_owned());
    }
    words.extend(options(spec, job_id)?);
    words.push(format!("-- {} ;", spec.entrypoint.as_deref().unwrap_or_default().trim()));
    if !once {
        words.push(format!("fi ; ray job logs --address {address} --follow {job_id}"));
    }
    Ok(words.join(" "))
}

fn options(spec: &RayJobSpec, job_id: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    if let Some(environment) = runtime_env(spec)? {
        let json = serde_json::Value::Object(environment).to_string();
        words.push(format!("--runtime-env-json {}", quoted(&json)));
    }
    if let Some(metadata) = spec.metadata.as_ref().filter(|metadata| !metadata.is_empty()) {
        takes_metadata(spec)?;
        let json = serde_json::to_string(metadata).unwrap_or_default();
        words.push(format!("--metadata-json {}", quoted(&json)));
    }
    if !job_id.is_empty() {
        words.push(format!("--submission-id {job_id}"));
    }
    for (flag, number) in [("cpus", spec.entrypoint_num_cpus), ("gpus", spec.entrypoint_num_gpus)] {
        if let Some(number) = number.filter(|number| *number > 0.0) {
            words.push(format!("--entrypoint-num-{flag} {number:.6}"));
        }
    }
    if let Some(resources) = spec.entrypoint_resources.as_deref().filter(|text| !text.is_empty()) {
        words.push(format!("--entrypoint-resources {}", quoted(resources)));
    }
    Ok(words)
}

fn takes_metadata(spec: &RayJobSpec) -> Result<(), String> {
    let version = spec.ray_cluster_spec.as_ref().and_then(|cluster| cluster.ray_version.as_deref());
    let Some(text) = version.filter(|text| !text.is_empty()) else { return Ok(()) };
    let version: RayVersion =
        text.parse().map_err(|error| format!("failed to parse Ray version {text}: {error}"))?;
    if version < METADATA_SINCE {
        return Err(format!(
            "the Ray version must be at least {METADATA_SINCE} to use the metadata field, but it is {text}"
        ));
    }
    Ok(())
}

/// A text in double quotes as Go writes it, which is how upstream hands it to the shell: `$` and backquotes
/// keep their meaning there.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if c.is_control() => out.push_str(&escaped(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn escaped(control: char) -> String {
    let code = u32::from(control);
    if control.is_ascii() { format!("\\x{code:02x}") } else { format!("\\u{code:04x}") }
}
