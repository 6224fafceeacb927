//! Rewrites stored ModelRegistries in another version, once after the start.

use std::time::Duration;

use quintet_api::modelregistry::v1beta1::ModelRegistry;
use quintet_controller::api::{Api, PatchKind};
use quintet_controller::cache::{Cache, Entry, WatchSpec};
use quintet_controller::discovery::Discovery;
use quintet_controller::{ApiKind, Class, Error, ObjectKey};
use serde_json::{Value, json};

use crate::{Context, kinds};

const CRD: &str = "modelregistries.modelregistry.opendatahub.io";
/// As upstream: other operators start at the same time.
const DELAY: Duration = Duration::from_secs(30);
/// How often the cluster's own migration is looked at, and a failed attempt repeated.
const PERIOD: Duration = Duration::from_secs(30);
const LAST_VERSION: &str = "storage-migration.opendatahub.io/last-migrated-rv";

/// Whether a step has ended the migration.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    Done,
    Pending,
}

struct Migration {
    context: Context,
    registries: Cache<ModelRegistry>,
    source: String,
    target: String,
}

/// Starts the migration, if the settings ask for one.
pub(crate) fn start(context: &Context) -> Result<(), Error> {
    let Some((source, target)) = context.settings.migration.clone() else { return Ok(()) };
    let registries = context.runtime.caches().watch(WatchSpec::typed())?;
    let migration = Migration { context: context.clone(), registries, source, target };
    let tasks = context.runtime.tasks().clone();
    context.runtime.tasks().spawn("storage version migration", async move {
        tokio::select! {
            () = tasks.stopping() => {}
            () = migration.run() => {}
        }
    });
    Ok(())
}

impl Migration {
    async fn run(&self) {
        tokio::time::sleep(DELAY).await;
        self.registries.synced().await;
        loop {
            match self.step().await {
                Ok(Progress::Done) => return,
                Ok(Progress::Pending) => {}
                // A replica without the lease cannot write, and waits in case it gets it.
                Err(error) => tracing::warn!("stored registries are not migrated yet: {error}"),
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    async fn step(&self) -> Result<Progress, Error> {
        let api = self.context.runtime.api();
        let crd = read(api, &crd_kind(), &ObjectKey::cluster(CRD)).await?;
        if !has_stored_version(&crd.unwrap_or_default(), &self.source) {
            return Ok(Progress::Done);
        }
        let kind = kinds::storage_version_migration();
        let served = Discovery::new(api.clone()).find(&kind.api_version(), &kind.kind).await?;
        let by_cluster = if served.is_some() { self.ask_cluster(api, &kind).await? } else { None };
        if let Some(progress) = by_cluster {
            return Ok(progress);
        }
        self.rewrite(api).await.map(|()| Progress::Done)
    }

    /// Lets the cluster migrate; `None` if it has failed to.
    async fn ask_cluster(&self, api: &Api, kind: &ApiKind) -> Result<Option<Progress>, Error> {
        let name = format!("modelregistry-{}-to-{}-migration", self.source, self.target);
        let key = ObjectKey::cluster(&name);
        if let Some(live) = read(api, kind, &key).await? {
            return Ok(progress(&live));
        }
        let resource = json!({
            "group": "modelregistry.opendatahub.io", "version": self.target, "resource": "modelregistries",
        });
        let object = json!({
            "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": { "name": name },
            "spec": { "resource": resource },
        });
        api.create(kind, &key, &object).await?;
        Ok(Some(Progress::Pending))
    }

    /// Writes every registry once, which stores it in the current version.
    async fn rewrite(&self, api: &Api) -> Result<(), Error> {
        for registry in self.registries.all() {
            if let Some(patch) = self.mark(&registry) {
                let kind = ApiKind::of::<ModelRegistry>();
                api.patch(&kind, &registry.key, None, &PatchKind::Merge, &patch).await?;
            }
        }
        tracing::info!(source = self.source, target = self.target, "all stored registries are migrated");
        Ok(())
    }

    /// The change that rewrites a registry; `None` if it was made before.
    fn mark(&self, registry: &Entry<ModelRegistry>) -> Option<Value> {
        let mark = format!("storage-migration.opendatahub.io/migrated-{}-to-{}", self.source, self.target);
        let annotations = registry.object.metadata.annotations.as_ref();
        if annotations.is_some_and(|annotations| annotations.contains_key(&mark)) {
            return None;
        }
        let now = self.context.clock.now().to_string();
        let annotations = json!({ mark: now, LAST_VERSION: registry.version.to_string() });
        Some(json!({ "metadata": { "annotations": annotations } }))
    }
}

/// How far the cluster's own migration is; `None` if it has failed.
fn progress(migration: &Value) -> Option<Progress> {
    let conditions = migration["status"]["conditions"].as_array();
    let succeeded = conditions.into_iter().flatten().find(|condition| condition["type"] == "Succeeded");
    match succeeded.map(|condition| condition["status"].as_str().unwrap_or_default()) {
        Some("True") => Some(Progress::Done),
        Some("False") => None,
        _ => Some(Progress::Pending),
    }
}

fn has_stored_version(crd: &Value, version: &str) -> bool {
    crd["status"]["storedVersions"].as_array().into_iter().flatten().any(|stored| stored == version)
}

async fn read(api: &Api, kind: &ApiKind, key: &ObjectKey) -> Result<Option<Value>, Error> {
    let Some(text) = api.get(kind, key).await? else { return Ok(None) };
    let failed = |error: serde_json::Error| {
        Error::new(Class::Transient, format!("cannot decode {kind} {key}"), error.to_string())
    };
    serde_json::from_str(&text).map(Some).map_err(failed)
}

fn crd_kind() -> ApiKind {
    ApiKind::cluster_scoped(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clusters_migration_tells_how_far_it_is() {
        let of = |status: &str| {
            progress(&json!({"status": {"conditions": [{"type": "Succeeded", "status": status}]}}))
        };
        assert_eq!(of("True"), Some(Progress::Done));
        assert_eq!(of("False"), None, "then registries are rewritten one by one");
        assert_eq!(of("Unknown"), Some(Progress::Pending));
        assert_eq!(progress(&json!({})), Some(Progress::Pending));
    }

    #[test]
    fn only_a_version_that_is_stored_is_migrated() {
        let crd = json!({"status": {"storedVersions": ["v1alpha1", "v1beta1"]}});
        assert!(has_stored_version(&crd, "v1alpha1"));
        assert!(!has_stored_version(&crd, "v1"));
        assert!(!has_stored_version(&Value::Null, "v1alpha1"));
    }
}
