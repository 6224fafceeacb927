use serde_json::json;

use super::*;

fn pod() -> Value {
    json!({"containers": [{"name": "c", "image": "i"}]})
}

fn inferred(template: &Value) -> Vec<(String, i32)> {
    infer(template).unwrap().iter().map(|pod_set| (pod_set.path.clone(), replicas(pod_set))).collect()
}

#[test]
fn known_kinds_have_pod_sets() {
    let template = json!({"spec": pod()});
    let of = |api_version: &str, kind: &str, spec: Value| {
        inferred(&json!({"apiVersion": api_version, "kind": kind, "spec": spec}))
    };
    assert_eq!(of("v1", "Pod", pod()), [("template".to_owned(), 1)]);
    let path = "template.spec.template".to_owned();
    assert_eq!(
        of("apps/v1", "Deployment", json!({"replicas": 3, "template": template})),
        [(path.clone(), 3)]
    );
    assert_eq!(of("apps/v1", "StatefulSet", json!({"template": template})), [(path.clone(), 1)]);
    assert_eq!(of("apps/v1", "Deployment", json!({"replicas": 3})), []);
    for (parallelism, completions, pods) in [(4, 9, 4), (4, 2, 2)] {
        let spec = json!({"parallelism": parallelism, "completions": completions, "template": template});
        assert_eq!(of("batch/v1", "Job", spec), [(path.clone(), pods)]);
    }
    let text = json!({"parallelism": "many", "template": template});
    assert_eq!(of("batch/v1", "Job", text), [(path, 1)], "as upstream, what is no number is ignored");
    let jobs = json!({"replicatedJobs": [
        {"replicas": 2, "template": {"spec": {"parallelism": 3, "template": template}}},
        {"template": {"spec": {"template": template}}},
        {"replicas": 2},
    ]});
    let job = |number: usize| format!("template.spec.replicatedJobs[{number}].template.spec.template");
    assert_eq!(of("jobset.x-k8s.io/v1alpha2", "JobSet", jobs), [(job(0), 6), (job(1), 1)]);
    let replicas =
        json!({"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template}, "Master": {}}});
    let worker = "template.spec.pytorchReplicaSpecs.Worker.template".to_owned();
    assert_eq!(of("kubeflow.org/v1", "PyTorchJob", replicas), [(worker, 2)]);
    let cluster = json!({
        "headGroupSpec": {"template": template},
        "workerGroupSpecs": [{"replicas": 2, "template": template}, {"template": template}, {}],
    });
    let expected = |prefix: &str| {
        [
            (format!("{prefix}headGroupSpec.template"), 1),
            (format!("{prefix}workerGroupSpecs[0].template"), 2),
            (format!("{prefix}workerGroupSpecs[1].template"), 0),
        ]
    };
    assert_eq!(of("ray.io/v1", "RayCluster", cluster.clone()), expected("template.spec."));
    let spec = json!({"rayClusterSpec": cluster});
    assert_eq!(of("ray.io/v1", "RayJob", spec), expected("template.spec.rayClusterSpec."));
    assert_eq!(of("example.com/v1", "Thing", json!({"template": template})), []);
}

#[test]
fn pods_of_jobs_are_numbered_for_topologies() {
    let job = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"replicatedJobs": [
        {"replicas": 2, "template": {"spec": {"template": {"spec": pod()}}}},
    ]}});
    let annotations = infer(&job).unwrap().remove(0).annotations.unwrap();
    let expected = json!({
        "workload.codeflare.dev.appwrapper/tas-pod-index-label": "batch.kubernetes.io/job-completion-index",
        "workload.codeflare.dev.appwrapper/tas-sub-group-index-label": "jobset.sigs.k8s.io/job-index",
        "workload.codeflare.dev.appwrapper/tas-sub-group-count": "2",
    });
    assert_eq!(json!(annotations), expected);
}

#[test]
fn mistakes_in_templates_are_named() {
    let deployment =
        |spec: Value| infer(&json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}));
    let error = deployment(json!({"replicas": "two", "template": {"spec": pod()}})).unwrap_err();
    assert_eq!(error, "at path position 'template.spec.replicas' non-int value two");
    let error = deployment(json!({"replicas": {"b": [1, "x"], "a": true}, "template": {"spec": pod()}}));
    let expected = "at path position 'template.spec.replicas' non-int value map[a:true b:[1 x]]";
    assert_eq!(error.unwrap_err(), expected);
    assert!(deployment(json!({"replicas": null, "template": {"spec": pod()}})).is_ok());
    let mut spec = pod();
    spec["containers"][0]["nonsense"] = json!(1);
    spec["other"] = json!({});
    let error = deployment(json!({"template": {"spec": spec}})).unwrap_err();
    assert!(error.starts_with("template.spec.template does not refer to a v1.PodSpecTemplate: "), "{error}");
    assert!(error.contains(
        "content at template.spec.template.spec not parseable as a v1.PodSpec: strict decoding error: "
    ));
    assert!(
        error.contains("unknown field \"containers[0].nonsense\"")
            && error.contains("unknown field \"other\"")
    );
}

#[test]
fn paths_that_lead_nowhere_say_where_they_end() {
    let template = json!({"spec": {"containers": [{"name": "c"}], "text": "t"}});
    let rows = [
        ("spec", "first element of the path must be 'template'"),
        ("template.spec.template[0]", "at path position 'template.spec.' missing field 'template'"),
        (
            "template.spec.containers[0",
            "at path position 'template.spec.containers' invalid array index '[0'",
        ),
        (
            "template.spec.containers[x]",
            "at path position 'template.spec.containers' invalid index expression 'x'",
        ),
        (
            "template.spec.containers[1]",
            "at path position 'template.spec.containers' out of bounds index '1'",
        ),
        (
            "template.spec.containers[-1]",
            "at path position 'template.spec.containers' out of bounds index '-1'",
        ),
        ("template.spec.text[0]", "at path position 'template.spec.text' found non-array value"),
        ("template.spec.containers.x", "at path position 'template.spec.containers.' non-map value"),
        ("template.spec]]", "at path position 'template.' missing field 'spec]]'"),
        (
            "template.spec.containers[0]]",
            "at path position 'template.spec.containers[0' invalid path element ']'",
        ),
        (
            "template.spec.containers[0].x.y",
            "at path position 'template.spec.containers[0.' missing field 'x'",
        ),
        ("template..spec", "at path position 'template.' missing field '.spec'"),
        ("template.[0]", "at path position 'template.' missing field '[0]'"),
        ("template.spec.", "at path position 'template.spec.' missing field ''"),
        ("template.spec.text[-1]", "at path position 'template.spec.text' found non-array value"),
        ("templates", "at path position 'template' invalid path element 's'"),
    ];
    for (path, error) in rows {
        assert_eq!(at_path(&template, path).unwrap_err(), error, "{path}");
        assert!(at_path_mut(&mut template.clone(), path).is_none(), "{path}");
    }
    assert_eq!(at_path(&template, "template.spec.containers[0].name"), Ok(&json!("c")));
    assert_eq!(at_path_mut(&mut template.clone(), "template.spec.containers[0].name"), Some(&mut json!("c")));
}

#[test]
fn declared_pod_sets_have_to_agree_with_the_template() {
    let set = |path: &str, replicas: Option<i32>| AppWrapperPodSet {
        path: path.to_owned(),
        replicas,
        ..AppWrapperPodSet::default()
    };
    let inferred = [set("a", Some(2)), set("b", Some(1))];
    let check = |declared: &[AppWrapperPodSet]| check_declared(declared, &inferred);
    assert_eq!(check(&[]), Ok(()));
    assert_eq!(check(&[set("b", None), set("a", Some(2))]), Ok(()));
    assert_eq!(
        check(&[set("a", None), set("a", None)]).unwrap_err(),
        "multiple DeclaredPodSets with path 'a'"
    );
    assert_eq!(
        check(&[set("a", Some(2))]).unwrap_err(),
        "DeclaredPodSet count 1 differs from inferred count 2"
    );
    assert_eq!(check(&[set("a", Some(2)), set("c", None)]).unwrap_err(), "PodSet with path 'b' is missing");
    assert_eq!(
        check(&[set("a", None), set("b", None)]).unwrap_err(),
        "replica count 1 differs from inferred count 2 for PodSet at path position 'a'"
    );
}
