//! What a cluster needs besides pods. Made once and then left alone, except the Ingress, which follows the spec.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::quantity::Quantity;
use quintet_api::ray::events as reasons;
use quintet_api::ray::v1::{AuthMode, GcsStorage, GcsStorageDeletionPolicy, IngressPathType, RayCluster};
use quintet_controller::{Action, ApiKind, ObjectKey, api::FIELD_MANAGER};
use serde_json::{Value, json};

use super::{
    events,
    observe::{ClaimView, NewToken, Observed},
    plan::{Draft, owned},
};
use crate::{
    k8s_service::{
        DASHBOARD, DASHBOARD_PORT, head_port, head_service, head_service_name, headless_worker_service,
        serve_service,
    },
    labels, names, pod,
};

/// Adds what is missing; `false` if pods have to wait for something that only the user can bring.
pub(super) fn plan(draft: &mut Draft<'_>) -> bool {
    if pod::is_autoscaling(&draft.observed.object().spec) && !plan_rights(draft) {
        return false;
    }
    if draft.observed.object().spec.head_group_spec.enable_ingress == Some(true) {
        plan_ingress(draft);
    }
    plan_auth_secret(draft);
    plan_services(draft);
    if pod::is_embedded_storage(&draft.observed.object().spec) {
        plan_claim(draft);
    }
    true
}

fn base_labels(observed: &Observed) -> BTreeMap<&'static str, &str> {
    BTreeMap::from([
        (labels::CLUSTER, observed.name()),
        (labels::APP_NAME, labels::APPLICATION),
        (labels::APP_CREATED_BY, labels::CREATOR),
    ])
}

fn create(draft: &mut Draft<'_>, kind: ApiKind, object: &impl serde::Serialize) {
    let observed = draft.observed;
    let object = owned(observed.object(), object);
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let created = events::created(&kind.kind, &ObjectKey::new(observed.namespace(), name));
    draft.act_with_event(Action::ensure(kind, &object), created);
}

/// A Service that has to be ours: a foreign one leads elsewhere.
fn create_own(draft: &mut Draft<'_>, service: &Service) {
    let name = service.metadata.name.as_deref().unwrap_or_default();
    let created = events::created("Service", &ObjectKey::new(draft.observed.namespace(), name));
    let create = Action::create(ApiKind::of::<Service>(), &owned(draft.observed.object(), service));
    draft.act_with_event(create, created);
}

/// The rights the autoscaler needs in the head pod.
fn plan_rights(draft: &mut Draft<'_>) -> bool {
    let observed = draft.observed;
    let account = pod::service_account(observed.object());
    let template = observed.object().spec.head_group_spec.template.spec.as_ref();
    let is_users = template.is_some_and(|pod| pod.service_account_name.as_deref() == Some(account));
    if is_users && !observed.present.service_account {
        draft.is_waiting = true;
        draft.events.push(events::service_account_not_found(observed.key(), account));
        return false;
    }
    let name = names::object_name(observed.name());
    let account = names::object_name(account);
    let metadata = |name: &str| json!({"name": name, "namespace": observed.namespace(), "labels": base_labels(observed)});
    if !observed.present.service_account {
        let object = json!({"metadata": metadata(&account)});
        create(draft, ApiKind::of::<ServiceAccount>(), &object);
    }
    if !observed.present.role {
        let rules = json!([
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
            {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]},
            {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get", "patch"]},
        ]);
        let object = json!({"metadata": metadata(&name), "rules": rules});
        create(draft, ApiKind::of::<Role>(), &object);
    }
    if !observed.present.role_binding {
        let object = json!({
            "metadata": metadata(&name),
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": observed.namespace()}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        });
        create(draft, ApiKind::of::<RoleBinding>(), &object);
    }
    true
}

/// What other objects repeat of an owner's annotations: not what clients and we remember there.
pub(crate) fn annotations_for_others(owner: &ObjectMeta) -> BTreeMap<String, String> {
    let mut all = owner.annotations.clone().unwrap_or_default();
    all.retain(|name, _| {
        !name.starts_with("ray.quintet.dev/") && name != "kubectl.kubernetes.io/last-applied-configuration"
    });
    all
}

/// The name of a cluster's Ingress.
pub(super) fn ingress_name(cluster: &str) -> String {
    names::object_name(&format!("{cluster}-head-ingress"))
}

fn plan_ingress(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    if observed.settings.platform.routes {
        if !observed.present.route {
            create(draft, route_kind(), &route(observed));
        }
        return;
    }
    if let Some(other) = &observed.ingress
        && other.object.controller().is_none_or(|owner| *owner.uid != *observed.cluster.uid.as_str())
    {
        draft.events.push(events::foreign_ingress(&other.key));
        return;
    }
    let key = ObjectKey::new(observed.namespace(), &ingress_name(observed.name()));
    let event = match observed.ingress {
        Some(_) => events::updated_ingress(&key),
        None => events::created("Ingress", &key),
    };
    let apply = Action::apply(
        ApiKind::of::<Ingress>(),
        FIELD_MANAGER,
        &owned(observed.object(), &ingress(observed.object())),
    );
    draft.act_with_event(apply, event);
}

fn ingress(cluster: &RayCluster) -> Value {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let options = cluster.spec.head_group_spec.ingress_options.clone().unwrap_or_default();
    let mut annotations = annotations_for_others(&cluster.metadata);
    let class = annotations.remove(labels::INGRESS_CLASS);
    let port = head_port(&cluster.spec, DASHBOARD).unwrap_or(DASHBOARD_PORT);
    let backend = json!({"service": {"name": head_service_name(cluster), "port": {"number": port}}});
    let path = json!({
        "path": options.path.unwrap_or_else(|| "/".to_owned()),
        "pathType": options.path_type.unwrap_or(IngressPathType::Prefix),
        "backend": backend,
    });
    let mut rule = json!({"http": {"paths": [path]}});
    if let Some(host) = options.host {
        rule["host"] = host.into();
    }
    let mut spec = json!({"rules": [rule]});
    if let Some(class) = class {
        spec["ingressClassName"] = class.into();
    }
    if let Some(tls) = options.tls {
        spec["tls"] = json!(tls);
    }
    json!({
        "metadata": {
            "name": ingress_name(name),
            "namespace": cluster.metadata.namespace,
            "labels": {
                labels::CLUSTER: name,
                labels::IDENTIFIER: names::identifier(name, labels::HEAD),
                labels::APP_NAME: labels::APPLICATION,
                labels::APP_CREATED_BY: labels::CREATOR,
            },
            "annotations": annotations,
        },
        "spec": spec,
    })
}

/// The kind of OpenShift's Routes.
pub(super) fn route_kind() -> ApiKind {
    ApiKind::namespaced("route.openshift.io", "v1", "Route", "routes")
}

fn route(observed: &Observed) -> Value {
    let cluster = observed.object();
    let room = 51_usize.saturating_sub(observed.namespace().len());
    let name = format!("{}-head-route", observed.name());
    let port = head_port(&cluster.spec, DASHBOARD).unwrap_or(DASHBOARD_PORT);
    let mut own = base_labels(observed);
    let identifier = names::identifier(observed.name(), labels::HEAD);
    own.insert(labels::IDENTIFIER, &identifier);
    json!({
        "metadata": {
            "name": names::object_name(quintet_api::names::head(&name, room)),
            "namespace": observed.namespace(),
            "labels": own,
            "annotations": annotations_for_others(&cluster.metadata),
        },
        "spec": {
            "to": {"kind": "Service", "name": head_service_name(cluster), "weight": 100},
            "port": {"targetPort": port},
            "wildcardPolicy": "None",
        },
    })
}

/// Whether the operator makes the token of this cluster.
pub(super) fn makes_token(cluster: &RayCluster) -> bool {
    cluster.spec.auth_options.as_ref().is_some_and(|options| {
        let is_given = options.secret_name.as_deref().is_some_and(|name| !name.is_empty());
        options.mode != Some(AuthMode::Disabled)
            && !pod::auth::takes_kubernetes_tokens(Some(options))
            && !is_given
    })
}

fn plan_auth_secret(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    let Some(NewToken(token)) = &observed.new_token else {
        return;
    };
    let secret = json!({
        "metadata": {
            "name": names::object_name(observed.name()),
            "namespace": observed.namespace(),
            "labels": {labels::CLUSTER: observed.name()},
        },
        "stringData": {pod::auth::TOKEN_KEY: token},
    });
    // One that the user made beforehand is as good.
    draft.act(Action::ensure(ApiKind::of::<Secret>(), &owned(observed.object(), &secret)));
}

fn plan_services(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    let cluster = observed.object();
    let exists = |service: &Service| {
        let name = service.metadata.name.as_deref();
        observed.services.iter().any(|one| Some(one.key.name()) == name)
    };
    if observed.head_services().next().is_none() {
        create_own(draft, &head_service(cluster, None, &observed.settings));
    }
    if let Some(service) = headless_worker_service(cluster).filter(|service| !exists(service)) {
        create_own(draft, &service);
    }
    match serve_service(cluster) {
        Ok(Some(service)) if !exists(&service) => {
            draft.act(Action::create(ApiKind::of::<Service>(), &owned(cluster, &service)));
        }
        Ok(_) => {}
        // A cluster without Serve is better than none.
        Err(error) => draft.warn(reasons::FAILED_TO_CREATE_SERVICE, "Create", error),
    }
}

fn plan_claim(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    let options = observed.object().spec.gcs_fault_tolerance_options.as_ref();
    let storage = options.and_then(|options| options.storage.clone()).unwrap_or_default();
    let name = pod::claim_name(observed.object());
    let is_users = storage.claim_name.as_deref().is_some_and(|name| !name.is_empty());
    match &observed.claim {
        None if is_users => {
            draft.events.push(events::claim_not_found(&ObjectKey::new(observed.namespace(), &name)));
        }
        None => make_claim(draft, &name, &storage),
        Some(_) if is_users => {}
        Some(_) => keep_claim(draft, &storage),
    }
}

fn keeps(storage: &GcsStorage) -> bool {
    storage.deletion_policy == Some(GcsStorageDeletionPolicy::Retain)
}

fn make_claim(draft: &mut Draft<'_>, name: &str, storage: &GcsStorage) {
    let observed = draft.observed;
    let modes = storage.access_modes.clone().filter(|modes| !modes.is_empty());
    let size = storage.size.as_ref().map_or("1Gi", |size| size.0.as_str());
    let mut claim = json!({
        "metadata": {
            "name": name, "namespace": observed.namespace(), "labels": {labels::CLUSTER: observed.name()},
        },
        "spec": {
            "accessModes": modes.unwrap_or_else(|| vec!["ReadWriteOnce".to_owned()]),
            "resources": {"requests": {"storage": size}},
        },
    });
    if let Some(class) = &storage.storage_class_name {
        claim["spec"]["storageClassName"] = class.clone().into();
    }
    if !keeps(storage) {
        claim = owned(observed.object(), &claim);
    }
    let kind = ApiKind::of::<PersistentVolumeClaim>();
    let created = events::created(&kind.kind, &ObjectKey::new(observed.namespace(), name));
    draft.act_with_event(Action::ensure(kind, &claim), created);
}

/// How a claim differs from what the spec asks for. What it does not ask for is as it may be.
fn drift(storage: &GcsStorage, live: &ClaimView) -> Vec<String> {
    let mut all = Vec::new();
    let size = storage.size.as_ref().map(|size| size.0.as_str());
    let (wanted, current) = (size.unwrap_or_default(), live.size.as_deref().unwrap_or_default());
    let amount = |text: &str| text.parse::<Quantity>().map_err(|_| text.to_owned());
    if size.is_some() && amount(wanted) != amount(current) {
        all.push(format!("requested size {wanted} != current {current}"));
    }
    if storage.storage_class_name.is_some() && storage.storage_class_name != live.storage_class {
        let wanted = storage.storage_class_name.as_deref().unwrap_or_default();
        let current = live.storage_class.as_deref().unwrap_or("<default>");
        all.push(format!("storageClassName {wanted} != current {current}"));
    }
    let modes: BTreeSet<_> = storage.access_modes.iter().flatten().cloned().collect();
    if storage.access_modes.is_some() && live.access_modes != modes {
        let list = |modes: &BTreeSet<String>| modes.iter().cloned().collect::<Vec<_>>().join(" ");
        all.push(format!("accessModes [{}] != current [{}]", list(&modes), list(&live.access_modes)));
    }
    all
}

/// A claim cannot be changed, but whether it goes with the cluster can.
fn keep_claim(draft: &mut Draft<'_>, storage: &GcsStorage) {
    let observed = draft.observed;
    let Some(claim) = &observed.claim else {
        return;
    };
    let drift = drift(storage, &claim.object);
    if !drift.is_empty() {
        draft.events.push(events::claim_differs(&claim.key, &drift.join("; ")));
    }
    let uid = observed.cluster.uid.as_str();
    let is_owned = claim.object.owners.iter().any(|owner| owner.uid == uid);
    if is_owned == keeps(storage) {
        let mut owners: Vec<_> =
            claim.object.owners.iter().filter(|owner| owner.uid != uid).map(|owner| json!(owner)).collect();
        if !is_owned {
            owners.extend(
                quintet_api::owners::controller_reference(observed.object()).map(|owner| json!(owner)),
            );
        }
        let patch =
            json!({"metadata": {"ownerReferences": owners, "resourceVersion": claim.version.to_string()}});
        draft.act(Action::merge(ApiKind::of::<PersistentVolumeClaim>(), claim.key.clone(), patch));
    }
}
