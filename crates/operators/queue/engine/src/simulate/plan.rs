//! The input of a simulation: queues, nodes and arriving workloads.

use std::sync::Arc;

use quintet_api::Quantity;
use quintet_api::quantity::Notation;
use serde::Deserialize;

use crate::model::PreemptionPolicy;
use crate::names::{Names, ResourceId};
use crate::tas::NodeInfo;

/// A plan that cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The text is not a plan.
    #[error("the plan cannot be read: {0}")]
    Unreadable(String),
    /// A value of the plan is invalid.
    #[error("{field} of {owner} is {value:?}, which is not {expected}")]
    Invalid {
        /// Which value.
        field: &'static str,
        /// What it is about.
        owner: String,
        /// The value.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// Nothing would happen.
    #[error(
        "the plan has no workloads; they go to cohorts[].queuesSets[].workloadsSets[].workloads[], and \
         every count must be at least 1"
    )]
    Empty,
}

/// A number or a quantity as text.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Amountlike {
    /// A whole number.
    Number(i64),
    /// Any other number.
    Decimal(f64),
    /// A quantity.
    Text(String),
}

/// What to simulate.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// The nodes, if placement matters.
    pub topology: Option<TopologyPlan>,
    /// The flavor of everything.
    pub resource_flavor: Option<FlavorPlan>,
    /// Cohorts with their queues and workloads.
    #[serde(default)]
    pub cohorts: Vec<CohortSet>,
}

/// The flavor.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FlavorPlan {
    /// Its name.
    pub name: String,
    /// The label of its nodes; all nodes of the topology are its own, so this changes nothing.
    pub node_label: Option<String>,
    /// Its topology; there is only one, so this changes nothing.
    pub topology_name: Option<String>,
}

/// A topology: every domain of a level has `count` domains of the next.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TopologyPlan {
    /// Its name.
    pub name: String,
    /// Its levels, highest first; the last are nodes.
    pub levels: Vec<LevelPlan>,
}

/// A level of a topology.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LevelPlan {
    /// What its domains are called.
    pub name: String,
    /// How many of them a domain above has.
    pub count: usize,
    /// The node label.
    pub node_label: String,
    /// What a node has.
    pub capacity: Option<CapacityPlan>,
}

/// What a node has.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CapacityPlan {
    /// Cores.
    pub cpu: Amountlike,
    /// Memory.
    pub memory: Option<Amountlike>,
}

/// Equal cohorts.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CohortSet {
    /// Their name.
    pub class_name: String,
    /// How many.
    pub count: usize,
    /// The queues of each.
    #[serde(default)]
    pub queues_sets: Vec<QueueSet>,
}

/// Equal queues.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QueueSet {
    /// Their name.
    pub class_name: String,
    /// How many in every cohort.
    pub count: usize,
    /// Cores each owns.
    pub nominal_quota: Amountlike,
    /// Cores each may borrow.
    pub borrowing_limit: Option<Amountlike>,
    /// Which workloads of other queues it may preempt.
    #[serde(default)]
    pub reclaim_within_cohort: String,
    /// Which of its own workloads it may preempt.
    #[serde(default)]
    pub within_cluster_queue: String,
    /// What arrives at each.
    #[serde(default)]
    pub workloads_sets: Vec<WorkloadSet>,
}

/// Workloads that arrive one after another.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkloadSet {
    /// How many times.
    pub count: usize,
    /// The time between them.
    #[serde(default)]
    pub creation_interval_ms: i64,
    /// What arrives each time.
    #[serde(default)]
    pub workloads: Vec<WorkloadTemplate>,
}

/// A class of workloads.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkloadTemplate {
    /// Its name.
    pub class_name: String,
    /// How long one runs.
    #[serde(default)]
    pub runtime_ms: i64,
    /// Its priority.
    #[serde(default)]
    pub priority: i32,
    /// Cores per pod.
    pub request: Amountlike,
    /// Pods.
    #[serde(default)]
    pub pod_count: i32,
    /// `required`, `preferred` or `balanced`.
    pub tas_constraint: Option<String>,
    /// The topology level.
    pub tas_level: Option<String>,
    /// Pods per slice.
    pub slice_size: Option<i32>,
}

impl Plan {
    /// Reads a plan.
    pub fn parse(yaml: &str) -> Result<Self, PlanError> {
        serde_saphyr::from_str(yaml).map_err(|error| {
            // Only the first line is about what is wrong; the rest shows where, line by line.
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            PlanError::Unreadable(first.strip_prefix("error: ").unwrap_or(first).to_owned())
        })
    }
}

/// Reads a number of cores or bytes.
pub(super) fn quantity(value: &Amountlike, field: &'static str, owner: &str) -> Result<Quantity, PlanError> {
    let text = match value {
        Amountlike::Number(number) => return Ok(Quantity::from_units(*number, Notation::DecimalSi)),
        Amountlike::Decimal(number) => number.to_string(),
        Amountlike::Text(text) => text.clone(),
    };
    text.parse().map_err(|_| PlanError::Invalid {
        field,
        owner: owner.to_owned(),
        value: text.clone(),
        expected: "a quantity such as 20 or 500m",
    })
}

/// Reads a preemption policy.
pub(super) fn policy(text: &str, field: &'static str, owner: &str) -> Result<PreemptionPolicy, PlanError> {
    Ok(match text {
        "" | "Never" => PreemptionPolicy::Never,
        "LowerPriority" => PreemptionPolicy::LowerPriority,
        "LowerOrNewerEqualPriority" => PreemptionPolicy::LowerOrNewerEqualPriority,
        "Any" => PreemptionPolicy::Any,
        other => {
            return Err(PlanError::Invalid {
                field,
                owner: owner.to_owned(),
                value: other.to_owned(),
                expected: "Never, LowerPriority, LowerOrNewerEqualPriority or Any",
            });
        }
    })
}

/// All nodes of a topology; every one can hold 110 pods, as kubelets do by default.
pub(super) fn nodes(plan: &TopologyPlan, names: &mut Names) -> Result<Vec<NodeInfo>, PlanError> {
    const PODS: i64 = 110;
    let capacity = plan.levels.last().and_then(|level| level.capacity.as_ref());
    let memory = names.resource("memory");
    let mut allocatable = vec![(ResourceId::PODS, PODS)];
    if let Some(capacity) = capacity {
        allocatable.push((ResourceId::CPU, quantity(&capacity.cpu, "capacity.cpu", &plan.name)?.millis()));
        if let Some(amount) = &capacity.memory {
            allocatable.push((memory, quantity(amount, "capacity.memory", &plan.name)?.units()));
        }
    }
    let total: usize = plan.levels.iter().map(|level| level.count).product();
    let nodes = (0..total).map(|number| {
        let mut labels = crate::labels::Labels::new();
        let mut below = total;
        for level in &plan.levels {
            below /= level.count.max(1);
            let value = format!("{}-{}", level.name, number.checked_div(below).unwrap_or(0));
            labels.insert(level.node_label.as_str().into(), value.into());
        }
        let name: Arc<str> = format!("node-{number}").into();
        NodeInfo {
            name,
            labels,
            allocatable: allocatable.iter().copied().collect(),
            usable: true,
            ..NodeInfo::default()
        }
    });
    Ok(nodes.collect())
}
