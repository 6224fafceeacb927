//! Objects that the operator manages: as they are, as they should be, and the steps from one to the other.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, PersistentVolumeClaim, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, Role, RoleBinding};
use quintet_controller::cache::{Cache, Caches, Entry, Selector, WatchSpec};
use quintet_controller::plan::Propagation;
use quintet_controller::{Action, ApiKind, Error, ObjectKey};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::names::{CREATED_BY, OPERATOR};
use crate::{drift, kinds};

/// An object that should exist, or should not.
#[derive(Clone, Debug)]
pub(crate) struct Desired {
    pub(crate) kind: ApiKind,
    /// See [`drift`] for what stands in it for absence.
    pub(crate) object: Value,
    pub(crate) policy: Policy,
}

/// What becomes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// It is created, and repaired when it differs.
    Managed,
    /// It is created, and then belongs to users.
    CreateOnly,
    /// It is deleted.
    Absent,
}

/// What a step does to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Created,
    Updated,
    Deleted,
}

impl Desired {
    /// A managed object.
    pub(crate) fn managed(kind: ApiKind, object: Value) -> Self {
        Self { kind, object, policy: Policy::Managed }
    }

    /// An object that belongs to users once it exists.
    pub(crate) fn create_only(kind: ApiKind, object: Value) -> Self {
        Self { kind, object, policy: Policy::CreateOnly }
    }

    /// An object that must not exist.
    pub(crate) fn absent(kind: ApiKind, key: &ObjectKey) -> Self {
        let metadata = json!({ "name": key.name(), "namespace": key.namespace() });
        Self { kind, object: json!({ "metadata": metadata }), policy: Policy::Absent }
    }

    /// Managed if `condition` holds; otherwise it must not exist.
    pub(crate) fn managed_if(condition: bool, kind: ApiKind, object: Value) -> Self {
        let policy = if condition { Policy::Managed } else { Policy::Absent };
        Self { kind, object, policy }
    }

    /// The object as it is created, if it is.
    pub(crate) fn preview(&self) -> Option<Value> {
        if self.policy == Policy::Absent {
            return None;
        }
        let mut object = drift::to_create(&self.object);
        object["apiVersion"] = self.kind.api_version().into();
        object["kind"] = self.kind.kind.as_ref().into();
        Some(object)
    }

    pub(crate) fn key(&self) -> ObjectKey {
        let text = |field: &str| self.object["metadata"][field].as_str().unwrap_or_default();
        ObjectKey::new(text("namespace"), text("name"))
    }

    /// The step that makes it so, if one is needed. An object that is being deleted is made again when it is gone.
    pub(crate) fn step<C>(&self, live: &Live) -> Option<(Action<C>, Change)> {
        let entry = live.get(&self.kind, &self.key());
        match (self.policy, entry) {
            (Policy::Absent, None) | (Policy::CreateOnly, Some(_)) => None,
            (_, Some(entry)) if entry.deleting => None,
            (Policy::Absent, Some(entry)) => Some((delete(&self.kind, entry), Change::Deleted)),
            (Policy::Managed, None) => {
                let object = drift::to_create(&self.object);
                Some((Action::create(self.kind.clone(), &object), Change::Created))
            }
            (Policy::CreateOnly, None) => {
                let object = drift::to_create(&self.object);
                Some((Action::ensure(self.kind.clone(), &object), Change::Created))
            }
            (Policy::Managed, Some(entry)) => {
                let repaired = drift::repaired(&entry.object, &self.object);
                let action = Action::update(self.kind.clone(), entry, &repaired)?;
                Some((action, Change::Updated))
            }
        }
    }
}

/// Deletes an object as the cache shows it.
pub(crate) fn delete<C>(kind: &ApiKind, entry: &Entry<Value>) -> Action<C> {
    Action::Delete {
        kind: kind.clone(),
        key: entry.key.clone(),
        uid: entry.uid.clone(),
        propagation: Propagation::Background,
        grace_seconds: None,
    }
}

/// Objects as they are.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Live(Vec<(ApiKind, Arc<Entry<Value>>)>);

impl Live {
    /// One object.
    pub(crate) fn get(&self, kind: &ApiKind, key: &ObjectKey) -> Option<&Arc<Entry<Value>>> {
        self.0.iter().find(|(other, entry)| other == kind && entry.key == *key).map(|(_, entry)| entry)
    }
}

/// Which optional kinds the cluster serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OptionalApis {
    /// Routes, which mean OpenShift.
    pub routes: bool,
    /// OpenShift's groups of users.
    pub groups: bool,
    /// HTTPRoutes and ReferenceGrants.
    pub gateway: bool,
}

/// Caches of all kinds that the operator makes, of objects with its label.
#[derive(Clone)]
pub(crate) struct ManagedCaches {
    always: Vec<Cache<Value>>,
    pub(crate) routes: Cache<Value>,
    pub(crate) groups: Cache<Value>,
    pub(crate) http_routes: Cache<Value>,
    pub(crate) reference_grants: Cache<Value>,
}

impl ManagedCaches {
    pub(crate) fn new(caches: &Caches) -> Result<Self, Error> {
        let ours = || Selector::all().label(CREATED_BY, OPERATOR);
        let whole = |kind: ApiKind| WatchSpec::projected(kind, |text| serde_json::from_str(text));
        let optional = |kind: ApiKind, selector| caches.watch(whole(kind).select(selector).optional());
        let always = [
            ApiKind::of::<ServiceAccount>(),
            ApiKind::of::<Service>(),
            ApiKind::of::<Endpoints>(),
            ApiKind::of::<ConfigMap>(),
            ApiKind::of::<PersistentVolumeClaim>(),
            ApiKind::of::<Deployment>(),
            ApiKind::of::<NetworkPolicy>(),
            ApiKind::of::<Role>(),
            ApiKind::of::<RoleBinding>(),
            ApiKind::of::<ClusterRoleBinding>(),
        ];
        let always = always.into_iter().map(|kind| caches.watch(whole(kind).select(ours())));
        Ok(Self {
            always: always.collect::<Result<_, _>>()?,
            routes: optional(kinds::route(), ours())?,
            groups: optional(kinds::group(), ours())?,
            http_routes: optional(kinds::http_route(), ours())?,
            reference_grants: optional(kinds::reference_grant(), ours())?,
        })
    }

    /// All caches.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Cache<Value>> {
        self.always.iter().chain(self.optional())
    }

    /// Caches of kinds that the cluster may not serve.
    pub(crate) fn optional(&self) -> [&Cache<Value>; 4] {
        [&self.routes, &self.groups, &self.http_routes, &self.reference_grants]
    }

    /// What the cluster serves.
    pub(crate) fn apis(&self) -> OptionalApis {
        OptionalApis {
            routes: self.routes.is_served(),
            groups: self.groups.is_served(),
            gateway: self.http_routes.is_served() && self.reference_grants.is_served(),
        }
    }

    /// Those of the named objects that exist.
    pub(crate) fn read(&self, inventory: &[(ApiKind, ObjectKey)]) -> Live {
        let entry = |(kind, key): &(ApiKind, ObjectKey)| {
            let cache = self.all().find(|cache| cache.kind() == kind)?;
            Some((kind.clone(), cache.get(key)?))
        };
        Live(inventory.iter().filter_map(entry).collect())
    }
}

/// The name of an object's controller, if it is of this kind.
pub(crate) fn controller_name<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true && owner["kind"] == kind)?;
    owner["name"].as_str()
}

/// A label of an object.
pub(crate) fn label<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["labels"][name].as_str()
}
