//! The watches of the scheduler.

use k8s_openapi::api::core::v1::{LimitRange, Namespace, Node};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimTemplate, ResourceSlice};
use quintet_api::kueue::v1beta2::{
    AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology, Workload,
};
use quintet_controller::cache::{Cache, Caches, WatchSpec};
use quintet_controller::clock::Clock;
use quintet_controller::index::{IndexHandle, IndexSettings, IndexSetup};
use quintet_controller::{Error, Runtime};
use quintet_queue_engine::settings::Gates;

use super::{Scheduler, SchedulerEvent};
use crate::topology::{self, PodView};
use crate::watches;

/// Everything that scheduling decisions depend on.
pub struct SchedulerCaches {
    admission_checks: Cache<AdmissionCheck>,
    cluster_queues: Cache<ClusterQueue>,
    cohorts: Cache<Cohort>,
    /// Watched for dynamic resource allocation only.
    devices: Option<DeviceCaches>,
    limit_ranges: Cache<LimitRange>,
    local_queues: Cache<LocalQueue>,
    namespaces: Cache<Namespace>,
    nodes: Cache<Node>,
    /// Watched for topology aware scheduling only.
    pods: Option<Cache<PodView>>,
    resource_flavors: Cache<ResourceFlavor>,
    runtime_classes: Cache<RuntimeClass>,
    topologies: Cache<Topology>,
    workloads: Cache<Workload>,
}

/// What says which devices there are, and which of them pods claim.
struct DeviceCaches {
    templates: Cache<ResourceClaimTemplate>,
    classes: Cache<DeviceClass>,
    slices: Cache<ResourceSlice>,
}

impl SchedulerCaches {
    /// Watches all kinds. Those that other controllers watch, too, are shared with them.
    pub fn watch(caches: &Caches, gates: &Gates) -> Result<Self, Error> {
        Ok(Self {
            admission_checks: caches.watch(WatchSpec::typed())?,
            cluster_queues: caches.watch(watches::cluster_queues())?,
            cohorts: caches.watch(WatchSpec::typed())?,
            devices: gates.dra.then(|| watch_devices(caches)).transpose()?,
            limit_ranges: caches.watch(WatchSpec::typed())?,
            local_queues: caches.watch(watches::local_queues())?,
            namespaces: caches.watch(WatchSpec::typed())?,
            nodes: caches.watch(WatchSpec::typed())?,
            pods: gates.tas.then(|| caches.watch(topology::pods())).transpose()?,
            resource_flavors: caches.watch(watches::resource_flavors())?,
            runtime_classes: caches.watch(WatchSpec::typed())?,
            topologies: caches.watch(WatchSpec::typed())?,
            workloads: caches.watch(watches::workloads())?,
        })
    }
}

/// Kubernetes before 1.34 does not serve them.
fn watch_devices(caches: &Caches) -> Result<DeviceCaches, Error> {
    Ok(DeviceCaches {
        templates: caches.watch(WatchSpec::typed().optional())?,
        classes: caches.watch(WatchSpec::typed().optional())?,
        slices: caches.watch(WatchSpec::typed().optional())?,
    })
}

/// Adds the scheduler to a runtime.
pub fn start(
    runtime: &Runtime,
    clock: &Clock,
    scheduler: Scheduler,
    caches: &SchedulerCaches,
) -> IndexHandle<Scheduler> {
    // What Workloads refer to comes before them, so that the first decisions are not made without it.
    let setup = IndexSetup::new(runtime, clock, IndexSettings::default(), scheduler)
        .feed(&caches.namespaces, SchedulerEvent::Namespace)
        .feed(&caches.limit_ranges, SchedulerEvent::LimitRange)
        .feed(&caches.runtime_classes, SchedulerEvent::RuntimeClass)
        .feed(&caches.nodes, SchedulerEvent::Node);
    let setup = match &caches.pods {
        Some(pods) => setup.feed(pods, SchedulerEvent::Pod),
        None => setup,
    };
    let setup = match &caches.devices {
        Some(devices) => setup
            .feed(&devices.templates, SchedulerEvent::ResourceClaimTemplate)
            .feed(&devices.classes, SchedulerEvent::DeviceClass)
            .feed(&devices.slices, SchedulerEvent::ResourceSlice),
        None => setup,
    };
    setup
        .feed(&caches.topologies, SchedulerEvent::Topology)
        .feed(&caches.resource_flavors, SchedulerEvent::ResourceFlavor)
        .feed(&caches.admission_checks, SchedulerEvent::AdmissionCheck)
        .feed(&caches.cohorts, SchedulerEvent::Cohort)
        .feed(&caches.cluster_queues, SchedulerEvent::ClusterQueue)
        .feed(&caches.local_queues, SchedulerEvent::LocalQueue)
        .feed(&caches.workloads, SchedulerEvent::Workload)
        .start()
}
