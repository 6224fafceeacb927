//! A kubelet for all pods of a world: they run as soon as it looks, unless a fault is injected.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api as Objects, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::World;

/// Reports pods as running, and lets those go that are deleted.
pub struct Kubelet {
    world: World,
    pods: Objects<Pod>,
    /// How many pods in a thousand fail at every look.
    pub failing: u64,
    next_address: u32,
}

impl Kubelet {
    /// The kubelet of a world.
    pub fn new(world: &World) -> Self {
        Self { pods: world.objects(), world: world.clone(), failing: 0, next_address: 1 }
    }

    /// Looks after all pods so many times, `seconds` apart, in a world where all promises hold.
    pub async fn work(&mut self, times: u64, seconds: u64) {
        for _ in 0..times {
            self.world.expect_no_broken_promises();
            for pod in &self.world.list::<Pod>().await {
                self.look_after(pod).await;
            }
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
    }

    async fn look_after(&mut self, pod: &Pod) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        if pod.metadata.deletion_timestamp.is_some() {
            if self.world.rng.happens(500) {
                let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
                let _ = self.pods.delete(name, &now).await;
            }
            return;
        }
        let is_bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        if !is_bound {
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                "target": {"apiVersion": "v1", "kind": "Node", "name": "node"},
            });
            let wish = PostParams::default();
            let _ = self.pods.create_subresource::<Value, Value>("binding", name, &wish, &binding).await;
        }
        let status = if matches!(phase, "Running" | "Pending") && self.world.rng.happens(self.failing) {
            json!({"phase": "Failed"})
        } else if phase == "Pending" {
            self.next_address += 1;
            json!({
                "phase": "Running", "podIP": format!("10.0.{}.{}", self.next_address / 256, self.next_address % 256),
                "conditions": [{"type": "Ready", "status": "True"}],
            })
        } else {
            return;
        };
        let patch = json!({"status": status});
        let _ = self.pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    }
}
