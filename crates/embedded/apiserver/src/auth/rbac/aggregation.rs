//! Aggregated ClusterRoles: their rules are those of the roles that their selectors find.

use std::sync::Arc;

use serde_json::Value;

use super::GROUP;
use crate::{
    api::Api,
    json::{as_map, items},
    model,
    status::Failure,
    store::Entry,
    verbs::{RequestContext, filter, update},
};

/// Brings the rules of all aggregated ClusterRoles up to date. A write of one aggregates again, see
/// [`crate::commit`]: roles that aggregate aggregated roles follow.
pub(crate) async fn aggregate(api: &Api) -> Result<(), Failure> {
    let resource = api.built_in(GROUP, "clusterroles")?;
    let roles: Vec<Role> = api
        .store()
        .objects(&resource.bucket, "")
        .into_iter()
        .map(|(name, entry)| {
            let value = entry.to_value("rbac.authorization.k8s.io/v1", "ClusterRole");
            Role { name, entry, value }
        })
        .collect();
    for role in roles.iter().filter(|role| !role.selectors().is_empty()) {
        let wanted = role.aggregated(&roles);
        if items(&role.value, "/rules") == wanted.as_slice() {
            continue;
        }
        let context = RequestContext::internal(api, &resource, "", &role.name);
        let wanted = &wanted;
        Box::pin(update::update(&context, false, update::Made::Changed, move |mut role: Value| async move {
            as_map(&mut role).insert("rules".into(), wanted.clone().into());
            Ok(role)
        }))
        .await?;
    }
    Ok(())
}

struct Role {
    name: Arc<str>,
    entry: Arc<Entry>,
    value: Value,
}

impl Role {
    fn selectors(&self) -> &[Value] {
        items(&self.value, "/aggregationRule/clusterRoleSelectors")
    }

    /// The rules of the roles that each selector finds, selector by selector, each rule once.
    fn aggregated(&self, roles: &[Self]) -> Vec<Value> {
        let mut rules: Vec<Value> = Vec::new();
        for selector in self.selectors() {
            let Some(selector) = model::label_selector(Some(selector)) else { continue };
            let found = roles
                .iter()
                .filter(|role| role.name != self.name && filter::selects(&selector, &role.entry.head));
            for rule in found.flat_map(|role| items(&role.value, "/rules")) {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
        rules
    }
}
