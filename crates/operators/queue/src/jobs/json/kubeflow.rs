//! `kubeflow.org/v1`: the jobs of Kubeflow's training operator, which differ in their roles only. As
//! `pkg/controller/jobs/kubeflow` of Kueue.

use serde_json::Value;

use super::{
    JobEnd, JsonKind, KindNames, Ranks, Role, TopologyOrder, UpdateCheck, integer, items, names, text,
    true_condition,
};

/// Label of a pod: its index in its role.
pub(super) const REPLICA_INDEX: &str = "training.kubeflow.org/replica-index";

/// The roles at `spec.<field>` that a job has, in this order.
pub(super) fn roles_of(job: &Value, field: &str, order: &[&str]) -> Vec<Role> {
    let specs = &job["spec"][field];
    let role = |name: &&str| {
        let spec = specs.get(*name).filter(|spec| !spec.is_null())?;
        Some(Role {
            name: (*name).to_owned(),
            count: integer(&spec["replicas"], 1),
            pointer: format!("/spec/{field}/{name}/template"),
            path: format!("spec.{field}[{name}].template"),
            ranks: Ranks::by(REPLICA_INDEX),
        })
    };
    order.iter().filter_map(role).collect()
}

/// Whether pods of any role are active.
pub(super) fn is_active(job: &Value) -> bool {
    let mut roles = job["status"]["replicaStatuses"].as_object().into_iter().flatten();
    roles.any(|(_, status)| integer(&status["active"], 0) != 0)
}

/// The first condition that says how it ended.
pub(super) fn end(job: &Value) -> Option<JobEnd> {
    let is_end =
        |own: &&Value| ["Succeeded", "Failed"].contains(&text(&own["type"])) && own["status"] == "True";
    let condition = items(&job["status"]["conditions"]).find(is_end)?;
    Some(JobEnd {
        succeeded: condition["type"] == "Succeeded",
        message: text(&condition["message"]).to_owned(),
    })
}

pub(super) fn is_ready(job: &Value) -> bool {
    true_condition(job, "Running").is_some()
}

/// The class of the scheduling policy. That of the pods comes after it, as with other jobs.
pub(super) fn priority_class(job: &Value) -> Option<String> {
    let class = text(&job["spec"]["runPolicy"]["schedulingPolicy"]["priorityClass"]);
    (!class.is_empty()).then(|| class.to_owned())
}

macro_rules! kinds {
    ($($name:ident $kind:literal $lower:literal, $field:literal: $order:expr, prebuilt $prebuilt:literal;)+) => {$(
        /// The kind.
        #[derive(Clone, Debug)]
        pub(in super::super) struct $name;

        impl JsonKind for $name {
            const NAMES: KindNames = names!("kubeflow.org", "kubeflow-org", "v1", $kind, $lower);
            const SUSPEND: &'static str = "/spec/runPolicy/suspend";
            const TAKES_PREBUILT: bool = $prebuilt;
            const UPDATE: UpdateCheck = UpdateCheck::ChangeOnly;
            const TAKES_GROUPS: bool = false;
            const TOPOLOGY_ORDER: TopologyOrder = TopologyOrder::Templates;

            fn roles(job: &Value) -> Vec<Role> {
                roles_of(job, $field, &$order)
            }

            fn is_active(job: &Value) -> bool {
                is_active(job)
            }

            fn end(job: &Value) -> Option<JobEnd> {
                end(job)
            }

            fn is_ready(job: &Value) -> bool {
                is_ready(job)
            }

            fn priority_class(job: &Value) -> Option<String> {
                priority_class(job)
            }
        }
    )+};
}

kinds! {
    PyTorchJob "PyTorchJob" "pytorchjob", "pytorchReplicaSpecs": ["Master", "Worker"], prebuilt true;
    TfJob "TFJob" "tfjob", "tfReplicaSpecs": ["Chief", "Master", "PS", "Worker", "Evaluator"], prebuilt true;
    XgBoostJob "XGBoostJob" "xgboostjob", "xgbReplicaSpecs": ["Master", "Worker"], prebuilt true;
    PaddleJob "PaddleJob" "paddlejob", "paddleReplicaSpecs": ["Master", "Worker"], prebuilt true;
    JaxJob "JAXJob" "jaxjob", "jaxReplicaSpecs": ["Worker"], prebuilt false;
}
