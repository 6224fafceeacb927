//! What the Ray controllers watch, and what they keep of it. Each watch is shared by all of them.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Pod, Service},
};
use quintet_api::job::{JobConditions, JobEnd};
use quintet_api::ray::v1::RayCluster;
use quintet_controller::{
    ApiKind, ObjectKey,
    cache::{Entry, Selector, WatchSpec},
};
use serde::{Deserialize, Serialize};

use crate::{labels, pod_view::PodView};

/// Index of pods, Services and Jobs: by `namespace/cluster`, from the label `ray.io/cluster`.
pub const BY_CLUSTER: &str = "cluster";
/// Index of RayClusters and Services: by `namespace/kind/name` of what they were made for.
pub const BY_ORIGIN: &str = "origin";

/// RayClusters, whole.
pub fn clusters() -> WatchSpec<RayCluster> {
    WatchSpec::typed().index(BY_ORIGIN, |entry| {
        origin_key(&entry.key, entry.object.metadata.labels.as_ref()).into_iter().collect()
    })
}

/// Pods of Ray clusters.
pub fn pods() -> WatchSpec<PodView> {
    WatchSpec::projected(ApiKind::of::<Pod>(), PodView::project)
        .select(Selector::all().has_label(labels::NODE_TYPE))
        .index(BY_CLUSTER, |entry| cluster_key(&entry.key, &entry.object.labels).into_iter().collect())
}

/// All Services: a user's own head Service carries no label to select by before we have seen it.
pub fn services() -> WatchSpec<ServiceView> {
    WatchSpec::projected(ApiKind::of::<Service>(), ServiceView::project)
        .index(BY_CLUSTER, |entry| cluster_key(&entry.key, &entry.object.labels).into_iter().collect())
        .index(BY_ORIGIN, |entry| origin_key(&entry.key, Some(&entry.object.labels)).into_iter().collect())
}

/// Jobs made by us: submitters and those that clear Redis.
pub fn jobs() -> WatchSpec<JobView> {
    WatchSpec::projected(ApiKind::of::<Job>(), JobView::project)
        .select(Selector::all().label(labels::APP_CREATED_BY, labels::CREATOR))
        .index(BY_CLUSTER, |entry| cluster_key(&entry.key, &entry.object.labels).into_iter().collect())
}

/// The object of this kind that another one was created for, by its labels.
pub(crate) fn origin_of_kind(
    kind: &str,
    key: &ObjectKey,
    given: &BTreeMap<String, String>,
) -> Option<ObjectKey> {
    let name = given.get(labels::ORIGIN_NAME)?;
    let is_of_kind = given.get(labels::ORIGIN_KIND).is_some_and(|origin| origin == kind);
    is_of_kind.then(|| ObjectKey::new(key.namespace().unwrap_or_default(), name))
}

/// The key of [`BY_ORIGIN`].
pub fn origin(namespace: &str, kind: &str, name: &str) -> String {
    format!("{namespace}/{kind}/{name}")
}

fn origin_key(key: &ObjectKey, given: Option<&BTreeMap<String, String>>) -> Option<String> {
    let given = given?;
    Some(origin(key.namespace()?, given.get(labels::ORIGIN_KIND)?, given.get(labels::ORIGIN_NAME)?))
}

fn cluster_key(key: &ObjectKey, given: &BTreeMap<String, String>) -> Option<String> {
    Some(ObjectKey::new(key.namespace()?, given.get(labels::CLUSTER)?).as_str().to_owned())
}

/// The RayCluster that an object's label names.
pub fn cluster_of<T>(entry: &Entry<T>, given: &BTreeMap<String, String>) -> Option<ObjectKey> {
    Some(ObjectKey::new(entry.key.namespace()?, given.get(labels::CLUSTER)?))
}

/// What is kept of a Service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceView {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The labels of the pods it leads to.
    pub selector: BTreeMap<String, String>,
    /// UID of the object that controls it.
    pub controller: Option<Box<str>>,
    /// Its address: `None` if it is headless, empty while it has none.
    pub cluster_ip: Box<str>,
    /// Its ports.
    pub ports: Vec<PortView>,
}

/// A port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortView {
    /// Its name, or empty.
    pub name: Box<str>,
    /// Its number.
    pub port: i32,
    /// Its number on every node, or zero.
    pub node_port: i32,
    /// Where it leads to on the pods: a number or a name.
    pub target: Box<str>,
}

impl ServiceView {
    /// The number of a named port.
    pub fn port(&self, name: &str) -> Option<i32> {
        self.ports.iter().find(|port| &*port.name == name).map(|port| port.port)
    }

    fn project(text: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Raw {
            metadata: Metadata,
            #[serde(default)]
            spec: Spec,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            selector: BTreeMap<String, String>,
            #[serde(rename = "clusterIP")]
            cluster_ip: Box<str>,
            ports: Vec<RawPort>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct RawPort {
            #[serde(default)]
            name: Box<str>,
            port: i32,
            #[serde(default)]
            node_port: i32,
            #[serde(default)]
            target_port: Target,
        }
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Target {
            Number(i32),
            Name(Box<str>),
        }
        impl Default for Target {
            fn default() -> Self {
                Self::Number(0)
            }
        }
        let raw: Raw = serde_json::from_str(text)?;
        let port = |port: RawPort| PortView {
            name: port.name,
            port: port.port,
            node_port: port.node_port,
            target: match port.target_port {
                Target::Number(0) => port.port.to_string().into(),
                Target::Number(number) => number.to_string().into(),
                Target::Name(name) => name,
            },
        };
        Ok(Self {
            controller: raw.metadata.controller(),
            labels: raw.metadata.labels,
            selector: raw.spec.selector,
            cluster_ip: raw.spec.cluster_ip,
            ports: raw.spec.ports.into_iter().map(port).collect(),
        })
    }
}

/// What is kept of a Job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobView {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// UID of the object that controls it.
    pub controller: Option<Box<str>>,
    /// When and how it ended, if it has.
    pub end: Option<JobEnd>,
    /// Whether it is about to fail.
    pub is_failing: bool,
}

impl JobView {
    fn project(text: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Raw {
            metadata: Metadata,
            #[serde(default)]
            status: Status,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Status {
            conditions: JobConditions,
        }
        let raw: Raw = serde_json::from_str(text)?;
        let JobConditions { end, is_failing } = raw.status.conditions;
        Ok(Self { controller: raw.metadata.controller(), labels: raw.metadata.labels, end, is_failing })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    owner_references: Vec<Owner>,
}

#[derive(Deserialize)]
struct Owner {
    uid: Box<str>,
    #[serde(default)]
    controller: bool,
}

#[cfg(test)]
impl ServiceView {
    pub(crate) fn from_json(service: &serde_json::Value) -> Self {
        Self::project(&service.to_string()).unwrap()
    }
}

#[cfg(test)]
impl JobView {
    pub(crate) fn from_json(job: &serde_json::Value) -> Self {
        Self::project(&job.to_string()).unwrap()
    }
}

impl Metadata {
    fn controller(&self) -> Option<Box<str>> {
        self.owner_references.iter().find(|owner| owner.controller).map(|owner| owner.uid.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_is_reduced_to_where_it_leads() {
        let service = json!({
            "metadata": {"labels": {"a": "b"}, "ownerReferences": [{"uid": "u", "controller": true}]},
            "spec": {"clusterIP": "None", "selector": {"x": "y"}, "ports": [
                {"name": "dashboard", "port": 8265, "targetPort": 8265, "nodePort": 30000},
                {"name": "named", "port": 1, "targetPort": "web"},
                {"port": 2},
            ]},
        });
        let view = ServiceView::project(&service.to_string()).unwrap();
        assert_eq!((&*view.cluster_ip, view.port("dashboard")), ("None", Some(8265)));
        let targets: Vec<_> = view.ports.iter().map(|port| (&*port.target, port.node_port)).collect();
        assert_eq!(targets, [("8265", 30000), ("web", 0), ("2", 0)]);
    }
}
