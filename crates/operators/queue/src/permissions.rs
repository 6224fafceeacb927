//! The least that the queue operator needs to be allowed.

use quintet_component::{Permissions, READ, rule};

use crate::jobs::foreign_kinds;
use crate::settings::Settings;

const TRAINER: &str = "trainer.kubeflow.org";
const TRAIN_JOB: &str = "trainer.kubeflow.org/trainjob";
const KUEUE: &str = "kueue.x-k8s.io";

pub(crate) fn of(settings: &Settings) -> Permissions {
    let runtimes = settings.is_enabled(TRAIN_JOB).then_some(());
    let with = |verbs: &[&'static str]| [READ, verbs].concat();
    Permissions {
        namespaced: vec![
            rule(KUEUE, &["workloads"], &with(&["create", "patch", "delete"])),
            rule(KUEUE, &["workloads/status", "localqueues/status"], &["patch"]),
            rule(KUEUE, &["workloads/finalizers"], &["update"]),
            rule(KUEUE, &["localqueues"], READ),
            rule("", &["limitranges"], READ),
            rule("batch", &["jobs"], &with(&["patch", "delete"])),
            rule("batch", &["jobs/status"], &["patch"]),
            rule("batch", &["jobs/finalizers"], &["update"]),
            rule("", &["pods"], &with(&["patch", "delete"])),
            rule("", &["pods/status"], &["patch"]),
            rule("", &["pods/finalizers"], &["update"]),
            rule("apps", &["replicasets", "deployments", "statefulsets"], READ),
            rule("apps", &["statefulsets/finalizers"], &["update"]),
        ]
        .into_iter()
        .chain(foreign_kinds(settings).into_iter().flat_map(|kind| {
            // Those of other frameworks are only followed as owners.
            let verbs = if kind.is_queued { with(&["patch", "delete"]) } else { READ.to_vec() };
            let finalizers = rule(&kind.group, &[&format!("{}/finalizers", kind.plural)], &["update"]);
            let finalizers = kind.is_queued.then_some(finalizers);
            std::iter::once(rule(&kind.group, &[kind.plural.as_str()], &verbs)).chain(finalizers)
        }))
        .chain(runtimes.map(|()| rule(TRAINER, &["trainingruntimes"], READ)))
        .collect(),
        cluster: vec![
            rule(
                KUEUE,
                &["clusterqueues", "resourceflavors", "admissionchecks", "topologies"],
                &with(&["patch"]),
            ),
            rule(KUEUE, &["cohorts", "workloadpriorityclasses"], READ),
            rule(KUEUE, &["clusterqueues/status", "cohorts/status"], &["patch"]),
            rule("", &["namespaces", "nodes"], READ),
            rule("node.k8s.io", &["runtimeclasses"], READ),
            rule("scheduling.k8s.io", &["priorityclasses"], READ),
        ]
        .into_iter()
        .chain(runtimes.map(|()| rule(TRAINER, &["clustertrainingruntimes"], READ)))
        .collect(),
    }
}
