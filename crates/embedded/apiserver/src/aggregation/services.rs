//! APIServices: who serves a version of a group. Those of this server are kept in line with what it serves.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use parking_lot::RwLock;
use serde_json::{Value, json};

use super::availability;
use crate::{
    api::Api,
    json::{self, text, timestamp},
    resources::rank,
    status::Failure,
    store::{Expect, Put, Write, WriteError},
};

pub(super) const BUCKET: &str = "apiregistration.k8s.io/apiservices";
/// Marks what this server keeps by itself: `onstart` for what is built in, `true` for what definitions add.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// Priorities of the built-in groups, as every cluster has them.
const PRIORITIES: [(&str, i64); 18] = [
    ("", 18_000),
    ("apps", 17_800),
    ("events.k8s.io", 17_750),
    ("authentication.k8s.io", 17_700),
    ("authorization.k8s.io", 17_600),
    ("autoscaling", 17_500),
    ("batch", 17_400),
    ("certificates.k8s.io", 17_300),
    ("networking.k8s.io", 17_200),
    ("policy", 17_100),
    ("rbac.authorization.k8s.io", 17_000),
    ("storage.k8s.io", 16_800),
    ("apiextensions.k8s.io", 16_700),
    ("admissionregistration.k8s.io", 16_700),
    ("scheduling.k8s.io", 16_600),
    ("coordination.k8s.io", 16_500),
    ("node.k8s.io", 16_300),
    ("discovery.k8s.io", 16_200),
];
/// Built-in groups that came later.
const YOUNGER: i64 = 15_900;
/// Groups that definitions add.
const CUSTOM: (i64, i64) = (1000, 100);

type ByName = HashMap<String, Arc<Value>>;

/// What is known about other servers.
#[derive(Debug, Default)]
pub(crate) struct Services {
    /// The APIServices of other servers, and the version of the store they are of.
    remote: RwLock<(u64, Arc<ByName>)>,
    /// Resources of servers that were available at the last check, by name.
    resources: RwLock<HashMap<String, Arc<[Value]>>>,
}

/// A group, a version of it, and its resources if they are known.
type Discovered = (String, String, Option<Arc<[Value]>>);

impl Services {
    pub(super) fn all(&self, api: &Api) -> Arc<ByName> {
        let version = api.store().bucket_version(BUCKET);
        {
            let known = self.remote.read();
            if known.0 == version {
                return Arc::clone(&known.1);
            }
        }
        let services = api.store().objects(BUCKET, "");
        let services = services.into_iter().filter_map(|(name, entry)| {
            let service = entry.parse();
            is_remote(&service).then(|| (name.to_string(), Arc::new(service)))
        });
        let services = Arc::new(services.collect::<ByName>());
        *self.remote.write() = (version, Arc::clone(&services));
        services
    }

    /// The APIService of another server for a version of a group.
    pub(crate) fn remote(&self, api: &Api, group: &str, version: &str) -> Option<Arc<Value>> {
        let services = self.all(api);
        if services.is_empty() || group.is_empty() {
            return None;
        }
        services.get(&format!("{version}.{group}")).cloned()
    }

    /// Versions that other servers serve, best first.
    pub(crate) fn discovered(&self, api: &Api) -> Vec<Discovered> {
        let services = self.all(api);
        let number = |service: &Value, key: &str| service["spec"][key].as_i64().unwrap_or(0);
        let mut sorted: Vec<(&String, &Arc<Value>)> = services.iter().collect();
        sorted.sort_by_key(|(_, service)| {
            let (group, version) =
                (number(service, "groupPriorityMinimum"), number(service, "versionPriority"));
            let name = rank(text(service, "/spec/version"));
            (-group, text(service, "/spec/group").to_owned(), -version, name)
        });
        let resources = self.resources.read();
        let shown = |(name, service): (&String, &Arc<Value>)| {
            let part = |pointer: &str| text(service, pointer).to_owned();
            (part("/spec/group"), part("/spec/version"), resources.get(name).cloned())
        };
        sorted.into_iter().map(shown).collect()
    }

    /// Caches the resources of a server; `None` if it is unavailable.
    pub(super) fn learn(&self, name: &str, resources: Option<Vec<Value>>) {
        match resources {
            Some(resources) => self.resources.write().insert(name.to_owned(), resources.into()),
            None => self.resources.write().remove(name),
        };
    }
}

pub(super) fn is_remote(service: &Value) -> bool {
    service.pointer("/spec/service").is_some_and(Value::is_object)
}

/// Keeps an APIService that was written in order.
pub(crate) async fn refresh_service(api: &Api, name: &str) -> Result<(), Failure> {
    if api.services().all(api).contains_key(name) {
        availability::check(api, name).await;
        return Ok(());
    }
    publish(api).await
}

/// What this server should say about the versions it serves, by name.
fn local(api: &Api) -> BTreeMap<String, Value> {
    let registry = api.registry();
    let mut services = BTreeMap::new();
    // A server does not register the registry itself.
    for group in registry.groups.iter().filter(|group| *group.name != *"apiregistration.k8s.io") {
        let count = i64::try_from(group.versions.len()).unwrap_or(1);
        for (version, rank) in group.versions.iter().zip((1..=count).rev()) {
            let is_custom = version.resources.iter().any(|resource| resource.as_custom().is_some());
            let listed = PRIORITIES.iter().find(|(name, _)| *name == &*group.name);
            let (of_group, of_version, kept) = match listed {
                _ if is_custom => (CUSTOM.0, CUSTOM.1, "true"),
                Some(("", priority)) => (*priority, 1, "onstart"),
                Some((_, priority)) => (*priority, 15 * rank, "onstart"),
                None => (YOUNGER, 15 * rank, "onstart"),
            };
            let mut spec = json!({"version": &*version.version, "groupPriorityMinimum": of_group, "versionPriority": of_version});
            if !group.name.is_empty() {
                json::as_map(&mut spec).insert("group".into(), (*group.name).into());
            }
            let name = format!("{}.{}", version.version, group.name);
            services.insert(
                name.clone(),
                json!({"metadata": {"name": name, "labels": {AUTOMANAGED: kept}}, "spec": spec}),
            );
        }
    }
    for (name, spec) in api.servers().specs() {
        let labels = json!({ AUTOMANAGED: "true" });
        services.insert(name.clone(), json!({"metadata": {"name": name, "labels": labels}, "spec": spec}));
    }
    services
}

/// Registers what this server serves, and nothing that it no longer serves.
pub(crate) async fn publish(api: &Api) -> Result<(), Failure> {
    let mut wanted = local(api);
    let known = api.store().objects(BUCKET, "");
    let mut writes = Vec::new();
    for (name, entry) in known {
        let is_wanted = wanted.remove(&*name).is_some();
        // One that a person wrote stays, whatever it says.
        if !is_wanted && entry.head.label(AUTOMANAGED).is_some() {
            writes.push((name, Expect::Version(entry.rv), None));
        }
    }
    let now = timestamp(api.now());
    for (name, mut service) in wanted {
        let metadata = json::metadata(&mut service);
        metadata.insert("uid".into(), api.rng().uuid().into());
        metadata.insert("creationTimestamp".into(), now.as_str().into());
        let available = json!({"type": "Available", "status": "True", "reason": "Local",
            "message": "Local APIServices are always available", "lastTransitionTime": now});
        json::as_map(&mut service).insert("status".into(), json!({"conditions": [available]}));
        writes.push((name.into(), Expect::Absent, Some(Put::new("v1".into(), &service, 0))));
    }
    let writes = writes.into_iter().map(|(key, expect, put)| {
        api.write(Write { bucket: BUCKET.into(), key, expect, put, parents: Vec::new() })
    });
    for outcome in futures::future::join_all(writes).await {
        // Another writer had the same reason.
        if let Err(error @ (WriteError::Overloaded | WriteError::NoSpace(_) | WriteError::Failed(_))) =
            outcome
        {
            return Err(error.into());
        }
    }
    Ok(())
}
