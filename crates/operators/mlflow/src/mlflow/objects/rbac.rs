//! Service accounts, and what they may do.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use quintet_controller::Action;

use super::{Inputs, apply, labels, metadata, owners, server};
use crate::names::{ARCHIVAL, ARCHIVAL_SERVICE_ACCOUNT, ARTIFACT_CONNECTION, GC, GC_SERVICE_ACCOUNT, MLFLOW};
use crate::permissions::rule;

const READ: &[&str] = &["get", "list", "watch"];

/// The service accounts of the server and its tasks.
pub(super) fn service_accounts(inputs: &Inputs<'_>, archives: bool) -> Vec<Action> {
    let account = |name: &str, app: &str| {
        apply(&ServiceAccount {
            metadata: metadata(inputs, name, app),
            // Pods that need the token mount it.
            automount_service_account_token: Some(false),
            ..ServiceAccount::default()
        })
    };
    let mut accounts = vec![account(server::service_account(&inputs.mlflow.spec), MLFLOW)];
    accounts.extend(collects(inputs).then(|| account(GC_SERVICE_ACCOUNT, GC)));
    accounts.extend(archives.then(|| account(ARCHIVAL_SERVICE_ACCOUNT, ARCHIVAL)));
    accounts
}

/// ClusterRoles and their bindings.
pub(super) fn roles(inputs: &Inputs<'_>, archives: bool) -> Vec<Action> {
    let mut accounts = vec![server::service_account(&inputs.mlflow.spec)];
    accounts.extend(archives.then_some(ARCHIVAL_SERVICE_ACCOUNT));
    // Unlike upstream's, the garbage collection may list namespaces, without which it finds no workspaces.
    accounts.extend(collects(inputs).then_some(GC_SERVICE_ACCOUNT));
    let mut roles = role(inputs, MLFLOW, shared_owner(inputs), server_rules(), &accounts);
    if collects(inputs) {
        roles.extend(role(inputs, GC, owners(inputs.mlflow), gc_rules(), &[GC_SERVICE_ACCOUNT]));
    }
    roles
}

fn collects(inputs: &Inputs<'_>) -> bool {
    inputs.mlflow.spec.garbage_collection.is_some()
}

/// The role of the server has a fixed name, so others may own it, too: the MLflow is an owner, but not the controller.
fn shared_owner(inputs: &Inputs<'_>) -> Option<Vec<OwnerReference>> {
    let mut owners = owners(inputs.mlflow)?;
    for owner in &mut owners {
        (owner.controller, owner.block_owner_deletion) = (None, None);
    }
    Some(owners)
}

fn role(
    inputs: &Inputs<'_>,
    name: &str,
    owner_references: Option<Vec<OwnerReference>>,
    rules: Vec<PolicyRule>,
    accounts: &[&str],
) -> Vec<Action> {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(labels(name)),
        owner_references,
        ..ObjectMeta::default()
    };
    let subject = |account: &&str| Subject {
        kind: "ServiceAccount".to_owned(),
        name: (*account).to_owned(),
        namespace: Some(inputs.settings.namespace.clone()),
        api_group: None,
    };
    let role = ClusterRole { metadata: metadata.clone(), rules: Some(rules), aggregation_rule: None };
    let binding = ClusterRoleBinding {
        metadata,
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "ClusterRole".to_owned(),
            name: name.to_owned(),
        },
        subjects: Some(accounts.iter().map(subject).collect()),
    };
    vec![apply(&role), apply(&binding)]
}

/// What the server and its tasks may do: find workspaces and their artifact stores.
pub(crate) fn server_rules() -> Vec<PolicyRule> {
    let mut connections = rule("", &["secrets"], READ);
    connections.resource_names = Some(vec![ARTIFACT_CONNECTION.to_owned()]);
    vec![rule("", &["namespaces"], READ), connections, rule("mlflow.kubeflow.org", &["mlflowconfigs"], READ)]
}

/// What the garbage collection may do, as the server authorizes it.
pub(crate) fn gc_rules() -> Vec<PolicyRule> {
    vec![rule("mlflow.kubeflow.org", &["experiments"], &["get", "list", "update"])]
}
