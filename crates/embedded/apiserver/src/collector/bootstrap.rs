//! Objects that every cluster has from its first moment.

use serde_json::{Value, json};

use crate::{
    api::Api,
    json::text,
    status::Failure,
    verbs::{Ask, create},
};

/// Creates what is not there yet.
pub(crate) async fn install(api: &Api) -> Result<(), Failure> {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        add(
            api,
            "",
            "namespaces",
            "",
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        )
        .await?;
    }
    for (name, value, description) in [
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ] {
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "description": description, "preemptionPolicy": "PreemptLowerPriority"});
        add(api, "scheduling.k8s.io", "priorityclasses", "", class).await?;
    }
    roles(api).await?;
    service(api).await?;
    let authentication = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication"}, "data": {"client-ca-file": api.ca()}});
    add(api, "", "configmaps", "kube-system", authentication).await?;
    let range = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": ["10.96.0.0/16"]}});
    add(api, "networking.k8s.io", "servicecidrs", "", range).await
}

async fn add(api: &Api, group: &str, plural: &str, namespace: &str, object: Value) -> Result<(), Failure> {
    let resource = api.built_in(group, plural)?;
    let key = crate::store::key_of(namespace, text(&object, "/metadata/name"));
    if api.store().get(&resource.bucket, &key).is_some() {
        return Ok(());
    }
    let ask = Ask::internal(api, &resource, namespace, "");
    match create::create(&ask, object).await {
        Err(failure) if failure.reason() != "AlreadyExists" => Err(failure),
        _ => Ok(()),
    }
}

/// The API as a service inside the cluster.
async fn service(api: &Api) -> Result<(), Failure> {
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]}});
    add(api, "", "services", "default", service).await?;
    let (host, port) = api.address().rsplit_once(':').unwrap_or(("127.0.0.1", "6443"));
    let port: u16 = port.parse().unwrap_or(6443);
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "kubernetes",
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": host}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}]});
    add(api, "", "endpoints", "default", endpoints).await?;
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4", "endpoints": [{"addresses": [host], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}]});
    add(api, "discovery.k8s.io", "endpointslices", "default", slice).await
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// Roles that clients and charts count on.
async fn roles(api: &Api) -> Result<(), Failure> {
    let labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
    let read = json!(["get", "list", "watch"]);
    let write = json!(["create", "delete", "deletecollection", "patch", "update"]);
    let core = json!([
        "configmaps",
        "endpoints",
        "persistentvolumeclaims",
        "persistentvolumeclaims/status",
        "pods",
        "pods/log",
        "pods/status",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "replicationcontrollers/status",
        "serviceaccounts",
        "services",
        "services/status",
        "bindings",
        "events",
        "limitranges",
        "namespaces",
        "namespaces/status",
        "resourcequotas",
        "resourcequotas/status"
    ]);
    let apps = json!([
        "controllerrevisions",
        "daemonsets",
        "daemonsets/status",
        "deployments",
        "deployments/scale",
        "deployments/status",
        "replicasets",
        "replicasets/scale",
        "replicasets/status",
        "statefulsets",
        "statefulsets/scale",
        "statefulsets/status"
    ]);
    let view_rules = json!([
        {"apiGroups": [""], "resources": core, "verbs": read},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": read},
        {"apiGroups": ["apps"], "resources": apps, "verbs": read},
        {"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers", "horizontalpodautoscalers/status"], "verbs": read},
        {"apiGroups": ["batch"], "resources": ["cronjobs", "cronjobs/status", "jobs", "jobs/status"], "verbs": read},
        {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets", "poddisruptionbudgets/status"], "verbs": read},
        {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses", "ingresses/status", "networkpolicies"], "verbs": read},
    ]);
    let edit_rules = json!([
        {"apiGroups": [""], "resources": ["pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets", "services/proxy"], "verbs": read},
        {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]},
        {"apiGroups": [""], "resources": ["pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "configmaps", "events",
            "persistentvolumeclaims", "replicationcontrollers", "replicationcontrollers/scale", "secrets", "serviceaccounts", "services", "services/proxy"], "verbs": write},
        {"apiGroups": [""], "resources": ["pods/eviction", "serviceaccounts/token"], "verbs": ["create"]},
        {"apiGroups": ["apps"], "resources": ["daemonsets", "deployments", "deployments/rollback", "deployments/scale", "replicasets", "replicasets/scale", "statefulsets", "statefulsets/scale"], "verbs": write},
        {"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": write},
        {"apiGroups": ["batch"], "resources": ["cronjobs", "jobs"], "verbs": write},
        {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": write},
        {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses", "networkpolicies"], "verbs": write},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]},
    ]);
    let admin_rules = json!([
        {"apiGroups": ["authorization.k8s.io"], "resources": ["localsubjectaccessreviews"], "verbs": ["create"]},
        {"apiGroups": [RBAC], "resources": ["rolebindings", "roles"], "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]},
    ]);
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}]);
    let discovery = json!([{"nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/"], "verbs": ["get"]}]);
    let info = json!([{"nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"], "verbs": ["get"]}]);
    let basic = json!([
        {"apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], "verbs": ["create"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
    ]);
    let delegator = json!([
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    ]);
    let issuer = json!([{"nonResourceURLs": ["/.well-known/openid-configuration", "/.well-known/openid-configuration/", "/openid/v1/jwks", "/openid/v1/jwks/"], "verbs": ["get"]}]);
    for (name, rules) in [
        ("cluster-admin", all.clone()),
        ("system:discovery", discovery),
        ("system:public-info-viewer", info),
        ("system:basic-user", basic),
        ("system:auth-delegator", delegator),
        ("system:service-account-issuer-discovery", issuer),
        ("system:kube-controller-manager", all.clone()),
        ("system:kube-scheduler", all),
    ] {
        role(api, name, &labels, rules).await?;
    }
    for (name, targets, rules) in [
        ("system:aggregate-to-view", &["view"][..], view_rules),
        ("system:aggregate-to-edit", &["edit"], edit_rules),
        ("system:aggregate-to-admin", &["admin"], admin_rules),
    ] {
        let mut labels = labels.clone();
        for target in targets {
            crate::json::as_map(&mut labels)
                .insert(format!("rbac.authorization.k8s.io/aggregate-to-{target}"), "true".into());
        }
        role(api, name, &labels, rules).await?;
    }
    for (name, gathers) in
        [("admin", &["admin", "edit", "view"][..]), ("edit", &["edit", "view"]), ("view", &["view"])]
    {
        let selectors: Vec<Value> = gathers
            .iter()
            .map(|target| json!({"matchLabels": {format!("rbac.authorization.k8s.io/aggregate-to-{target}"): "true"}}))
            .collect();
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name, "labels": labels}, "aggregationRule": {"clusterRoleSelectors": selectors}});
        add(api, RBAC, "clusterroles", "", role).await?;
    }
    for (name, kind, subject) in [
        ("cluster-admin", "Group", "system:masters"),
        ("system:discovery", "Group", "system:authenticated"),
        ("system:basic-user", "Group", "system:authenticated"),
        ("system:public-info-viewer", "Group", "system:authenticated"),
        ("system:service-account-issuer-discovery", "Group", "system:serviceaccounts"),
        ("system:kube-controller-manager", "User", "system:kube-controller-manager"),
        ("system:kube-scheduler", "User", "system:kube-scheduler"),
    ] {
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": name, "labels": labels},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": RBAC, "kind": kind, "name": subject}]});
        add(api, RBAC, "clusterrolebindings", "", binding).await?;
    }
    Ok(())
}

async fn role(api: &Api, name: &str, labels: &Value, rules: Value) -> Result<(), Failure> {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels, "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}},
        "rules": rules});
    add(api, RBAC, "clusterroles", "", role).await
}
