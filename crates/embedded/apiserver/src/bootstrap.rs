//! Bootstrap objects: created at start, repaired at every start.

mod flow;
mod parts;

use std::net::IpAddr;

use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::{
    api::Api,
    json::{as_map, carry, child, items, text},
    server::certificates::FRONT_PROXY,
    status::Failure,
    verbs::{RequestContext, create, update},
};

/// An object, and how one that is there already is brought up to date.
struct BootstrapObject {
    group: &'static str,
    plural: &'static str,
    namespace: &'static str,
    object: Value,
    repair: Option<Repair>,
}

/// Changes the object that is there, given the one that is wanted.
type Repair = fn(&mut Value, &Value);

impl BootstrapObject {
    fn new(group: &'static str, plural: &'static str, namespace: &'static str, object: Value) -> Self {
        Self { group, plural, namespace, object, repair: None }
    }

    fn repaired_by(mut self, repair: Repair) -> Self {
        self.repair = Some(repair);
        self
    }
}

/// Creates missing objects and repairs those that differ.
pub(crate) async fn install(api: &Api) -> Result<(), Failure> {
    // Everything else is in a namespace; what does not wait for anything shares the way to the disk.
    try_join_all(namespaces().into_iter().map(|wanted| ensure(api, wanted))).await?;
    let roles = roles().into_iter().chain(parts::roles()).chain(authentication_readers());
    let rest = priority_classes().into_iter().chain(roles).chain(flow::objects());
    let rest = rest.chain(service(api)).chain(settings(api));
    try_join_all(rest.map(|wanted| ensure(api, wanted))).await?;
    Ok(())
}

async fn ensure(api: &Api, wanted: BootstrapObject) -> Result<(), Failure> {
    let BootstrapObject { group, plural, namespace, object, repair } = wanted;
    let resource = api.built_in(group, plural)?;
    let name = text(&object, "/metadata/name").to_owned();
    let Some(entry) = api.store().get(&resource.bucket, &crate::store::key_of(namespace, &name)) else {
        let context = RequestContext::internal(api, &resource, namespace, "");
        return match create::create(&context, object).await {
            Err(failure) if failure.reason() != "AlreadyExists" => Err(failure),
            _ => Ok(()),
        };
    };
    let Some(repair) = repair else { return Ok(()) };
    let present = api.load(&resource, &entry).await?;
    let mut repaired = present.clone();
    repair(&mut repaired, &object);
    if repaired == present {
        return Ok(());
    }
    let context = RequestContext::internal(api, &resource, namespace, &name);
    let object = &object;
    let change = move |mut present: Value| async move {
        repair(&mut present, object);
        Ok(present)
    };
    // Webhooks have a say here, and may be wrong or not there yet: that must not keep a cluster from starting.
    if let Err(failure) = Box::pin(update::update(&context, false, update::Made::Changed, change)).await {
        tracing::warn!("cannot bring {plural} {name} up to date: {failure}");
    }
    Ok(())
}

fn namespaces() -> Vec<BootstrapObject> {
    ["default", "kube-system", "kube-public", "kube-node-lease"]
        .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
        .map(|namespace| BootstrapObject::new("", "namespaces", "", namespace))
        .into()
}

fn priority_classes() -> Vec<BootstrapObject> {
    [
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
    ]
    .map(|(name, value, description)| {
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "description": description, "preemptionPolicy": "PreemptLowerPriority"});
        BootstrapObject::new("scheduling.k8s.io", "priorityclasses", "", class)
    })
    .into()
}

fn settings(api: &Api) -> Vec<BootstrapObject> {
    let authentication = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": AUTHENTICATION}, "data": authentication(api)});
    let range = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": ["10.96.0.0/16"]}});
    vec![
        BootstrapObject::new("", "configmaps", "kube-system", authentication).repaired_by(
            |present, wanted| {
                let wanted = wanted.get("data").and_then(Value::as_object);
                for (key, value) in wanted.into_iter().flatten() {
                    child(as_map(present), "data").insert(key.clone(), value.clone());
                }
            },
        ),
        BootstrapObject::new("networking.k8s.io", "servicecidrs", "", range),
    ]
}

/// Publishes to aggregated API servers whose client certificates to accept, and how requests say who they are from.
const AUTHENTICATION: &str = "extension-apiserver-authentication";

fn authentication(api: &Api) -> Value {
    let mut data = json!({"client-ca-file": api.ca()});
    if let Some(proxy) = api.front_proxy() {
        let list = |item: &str| json!([item]).to_string().into();
        as_map(&mut data).extend([
            ("requestheader-allowed-names".into(), list(FRONT_PROXY)),
            ("requestheader-client-ca-file".into(), proxy.ca.as_str().into()),
            ("requestheader-extra-headers-prefix".into(), list("X-Remote-Extra-")),
            ("requestheader-group-headers".into(), list("X-Remote-Group")),
            ("requestheader-uid-headers".into(), list("X-Remote-Uid")),
            ("requestheader-username-headers".into(), list("X-Remote-User")),
        ]);
    }
    data
}

/// Who may read that.
fn authentication_readers() -> [BootstrapObject; 2] {
    let name = "extension-apiserver-authentication-reader";
    let labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": name, "labels": labels, "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [AUTHENTICATION],
            "verbs": ["get", "list", "watch"]}]});
    let user = |name: &str| json!({"apiGroup": RBAC, "kind": "User", "name": name});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": format!("system::{name}"), "labels": labels},
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
        "subjects": [user("system:kube-controller-manager"), user("system:kube-scheduler")]});
    [
        BootstrapObject::new(RBAC, "roles", "kube-system", role)
            .repaired_by(|present, wanted| complete(present, wanted, "rules")),
        BootstrapObject::new(RBAC, "rolebindings", "kube-system", binding)
            .repaired_by(|present, wanted| complete(present, wanted, "subjects")),
    ]
}

/// The API as a service inside the cluster, at the address it has this time.
fn service(api: &Api) -> Vec<BootstrapObject> {
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]}});
    let (host, port) = api.address().rsplit_once(':').unwrap_or(("127.0.0.1", "6443"));
    let host = host.trim_matches(['[', ']']);
    let family = if host.parse().is_ok_and(|ip: IpAddr| ip.is_ipv6()) { "IPv6" } else { "IPv4" };
    let port: u16 = port.parse().unwrap_or(6443);
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "kubernetes",
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": host}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}]});
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": family, "endpoints": [{"addresses": [host], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}]});
    vec![
        BootstrapObject::new("", "services", "default", service),
        BootstrapObject::new("", "endpoints", "default", endpoints)
            .repaired_by(|present, wanted| take_over(present, wanted, &["subsets"])),
        // Its address type cannot change; its endpoints can, and are of no use if that is another one.
        BootstrapObject::new("discovery.k8s.io", "endpointslices", "default", slice).repaired_by(
            |present, wanted| {
                if present.get("addressType") == wanted.get("addressType") {
                    take_over(present, wanted, &["endpoints", "ports"]);
                }
            },
        ),
    ]
}

fn take_over(present: &mut Value, wanted: &Value, keys: &[&str]) {
    let nothing = serde_json::Map::new();
    for key in keys {
        carry(wanted.as_object().unwrap_or(&nothing), as_map(present), key);
    }
}

/// Adds what is missing of a list, as Kubernetes does to its own roles; what others added stays. Not where the
/// annotation `autoupdate` is `false`.
fn complete(present: &mut Value, wanted: &Value, list: &str) {
    let says = present.pointer("/metadata/annotations/rbac.authorization.kubernetes.io~1autoupdate");
    if says.is_some_and(|says| says == "false") {
        return;
    }
    let pointer = format!("/{list}");
    let mut all = items(present, &pointer).to_vec();
    for item in items(wanted, &pointer) {
        if !all.contains(item) {
            all.push(item.clone());
        }
    }
    as_map(present).insert(list.to_owned(), all.into());
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// Roles that clients and charts count on.
fn roles() -> Vec<BootstrapObject> {
    let mut wanted = Vec::new();
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
        wanted.push(role(name, &labels, &rules));
    }
    for (name, targets, rules) in [
        ("system:aggregate-to-view", &["view"][..], view_rules),
        ("system:aggregate-to-edit", &["edit"], edit_rules),
        ("system:aggregate-to-admin", &["admin"], admin_rules),
    ] {
        let mut labels = labels.clone();
        for target in targets {
            as_map(&mut labels)
                .insert(format!("rbac.authorization.k8s.io/aggregate-to-{target}"), "true".into());
        }
        wanted.push(role(name, &labels, &rules));
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
        wanted.push(BootstrapObject::new(RBAC, "clusterroles", "", role));
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
        let binding = BootstrapObject::new(RBAC, "clusterrolebindings", "", binding);
        wanted.push(binding.repaired_by(|present, wanted| complete(present, wanted, "subjects")));
    }
    wanted
}

fn role(name: &str, labels: &Value, rules: &Value) -> BootstrapObject {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels, "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}},
        "rules": rules});
    BootstrapObject::new(RBAC, "clusterroles", "", role)
        .repaired_by(|present, wanted| complete(present, wanted, "rules"))
}
