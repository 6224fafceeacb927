//! Gang scheduling by Kubernetes' own scheduler: a Workload and a PodGroup say how many pods start together.
//!
//! Both cannot be changed, so that another number means another object: first the PodGroup goes, then the Workload, then both
//! are made anew. Kubernetes keeps a PodGroup while pods refer to it, by a finalizer; ours goes when we say so.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{Pod, PodSchedulingGroup};
use quintet_api::{owners::controller_reference, ray::v1::RayCluster};
use quintet_controller::{
    Action, ApiKind, Error, ObjectKey, Step,
    cache::{Cache, Caches, Entry, WatchSpec},
    controller::Setup,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{label, volcano};
use crate::{labels, pod::is_autoscaling, settings::Settings};

const TEMPLATE: &str = "cluster";
const PROTECTION: &str = "scheduling.k8s.io/podgroup-protection";

fn kind(kind: &'static str, plural: &'static str) -> ApiKind {
    ApiKind::namespaced("scheduling.k8s.io", "v1alpha2", kind, plural)
}

fn workload_kind() -> ApiKind {
    kind("Workload", "workloads")
}

fn group_kind() -> ApiKind {
    kind("PodGroup", "podgroups")
}

/// Where Workloads and PodGroups are seen.
#[derive(Clone)]
pub(crate) struct Watched {
    workloads: Cache<GangView>,
    groups: Cache<GangView>,
}

/// What is there of a cluster's gang.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    workload: Option<Arc<Entry<GangView>>>,
    group: Option<Arc<Entry<GangView>>>,
}

impl Watched {
    /// Watches gangs, if the feature is on.
    pub(crate) fn watch(caches: &Caches, settings: &Settings) -> Result<Option<Self>, Error> {
        if !settings.gates.native_gang_scheduling {
            return Ok(None);
        }
        let gangs = |kind| caches.watch(WatchSpec::projected(kind, GangView::project));
        Ok(Some(Self { workloads: gangs(workload_kind())?, groups: gangs(group_kind())? }))
    }

    /// Lets a controller of RayClusters look whenever a gang changes.
    pub(crate) fn wake(&self, setup: Setup) -> Setup {
        let named = |gang: &Entry<GangView>| {
            let name = gang.object.cluster.as_deref().unwrap_or_default();
            vec![ObjectKey::new(gang.key.namespace().unwrap_or_default(), name)]
        };
        setup.watches(&self.workloads, named).watches(&self.groups, named)
    }

    pub(crate) fn look(&self, cluster: &ObjectKey) -> Observed {
        let namespace = cluster.namespace().unwrap_or_default();
        let group = ObjectKey::new(namespace, &group_name(cluster.name()));
        Observed { workload: self.workloads.get(cluster), group: self.groups.get(&group) }
    }
}

/// What is kept of a Workload or PodGroup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GangView {
    min_count: Option<i64>,
    controller: Option<String>,
    cluster: Option<String>,
    finalizers: Vec<String>,
}

impl GangView {
    fn project(text: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Raw {
            metadata: Metadata,
            #[serde(default)]
            spec: Spec,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Metadata {
            labels: BTreeMap<String, String>,
            finalizers: Vec<String>,
            owner_references: Vec<Owner>,
        }
        #[derive(Deserialize)]
        struct Owner {
            uid: String,
            #[serde(default)]
            controller: bool,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            pod_group_templates: Vec<Template>,
            scheduling_policy: Policy,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Template {
            #[serde(default)]
            scheduling_policy: Policy,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Policy {
            gang: Option<Gang>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Gang {
            min_count: i64,
        }
        let mut raw: Raw = serde_json::from_str(text)?;
        let policy = match raw.spec.pod_group_templates.as_slice() {
            [template] => &template.scheduling_policy,
            _ => &raw.spec.scheduling_policy,
        };
        Ok(Self {
            min_count: policy.gang.as_ref().map(|gang| gang.min_count),
            controller: raw
                .metadata
                .owner_references
                .into_iter()
                .find(|one| one.controller)
                .map(|one| one.uid),
            cluster: raw.metadata.labels.remove(labels::CLUSTER),
            finalizers: raw.metadata.finalizers,
        })
    }
}

fn group_name(cluster: &str) -> String {
    format!("{cluster}-{TEMPLATE}")
}

/// Whether the cluster is one gang. An autoscaler starts from the fewest pods, which is none.
fn is_gang(cluster: &RayCluster) -> bool {
    let asks =
        label(cluster, labels::GANG_SCHEDULING).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    asks && !is_autoscaling(&cluster.spec)
}

/// What has to be done before pods can be made.
pub(crate) enum Preparation {
    /// This, and then the pods.
    Ready(Vec<Step>),
    /// This, and then wait for what it leads to.
    Wait(Vec<Step>),
    /// Nothing: an object of that name is owned by another controller.
    Taken(String),
}

/// Compares the gang that should be with what is there.
pub(crate) fn prepare(cluster: &RayCluster, observed: &Observed) -> Preparation {
    let uid = cluster.metadata.uid.as_deref();
    let is_ours = |gang: &Entry<GangView>| gang.object.controller.as_deref() == uid;
    let ours = |gang: &Option<Arc<Entry<GangView>>>| gang.clone().filter(|gang| is_ours(gang));
    let (workload, group) = (ours(&observed.workload), ours(&observed.group));
    if !is_gang(cluster) {
        return match (group, workload) {
            (None, None) => Preparation::Ready(Vec::new()),
            (Some(group), _) => Preparation::Wait(remove_group(&group)),
            (None, Some(workload)) => Preparation::Wait(remove(workload_kind(), &workload)),
        };
    }
    let foreign = [("Workload", &observed.workload), ("PodGroup", &observed.group)];
    let foreign = foreign.into_iter().find_map(|(kind, gang)| {
        let gang = gang.as_ref().filter(|gang| !is_ours(gang))?;
        Some(format!("{kind} {} is owned by another controller; rename it, or the RayCluster", gang.key))
    });
    if let Some(error) = foreign {
        return Preparation::Taken(error);
    }
    let count = volcano::members(cluster);
    let fits = |gang: &Arc<Entry<GangView>>| gang.object.min_count == Some(count) && !gang.deleting;
    match (workload, group) {
        (Some(workload), group) if !fits(&workload) => Preparation::Wait(match group {
            Some(group) => remove_group(&group),
            None => remove(workload_kind(), &workload),
        }),
        (_, Some(group)) if !fits(&group) => Preparation::Wait(remove_group(&group)),
        (workload, group) => {
            let mut steps = Vec::new();
            if workload.is_none() {
                steps.push(Action::create(workload_kind(), &workload_of(cluster, count)).into());
            }
            if group.is_none() {
                steps.push(Action::create(group_kind(), &group_of(cluster, count)).into());
            }
            Preparation::Ready(steps)
        }
    }
}

fn remove(kind: ApiKind, gang: &Entry<GangView>) -> Vec<Step> {
    if gang.deleting { Vec::new() } else { vec![Action::delete(kind, gang).into()] }
}

fn remove_group(group: &Entry<GangView>) -> Vec<Step> {
    let mut steps = Vec::new();
    if group.object.finalizers.iter().any(|one| one == PROTECTION) {
        let others: Vec<_> = group.object.finalizers.iter().filter(|one| *one != PROTECTION).collect();
        let patch = json!({"metadata": {"finalizers": others, "resourceVersion": group.version.to_string()}});
        steps.push(Action::merge(group_kind(), group.key.clone(), patch).into());
    }
    steps.extend(remove(group_kind(), group));
    steps
}

fn workload_of(cluster: &RayCluster, count: i64) -> serde_json::Value {
    let name = &cluster.metadata.name;
    json!({
        "metadata": {
            "name": name, "namespace": cluster.metadata.namespace, "labels": {labels::CLUSTER: name},
            "ownerReferences": controller_reference(cluster).map(|owner| [owner]),
        },
        "spec": {
            "controllerRef": {"apiGroup": "ray.io", "kind": "RayCluster", "name": name},
            "podGroupTemplates": [{"name": TEMPLATE, "schedulingPolicy": {"gang": {"minCount": count}}}],
        },
    })
}

fn group_of(cluster: &RayCluster, count: i64) -> serde_json::Value {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    json!({
        "metadata": {
            "name": group_name(name), "namespace": cluster.metadata.namespace, "labels": {labels::CLUSTER: name},
            "ownerReferences": controller_reference(cluster).map(|owner| [owner]),
        },
        "spec": {
            "podGroupTemplateRef": {"workload": {"workloadName": name, "podGroupTemplateName": TEMPLATE}},
            "schedulingPolicy": {"gang": {"minCount": count}},
        },
    })
}

/// Makes a pod a member of the gang.
pub(super) fn mark(pod: &mut Pod, cluster: &RayCluster) {
    if is_gang(cluster) {
        let name = group_name(cluster.metadata.name.as_deref().unwrap_or_default());
        let spec = pod.spec.get_or_insert_default();
        spec.scheduler_name = Some("default-scheduler".to_owned());
        spec.scheduling_group = Some(PodSchedulingGroup { pod_group_name: Some(name) });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn cluster(replicas: i32, gang: &str) -> RayCluster {
        serde_json::from_value(json!({
            "metadata": {"name": "demo", "namespace": "ns", "uid": "u", "labels": {labels::GANG_SCHEDULING: gang}},
            "spec": {"headGroupSpec": {"template": {}}, "workerGroupSpecs": [
                {"groupName": "a", "replicas": replicas, "minReplicas": 0, "maxReplicas": 9, "template": {}}]},
        }))
        .unwrap()
    }

    fn gang(object: &Value, uid: &str) -> Arc<Entry<GangView>> {
        let mut object = object.clone();
        object["metadata"]["ownerReferences"][0]["uid"] = uid.into();
        object["metadata"]["finalizers"] = json!([PROTECTION]);
        let name = object["metadata"]["name"].as_str().unwrap();
        let view = GangView::project(&object.to_string()).unwrap();
        Arc::new(Entry::new(ObjectKey::new("ns", name), view))
    }

    fn there(cluster: &RayCluster, count: i64) -> Observed {
        let (workload, group) = (workload_of(cluster, count), group_of(cluster, count));
        Observed { workload: Some(gang(&workload, "u")), group: Some(gang(&group, "u")) }
    }

    fn deeds(preparation: Preparation) -> (bool, Vec<String>) {
        let (ready, steps) = match preparation {
            Preparation::Ready(steps) => (true, steps),
            Preparation::Wait(steps) => (false, steps),
            Preparation::Taken(error) => return (false, vec![error]),
        };
        (ready, steps.iter().map(|step| step.action.to_string()).collect())
    }

    #[test]
    fn a_gang_is_made_before_its_pods() {
        let demo = cluster(2, "True");
        let (ready, made) = deeds(prepare(&demo, &Observed::default()));
        assert!(ready);
        assert_eq!(
            made,
            [
                "create Workload.scheduling.k8s.io ns/demo",
                "create PodGroup.scheduling.k8s.io ns/demo-cluster"
            ]
        );
        assert_eq!(deeds(prepare(&demo, &there(&demo, 3))), (true, vec![]));
        let mut pod = Pod::default();
        mark(&mut pod, &demo);
        let group = pod.spec.unwrap().scheduling_group.unwrap();
        assert_eq!(group.pod_group_name.as_deref(), Some("demo-cluster"));
    }

    #[test]
    fn another_size_is_another_gang() {
        let demo = cluster(4, "true");
        let mut observed = there(&demo, 3);
        let (ready, first) = deeds(prepare(&demo, &observed));
        assert!(!ready);
        assert_eq!(
            first,
            [
                "patch PodGroup.scheduling.k8s.io ns/demo-cluster",
                "delete PodGroup.scheduling.k8s.io ns/demo-cluster"
            ]
        );
        observed.group = None;
        assert_eq!(
            deeds(prepare(&demo, &observed)),
            (false, vec!["delete Workload.scheduling.k8s.io ns/demo".to_owned()])
        );
    }

    #[test]
    fn who_does_not_ask_has_no_gang_and_what_is_not_ours_is_left_alone() {
        let plain = cluster(2, "false");
        assert_eq!(deeds(prepare(&plain, &Observed::default())), (true, vec![]));
        assert!(!deeds(prepare(&plain, &there(&plain, 3))).0, "ours goes");
        let demo = cluster(2, "true");
        let foreign = Observed { workload: Some(gang(&workload_of(&demo, 3), "other")), group: None };
        assert!(deeds(prepare(&demo, &foreign)).1[0].contains("is owned by another controller"));
        assert_eq!(deeds(prepare(&plain, &foreign)), (true, vec![]));
    }
}
