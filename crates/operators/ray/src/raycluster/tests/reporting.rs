//! When the status of a RayCluster is written, and what it says.

use super::*;

#[test]
fn ready_needs_all_pods_and_stays() {
    let scene = Scene::new().complete();
    let status = scene.status();
    assert_eq!(status.state.as_deref(), Some("ready"));
    assert!(status.state_transition_times.unwrap().contains_key("ready"));
    let scene = Scene::new().set("/status", json!({"state": "ready"})).head(json!({}));
    assert_eq!(scene.status().state.as_deref(), Some("ready"), "sticky");
    assert_eq!(
        scene.condition("RayClusterProvisioned").unwrap().0,
        "True",
        "a lone head that runs is enough"
    );
    let scene = Scene::new().head(json!({"/status/phase": "Pending"}));
    assert_eq!(
        scene.condition("RayClusterProvisioned"),
        Some(("False".into(), "RayClusterPodsProvisioning".into()))
    );
}

#[test]
fn resources_are_summed_over_templates() {
    let resources =
        json!({"requests": {"cpu": "500m"}, "limits": {"cpu": 4, "memory": "1Gi", "nvidia.com/gpu": 1}});
    let scene = Scene::new()
        .set(
            "/spec/workerGroupSpecs/0/template/spec/containers",
            json!([{"name": "ray", "resources": resources}]),
        )
        .set(
            "/spec/headGroupSpec/template/spec/containers",
            json!([{"name": "ray", "resources": {"limits": {"cpu": 1}}}]),
        )
        .complete();
    let status = scene.status();
    let text =
        |quantity: Option<k8s_openapi::apimachinery::pkg::api::resource::Quantity>| quantity.unwrap().0;
    assert_eq!(text(status.desired_cpu), "2", "requests before limits");
    assert_eq!(text(status.desired_memory), "2Gi");
    assert_eq!(text(status.desired_gpu), "2");
    assert_eq!(text(status.desired_tpu), "0");
}

#[test]
fn the_head_says_why_it_is_not_ready() {
    let ready = |changes: Value| Scene::new().head(changes).condition("HeadPodReady").unwrap();
    let condition =
        |status: &str, reason: &str| json!([{"type": "Ready", "status": status, "reason": reason}]);
    let waiting = json!([{"name": "ray", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]);
    assert_eq!(Scene::new().condition("HeadPodReady").unwrap().1, "HeadPodNotFound");
    assert_eq!(ready(json!({})), ("True".into(), "HeadPodRunningAndReady".into()));
    assert_eq!(ready(json!({"/status/conditions": []})), ("False".into(), "Unknown".into()));
    let changes = json!({"/status/conditions": condition("False", "ContainersNotReady"),
                         "/status/containerStatuses": waiting});
    assert_eq!(ready(changes), ("False".into(), "ImagePullBackOff".into()));
    let malformed = json!({"/status/conditions": condition("False", "no reason!")});
    assert_eq!(
        ready(malformed),
        ("False".into(), "Unknown".into()),
        "the API server would refuse the status"
    );
}

#[test]
fn timestamps_and_sums_alone_are_not_worth_a_write() {
    let scene = Scene::new().complete();
    let mut status = scene.status();
    status.desired_cpu = None;
    status.observed_generation = Some(1);
    let scene = scene.set("/status", json!(status));
    assert!(status::compute(&scene.observed(), &Outcome::Done).is_none());
}

#[test]
fn the_status_of_a_go_operator_that_omits_zeros_is_not_written_again() {
    let settled = Scene::new().complete().with_status();
    assert!(settled.plan().status.is_none());
    let mut status = settled.cluster["status"].clone();
    assert_eq!(status["minWorkerReplicas"], 0);
    status.as_object_mut().unwrap().remove("minWorkerReplicas");
    status["reason"] = json!("");
    assert!(settled.set("/status", status).plan().status.is_none());
}
