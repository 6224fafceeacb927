//! Lifecycle hooks of containers.

use std::time::Duration;

use k8s_openapi::api::core::v1 as core;

use super::dial::{self, HttpTarget};
use super::handle::PodHandle;

/// How HTTP hooks introduce themselves.
const AGENT: &str = "kube-lifecycle/1.36";

/// Runs a hook to its end.
pub(super) async fn run(
    handle: &PodHandle,
    container: &core::Container,
    hook: &core::LifecycleHandler,
) -> Result<(), String> {
    if let Some(exec) = &hook.exec {
        let command = exec.command.as_deref().unwrap_or_default();
        let (code, output) = dial::command(handle, &container.name, command).await?;
        return match code {
            0 => Ok(()),
            code => Err(format!("command {command:?} exited with {code}: {output}")),
        };
    }
    if let Some(sleep) = &hook.sleep {
        tokio::time::sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or_default())).await;
        return Ok(());
    }
    if let Some(action) = &hook.http_get {
        let pod_ip = handle.record().pod_ips.first().cloned().unwrap_or_default();
        let target = HttpTarget::of(action, container, &pod_ip)?;
        // As upstream: any response will do.
        return dial::http(&target, AGENT).await.map(drop);
    }
    Err("the hook has no handler that is supported".into())
}
