//! What is made, in files that a reviewer can read.

use super::*;
use crate::testing::golden;

fn yaml(object: &impl serde::Serialize) -> String {
    serde_saphyr::to_string(object).unwrap().trim_end().to_owned() + "\n"
}

fn submitter(world: &World) -> Result<k8s_openapi::api::batch::v1::Job, String> {
    let cluster = cluster("ready").object;
    let job = &world.observed.job.object;
    objects::submitter(job, &job.status.clone().unwrap(), &cluster, &world.observed.settings)
}

#[test]
fn a_submitter() {
    let plain = world(json!({}), running(json!({})));
    golden("rayjob/tests/golden/submitter.yaml", &yaml(&submitter(&plain).unwrap()));
    let everything = world(
        json!({
            "entrypoint": "  python train.py --note \"$HOME\"  ",
            "runtimeEnvYAML": "pip: [torch]\nenv_vars: {B: \"2\", A: \"say \\\"hi\\\"\"}",
            "metadata": {"owner": "me"},
            "entrypointNumCpus": 0.5, "entrypointNumGpus": 1, "entrypointResources": "{\"disk\": 1}",
            "submitterConfig": {"backoffLimit": 0},
        }),
        running(json!({})),
    );
    let job = submitter(&everything).unwrap();
    let args = job.spec.as_ref().unwrap().template.spec.as_ref().unwrap().containers[0].args.clone().unwrap();
    golden("rayjob/tests/golden/command.txt", &(args.join("\n") + "\n"));
    assert_eq!(job.spec.unwrap().backoff_limit, Some(0));
}

#[test]
fn a_users_template_is_kept() {
    let template = json!({"spec": {"containers": [
        {"name": "mine", "image": "small", "command": ["/submitter"], "args": ["a"],
         "env": [{"name": "PYTHONUNBUFFERED", "value": "0"}]},
        {"name": "second", "image": "x"},
    ]}});
    let world = world(json!({"submitterPodTemplate": template}), running(json!({})));
    golden("rayjob/tests/golden/submitter-template.yaml", &yaml(&submitter(&world).unwrap()));
    let none = self::world(json!({"submitterPodTemplate": {"spec": {"containers": []}}}), running(json!({})));
    assert!(submitter(&none).unwrap_err().contains("has no containers"));
}

#[test]
fn metadata_needs_a_ray_that_takes_it() {
    for (version, works) in
        [(json!("2.5.9"), false), (json!("2.6.0"), true), (json!("new"), false), (json!(null), true)]
    {
        let spec = json!({"metadata": {"a": "b"}, "rayClusterSpec": {"rayVersion": version}});
        let world = world(spec, running(json!({})));
        assert_eq!(submitter(&world).is_ok(), works, "{version}");
    }
}

#[test]
fn a_cluster() {
    let world = self::world(json!({}), running(json!({})));
    let cluster = objects::cluster(&world.observed.job.object, "train-c", &world.observed.settings).unwrap();
    golden("rayjob/tests/golden/cluster.yaml", &yaml(&cluster));
}

#[test]
fn a_cluster_with_a_sidecar() {
    let spec = json!({"submissionMode": "SidecarMode", "rayClusterSpec": {"authOptions": {"mode": "token"}}});
    let world = self::world(spec, running(json!({"dashboardURL": null})));
    let cluster = objects::cluster(&world.observed.job.object, "train-c", &world.observed.settings).unwrap();
    golden("rayjob/tests/golden/cluster-sidecar.yaml", &yaml(&cluster));
    let restarting = world.with_settings(|settings| settings.gates.sidecar_submitter_restart = true);
    let cluster =
        objects::cluster(&restarting.observed.job.object, "train-c", &restarting.observed.settings).unwrap();
    let head = cluster.spec.head_group_spec.template.spec.unwrap();
    let container = &head.containers[1];
    assert_eq!(container.restart_policy.as_deref(), Some("OnFailure"));
    assert!(container.args.as_ref().unwrap()[0].contains("ray job logs"), "it must not submit twice");
}

#[test]
fn a_service() {
    let world = self::world(json!({}), running(json!({})));
    let service =
        objects::head_service(&world.observed.job.object, &cluster("ready").object, &world.observed.settings);
    golden("rayjob/tests/golden/head-service.yaml", &yaml(&service));
}

#[test]
fn a_submission_over_http_leaves_out_what_is_not_there() {
    let plain = world(json!({"entrypoint": " python a.py "}), running(json!({})));
    let submission = objects::submission(&plain.observed.job.object, "id").unwrap();
    assert_eq!(
        serde_json::to_value(submission).unwrap(),
        json!({"entrypoint": " python a.py ", "submission_id": "id"})
    );
    let more = world(
        json!({"runtimeEnvYAML": "pip: [torch]", "metadata": {"a": "b"}, "entrypointNumCpus": 1,
               "entrypointResources": "{\"disk\": 2}"}),
        running(json!({})),
    );
    let submission = objects::submission(&more.observed.job.object, "id").unwrap();
    assert_eq!(
        serde_json::to_value(submission).unwrap(),
        json!({"entrypoint": "python train.py", "submission_id": "id", "runtime_env": {"pip": ["torch"]},
               "metadata": {"a": "b"}, "entrypoint_num_cpus": 1.0, "entrypoint_resources": {"disk": 2.0}})
    );
}
