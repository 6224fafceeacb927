//! The priority of a Workload: that of its class, or that of its pods.

use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::kueue::metadata::PRIORITY_CLASS;
use quintet_api::kueue::v1beta2::{
    PodSet, PriorityClassGroup, PriorityClassKind, PriorityClassRef, WorkloadPriorityClass,
};
use quintet_controller::cache::{Cache, Caches, WatchSpec};
use quintet_controller::{Error, ObjectKey};
use serde::{Deserialize, Serialize};

use super::compose::label;

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

    /// The priority of a job with this metadata that may name a PriorityClass itself; the error is the name of a class
    /// that does not exist.
    pub(super) fn of(
        &self,
        metadata: &ObjectMeta,
        named: Option<&str>,
        sets: impl IntoIterator<Item = PodSet>,
    ) -> Result<Priority, String> {
        if let Some(name) = label(metadata, PRIORITY_CLASS) {
            return match self.of_workloads.get(&ObjectKey::cluster(name)) {
                Some(class) => Ok(Priority::of_workload_class(name, class.object.value)),
                None => Err(name.to_owned()),
            };
        }
        let classes = self.of_pods.all();
        let sets: Vec<PodSet> = sets.into_iter().collect();
        Ok(Priority::of_pods(named, &sets, classes.iter().map(|entry| &entry.object)))
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
    ) -> Self {
        let by_pods = || {
            sets.iter().find_map(|set| {
                let class = set.template.spec.as_ref()?.priority_class_name.as_deref()?;
                (!class.is_empty()).then_some(class)
            })
        };
        let found = match named.filter(|class| !class.is_empty()).or_else(by_pods) {
            Some(name) => classes.find(|class| class.metadata.name.as_deref() == Some(name)),
            None => {
                classes.filter(|class| class.global_default == Some(true)).min_by_key(|class| class.value)
            }
        };
        let Some(class) = found else { return Self::default() };
        let class_ref = PriorityClassRef {
            group: PriorityClassGroup::SchedulingK8sIo,
            kind: PriorityClassKind::PriorityClass,
            name: class.metadata.name.clone().unwrap_or_default(),
        };
        Self { value: class.value.unwrap_or_default(), class: Some(class_ref) }
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
        assert_eq!(of(Some("a")).value, 7);
        assert_eq!(of(None).class.unwrap().name, "c");
        assert_eq!(of(Some("gone")), Priority::default());
        let own = Priority::of_pods(Some("b"), &sets(Some("a")), classes.iter());
        assert_eq!(own.value, 5, "the class of the job itself comes first");
    }
}
