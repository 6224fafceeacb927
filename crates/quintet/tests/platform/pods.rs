//! Ordinary pods.

use serde_json::{Value, json};

use crate::support::Platform;

pub(crate) async fn a_pod_runs_and_its_log_can_be_read(platform: &Platform) {
    let container =
        json!({ "name": "main", "image": "busybox", "command": ["sh", "-c", "echo hello from $(hostname)"] });
    let spec = json!({ "restartPolicy": "Never", "containers": [container] });
    platform
        .apply(&json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "hello" }, "spec": spec }))
        .await;
    let is_over = |pod: &Value| pod["status"]["phase"] == "Succeeded";
    platform.wait(("v1", "Pod", "hello"), "over", is_over).await;
    assert_eq!(platform.log("hello", None).await, "hello from hello\n");
}
