//! Kinds of others, without a schema: objects stay as operators write them.

use serde_json::{Value, json};

/// Group, version, kind, plural and whether it is namespaced.
const KINDS: &[(&str, &str, &str, &str, bool)] = &[
    ("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes", true),
    ("gateway.networking.k8s.io", "v1beta1", "ReferenceGrant", "referencegrants", true),
    ("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors", true),
    ("console.openshift.io", "v1", "ConsoleLink", "consolelinks", false),
    ("route.openshift.io", "v1", "Route", "routes", true),
    ("user.openshift.io", "v1", "Group", "groups", false),
    ("config.openshift.io", "v1", "Ingress", "ingresses", false),
    ("config.openshift.io", "v1", "APIServer", "apiservers", false),
    ("services.platform.opendatahub.io", "v1alpha1", "Auth", "auths", false),
    ("autoscaling.x-k8s.io", "v1", "ProvisioningRequest", "provisioningrequests", true),
    ("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", true),
    ("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", true),
    ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets", true),
    ("dscinitialization.opendatahub.io", "v1", "DSCInitialization", "dscinitializations", false),
    ("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", true),
    ("kubeflow.org", "v2beta1", "MPIJob", "mpijobs", true),
    ("gateway.networking.k8s.io", "v1", "Gateway", "gateways", true),
    ("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors", true),
    ("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules", true),
];

/// The definition of a kind.
pub(crate) fn definition(kind: &str) -> Result<Value, String> {
    let known = KINDS.iter().find(|(_, _, name, ..)| *name == kind);
    let Some((group, version, kind, plural, namespaced)) = known else {
        return Err(format!("optional kind {kind} is not known to the comparison"));
    };
    Ok(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        // Groups of Kubernetes itself need approval, or a word that there is none.
        "metadata": {
            "name": format!("{plural}.{group}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group,
            "scope": if *namespaced { "Namespaced" } else { "Cluster" },
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    }))
}
