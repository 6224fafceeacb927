//! Admission webhooks of Kueue's own kinds, under upstream's names and paths.
//!
//! An installed webhook configuration of Kueue keeps working with Quintet behind its Service, and the one of Quintet
//! replaces it by name.

use quintet_api::kueue::v1beta2::{ClusterQueue, Cohort, ResourceFlavor, Workload};
use quintet_component::{Webhook, WebhookKind};
use quintet_controller::Runtime;
use quintet_controller::webhook::{Admission, Mutation, Operation, Routes, Verdict};

use crate::defaulting;
use crate::validation::{Gates, cluster_queue, cohort, resource_flavor, workload};

pub(crate) const MUTATING: &str = "kueue-mutating-webhook-configuration";
pub(crate) const VALIDATING: &str = "kueue-validating-webhook-configuration";
const GROUP: &str = "kueue.x-k8s.io";
const VERSION: &str = "v1beta2";

/// The path by which the webhook configuration of Red Hat's build asks about Cohorts.
const COHORT_OF_V1ALPHA1: &str = "/validate-kueue-x-k8s-io-v1alpha1-cohort";

/// A handler, and what it is asked about.
struct Endpoint {
    name: &'static str,
    path: &'static str,
    resources: &'static [&'static str],
    kind: WebhookKind,
    add: fn(Routes, &str, &Gates) -> Routes,
}

const ENDPOINTS: [Endpoint; 7] = [
    Endpoint {
        name: "mclusterqueue.kb.io",
        path: "/mutate-kueue-x-k8s-io-v1beta2-clusterqueue",
        resources: &["clusterqueues"],
        kind: WebhookKind::Mutating,
        add: default_cluster_queue,
    },
    Endpoint {
        name: "mresourceflavor.kb.io",
        path: "/mutate-kueue-x-k8s-io-v1beta2-resourceflavor",
        resources: &["resourceflavors"],
        kind: WebhookKind::Mutating,
        add: default_resource_flavor,
    },
    Endpoint {
        name: "mworkload.kb.io",
        path: "/mutate-kueue-x-k8s-io-v1beta2-workload",
        resources: &["workloads"],
        kind: WebhookKind::Mutating,
        add: default_workload,
    },
    Endpoint {
        name: "vclusterqueue.kb.io",
        path: "/validate-kueue-x-k8s-io-v1beta2-clusterqueue",
        resources: &["clusterqueues"],
        kind: WebhookKind::Validating,
        add: validate_cluster_queue,
    },
    Endpoint {
        name: "vcohort.kb.io",
        path: "/validate-kueue-x-k8s-io-v1beta2-cohort",
        resources: &["cohorts"],
        kind: WebhookKind::Validating,
        add: validate_cohort,
    },
    Endpoint {
        name: "vresourceflavor.kb.io",
        path: "/validate-kueue-x-k8s-io-v1beta2-resourceflavor",
        resources: &["resourceflavors"],
        kind: WebhookKind::Validating,
        add: validate_resource_flavor,
    },
    Endpoint {
        name: "vworkload.kb.io",
        path: "/validate-kueue-x-k8s-io-v1beta2-workload",
        resources: &["workloads", "workloads/status"],
        kind: WebhookKind::Validating,
        add: validate_workload,
    },
];

/// The webhooks with their registrations.
pub fn webhooks(gates: &Gates) -> Vec<Webhook> {
    ENDPOINTS.iter().map(|endpoint| endpoint.webhook(gates.clone())).collect()
}

/// The handlers of all webhooks.
pub fn routes(gates: &Gates) -> Routes {
    ENDPOINTS.iter().fold(Routes::new(), |routes, endpoint| (endpoint.add)(routes, endpoint.path, gates))
}

impl Endpoint {
    fn webhook(&self, gates: Gates) -> Webhook {
        let Self { name, path, add, .. } = *self;
        let handler = move |routes, _: &Runtime| Ok(add(routes, path, &gates));
        match self.kind {
            WebhookKind::Mutating => Webhook::mutating(MUTATING, name, path, handler).on(
                &["CREATE"],
                GROUP,
                VERSION,
                self.resources,
            ),
            WebhookKind::Validating => Webhook::validating(VALIDATING, name, path, handler).on(
                &["CREATE", "UPDATE"],
                GROUP,
                VERSION,
                self.resources,
            ),
        }
    }
}

fn default_cluster_queue(routes: Routes, path: &str, _: &Gates) -> Routes {
    routes.mutate(path, |mut admission: Admission<ClusterQueue>| {
        defaulting::protect(&mut admission.object.metadata);
        Mutation::to(admission.object)
    })
}

fn default_resource_flavor(routes: Routes, path: &str, _: &Gates) -> Routes {
    routes.mutate(path, |mut admission: Admission<ResourceFlavor>| {
        defaulting::protect(&mut admission.object.metadata);
        Mutation::to(admission.object)
    })
}

fn default_workload(routes: Routes, path: &str, gates: &Gates) -> Routes {
    let gates = gates.clone();
    routes.mutate(path, move |mut admission: Admission<Workload>| {
        defaulting::workload(&mut admission.object, &gates);
        Mutation::to(admission.object)
    })
}

fn validate_cluster_queue(routes: Routes, path: &str, gates: &Gates) -> Routes {
    let gates = gates.clone();
    routes.validate(path, move |admission: Admission<ClusterQueue>| {
        verdict(
            &admission,
            |queue| cluster_queue::validate_create(queue, &gates).verdict(),
            |queue, old| cluster_queue::validate_update(queue, old, &gates).verdict(),
        )
    })
}

fn validate_cohort(routes: Routes, path: &str, _: &Gates) -> Routes {
    let handler = |admission: Admission<Cohort>| {
        let of = |object: &Cohort| cohort::validate(object).verdict();
        verdict(&admission, of, |object, _| of(object))
    };
    routes.validate(path, handler).validate(COHORT_OF_V1ALPHA1, handler)
}

fn validate_resource_flavor(routes: Routes, path: &str, _: &Gates) -> Routes {
    routes.validate(path, |admission: Admission<ResourceFlavor>| {
        let of = |object: &ResourceFlavor| resource_flavor::validate(object).verdict();
        verdict(&admission, of, |object, _| of(object))
    })
}

fn validate_workload(routes: Routes, path: &str, gates: &Gates) -> Routes {
    let gates = gates.clone();
    routes.validate(path, move |admission: Admission<Workload>| {
        verdict(
            &admission,
            |object| workload::validate_create(object, &gates).verdict(),
            |object, old| workload::validate_update(object, old, &gates).verdict(),
        )
    })
}

/// By operation. Deletions are not asked about; if one is, it is allowed.
fn verdict<K>(
    admission: &Admission<K>,
    create: impl FnOnce(&K) -> Verdict,
    update: impl FnOnce(&K, &K) -> Verdict,
) -> Verdict {
    match (admission.request.operation, &admission.old) {
        (Operation::Create, _) => create(&admission.object),
        (Operation::Update, Some(old)) => update(&admission.object, old),
        _ => Verdict::allow(),
    }
}
