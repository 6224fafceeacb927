//! Kinds of jobs of other projects, and ProvisioningRequests. Their schemas have the defaults of the originals, and nothing else.

use serde_json::{Value, json};

/// JSON pointers into a spec, and what is there by default. `*` stands for all items.
type Defaults = &'static [(&'static str, &'static str)];

/// The default of the jobs of the training operator.
const RUN_POLICY: Defaults = &[("runPolicy/suspend", "false")];

/// Group, version, kind and defaults.
const KINDS: &[(&str, &str, &str, Defaults)] = &[
    ("autoscaling.x-k8s.io", "v1", "ProvisioningRequest", &[]),
    (
        "jobset.x-k8s.io",
        "v1alpha2",
        "JobSet",
        &[("replicatedJobs/*/groupName", "\"default\""), ("replicatedJobs/*/replicas", "1")],
    ),
    ("kubeflow.org", "v1", "JAXJob", RUN_POLICY),
    ("kubeflow.org", "v1", "PaddleJob", RUN_POLICY),
    ("kubeflow.org", "v1", "PyTorchJob", RUN_POLICY),
    ("kubeflow.org", "v1", "TFJob", RUN_POLICY),
    ("kubeflow.org", "v1", "XGBoostJob", RUN_POLICY),
    (
        "kubeflow.org",
        "v2beta1",
        "MPIJob",
        &[
            ("launcherCreationPolicy", "\"AtStartup\""),
            ("mpiImplementation", "\"OpenMPI\""),
            ("runLauncherAsWorker", "false"),
            ("runPolicy/suspend", "false"),
            ("slotsPerWorker", "1"),
            ("sshAuthMountPath", "\"/root/.ssh\""),
        ],
    ),
    (
        "leaderworkerset.x-k8s.io",
        "v1",
        "LeaderWorkerSet",
        &[
            ("leaderWorkerTemplate/restartPolicy", "\"RecreateGroupOnPodRestart\""),
            ("replicas", "1"),
            ("rolloutStrategy/rollingUpdateConfiguration/maxSurge", "0"),
            ("rolloutStrategy/rollingUpdateConfiguration/maxUnavailable", "1"),
            ("rolloutStrategy/rollingUpdateConfiguration/partition", "0"),
            ("startupPolicy", "\"LeaderCreated\""),
        ],
    ),
    ("sparkoperator.k8s.io", "v1beta2", "SparkApplication", &[]),
    ("trainer.kubeflow.org", "v1alpha1", "ClusterTrainingRuntime", &[]),
    (
        "trainer.kubeflow.org",
        "v1alpha1",
        "TrainJob",
        &[("managedBy", "\"trainer.kubeflow.org/trainjob-controller\""), ("suspend", "false")],
    ),
    ("trainer.kubeflow.org", "v1alpha1", "TrainingRuntime", &[]),
];

/// Their CustomResourceDefinitions.
pub(crate) fn definitions() -> Vec<Value> {
    KINDS.iter().map(|(group, version, kind, defaults)| definition(group, version, kind, defaults)).collect()
}

fn open_object() -> Value {
    json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

fn definition(group: &str, version: &str, kind: &str, defaults: Defaults) -> Value {
    let lower = kind.to_lowercase();
    let mut spec = open_object();
    for (path, default) in defaults {
        let mut place = &mut spec;
        let mut names = path.split('/').peekable();
        while let Some(name) = names.next() {
            place = if name == "*" { &mut place["items"] } else { &mut place["properties"][name] };
            if names.peek() == Some(&"*") {
                place["type"] = "array".into();
            } else if names.peek().is_some() && place.is_null() {
                *place = open_object();
            }
        }
        let default: Value = serde_json::from_str(default).expect("a default");
        let kind = match &default {
            Value::String(_) => "string",
            Value::Bool(_) => "boolean",
            _ => "integer",
        };
        *place = json!({ "type": kind, "default": default });
    }
    let scope = if kind.starts_with("Cluster") { "Cluster" } else { "Namespaced" };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        // Groups of Kubernetes itself need approval, or a word that there is none.
        "metadata": { "name": format!("{lower}s.{group}"),
            "annotations": { "api-approved.kubernetes.io": "unapproved, for tests" } },
        "spec": { "group": group, "scope": scope,
            "names": { "kind": kind, "plural": format!("{lower}s"), "singular": lower, "listKind": format!("{kind}List") },
            "versions": [{ "name": version, "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object",
                    "properties": { "spec": spec, "status": open_object() } } } }] },
    })
}
