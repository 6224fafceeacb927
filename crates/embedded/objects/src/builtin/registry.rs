//! The list of built-in kinds.

use std::sync::LazyLock;

use super::{ALL_VERBS, Kind, Subresource};

const STATUS_VERBS: &[&str] = &["get", "patch", "update"];
const CREATE: &[&str] = &["create"];
const CONNECT: &[&str] = &["create", "get"];
const PROXY: &[&str] = &["create", "delete", "get", "patch", "update"];
const NO_COLLECTION: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];

const REGISTRATION: &str = "admissionregistration.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const RESOURCE: &str = "resource.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const FLOWCONTROL: &str = "flowcontrol.apiserver.k8s.io";

/// Every built-in kind in every served version, in the order of discovery.
pub fn all() -> &'static [Kind] {
    static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(kinds);
    &KINDS
}

fn kinds() -> Vec<Kind> {
    let mut kinds = core();
    kinds.extend(workloads());
    kinds.extend(cluster());
    kinds.extend(reviews());
    kinds
}

fn core() -> Vec<Kind> {
    vec![
        namespaced("", "v1", "Binding", "bindings", "binding").verbs(CREATE),
        clustered("", "v1", "ComponentStatus", "componentstatuses", "componentstatus")
            .short(&["cs"])
            .verbs(&["get", "list"]),
        namespaced("", "v1", "ConfigMap", "configmaps", "configmap").short(&["cm"]),
        namespaced("", "v1", "Endpoints", "endpoints", "endpoints").short(&["ep"]).creates(),
        namespaced("", "v1", "Event", "events", "event").short(&["ev"]).creates(),
        namespaced("", "v1", "LimitRange", "limitranges", "limitrange").short(&["limits"]).creates(),
        clustered("", "v1", "Namespace", "namespaces", "namespace")
            .short(&["ns"])
            .verbs(NO_COLLECTION)
            .sub("finalize", &["update"])
            .status()
            .returned(),
        clustered("", "v1", "Node", "nodes", "node")
            .short(&["no"])
            .sub_of("proxy", "", "v1", "NodeProxyOptions", PROXY)
            .status(),
        namespaced("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", "persistentvolumeclaim")
            .short(&["pvc"])
            .status()
            .returned(),
        clustered("", "v1", "PersistentVolume", "persistentvolumes", "persistentvolume")
            .short(&["pv"])
            .status()
            .returned(),
        namespaced("", "v1", "Pod", "pods", "pod")
            .short(&["po"])
            .in_all()
            .sub_of("attach", "", "v1", "PodAttachOptions", CONNECT)
            .sub_of("binding", "", "v1", "Binding", CREATE)
            .sub("ephemeralcontainers", STATUS_VERBS)
            .sub_of("eviction", "policy", "v1", "Eviction", CREATE)
            .sub_of("exec", "", "v1", "PodExecOptions", CONNECT)
            .sub("log", &["get"])
            .sub_of("portforward", "", "v1", "PodPortForwardOptions", CONNECT)
            .sub_of("proxy", "", "v1", "PodProxyOptions", PROXY)
            .sub("resize", STATUS_VERBS)
            .status()
            .generation()
            .returned(),
        namespaced("", "v1", "PodTemplate", "podtemplates", "podtemplate").returned().generation(),
        namespaced("", "v1", "ReplicationController", "replicationcontrollers", "replicationcontroller")
            .short(&["rc"])
            .in_all()
            .scale()
            .status()
            .generation()
            .orphaned(),
        namespaced("", "v1", "ResourceQuota", "resourcequotas", "resourcequota")
            .short(&["quota"])
            .status()
            .returned(),
        namespaced("", "v1", "Secret", "secrets", "secret"),
        namespaced("", "v1", "ServiceAccount", "serviceaccounts", "serviceaccount")
            .short(&["sa"])
            .sub_of("token", AUTHENTICATION, "v1", "TokenRequest", CREATE)
            .returned(),
        namespaced("", "v1", "Service", "services", "service")
            .short(&["svc"])
            .in_all()
            .sub_of("proxy", "", "v1", "ServiceProxyOptions", PROXY)
            .status()
            .creates()
            .returned(),
    ]
}

fn workloads() -> Vec<Kind> {
    vec![
        namespaced("apps", "v1", "ControllerRevision", "controllerrevisions", "controllerrevision"),
        namespaced("apps", "v1", "DaemonSet", "daemonsets", "daemonset")
            .short(&["ds"])
            .in_all()
            .status()
            .generation(),
        namespaced("apps", "v1", "Deployment", "deployments", "deployment")
            .short(&["deploy"])
            .in_all()
            .scale()
            .status()
            .generation(),
        namespaced("apps", "v1", "ReplicaSet", "replicasets", "replicaset")
            .short(&["rs"])
            .in_all()
            .scale()
            .status()
            .generation(),
        namespaced("apps", "v1", "StatefulSet", "statefulsets", "statefulset")
            .short(&["sts"])
            .in_all()
            .scale()
            .status()
            .generation(),
        namespaced("events.k8s.io", "v1", "Event", "events", "event")
            .short(&["ev"])
            .creates()
            .stored_as("", "v1"),
        namespaced(
            "autoscaling",
            "v2",
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            "horizontalpodautoscaler",
        )
        .short(&["hpa"])
        .in_all()
        .status(),
        namespaced(
            "autoscaling",
            "v1",
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            "horizontalpodautoscaler",
        )
        .short(&["hpa"])
        .in_all()
        .status()
        .stored_as("autoscaling", "v2"),
        namespaced("batch", "v1", "CronJob", "cronjobs", "cronjob")
            .short(&["cj"])
            .in_all()
            .status()
            .generation(),
        namespaced("batch", "v1", "Job", "jobs", "job").in_all().status().generation().orphaned(),
        namespaced("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", "poddisruptionbudget")
            .short(&["pdb"])
            .status()
            .generation()
            .versioned(),
        namespaced("coordination.k8s.io", "v1", "Lease", "leases", "lease").creates().versioned(),
        namespaced("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "endpointslice").generation(),
        namespaced(NETWORKING, "v1", "Ingress", "ingresses", "ingress").short(&["ing"]).status().generation(),
        clustered(NETWORKING, "v1", "IngressClass", "ingressclasses", "ingressclass").generation(),
        clustered(NETWORKING, "v1", "IPAddress", "ipaddresses", "ipaddress").short(&["ip"]),
        namespaced(NETWORKING, "v1", "NetworkPolicy", "networkpolicies", "networkpolicy")
            .short(&["netpol"])
            .generation(),
        clustered(NETWORKING, "v1", "ServiceCIDR", "servicecidrs", "servicecidr").status(),
    ]
}

fn cluster() -> Vec<Kind> {
    vec![
        clustered(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", "clusterrolebinding").creates(),
        clustered(RBAC, "v1", "ClusterRole", "clusterroles", "clusterrole").creates(),
        namespaced(RBAC, "v1", "RoleBinding", "rolebindings", "rolebinding").creates(),
        namespaced(RBAC, "v1", "Role", "roles", "role").creates(),
        clustered(STORAGE, "v1", "CSIDriver", "csidrivers", "csidriver").versioned().returned(),
        clustered(STORAGE, "v1", "CSINode", "csinodes", "csinode").versioned().returned(),
        namespaced(STORAGE, "v1", "CSIStorageCapacity", "csistoragecapacities", "csistoragecapacity")
            .versioned(),
        clustered(STORAGE, "v1", "StorageClass", "storageclasses", "storageclass").short(&["sc"]).returned(),
        clustered(STORAGE, "v1", "VolumeAttachment", "volumeattachments", "volumeattachment")
            .status()
            .versioned()
            .returned(),
        clustered(STORAGE, "v1", "VolumeAttributesClass", "volumeattributesclasses", "volumeattributesclass")
            .short(&["vac"])
            .returned(),
        clustered(
            REGISTRATION,
            "v1",
            "MutatingAdmissionPolicy",
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicy",
        )
        .extending()
        .generation()
        .versioned(),
        clustered(
            REGISTRATION,
            "v1",
            "MutatingAdmissionPolicyBinding",
            "mutatingadmissionpolicybindings",
            "mutatingadmissionpolicybinding",
        )
        .extending()
        .generation()
        .versioned(),
        clustered(
            REGISTRATION,
            "v1",
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
            "mutatingwebhookconfiguration",
        )
        .extending()
        .generation()
        .versioned(),
        clustered(
            REGISTRATION,
            "v1",
            "ValidatingAdmissionPolicy",
            "validatingadmissionpolicies",
            "validatingadmissionpolicy",
        )
        .extending()
        .status()
        .generation()
        .versioned(),
        clustered(
            REGISTRATION,
            "v1",
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            "validatingadmissionpolicybinding",
        )
        .extending()
        .generation()
        .versioned(),
        clustered(
            REGISTRATION,
            "v1",
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            "validatingwebhookconfiguration",
        )
        .extending()
        .generation()
        .versioned(),
        clustered(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            "customresourcedefinition",
        )
        .short(&["crd", "crds"])
        .extending()
        .status()
        .generation()
        .versioned(),
        clustered("apiregistration.k8s.io", "v1", "APIService", "apiservices", "apiservice")
            .extending()
            .status()
            .versioned(),
        clustered("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "priorityclass")
            .short(&["pc"])
            .generation(),
        clustered("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", "runtimeclass")
            .creates()
            .versioned(),
        clustered(
            "certificates.k8s.io",
            "v1",
            "CertificateSigningRequest",
            "certificatesigningrequests",
            "certificatesigningrequest",
        )
        .short(&["csr"])
        .sub("approval", STATUS_VERBS)
        .status(),
        clustered(RESOURCE, "v1", "DeviceClass", "deviceclasses", "deviceclass").generation().returned(),
        namespaced(RESOURCE, "v1", "ResourceClaim", "resourceclaims", "resourceclaim").status().returned(),
        namespaced(
            RESOURCE,
            "v1",
            "ResourceClaimTemplate",
            "resourceclaimtemplates",
            "resourceclaimtemplate",
        )
        .returned(),
        clustered(RESOURCE, "v1", "ResourceSlice", "resourceslices", "resourceslice").generation().returned(),
        clustered(FLOWCONTROL, "v1", "FlowSchema", "flowschemas", "flowschema").status().generation(),
        clustered(
            FLOWCONTROL,
            "v1",
            "PriorityLevelConfiguration",
            "prioritylevelconfigurations",
            "prioritylevelconfiguration",
        )
        .status()
        .generation(),
    ]
}

fn reviews() -> Vec<Kind> {
    vec![
        clustered(AUTHENTICATION, "v1", "SelfSubjectReview", "selfsubjectreviews", "selfsubjectreview")
            .verbs(CREATE),
        clustered(AUTHENTICATION, "v1", "TokenReview", "tokenreviews", "tokenreview").verbs(CREATE),
        namespaced(
            AUTHORIZATION,
            "v1",
            "LocalSubjectAccessReview",
            "localsubjectaccessreviews",
            "localsubjectaccessreview",
        )
        .verbs(CREATE),
        clustered(
            AUTHORIZATION,
            "v1",
            "SelfSubjectAccessReview",
            "selfsubjectaccessreviews",
            "selfsubjectaccessreview",
        )
        .verbs(CREATE),
        clustered(
            AUTHORIZATION,
            "v1",
            "SelfSubjectRulesReview",
            "selfsubjectrulesreviews",
            "selfsubjectrulesreview",
        )
        .verbs(CREATE),
        clustered(AUTHORIZATION, "v1", "SubjectAccessReview", "subjectaccessreviews", "subjectaccessreview")
            .verbs(CREATE),
    ]
}

fn namespaced(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
) -> Kind {
    Kind {
        group,
        version,
        kind,
        plural,
        singular,
        short_names: &[],
        categories: &[],
        is_namespaced: true,
        verbs: ALL_VERBS,
        subresources: Vec::new(),
        storage: (group, version),
        has_generation: false,
        needs_resource_version: false,
        creates_on_update: false,
        returns_deleted: false,
        orphans_by_default: false,
    }
}

fn clustered(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
) -> Kind {
    Kind { is_namespaced: false, ..namespaced(group, version, kind, plural, singular) }
}

/// How kinds are described above.
impl Kind {
    fn short(self, short_names: &'static [&'static str]) -> Self {
        Self { short_names, ..self }
    }

    fn verbs(self, verbs: &'static [&'static str]) -> Self {
        Self { verbs, ..self }
    }

    fn in_all(self) -> Self {
        Self { categories: &["all"], ..self }
    }

    fn extending(self) -> Self {
        Self { categories: &["api-extensions"], ..self }
    }

    fn sub(self, name: &'static str, verbs: &'static [&'static str]) -> Self {
        let (group, version, kind) = (self.group, self.version, self.kind);
        self.sub_of(name, group, version, kind, verbs)
    }

    fn sub_of(
        mut self,
        name: &'static str,
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        verbs: &'static [&'static str],
    ) -> Self {
        self.subresources.push(Subresource { name, group, version, kind, verbs });
        self
    }

    fn status(self) -> Self {
        self.sub("status", STATUS_VERBS)
    }

    fn scale(self) -> Self {
        self.sub_of("scale", "autoscaling", "v1", "Scale", STATUS_VERBS)
    }

    fn generation(self) -> Self {
        Self { has_generation: true, ..self }
    }

    fn versioned(self) -> Self {
        Self { needs_resource_version: true, ..self }
    }

    fn creates(self) -> Self {
        Self { creates_on_update: true, ..self }
    }

    fn returned(self) -> Self {
        Self { returns_deleted: true, ..self }
    }

    fn orphaned(self) -> Self {
        Self { orphans_by_default: true, ..self }
    }

    fn stored_as(self, group: &'static str, version: &'static str) -> Self {
        Self { storage: (group, version), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_type_and_a_unique_name() {
        for (position, kind) in all().iter().enumerate() {
            assert!(kind.schema().is_some(), "{} {}", kind.api_version(), kind.kind);
            let list = format!("{}List", kind.kind);
            if kind.verbs.contains(&"list") {
                assert!(crate::types::kind(&kind.api_version(), &list).is_some(), "{list}");
            }
            let same = all().iter().rposition(|other| {
                (other.group, other.version, other.plural) == (kind.group, kind.version, kind.plural)
            });
            assert_eq!(same, Some(position));
        }
    }
}
