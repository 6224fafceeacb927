//! What to do about the hardening of a RayCluster.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use quintet_controller::cache::{Entry, ObjectMetadata};
use quintet_controller::plan::Propagation;
use quintet_controller::{Action, ApiKind, ObjectKey, Plan, finalizers};

use super::names::{CLUSTER_NAME, FINALIZER, Names};
use super::objects;
use super::observe::Observed;
use super::secrets::{Contents, SecretRequest};

type Step = quintet_controller::Step<SecretRequest>;

/// Computes the plan for a RayCluster. Pure: no clock, no I/O.
pub(super) fn plan(observed: &Observed) -> Plan<SecretRequest> {
    if observed.cluster.deleting {
        return finalize(observed);
    }
    let (cluster, hardening) = (&observed.cluster.object, &observed.hardening);
    if let Some(finalizer) = finalizers::add(&observed.cluster, &cluster.metadata, FINALIZER) {
        // The webhook changes the RayCluster with it, also the annotation that says how objects are named. Nothing is made
        // under the names of before.
        return Plan { steps: vec![finalizer.into()], ..Plan::default() };
    }
    let mut plan = Plan::default();
    let names = Names::of(cluster);
    if hardening.has_mtls() {
        plan.steps.extend(secret(
            observed,
            &names.ca_secret(),
            Contents::Authority,
            observed.ca_secret.as_ref(),
        ));
    }
    if !cluster.spec.suspend.unwrap_or(false) {
        add_access(observed, &names, &mut plan);
    }
    plan.steps
        .push(objects::head_policy(cluster, &observed.operator_namespaces, hardening.has_mtls()).into());
    plan.steps.push(objects::workers_policy(cluster).into());
    plan
}

/// How users reach the cluster.
fn add_access(observed: &Observed, names: &Names<'_>, plan: &mut Plan<SecretRequest>) {
    let (cluster, hardening) = (&observed.cluster.object, &observed.hardening);
    if hardening.makes_oauth_objects() {
        plan.steps.push(objects::dashboard_route(cluster).into());
        let cookie = observed.cookie_secret.as_ref();
        plan.steps.extend(secret(observed, &names.cookie_secret(), Contents::Cookie, cookie));
        plan.steps.push(objects::oauth_service(cluster).into());
        plan.steps.push(objects::service_account(cluster).into());
        plan.steps.extend(outdated_head(observed));
        plan.steps.push(objects::role_binding(cluster).into());
        plan.steps.push(objects::client_route(cluster).into());
    }
    if hardening.makes_ingresses() {
        if observed.domain.is_empty() {
            plan.awaits.push(
                "kuberay.ingressDomain in the configuration (ConfigMap codeflare-operator-config upstream)"
                    .to_owned(),
            );
            return;
        }
        plan.steps.push(objects::dashboard_ingress(cluster, &observed.domain).into());
        plan.steps.push(objects::client_ingress(cluster, &observed.domain).into());
    }
}

/// Makes a Secret, unless it is there with its label and owner.
fn secret(
    observed: &Observed,
    name: &str,
    contents: Contents,
    live: Option<&Arc<Entry<ObjectMetadata>>>,
) -> Option<Step> {
    let cluster = &observed.cluster;
    let is_complete = live.is_some_and(|live| {
        let has_label =
            live.object.labels.get(CLUSTER_NAME).is_some_and(|name| **name == *cluster.key.name());
        has_label && live.object.owner_references.iter().any(|owner| *owner.uid == *cluster.uid.as_str())
    });
    (!is_complete).then(|| {
        let request = SecretRequest {
            key: ObjectKey::new(cluster.key.namespace().unwrap_or_default(), name),
            contents,
            cluster: cluster.key.name().to_owned(),
            owner: objects::owner_reference(&cluster.object),
        };
        Action::Call(request).into()
    })
}

/// The head pod, if its ServiceAccount has got image pull secrets since: a new one has them.
fn outdated_head(observed: &Observed) -> Option<Step> {
    let spec = &observed.cluster.object.spec.head_group_spec.template.spec;
    let has_own = spec
        .as_ref()
        .is_some_and(|spec| spec.image_pull_secrets.as_ref().is_some_and(|secrets| !secrets.is_empty()));
    let account = observed.service_account.as_ref().filter(|_| !has_own)?;
    let pod = observed.head_pods.first().filter(|pod| !pod.deleting)?;
    let lacks_one = account.object.names.iter().any(|name| !pod.object.names.contains(name));
    lacks_one.then(|| Action::delete(ApiKind::of::<Pod>(), pod).into())
}

/// ClusterRoleBindings have no owner in a namespace, so they are deleted here. Nothing else is made any more, also while
/// other finalizers keep the RayCluster.
fn finalize(observed: &Observed) -> Plan<SecretRequest> {
    let cluster = &observed.cluster;
    let Some(release) = finalizers::remove(cluster, &cluster.object.metadata, FINALIZER) else {
        return Plan::nothing();
    };
    let mut steps: Vec<Step> = observed
        .role_bindings
        .iter()
        .map(|binding| {
            Action::Delete {
                kind: ApiKind::of::<ClusterRoleBinding>(),
                key: binding.key.clone(),
                uid: binding.uid.clone(),
                propagation: Propagation::Foreground,
                grace_seconds: None,
            }
            .into()
        })
        .collect();
    steps.push(release.into());
    Plan { steps, ..Plan::default() }
}
