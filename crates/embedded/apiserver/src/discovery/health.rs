//! Version, health checks and metrics.

use http::Response;
use serde_json::Value;
use serde_json::json;

use super::GIT_VERSION;
use super::MINOR;
use super::text_response;

use crate::api::Api;
use crate::request::body::ResponseBody;
use crate::request::url::Query;

pub(super) fn version() -> Value {
    json!({
        "major": "1", "minor": MINOR, "gitVersion": GIT_VERSION, "gitCommit": "0000000000000000000000000000000000000000",
        "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, platform()),
        "emulationMajor": "1", "emulationMinor": MINOR, "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
    })
}

/// Machines as Go calls them.
fn platform() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

pub(super) fn health(api: &Api, endpoint: &str, check: &str, query: &Query) -> Response<ResponseBody> {
    let excluded: Vec<&str> = query.all("exclude").collect();
    let mut checks = vec![("ping", true), ("log", true), ("etcd", api.store().is_healthy())];
    if endpoint == "readyz" {
        checks.push(("start", api.is_ready()));
    }
    let checks =
        checks.iter().filter(|(name, _)| (check.is_empty() || *name == check) && !excluded.contains(name));
    let (mut lines, mut is_well) = (String::new(), true);
    for (name, is_ok) in checks {
        is_well &= is_ok;
        let line =
            if *is_ok { format!("[+]{name} ok\n") } else { format!("[-]{name} failed: reason withheld\n") };
        lines += &line;
    }
    if !is_well {
        return text_response(500, format!("{lines}{endpoint} check failed\n"));
    }
    if query.is_set("verbose") {
        return text_response(200, format!("{lines}{endpoint} check passed\n"));
    }
    text_response(200, "ok")
}

pub(super) fn metrics(api: &Api) -> String {
    use std::fmt::Write as _;
    let mut text = String::from(
        "# HELP apiserver_storage_objects Number of stored objects.\n# TYPE apiserver_storage_objects gauge\n",
    );
    let mut buckets = api.store().buckets();
    buckets.sort();
    for bucket in buckets {
        let _ = writeln!(
            text,
            "apiserver_storage_objects{{resource=\"{bucket}\"}} {}",
            api.store().count(&bucket)
        );
    }
    text
}
