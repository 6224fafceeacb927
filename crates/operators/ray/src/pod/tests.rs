use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;
use serde_json::{Value, json};

use super::*;

fn cluster(spec: &Value) -> RayCluster {
    let value = json!({
        "metadata": {"name": "demo", "namespace": "ns", "uid": "uid-1"},
        "spec": spec,
    });
    serde_json::from_value(value).unwrap()
}

fn minimal() -> RayCluster {
    cluster(&json!({
        "headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray-head", "image": "ray"}]}}},
        "workerGroupSpecs": [{
            "groupName": "small", "replicas": 1, "minReplicas": 0, "maxReplicas": 5,
            "template": {"spec": {"containers": [{"name": "ray-worker", "image": "ray"}]}},
        }],
    }))
}

fn head(cluster: &RayCluster, settings: &Settings) -> Pod {
    Blueprint::new(cluster, settings).head_pod("demo-head-abcde")
}

fn worker(cluster: &RayCluster, settings: &Settings) -> Pod {
    let group = &cluster.spec.worker_group_specs.as_ref().unwrap()[0];
    Blueprint::new(cluster, settings).worker_pod(group, &Place::default(), "demo-small-worker-abcde")
}

fn ray(pod: &Pod) -> &Container {
    &pod.spec.as_ref().unwrap().containers[0]
}

fn env<'a>(container: &'a Container, name: &str) -> Vec<&'a str> {
    let all = container.env.as_deref().unwrap_or_default();
    all.iter().filter(|one| one.name == name).map(|one| one.value.as_deref().unwrap_or("<ref>")).collect()
}

fn resources(value: &Value) -> Container {
    serde_json::from_value(json!({"name": "ray", "resources": value})).unwrap()
}

fn params(pairs: &[(&str, &str)]) -> Params {
    let map: BTreeMap<_, _> = pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    Params::new(Some(&map))
}

#[test]
fn flags_are_sorted_and_switches_have_no_value() {
    for (given, expected) in [
        (vec![("num-gpus", "1")], "ray start  --num-gpus=1 "),
        (vec![("block", "true"), ("a", "False")], "ray start  --block "),
        (vec![("log-color", "false")], "ray start  --log-color=false "),
        (vec![("include-dashboard", "True")], "ray start  --include-dashboard=True "),
        (vec![("b", "2"), ("a", "1")], "ray start  --a=1  --b=2 "),
        (vec![], "ray start "),
    ] {
        assert_eq!(params(&given).command(Role::Worker), expected);
    }
    assert_eq!(params(&[]).command(Role::Head), "ray start --head ");
}

#[test]
fn resources_of_the_container_become_flags() {
    for (name, container, given, expected) in [
        (
            "limits win, rounded up",
            json!({"limits": {"cpu": "1500m", "memory": "1Gi"}, "requests": {"cpu": 4}}),
            vec![],
            " --memory=1073741824  --num-cpus=2 ",
        ),
        (
            "cpu falls back to requests, memory does not",
            json!({"requests": {"cpu": "500m", "memory": "1Gi"}}),
            vec![],
            " --num-cpus=1 ",
        ),
        ("zero is nothing", json!({"limits": {"cpu": 0}, "requests": {"cpu": 3}}), vec![], " --num-cpus=3 "),
        (
            "what the user says stays",
            json!({"limits": {"cpu": 8}}),
            vec![("num-cpus", "0")],
            " --num-cpus=0 ",
        ),
        (
            "gpu of any vendor",
            json!({"limits": {"nvidia.com/gpu": 2, "amd.com/gpu": 0}}),
            vec![],
            " --num-gpus=2 ",
        ),
        ("slices of a gpu", json!({"limits": {"nvidia.com/mig-1g.5gb": 3}}), vec![], " --num-gpus=3 "),
        ("tpu", json!({"limits": {"google.com/tpu": 4}}), vec![], " --resources='{\"TPU\":4}' "),
        (
            "the first accelerator only",
            json!({"limits": {"google.com/tpu": 4, "aws.amazon.com/neuroncore": 2}}),
            vec![],
            " --resources='{\"neuron_cores\":2}' ",
        ),
        (
            "beside other resources",
            json!({"limits": {"google.com/tpu": 4}}),
            vec![("resources", "'{\"custom\": 0.5}'")],
            " --resources='{\"TPU\":4,\"custom\":0.5}' ",
        ),
        (
            "one of them is there already",
            json!({"limits": {"google.com/tpu": 4}}),
            vec![("resources", "\"{\\\"TPU\\\": 1}\"".trim_matches('"'))],
            " --resources={\\\"TPU\\\": 1} ",
        ),
        (
            "unreadable: left alone, and no accelerators",
            json!({"limits": {"nvidia.com/gpu": 1}}),
            vec![("resources", "oops")],
            " --resources=oops ",
        ),
    ] {
        let mut params = params(&given);
        params.take_from_container(&resources(&container));
        assert_eq!(params.command(Role::Worker), format!("ray start {expected}"), "{name}");
    }
}

#[test]
fn resources_of_the_group_become_flags() {
    let group =
        [("CPU", "3500m"), ("Memory", "2Gi"), ("NVIDIA.com/GPU", "1"), ("Custom", "0.5"), ("bad", "x")];
    let group: BTreeMap<_, _> = group.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
    let mut params = Params::default();
    params.advertise(Some(&group));
    assert_eq!(
        params.command(Role::Worker),
        "ray start  --memory=2147483648  --num-cpus=4  --num-gpus=1  --resources='{\"Custom\":0.5}' "
    );
}

#[test]
fn the_users_command_runs_first_unless_it_starts_ray() {
    let settings = Settings::default();
    let with = |command: Value| {
        let mut cluster = minimal();
        let container = &mut cluster.spec.head_group_spec.template.spec.as_mut().unwrap().containers[0];
        container.args = serde_json::from_value(command).unwrap();
        head(&cluster, &settings)
    };
    let pod = with(json!(["echo", "hi"]));
    assert_eq!(ray(&pod).command.as_deref().unwrap(), ["/bin/bash", "-c", "--"]);
    let args = &ray(&pod).args.as_ref().unwrap()[0];
    assert!(
        args.starts_with(" echo  hi  && ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}; ray start --head "),
        "{args}"
    );
    let pod = with(json!(["ray start --head"]));
    assert_eq!(ray(&pod).args.as_deref().unwrap(), ["ray start --head"]);
    assert_eq!(ray(&pod).command, None);
    assert!(
        env(ray(&pod), "KUBERAY_GEN_RAY_START_CMD")[0].starts_with("ray start --head "),
        "set in any case"
    );
}

#[test]
fn an_annotation_keeps_the_users_command() {
    let mut cluster = minimal();
    cluster.metadata.annotations = Some([(labels::OVERWRITE_COMMAND.to_owned(), "True".to_owned())].into());
    let pod = worker(&cluster, &Settings::default());
    assert_eq!((&ray(&pod).command, &ray(&pod).args), (&None, &None));
    assert_eq!(pod.metadata.annotations.unwrap()[labels::OVERWRITE_COMMAND], "true");
}

#[test]
fn labels_of_template_and_group_win_except_those_that_tie_pods_to_clusters() {
    let mut cluster = minimal();
    let group = &mut cluster.spec.worker_group_specs.as_mut().unwrap()[0];
    let template = group.template.metadata.get_or_insert_default();
    template.labels = Some(
        [(labels::CLUSTER, "x"), (labels::GROUP, "x"), (labels::APP_NAME, "mine"), ("a", "template")]
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .into(),
    );
    template.namespace = Some("elsewhere".to_owned());
    template.name = Some("taken".to_owned());
    group.labels = Some([("a".to_owned(), "group".to_owned())].into());
    let pod = worker(&cluster, &Settings::default());
    let labels_of = pod.metadata.labels.as_ref().unwrap();
    for (name, value) in [
        (labels::CLUSTER, "demo"),
        (labels::GROUP, "small"),
        (labels::APP_NAME, "mine"),
        ("a", "group"),
        (labels::IDENTIFIER, "demo-worker"),
        (labels::REPLICA_INDEX, "0"),
    ] {
        assert_eq!(labels_of[name], value, "{name}");
    }
    assert!(!labels_of.contains_key(labels::REPLICA_NAME), "one host per replica");
    assert_eq!(pod.metadata.namespace.as_deref(), Some("ns"), "pods stay in the cluster's namespace");
    assert_eq!(pod.metadata.name.as_deref(), Some("demo-small-worker-abcde"));
    assert_eq!(pod.metadata.generate_name.as_deref(), Some("demo-small-worker-"));
    assert!(ray(&pod).args.as_ref().unwrap()[0].contains(" --labels=a=group "));
}

#[test]
fn variables_of_the_operator_come_last_and_defaults_yield() {
    let settings = Settings {
        default_env: serde_json::from_value(
            json!([{"name": "A", "value": "default"}, {"name": "B", "value": "default"}]),
        )
        .unwrap(),
        ..Settings::default()
    };
    let mut cluster = minimal();
    let group = &mut cluster.spec.worker_group_specs.as_mut().unwrap()[0];
    group.template.spec.as_mut().unwrap().containers[0].env = Some(
        serde_json::from_value(json!([
            {"name": "A", "value": "mine"}, {"name": "RAY_IP", "value": "mine"}, {"name": "RAY_PORT", "value": "1"},
        ]))
        .unwrap(),
    );
    let pod = worker(&cluster, &settings);
    assert_eq!(env(ray(&pod), "A"), ["mine"]);
    assert_eq!(env(ray(&pod), "B"), ["default"]);
    assert_eq!(env(ray(&pod), "RAY_IP"), ["mine", "demo-head-svc"], "the last one counts");
    assert_eq!(env(ray(&pod), "RAY_PORT"), ["1"]);
    assert_eq!(env(ray(&pod), "RAY_ADDRESS"), ["demo-head-svc.ns.svc.cluster.local:6379"]);
    assert_eq!(env(ray(&head(&cluster, &settings)), "RAY_ADDRESS"), ["127.0.0.1:6379"]);
}

#[test]
fn workers_wait_for_the_head_with_the_environment_of_ray() {
    let mut cluster = minimal();
    let group = &mut cluster.spec.worker_group_specs.as_mut().unwrap()[0];
    group.template.spec.as_mut().unwrap().containers[0].env =
        Some(serde_json::from_value(json!([{"name": "A", "value": "mine"}])).unwrap());
    let pod = worker(&cluster, &Settings::default());
    let init = pod.spec.as_ref().unwrap().init_containers.as_ref().unwrap().last().unwrap();
    assert_eq!(init.name, "wait-gcs-ready");
    assert_eq!(env(init, "A"), ["mine"]);
    assert_eq!(env(init, "FQ_RAY_IP"), ["demo-head-svc.ns.svc.cluster.local"]);
    assert!(
        init.args.as_ref().unwrap()[0]
            .contains("ray health-check --address demo-head-svc.ns.svc.cluster.local:6379")
    );
    let without = Settings { wait_for_head: false, ..Settings::default() };
    assert_eq!(worker(&cluster, &without).spec.unwrap().init_containers, None);
}

#[test]
fn probes_ask_the_way_the_version_answers() {
    let settings = Settings::default();
    let mut cluster = minimal();
    let probe = |pod: &Pod| ray(pod).readiness_probe.clone().unwrap();
    let command = |pod: &Pod| probe(pod).exec.unwrap().command.unwrap()[2].clone();
    assert_eq!(
        command(&head(&cluster, &settings)),
        "wget --tries 1 -T 2 -q -O- http://localhost:52365/api/local_raylet_healthz | grep success && \
         wget --tries 1 -T 10 -q -O- http://localhost:8265/api/gcs_healthz | grep success"
    );
    cluster.spec.ray_version = Some("2.53.0".into());
    let get = probe(&head(&cluster, &settings)).http_get.unwrap();
    assert_eq!(get.path.as_deref(), Some("/api/healthz"));
    let own_labels = [(labels::ORIGIN_KIND.to_owned(), "RayService".to_owned())].into();
    cluster.metadata.labels = Some(own_labels);
    let pod = worker(&cluster, &settings);
    assert!(command(&pod).ends_with("http://localhost:8000/-/healthz | grep success"));
    assert_eq!(probe(&pod).failure_threshold, Some(1));
    assert!(probe(&pod).http_get.is_none());
    assert_eq!(pod.metadata.labels.unwrap()[labels::SERVE], "true");
    assert_eq!(head(&cluster, &settings).metadata.labels.unwrap()[labels::SERVE], "false");
    let without = Settings { probes: false, ..Settings::default() };
    assert_eq!(ray(&head(&cluster, &without)).readiness_probe, None);
}

#[test]
fn an_autoscaler_runs_beside_the_head() {
    let mut cluster = minimal();
    cluster.spec.enable_in_tree_autoscaling = Some(true);
    cluster.spec.autoscaler_options = Some(
        serde_json::from_value(
            json!({"version": "v2", "image": "mine", "env": [{"name": "X", "value": "1"}]}),
        )
        .unwrap(),
    );
    let pod = head(&cluster, &Settings::default());
    let spec = pod.spec.as_ref().unwrap();
    assert_eq!(spec.service_account_name.as_deref(), Some("demo"));
    assert_eq!(spec.restart_policy.as_deref(), Some("Never"));
    let autoscaler = &spec.containers[1];
    assert_eq!((autoscaler.name.as_str(), autoscaler.image.as_deref()), ("autoscaler", Some("mine")));
    assert_eq!(env(autoscaler, "X"), ["1"]);
    assert_eq!(env(ray(&pod), "RAY_enable_autoscaler_v2"), ["true"]);
    assert!(ray(&pod).args.as_ref().unwrap()[0].contains(" --no-monitor "));
    for container in &spec.containers {
        let mounts = container.volume_mounts.as_ref().unwrap();
        assert!(mounts.iter().any(|mount| mount.mount_path == "/tmp/ray"), "{}", container.name);
    }
    cluster.spec.autoscaler_options = None;
    let pod = head(&cluster, &Settings::default());
    assert!(env(ray(&pod), "RAY_enable_autoscaler_v2").is_empty());
    assert_eq!(pod.spec.unwrap().restart_policy, None);
}

#[test]
fn redis_keeps_the_state_of_a_fault_tolerant_cluster() {
    let mut cluster = minimal();
    cluster.spec.gcs_fault_tolerance_options = Some(
        serde_json::from_value(json!({
            "redisAddress": "redis:6379",
            "redisPassword": {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        }))
        .unwrap(),
    );
    let settings = Settings::default();
    let pod = head(&cluster, &settings);
    let annotations = pod.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations[labels::FT_ENABLED], "true");
    assert_eq!(annotations[labels::EXTERNAL_STORAGE_NAMESPACE], "uid-1");
    assert_eq!(env(ray(&pod), "RAY_REDIS_ADDRESS"), ["redis:6379"]);
    assert_eq!(env(ray(&pod), "REDIS_PASSWORD"), ["<ref>"]);
    assert!(ray(&pod).args.as_ref().unwrap()[0].contains(" --redis-password=$REDIS_PASSWORD "));
    assert_eq!(env(ray(&worker(&cluster, &settings)), "RAY_gcs_rpc_server_reconnect_timeout_s"), ["600"]);
    let plain = head(&minimal(), &settings);
    assert_eq!(plain.metadata.annotations.unwrap()[labels::FT_ENABLED], "false");
    let job = cleanup_job(&Blueprint::new(&cluster, &settings));
    assert_eq!(job.metadata.name.as_deref(), Some("demo-redis-cleanup"));
    assert_eq!(job.metadata.labels.as_ref().unwrap()[labels::NODE_TYPE], labels::REDIS_CLEANUP);
    let pod = job.spec.unwrap().template.spec.unwrap();
    assert_eq!((pod.containers.len(), pod.restart_policy.as_deref()), (1, Some("Never")));
    assert!(pod.containers[0].args.as_ref().unwrap()[0].contains("cleanup_redis_storage"));
    assert!(!pod.containers[0].args.as_ref().unwrap()[0].contains("username"), "no user was given");
}

#[test]
fn tokens_reach_everything_that_talks_to_ray() {
    let mut cluster = minimal();
    cluster.spec.enable_in_tree_autoscaling = Some(true);
    cluster.spec.auth_options = Some(serde_json::from_value(json!({"mode": "token"})).unwrap());
    let pod = head(&cluster, &Settings::default());
    for container in &pod.spec.as_ref().unwrap().containers {
        assert_eq!(env(container, "RAY_AUTH_MODE"), ["token"], "{}", container.name);
        assert_eq!(env(container, "RAY_AUTH_TOKEN"), ["<ref>"]);
    }
    let pod = worker(&cluster, &Settings::default());
    assert_eq!(
        env(&pod.spec.as_ref().unwrap().init_containers.as_ref().unwrap()[0], "RAY_AUTH_MODE"),
        ["token"]
    );
    cluster.spec.auth_options = Some(serde_json::from_value(json!({})).unwrap());
    assert!(env(ray(&head(&cluster, &Settings::default())), "RAY_AUTH_MODE").is_empty(), "no mode, no token");
}

#[test]
fn shared_memory_is_as_large_as_the_container_may_become() {
    let mut cluster = minimal();
    let container = &mut cluster.spec.head_group_spec.template.spec.as_mut().unwrap().containers[0];
    container.resources = resources(&json!({"limits": {"memory": "4Gi"}})).resources;
    let pod = head(&cluster, &Settings::default());
    let volume = &pod.spec.unwrap().volumes.unwrap()[0];
    let directory = volume.empty_dir.as_ref().unwrap();
    assert_eq!(directory.medium.as_deref(), Some("Memory"));
    assert_eq!(directory.size_limit.as_ref().unwrap().0, "4Gi");
    cluster.spec.head_group_spec.ray_start_params =
        Some([("plasma-directory".to_owned(), String::new())].into());
    assert_eq!(
        head(&cluster, &Settings::default()).spec.unwrap().volumes,
        None,
        "the user has another place"
    );
}

#[test]
fn sidecars_and_defaults_of_the_configuration_are_added() {
    let settings = Settings {
        head_sidecars: vec![Container { name: "side".into(), ..Container::default() }],
        default_labels: [("team".to_owned(), "a".to_owned()), (labels::CLUSTER.to_owned(), "x".to_owned())]
            .into(),
        ..Settings::default()
    };
    let pod = head(&minimal(), &settings);
    assert_eq!(pod.spec.unwrap().containers[1].name, "side");
    let all = pod.metadata.labels.unwrap();
    assert_eq!((all["team"].as_str(), all[labels::CLUSTER].as_str()), ("a", "demo"));
    assert_eq!(worker(&minimal(), &settings).spec.unwrap().containers.len(), 1);
}
