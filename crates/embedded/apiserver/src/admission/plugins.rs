//! The admission plugins that every cluster has.

use quintet_api::Quantity;
use serde_json::{Value, json};

use super::{Operation, limits};
use crate::{
    json::{self, items, text},
    status::{Failure, Named},
    store::key_of,
    verbs::{RequestContext, metadata},
};

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];
const TOKEN_DIRECTORY: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn forbidden(context: &RequestContext, object: &Value, why: &str) -> Failure {
    let name = text(object, "/metadata/name");
    let name = if name.is_empty() { text(object, "/metadata/generateName") } else { name };
    Failure::forbidden(Named { name, ..context.named() }, why)
}

/// Objects are only created in namespaces that are there to stay.
pub(super) fn check_namespace(
    context: &RequestContext,
    operation: Operation<'_>,
    object: &Value,
) -> Result<(), Failure> {
    if !context.resource.is_namespaced || !matches!(operation, Operation::Create) {
        return Ok(());
    }
    let reviews = ["localsubjectaccessreviews"];
    if reviews.contains(&&*context.resource.plural) {
        return Ok(());
    }
    let namespace = &context.namespace;
    let Some(entry) = context.api.store().get("core/namespaces", namespace) else {
        return Err(Failure::not_found(Named { group: "", resource: "namespaces", name: namespace }));
    };
    if entry.head.is_terminating {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        return Err(forbidden(context, object, &why).with_cause(
            "NamespaceTerminating",
            &format!("namespace {namespace} is being terminated"),
            "metadata.namespace",
        ));
    }
    Ok(())
}

fn definition_leaves(context: &RequestContext, object: &Value) -> Failure {
    forbidden(context, object, "create not allowed while custom resource definition is terminating")
}

/// Why an object could not be stored whose namespace or definition began to go after they were checked.
pub(crate) fn missing_parent(context: &RequestContext, object: &Value) -> Failure {
    match check_namespace(context, Operation::Create, object) {
        Err(failure) => failure,
        Ok(()) => definition_leaves(context, object),
    }
}

/// Completes an object.
pub(super) fn mutate(
    context: &RequestContext,
    operation: Operation<'_>,
    object: &mut Value,
) -> Result<(), Failure> {
    let resource = &context.resource;
    if !context.subresource.is_empty() {
        return Ok(());
    }
    let is_create = matches!(operation, Operation::Create);
    match (&*resource.group, &*resource.plural) {
        ("", "pods") if is_create => {
            limits::fill(context, object);
            service_account(context, object)?;
            priority(context, object)?;
            tolerations(object);
            runtime_class(context, object)?;
        }
        // Also when a client replaced them: tolerations can be added, but not removed.
        ("", "pods") if matches!(operation, Operation::Update) => tolerations(object),
        ("", "nodes") if is_create => {
            let taints = json::child(json::as_map(object), "spec");
            let taints = taints.entry("taints").or_insert_with(|| json!([]));
            let not_ready = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
            if let Some(taints) = taints.as_array_mut()
                && !taints.iter().any(|taint| text(taint, "/key") == "node.kubernetes.io/not-ready")
            {
                taints.push(not_ready);
            }
        }
        ("", "persistentvolumeclaims") if is_create => {
            protect(object, "kubernetes.io/pvc-protection");
            default_storage_class(context, object);
        }
        ("", "persistentvolumes") if is_create => protect(object, "kubernetes.io/pv-protection"),
        ("networking.k8s.io", "ingresses") if is_create => default_ingress_class(context, object),
        _ => {}
    }
    Ok(())
}

/// Refuses what must not be.
pub(super) fn validate(
    context: &RequestContext,
    operation: Operation<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Failure> {
    if let (Operation::Delete(_), "", "namespaces") =
        (operation, &*context.resource.group, &*context.resource.plural)
        && IMMORTAL.contains(&context.name.as_str())
    {
        return Err(Failure::forbidden(context.named(), "this namespace may not be deleted"));
    }
    if let Some(custom) = context.resource.as_custom()
        && matches!(operation, Operation::Create)
        && custom.is_terminating
    {
        return Err(definition_leaves(context, object.unwrap_or(&Value::Null)));
    }
    let Some(object) = object else { return Ok(()) };
    if context.subresource.is_empty() {
        match (&*context.resource.group, &*context.resource.plural, operation) {
            ("", "pods", Operation::Create) => limits::check_pod(context, object)?,
            // Whatever is asked of one that goes, it must be able to go.
            ("", "persistentvolumeclaims", Operation::Create | Operation::Update)
                if !old.is_some_and(metadata::is_terminating) =>
            {
                limits::check_claim(context, object)?;
                if let Some(old) = old {
                    may_grow(context, object, old)?;
                }
            }
            _ => {}
        }
    } else if context.resource.is("", "pods") && context.subresource == "resize" {
        limits::check_pod(context, object)?;
    }
    Ok(())
}

fn list_of<'a>(spec: &'a mut Value, key: &str) -> &'a mut Vec<Value> {
    let list = json::as_map(spec).entry(key).or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    match list {
        Value::Array(items) => items,
        _ => unreachable!("made a list above"),
    }
}

fn service_account(context: &RequestContext, object: &mut Value) -> Result<(), Failure> {
    if object.pointer("/metadata/annotations").is_some_and(|a| a.get("kubernetes.io/config.mirror").is_some())
    {
        return Ok(());
    }
    let name = match text(object, "/spec/serviceAccountName") {
        "" => "default".to_owned(),
        name => name.to_owned(),
    };
    let Some(entry) = context.api.store().get("core/serviceaccounts", &key_of(&context.namespace, &name))
    else {
        let why = format!(
            "error looking up service account {}/{name}: serviceaccount {name:?} not found",
            context.namespace
        );
        return Err(forbidden(context, object, &why));
    };
    let account = entry.parse();
    let spec = json::child(json::as_map(object), "spec");
    spec.insert("serviceAccountName".into(), name.as_str().into());
    spec.insert("serviceAccount".into(), name.as_str().into());
    if !spec.contains_key("imagePullSecrets")
        && let Some(secrets) = account.get("imagePullSecrets")
    {
        spec.insert("imagePullSecrets".into(), secrets.clone());
    }
    let automount = object
        .pointer("/spec/automountServiceAccountToken")
        .or_else(|| account.get("automountServiceAccountToken"))
        .and_then(Value::as_bool)
        .unwrap_or(true);
    if !automount {
        return Ok(());
    }
    let has_mount = |container: &Value| {
        items(container, "/volumeMounts").iter().any(|mount| text(mount, "/mountPath") == TOKEN_DIRECTORY)
    };
    let all = |object: &Value| -> Vec<Value> {
        ["/spec/initContainers", "/spec/containers"].iter().flat_map(|p| items(object, p)).cloned().collect()
    };
    if all(object).iter().all(has_mount) {
        return Ok(());
    }
    let existing = items(object, "/spec/volumes")
        .iter()
        .map(|volume| text(volume, "/name").to_owned())
        .find(|name| name.starts_with("kube-api-access-"));
    let volume =
        existing.clone().unwrap_or_else(|| format!("kube-api-access-{}", context.api.rng().name_suffix()));
    let mount = json!({"name": volume, "readOnly": true, "mountPath": TOKEN_DIRECTORY});
    let Some(spec) = object.get_mut("spec") else { return Ok(()) };
    for key in ["initContainers", "containers"] {
        if let Some(containers) = spec.get_mut(key).and_then(Value::as_array_mut) {
            for container in containers.iter_mut().filter(|container| !has_mount(container)) {
                list_of(container, "volumeMounts").push(mount.clone());
            }
        }
    }
    if existing.is_none() {
        list_of(spec, "volumes").push(json!({"name": volume, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
        ]}}));
    }
    Ok(())
}

fn priority(context: &RequestContext, object: &mut Value) -> Result<(), Failure> {
    let name = text(object, "/spec/priorityClassName").to_owned();
    let bucket = "scheduling.k8s.io/priorityclasses";
    let class: Option<(String, Value)> = if name.is_empty() {
        let classes = context.api.store().objects(bucket, "");
        classes
            .into_iter()
            .map(|(key, entry)| (key.to_string(), entry.parse()))
            .filter(|(_, class)| class.get("globalDefault") == Some(&Value::Bool(true)))
            .min_by_key(|(_, class)| class.get("value").and_then(Value::as_i64))
    } else {
        let Some(entry) = context.api.store().get(bucket, &name) else {
            return Err(forbidden(context, object, &format!("no PriorityClass with name {name} was found")));
        };
        Some((name, entry.parse()))
    };
    let spec = json::child(json::as_map(object), "spec");
    let value = class.as_ref().and_then(|(_, class)| class.get("value").cloned()).unwrap_or_else(|| 0.into());
    let policy =
        class.as_ref().map(|(_, class)| text(class, "/preemptionPolicy")).filter(|policy| !policy.is_empty());
    spec.insert("priority".into(), value);
    spec.entry("preemptionPolicy").or_insert_with(|| policy.unwrap_or("PreemptLowerPriority").into());
    if let Some((name, _)) = &class {
        spec.insert("priorityClassName".into(), name.as_str().into());
    }
    Ok(())
}

fn tolerations(object: &mut Value) {
    let Some(spec) = object.get_mut("spec") else { return };
    let tolerations = list_of(spec, "tolerations");
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let is_tolerated = tolerations.iter().any(|one| {
            let (taint, effect) = (text(one, "/key"), text(one, "/effect"));
            (taint == key || taint.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if !is_tolerated {
            tolerations.push(
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
            );
        }
    }
}

fn runtime_class(context: &RequestContext, object: &mut Value) -> Result<(), Failure> {
    let name = text(object, "/spec/runtimeClassName").to_owned();
    if name.is_empty() {
        return Ok(());
    }
    let Some(entry) = context.api.store().get("node.k8s.io/runtimeclasses", &name) else {
        return Err(forbidden(context, object, &format!("pod rejected: RuntimeClass {name:?} not found")));
    };
    let class = entry.parse();
    let Some(spec) = object.get_mut("spec") else { return Ok(()) };
    if let Some(overhead) = class.pointer("/overhead/podFixed") {
        json::as_map(spec).entry("overhead").or_insert_with(|| overhead.clone());
    }
    if let Some(selector) = class.pointer("/scheduling/nodeSelector").and_then(Value::as_object) {
        let own = json::child(json::as_map(spec), "nodeSelector");
        for (key, value) in selector {
            own.insert(key.clone(), value.clone());
        }
    }
    let added = items(&class, "/scheduling/tolerations").to_vec();
    let own = list_of(spec, "tolerations");
    for one in added {
        if !own.contains(&one) {
            own.push(one);
        }
    }
    Ok(())
}

fn protect(object: &mut Value, finalizer: &str) {
    if metadata::finalizers(object).contains(&finalizer) {
        return;
    }
    let metadata = json::metadata(object);
    if let Some(finalizers) = metadata.entry("finalizers").or_insert_with(|| json!([])).as_array_mut() {
        finalizers.push(finalizer.into());
    }
}

/// The newest object of a bucket that an annotation makes the default.
fn annotated_default(context: &RequestContext, bucket: &str, annotation: &str) -> Option<String> {
    let classes = context.api.store().objects(bucket, "");
    classes
        .into_iter()
        .map(|(key, entry)| (key, entry.parse()))
        .filter(|(_, class)| {
            class.pointer("/metadata/annotations").and_then(|a| a.get(annotation)) == Some(&"true".into())
        })
        .max_by_key(|(_, class)| text(class, "/metadata/creationTimestamp").to_owned())
        .map(|(name, _)| name.to_string())
}

fn default_storage_class(context: &RequestContext, object: &mut Value) {
    let has_class = object.pointer("/spec/storageClassName").is_some()
        || object
            .pointer("/metadata/annotations")
            .is_some_and(|a| a.get("volume.beta.kubernetes.io/storage-class").is_some());
    if has_class {
        return;
    }
    let annotation = "storageclass.kubernetes.io/is-default-class";
    if let Some(name) = annotated_default(context, "storage.k8s.io/storageclasses", annotation) {
        json::child(json::as_map(object), "spec").insert("storageClassName".into(), name.into());
    }
}

/// A claim grows only if it is bound, and its class allows it.
fn may_grow(context: &RequestContext, claim: &Value, old: &Value) -> Result<(), Failure> {
    let storage = |claim: &Value| {
        text(claim, "/spec/resources/requests/storage").parse::<Quantity>().unwrap_or_default()
    };
    if storage(claim) <= storage(old) {
        return Ok(());
    }
    if text(old, "/status/phase") != "Bound" {
        return Err(forbidden(context, claim, "Only bound persistent volume claims can be expanded"));
    }
    let class = |claim: &Value| text(claim, "/spec/storageClassName").to_owned();
    let entry = context.api.store().get("storage.k8s.io/storageclasses", &class(claim));
    let allows = entry.is_some_and(|entry| entry.parse().get("allowVolumeExpansion") == Some(&true.into()));
    if allows && class(claim) == class(old) {
        return Ok(());
    }
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
    Err(forbidden(context, claim, why))
}

fn default_ingress_class(context: &RequestContext, object: &mut Value) {
    if object.pointer("/spec/ingressClassName").is_some() {
        return;
    }
    let annotation = "ingressclass.kubernetes.io/is-default-class";
    if let Some(name) = annotated_default(context, "networking.k8s.io/ingressclasses", annotation) {
        json::child(json::as_map(object), "spec").insert("ingressClassName".into(), name.into());
    }
}
