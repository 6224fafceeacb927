//! What to do about a namespace.

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Plan, Step};

use super::{Observed, mlflow_of};
use crate::names::{EDIT_BINDING, MANAGER, VIEW_BINDING};
use crate::watches::{Auth, RoleBindingView};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Computes the plan for a namespace. Pure: no clock, no I/O.
pub(super) fn plan(observed: &Observed) -> Plan {
    if observed.namespace.deleting {
        return Plan::nothing();
    }
    let is_workspace = mlflow_of(&observed.namespace.object).is_some();
    let Some((owner, auth)) = observed.owner.as_ref().zip(observed.auth.as_ref()).filter(|_| is_workspace)
    else {
        // As upstream: the names are this operator's, regardless of who made the objects.
        let present = [&observed.view_binding, &observed.edit_binding].into_iter().flatten();
        let live = present.filter(|binding| !binding.deleting);
        return Plan { steps: live.map(|binding| delete(binding).into()).collect(), ..Plan::default() };
    };
    let (admins, allowed) = match (groups(auth, "adminGroups"), groups(auth, "allowedGroups")) {
        (Ok(admins), Ok(allowed)) => (admins, allowed),
        (Err(error), _) | (_, Err(error)) => return Plan::awaiting(error),
    };
    let mut viewers = allowed;
    viewers.extend(admins.iter().cloned());
    let binding = |name, role, groups, live: &Option<Arc<Entry<RoleBindingView>>>| {
        bind(observed, owner, Binding { name, role, groups }, live.as_ref())
    };
    let mut steps = binding(VIEW_BINDING, "view", unique(viewers), &observed.view_binding);
    steps.extend(binding(EDIT_BINDING, "edit", admins, &observed.edit_binding));
    Plan { steps, ..Plan::default() }
}

/// A list of groups; the error says what is wrong with it.
fn groups(auth: &Auth, field: &str) -> Result<Vec<String>, String> {
    let Some(list) = auth.spec.get(field).filter(|list| !list.is_null()) else { return Ok(Vec::new()) };
    let texts = list.as_array().map(|list| list.iter().map(|group| group.as_str().map(str::to_owned)));
    let texts: Option<Vec<_>> = texts.and_then(Iterator::collect);
    texts.ok_or_else(|| format!("spec.{field} of Auth {} to be a list of group names", crate::names::AUTH))
}

fn unique(mut groups: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    groups.retain(|group| seen.insert(group.clone()));
    groups
}

struct Binding<'a> {
    name: &'a str,
    role: &'a str,
    groups: Vec<String>,
}

/// Applies a binding. What it binds cannot be changed, so one that binds something else is deleted first.
fn bind(
    observed: &Observed,
    owner: &OwnerReference,
    binding: Binding<'_>,
    live: Option<&Arc<Entry<RoleBindingView>>>,
) -> Vec<Step> {
    let role = format!("{}mlflow-{}", observed.role_prefix, binding.role);
    let subject = |name: String| Subject {
        kind: "Group".to_owned(),
        api_group: Some(GROUP.to_owned()),
        name,
        namespace: None,
    };
    let object = RoleBinding {
        metadata: ObjectMeta {
            name: Some(binding.name.to_owned()),
            namespace: Some(observed.namespace.key.name().to_owned()),
            labels: Some([("app.kubernetes.io/managed-by".to_owned(), MANAGER.to_owned())].into()),
            owner_references: Some(vec![owner.clone()]),
            ..ObjectMeta::default()
        },
        role_ref: RoleRef {
            api_group: Some(GROUP.to_owned()),
            kind: "ClusterRole".to_owned(),
            name: role.clone(),
        },
        // Also if there are none: a foreign subject is removed.
        subjects: Some(binding.groups.into_iter().map(subject).collect()),
    };
    let binds_other = |live: &&Arc<Entry<RoleBindingView>>| {
        let bound = &live.object.role_ref;
        bound.kind != "ClusterRole" || bound.name != role
    };
    let wrong = live.filter(binds_other).map(|live| Step::from(delete(live)).sequential());
    let apply = Action::apply(ApiKind::of::<RoleBinding>(), MANAGER, &object);
    wrong.into_iter().chain([apply.into()]).collect()
}

fn delete(binding: &Entry<RoleBindingView>) -> Action {
    Action::delete(ApiKind::of::<RoleBinding>(), binding)
}
