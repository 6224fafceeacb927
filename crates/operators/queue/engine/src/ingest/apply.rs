//! Informer events: `apply_*` for objects that were created or changed, `delete_*` for those that are gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{LimitRange, Namespace, Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimTemplate, ResourceSlice};
use quintet_api::kueue::v1beta2;
use serde_json::Value;

use super::{IngestError, PodOnNode, decode};
use crate::engine::Engine;
use crate::model::WorkloadKey;
use crate::names::{FlavorId, WorkloadId};
use crate::state::State;
use crate::time::Time;

impl Engine {
    /// A ClusterQueue was created or changed.
    pub fn apply_cluster_queue(
        &mut self,
        object: &v1beta2::ClusterQueue,
        now: Time,
    ) -> Result<(), IngestError> {
        let spec = super::cluster_queue(object, &mut self.state.names)?;
        self.set_queue(spec, now);
        Ok(())
    }

    /// A ClusterQueue was deleted.
    pub fn delete_cluster_queue(&mut self, name: &str) {
        if let Some(id) = self.state.names.queues.get(name) {
            self.remove_queue(id);
        }
    }

    /// A LocalQueue was created or changed.
    pub fn apply_local_queue(&mut self, object: &v1beta2::LocalQueue) -> Result<(), IngestError> {
        let (id, local_queue) = super::local_queue(object, &mut self.state.names)?;
        self.set_local_queue(id, Some(local_queue));
        Ok(())
    }

    /// A LocalQueue was deleted.
    pub fn delete_local_queue(&mut self, namespace: &str, name: &str) {
        let id = self.state.names.local_queue(namespace, name);
        self.set_local_queue(id, None);
        self.state.afs.remove(id);
    }

    /// A Cohort was created or changed.
    pub fn apply_cohort(&mut self, object: &v1beta2::Cohort, now: Time) -> Result<(), IngestError> {
        let spec = super::cohort(object, &mut self.state.names)?;
        self.set_cohort(spec.id, Some(spec), now);
        Ok(())
    }

    /// A Cohort was deleted. It lives on without quota of its own while queues name it.
    pub fn delete_cohort(&mut self, name: &str, now: Time) {
        let id = self.state.names.cohorts.intern(name);
        self.set_cohort(id, None, now);
    }

    /// A ResourceFlavor was created or changed.
    pub fn apply_resource_flavor(
        &mut self,
        object: &v1beta2::ResourceFlavor,
        now: Time,
    ) -> Result<(), IngestError> {
        let (id, flavor) = super::resource_flavor(object, &mut self.state.names)?;
        self.set_flavor(id, Some(flavor), now);
        Ok(())
    }

    /// A ResourceFlavor was deleted.
    pub fn delete_resource_flavor(&mut self, name: &str, now: Time) {
        let id = self.state.names.flavors.intern(name);
        self.set_flavor(id, None, now);
    }

    /// A Topology was created or changed.
    pub fn apply_topology(&mut self, object: &v1beta2::Topology, now: Time) {
        let (id, levels) = super::topology(object, &mut self.state.names);
        self.set_topology(id, Some(levels), now);
    }

    /// A Topology was deleted.
    pub fn delete_topology(&mut self, name: &str, now: Time) {
        let id = self.state.names.topologies.intern(name);
        self.set_topology(id, None, now);
    }

    /// An AdmissionCheck was created or changed.
    pub fn apply_admission_check(&mut self, object: &v1beta2::AdmissionCheck, now: Time) {
        let (name, check) = super::admission_check(object);
        self.set_check(name, Some(check), now);
    }

    /// An AdmissionCheck was deleted.
    pub fn delete_admission_check(&mut self, name: &str, now: Time) {
        self.set_check(name.into(), None, now);
    }

    /// A Workload was created or changed. Requests are filled in by the LimitRanges and RuntimeClasses known
    /// so far.
    pub fn apply_workload(
        &mut self,
        object: &v1beta2::Workload,
        now: Time,
    ) -> Result<WorkloadId, IngestError> {
        let State { names, settings, .. } = &mut self.state;
        let workload = self.pod_defaults.workload(object, settings, names)?;
        Ok(self.set_workload(workload, now))
    }

    /// A Workload was deleted.
    pub fn delete_workload(&mut self, namespace: &str, name: &str, now: Time) {
        if let Some(namespace) = self.state.names.namespaces.get(namespace) {
            self.remove_workload(&WorkloadKey { namespace, name: name.into() }, now);
        }
    }

    /// A Namespace was created or changed.
    pub fn apply_namespace(&mut self, object: &Namespace, now: Time) {
        let (id, labels) = super::namespace(object, &mut self.state.names);
        self.set_namespace(id, Some(labels), now);
    }

    /// A Namespace was deleted.
    pub fn delete_namespace(&mut self, name: &str, now: Time) {
        let id = self.state.names.namespaces.intern(name);
        self.set_namespace(id, None, now);
    }

    /// A LimitRange was created or changed. Pending Workloads of its namespace are to be applied again.
    pub fn apply_limit_range(&mut self, object: &LimitRange) -> Result<(), IngestError> {
        self.pod_defaults.apply_limit_range(object)
    }

    /// A LimitRange was deleted. Pending Workloads of its namespace are to be applied again.
    pub fn delete_limit_range(&mut self, namespace: &str, name: &str) -> Result<(), IngestError> {
        self.pod_defaults.delete_limit_range(namespace, name)
    }

    /// A RuntimeClass was created or changed. Pending Workloads that name it are to be applied again.
    pub fn apply_runtime_class(&mut self, object: &RuntimeClass) {
        self.pod_defaults.apply_runtime_class(object);
    }

    /// A RuntimeClass was deleted. Pending Workloads that name it are to be applied again.
    pub fn delete_runtime_class(&mut self, name: &str) {
        self.pod_defaults.delete_runtime_class(name);
    }

    /// A ResourceClaimTemplate was created or changed. Pending Workloads that name it are to be applied again.
    pub fn apply_resource_claim_template(
        &mut self,
        object: &ResourceClaimTemplate,
    ) -> Result<(), IngestError> {
        self.pod_defaults.devices.apply_template(object)
    }

    /// A ResourceClaimTemplate was deleted. Pending Workloads that name it are to be applied again.
    pub fn delete_resource_claim_template(&mut self, namespace: &str, name: &str) {
        self.pod_defaults.devices.delete_template(namespace, name);
    }

    /// A DeviceClass was created or changed. Pending Workloads are to be applied again.
    pub fn apply_device_class(&mut self, object: &DeviceClass) {
        self.pod_defaults.devices.apply_class(object);
    }

    /// A DeviceClass was deleted. Pending Workloads are to be applied again.
    pub fn delete_device_class(&mut self, name: &str) {
        self.pod_defaults.devices.delete_class(name);
    }

    /// A ResourceSlice was created or changed. Pending Workloads that claim devices are to be applied again.
    pub fn apply_resource_slice(&mut self, object: &ResourceSlice) -> Result<(), IngestError> {
        self.pod_defaults.devices.apply_slice(object)
    }

    /// A ResourceSlice was deleted. Pending Workloads that claim devices are to be applied again.
    pub fn delete_resource_slice(&mut self, name: &str) {
        self.pod_defaults.devices.delete_slice(name);
    }

    /// Nodes were created or changed. Takes many at once, because all domains are counted again.
    pub fn apply_nodes<'n>(
        &mut self,
        objects: impl IntoIterator<Item = &'n Node>,
        now: Time,
    ) -> Result<(), IngestError> {
        let mut nodes = Vec::new();
        for object in objects {
            let mut node = super::node(object, &mut self.state.names)?;
            node.non_tas_usage = self.pod_usage.of_node(&node.name);
            nodes.push((Arc::clone(&node.name), Some(node)));
        }
        self.set_nodes(nodes, now);
        Ok(())
    }

    /// A Node was deleted.
    pub fn delete_node(&mut self, name: &str, now: Time) {
        self.set_nodes(vec![(name.into(), None)], now);
    }

    /// A Pod was created or changed. What it uses counts from [`Engine::sync_pod_usage`] on.
    pub fn apply_pod(&mut self, object: &Pod) -> Result<(), IngestError> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let on_node = super::pod_on_node(object)?;
        self.apply_pod_on_node(
            &text(&object.metadata.namespace),
            &text(&object.metadata.name),
            on_node.as_ref(),
        );
        Ok(())
    }

    /// The same, with no more of the Pod than what it uses.
    pub fn apply_pod_on_node(&mut self, namespace: &str, name: &str, pod: Option<&PodOnNode>) {
        self.pod_usage.apply(namespace, name, pod, &mut self.state.names);
    }

    /// A Pod was deleted. What it used is free from [`Engine::sync_pod_usage`] on.
    pub fn delete_pod(&mut self, namespace: &str, name: &str) {
        self.pod_usage.delete(namespace, name);
    }

    /// Counts what Pods outside topology aware scheduling use of their nodes. True if something became free, which
    /// [`Engine::flush_freed`] tells the queues.
    pub fn sync_pod_usage(&mut self) -> bool {
        for name in self.pod_usage.take_changed() {
            self.state.tas.set_non_tas_usage(&name, self.pod_usage.of_node(&name));
        }
        self.pod_usage.has_freed()
    }

    /// Flushes the queues whose flavors have nodes where Pods have ended. To be called at intervals: Pods come and go all
    /// the time.
    pub fn flush_freed(&mut self, now: Time) {
        let freed = self.pod_usage.take_freed();
        let flavors: BTreeSet<FlavorId> =
            freed.iter().flat_map(|node| self.state.tas.flavors_of_node(node)).collect();
        let queues: Vec<_> = self
            .state
            .queues()
            .filter(|(_, queue)| queue.spec.flavors().any(|own| flavors.contains(&own)))
            .map(|(id, _)| id)
            .collect();
        for queue in queues {
            self.request_flush(queue, now);
        }
    }

    /// An object of any kind the engine follows was created or changed, as JSON.
    pub fn apply_json(&mut self, object: &Value, now: Time) -> Result<(), IngestError> {
        match object.get("kind").and_then(Value::as_str).unwrap_or("") {
            "AdmissionCheck" => self.apply_admission_check(&decode("AdmissionCheck", object)?, now),
            "ClusterQueue" => self.apply_cluster_queue(&decode("ClusterQueue", object)?, now)?,
            "Cohort" => self.apply_cohort(&decode("Cohort", object)?, now)?,
            "DeviceClass" => self.apply_device_class(&decode("DeviceClass", object)?),
            "LimitRange" => self.apply_limit_range(&decode("LimitRange", object)?)?,
            "LocalQueue" => self.apply_local_queue(&decode("LocalQueue", object)?)?,
            "Namespace" => self.apply_namespace(&decode("Namespace", object)?, now),
            "Node" => self.apply_nodes([&decode("Node", object)?], now)?,
            "Pod" => self.apply_pod(&decode("Pod", object)?)?,
            "ResourceClaimTemplate" => {
                self.apply_resource_claim_template(&decode("ResourceClaimTemplate", object)?)?;
            }
            "ResourceFlavor" => self.apply_resource_flavor(&decode("ResourceFlavor", object)?, now)?,
            "ResourceSlice" => self.apply_resource_slice(&decode("ResourceSlice", object)?)?,
            "RuntimeClass" => self.apply_runtime_class(&decode("RuntimeClass", object)?),
            "Topology" => self.apply_topology(&decode("Topology", object)?, now),
            "Workload" => {
                self.apply_workload(&decode("Workload", object)?, now)?;
            }
            other => return Err(IngestError::new("an object of kind", other)),
        }
        Ok(())
    }
}
