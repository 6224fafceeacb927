//! The priority of a Workload: that of its class, or that of its pods.

use std::time::Duration;

use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::kueue::events::JobEvent;
use quintet_api::kueue::metadata::PRIORITY_CLASS;
use quintet_api::kueue::v1beta2::{
    PodSet, PriorityClassGroup, PriorityClassKind, PriorityClassRef, WorkloadPriorityClass,
};
use quintet_controller::cache::{Cache, Caches, WatchSpec};
use quintet_controller::{Error, Event, Next, ObjectKey, Plan};
use serde::{Deserialize, Serialize};

use super::compose::label;

/// When a class that does not exist is looked for again.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// All classes.
#[derive(Clone)]
pub(super) struct PriorityClasses {
    pub(super) of_workloads: Cache<WorkloadPriorityClass>,
    of_pods: Cache<PriorityClass>,
}

impl PriorityClasses {
    pub(super) fn watch(caches: &Caches) -> Result<Self, Error> {
        Ok(Self {
            of_workloads: caches.watch(WatchSpec::typed())?,
            of_pods: caches.watch(WatchSpec::typed())?,
        })
    }

    /// The priority of a job with this metadata that may name a PriorityClass itself.
    pub(super) fn of(
        &self,
        metadata: &ObjectMeta,
        named: Option<&str>,
        sets: impl IntoIterator<Item = PodSet>,
    ) -> Result<Priority, MissingClass> {
        if let Some(name) = label(metadata, PRIORITY_CLASS) {
            return match self.of_workloads.get(&ObjectKey::cluster(name)) {
                Some(class) => Ok(Priority::of_workload_class(name, class.object.value)),
                None => Err(MissingClass::OfWorkloads(name.to_owned())),
            };
        }
        let classes = self.of_pods.all();
        let sets: Vec<PodSet> = sets.into_iter().collect();
        Priority::of_pods(named, &sets, classes.iter().map(|entry| &entry.object))
    }
}

/// A class that a job names and that does not exist.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum MissingClass {
    /// A WorkloadPriorityClass.
    OfWorkloads(String),
    /// A PriorityClass.
    OfPods(String),
}

impl MissingClass {
    /// A Workload is made when there is such a class. Not every integration hears of new ones: it is looked for again.
    pub(super) fn plan(&self) -> Plan {
        let (what, events) = match self {
            Self::OfWorkloads(name) => {
                let reason = JobEvent::WorkloadPriorityClassNotFound.as_str();
                let note = format!("WorkloadPriorityClass {name:?} not found");
                (format!("WorkloadPriorityClass {name}"), vec![Event::warning(reason, reason, note)])
            }
            Self::OfPods(name) => (format!("PriorityClass {name}"), Vec::new()),
        };
        Plan { events, next: Next::After(LOOK_AGAIN), ..Plan::awaiting(what) }
    }
}

/// A priority, and the class it comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Priority {
    pub(super) value: i32,
    pub(super) class: Option<PriorityClassRef>,
}

impl Priority {
    /// That of a WorkloadPriorityClass.
    pub(super) fn of_workload_class(name: &str, value: i32) -> Self {
        let class = PriorityClassRef {
            group: PriorityClassGroup::KueueXK8sIo,
            kind: PriorityClassKind::WorkloadPriorityClass,
            name: name.to_owned(),
        };
        Self { value, class: Some(class) }
    }

    /// That of the pods: of the class that the job names, of the first pod set that names one, or the default class. Of
    /// several defaults the lowest counts, as in Kubernetes' priority admission.
    pub(super) fn of_pods<'c>(
        named: Option<&str>,
        sets: &[PodSet],
        mut classes: impl Iterator<Item = &'c PriorityClass>,
    ) -> Result<Self, MissingClass> {
        let by_pods = || {
            sets.iter().find_map(|set| {
                let class = set.template.spec.as_ref()?.priority_class_name.as_deref()?;
                (!class.is_empty()).then_some(class)
            })
        };
        let found = match named.filter(|class| !class.is_empty()).or_else(by_pods) {
            Some(name) => {
                let found = classes.find(|class| class.metadata.name.as_deref() == Some(name));
                Some(found.ok_or_else(|| MissingClass::OfPods(name.to_owned()))?)
            }
            None => {
                classes.filter(|class| class.global_default == Some(true)).min_by_key(|class| class.value)
            }
        };
        let Some(class) = found else { return Ok(Self::default()) };
        let class_ref = PriorityClassRef {
            group: PriorityClassGroup::SchedulingK8sIo,
            kind: PriorityClassKind::PriorityClass,
            name: class.metadata.name.clone().unwrap_or_default(),
        };
        Ok(Self { value: class.value.unwrap_or_default(), class: Some(class_ref) })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_named_class_counts_then_the_lowest_default() {
        let class = |name: &str, value: i32, is_default: bool| -> PriorityClass {
            let class = json!({ "metadata": { "name": name }, "value": value, "globalDefault": is_default });
            serde_json::from_value(class).unwrap()
        };
        let classes = [class("a", 7, false), class("b", 5, true), class("c", 3, true)];
        let sets = |class: Option<&str>| -> Vec<PodSet> {
            let set = json!([{ "template": { "spec": { "containers": [], "priorityClassName": class } } }]);
            serde_json::from_value(set).unwrap()
        };
        let of = |class: Option<&str>| Priority::of_pods(None, &sets(class), classes.iter());
        assert_eq!(of(Some("a")).unwrap().value, 7);
        assert_eq!(of(None).unwrap().class.unwrap().name, "c");
        assert_eq!(of(Some("gone")), Err(MissingClass::OfPods("gone".to_owned())));
        assert_eq!(Priority::of_pods(None, &sets(None), [].iter()), Ok(Priority::default()));
        let own = Priority::of_pods(Some("b"), &sets(Some("a")), classes.iter());
        assert_eq!(own.unwrap().value, 5, "the class of the job itself comes first");
    }
}
