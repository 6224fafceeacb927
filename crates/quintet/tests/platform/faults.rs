//! What happens when `quintet up` dies.

use serde_json::{Value, json};

use crate::support::Platform;

pub(crate) async fn pods_outlive_the_platform_and_are_found_again(platform: &Platform) {
    let container =
        json!({ "name": "main", "image": "busybox", "command": ["sh", "-c", "echo began; exec sleep 1000"] });
    platform
        .apply(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "steady" }, "spec": { "containers": [container] },
        }))
        .await;
    let name = ("v1", "Pod", "steady");
    let before = platform.wait(name, "running", |pod| pod["status"]["phase"] == "Running").await;
    let container = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    for _ in 0..3 {
        platform.kill();
        platform.up();
        let is_ready = |pod: &Value| pod["status"]["containerStatuses"][0]["ready"] == true;
        let after = platform.wait(name, "ready", is_ready).await;
        assert_eq!(container(&after), container(&before), "the same process goes on");
        assert_eq!(after["status"]["containerStatuses"][0]["restartCount"], 0);
    }
    assert_eq!(platform.log("steady", None).await, "began\n");
}
