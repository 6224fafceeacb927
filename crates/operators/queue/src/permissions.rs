//! The least that the queue operator needs to be allowed.

use k8s_openapi::api::rbac::v1::PolicyRule;
use quintet_component::{Permissions, READ, rule};

use crate::jobs::{external_kinds, foreign_kinds};
use crate::settings::Settings;

const TRAINER: &str = "trainer.kubeflow.org";
const TRAIN_JOB: &str = "trainer.kubeflow.org/trainjob";
const KUEUE: &str = "kueue.x-k8s.io";
const DEVICES: &str = "resource.k8s.io";
const AUTOSCALING: &str = "autoscaling.x-k8s.io";

pub(crate) fn of(settings: &Settings) -> Permissions {
    let runtimes = settings.is_enabled(TRAIN_JOB).then_some(());
    let devices = settings.scheduling.dra.then_some(());
    let with = |verbs: &[&'static str]| [READ, verbs].concat();
    let runs_elsewhere = settings.gates.multikueue.then_some(());
    let profiles = runs_elsewhere.filter(|()| settings.gates.multikueue_cluster_profile);
    Permissions {
        own: runs_elsewhere
            .map(|()| rule("", &["secrets"], READ))
            .into_iter()
            .chain(profiles.map(|()| rule("multicluster.x-k8s.io", &["clusterprofiles"], READ)))
            .collect(),
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
            rule("", &["podtemplates"], &with(&["create", "patch", "delete"])),
            rule(AUTOSCALING, &["provisioningrequests"], &with(&["create", "delete"])),
            rule(AUTOSCALING, &["provisioningrequests/finalizers"], &["update"]),
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
        .chain(devices.map(|()| rule(DEVICES, &["resourceclaimtemplates"], READ)))
        .chain(runtimes.map(|()| rule(TRAINER, &["trainingruntimes"], READ)))
        .chain(runs_elsewhere.into_iter().flat_map(|()| status_of_jobs(settings)))
        .collect(),
        cluster: vec![
            rule(
                KUEUE,
                &["clusterqueues", "resourceflavors", "admissionchecks", "topologies"],
                &with(&["patch"]),
            ),
            rule(KUEUE, &["cohorts", "workloadpriorityclasses", "provisioningrequestconfigs"], READ),
            rule(KUEUE, &["multikueueclusters", "multikueueconfigs"], READ),
            rule(
                KUEUE,
                &[
                    "clusterqueues/status",
                    "cohorts/status",
                    "multikueueclusters/status",
                    "admissionchecks/status",
                ],
                &["patch"],
            ),
            rule("", &["namespaces", "nodes"], READ),
            rule("node.k8s.io", &["runtimeclasses"], READ),
            rule("scheduling.k8s.io", &["priorityclasses"], READ),
        ]
        .into_iter()
        .chain(devices.map(|()| rule(DEVICES, &["deviceclasses", "resourceslices"], READ)))
        .chain(runtimes.map(|()| rule(TRAINER, &["clustertrainingruntimes"], READ)))
        .collect(),
    }
}

/// What jobs do on other clusters is reported here.
fn status_of_jobs(settings: &Settings) -> Vec<PolicyRule> {
    let queued = foreign_kinds(settings).into_iter().filter(|kind| kind.is_queued);
    let queued = queued.map(|kind| rule(&kind.group, &[&format!("{}/status", kind.plural)], &["patch"]));
    let external = external_kinds(settings).into_iter().flat_map(|kind| {
        let status = format!("{}/status", kind.plural);
        [rule(&kind.group, &[&kind.plural], READ), rule(&kind.group, &[&status], &["patch"])]
    });
    queued.chain(external).collect()
}
