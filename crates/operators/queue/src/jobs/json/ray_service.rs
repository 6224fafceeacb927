//! `ray.io` RayServices: a cluster that serves until it is deleted. As `pkg/controller/jobs/rayservice` of Kueue.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use quintet_api::kueue::v1beta2::PodSet;
use quintet_controller::ApiKind;
use quintet_queue_engine::settings::Gates;
use serde_json::Value;

use super::ray_cluster::{
    check_cluster, gate_elastic, is_fault_tolerant, min_counts_of, pod_count, pod_sets_of, roles_of,
};
use super::{
    JobEnd, JsonKind, KindNames, Reference, Role, TopologyAsk, TopologyOrder, UpdateCheck, annotations_of,
    is_queued, names, ray_child, true_condition,
};
use crate::settings::Settings;
use crate::validation::Errors;

const CLUSTER: &str = "rayClusterConfig";
/// What upstream's errors call the cluster.
const ERROR_PATH: &str = "spec.rayClusterSpec";
const READY: &str = "Ready";

/// The kind.
#[derive(Clone, Debug)]
pub(in super::super) struct RayService;

impl JsonKind for RayService {
    const NAMES: KindNames = names!("ray.io", "ray-io", "v1", "RayService", "rayservice");
    const SUSPEND: &'static str = "/spec/rayClusterConfig/suspend";
    const TAKES_ELASTIC: bool = true;
    const UPDATE: UpdateCheck = UpdateCheck::OfManaged;
    const TOPOLOGY_ORDER: TopologyOrder = TopologyOrder::Head;

    fn roles(job: &Value) -> Vec<Role> {
        roles_of(&job["spec"][CLUSTER], "/spec/rayClusterConfig", "spec.rayClusterConfig")
    }

    fn is_active(job: &Value) -> bool {
        true_condition(job, READY).is_some()
    }

    /// It runs until it is deleted.
    fn end(_: &Value) -> Option<JobEnd> {
        None
    }

    fn is_ready(job: &Value) -> bool {
        true_condition(job, READY).is_some()
    }

    /// A Job that cleans Redis up runs after the cluster, and needs its quota.
    fn outlives_deletion(job: &Value, settings: &Settings) -> bool {
        settings.gates.defer_rayservice_finalization && is_fault_tolerant(job, &job["spec"][CLUSTER])
    }

    /// Errors name the field as upstream does, which calls it otherwise than the API.
    fn topology_requests(job: &Value, _: &[Value], _: &Gates) -> Result<Vec<TopologyAsk>, String> {
        let named = roles_of(&job["spec"][CLUSTER], "", ERROR_PATH);
        let ask = |(role, named): (Role, Role)| TopologyAsk {
            path: format!("{}.metadata.annotations", named.path),
            annotations: job.pointer(&role.pointer).map(annotations_of).unwrap_or_default(),
            count: role.count,
        };
        Ok(Self::roles(job).into_iter().zip(named).map(ask).collect())
    }

    fn related_kinds() -> Vec<ApiKind> {
        vec![ray_child::kind()]
    }

    fn references(job: &Value) -> Vec<Reference> {
        let name = &job["status"]["activeServiceStatus"]["rayClusterName"];
        ray_child::reference(job, name).into_iter().collect()
    }

    fn revision(job: &Value) -> String {
        ray_child::revision(job)
    }

    /// Its applications start on the cluster as it was asked for.
    fn min_counts(job: &Value) -> BTreeMap<String, i32> {
        min_counts_of(&job["spec"][CLUSTER], pod_count)
    }

    fn annotations(job: &Value, related: &[Value]) -> BTreeMap<String, String> {
        ray_child::annotations(job, related.first())
    }

    fn pod_sets(job: &Value, related: &[Value], gates: &Gates) -> Result<Vec<PodSet>, String> {
        let spec = &job["spec"][CLUSTER];
        let mut sets = pod_sets_of(job, spec, &Self::roles(job), gates)?;
        ray_child::resize(&mut sets, job, spec, related.first(), gates)?;
        Ok(sets)
    }

    fn default(job: &mut Value, settings: &Settings) {
        gate_elastic::<Self>(job, settings);
    }

    fn check(job: &Value, settings: &Settings, errors: &mut Errors) -> ControlFlow<()> {
        if is_queued(job, settings) {
            check_cluster(job, &job["spec"][CLUSTER], ERROR_PATH, settings, errors);
        }
        ControlFlow::Continue(())
    }
}
