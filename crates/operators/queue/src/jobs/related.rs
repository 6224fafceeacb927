//! Objects that jobs refer to.

use quintet_controller::cache::{Cache, Caches, WatchSpec};
use quintet_controller::{ApiKind, Error, ObjectKey};
use serde_json::Value;

use super::json::{JsonJob, RayCluster};
use super::{Reference, observe};

/// The objects of a kind.
#[derive(Clone)]
pub(super) enum Related {
    /// A kind that is no job.
    Other(Cache<Value>),
    /// Clusters are jobs, too, and cached once.
    RayClusters(Cache<JsonJob<RayCluster>>),
}

impl Related {
    fn watch(caches: &Caches, kind: ApiKind) -> Result<Self, Error> {
        if kind == ApiKind::of::<JsonJob<RayCluster>>() {
            return Ok(Self::RayClusters(caches.watch(observe::jobs())?));
        }
        let spec = WatchSpec::projected(kind, |text| serde_json::from_str(text));
        Ok(Self::Other(caches.watch(spec.optional())?))
    }

    pub(super) fn kind(&self) -> &ApiKind {
        match self {
            Self::Other(cache) => cache.kind(),
            Self::RayClusters(cache) => cache.kind(),
        }
    }

    fn get(&self, key: &ObjectKey) -> Option<Value> {
        match self {
            Self::Other(cache) => Some(cache.get(key)?.object.clone()),
            Self::RayClusters(cache) => Some(cache.get(key)?.object.as_json().clone()),
        }
    }
}

/// The caches of kinds that jobs refer to.
pub(super) fn watch(caches: &Caches, kinds: Vec<ApiKind>) -> Result<Vec<Related>, Error> {
    kinds.into_iter().map(|kind| Related::watch(caches, kind)).collect()
}

/// The objects that a job refers to, in order, as far as they exist.
pub(super) fn referred(related: &[Related], references: &[Reference]) -> Vec<Value> {
    let find = |reference: &Reference| {
        let cache = related.iter().find(|cache| *cache.kind() == reference.kind)?;
        cache.get(&reference.key)
    };
    references.iter().filter_map(find).collect()
}
