//! What is deleted after a RayJob has ended, and when.

use jiff::{SignedDuration, Timestamp};
use quintet_api::ray::v1::{DeletionJobStatus, DeletionPolicyType, DeletionRule, DeletionStrategy, RayJob};
use quintet_controller::{Action, ApiKind, Next};

use super::{delete_cluster, selected_cluster, suspend_workers};
use crate::rayjob::{Observed, Plan, Step};

/// When something of a RayJob that has ended is deleted next, if it is not due yet.
pub(crate) fn due_next(observed: &Observed) -> Option<Timestamp> {
    match plan(observed).next {
        Next::After(wait) => observed.now.checked_add(wait).ok(),
        Next::AwaitChange => None,
    }
}

/// Computes the plan for a RayJob that has ended.
pub(crate) fn plan(observed: &Observed) -> Plan {
    let spec = &observed.object().spec;
    if selected_cluster(observed.object()).is_some() {
        return Plan::nothing();
    }
    let strategy = spec.deletion_strategy.as_ref().filter(|_| observed.settings.gates.job_deletion_policy);
    match strategy {
        Some(DeletionStrategy { deletion_rules: Some(rules), .. }) if !rules.is_empty() => {
            by_rules(observed, rules)
        }
        Some(strategy) => by_outcome(observed, strategy),
        None if spec.shutdown_after_job_finishes == Some(true) => {
            let policy = if observed.settings.delete_finished_jobs {
                DeletionPolicyType::DeleteSelf
            } else {
                DeletionPolicyType::DeleteCluster
            };
            at(observed, spec.ttl_seconds_after_finished, policy)
        }
        None => Plan::nothing(),
    }
}

/// The old way: one policy for each outcome.
fn by_outcome(observed: &Observed, strategy: &DeletionStrategy) -> Plan {
    let side = match job_status(observed) {
        "SUCCEEDED" => &strategy.on_success,
        "FAILED" => &strategy.on_failure,
        _ => return Plan::nothing(),
    };
    match side.as_ref().and_then(|side| side.policy) {
        Some(policy) => at(observed, observed.object().spec.ttl_seconds_after_finished, policy),
        None => Plan::nothing(),
    }
}

fn at(observed: &Observed, seconds: Option<i32>, policy: DeletionPolicyType) -> Plan {
    match due(observed, seconds.unwrap_or_default()) {
        _ if has_happened(observed, policy) => Plan::nothing(),
        Some(time) if time > observed.now => Plan { next: wait_for(observed.now, time), ..Plan::default() },
        _ => Plan { steps: carry_out(observed, policy), ..Plan::default() },
    }
}

/// Of the rules that are due only the one that deletes most is carried out; the rest wait.
fn by_rules(observed: &Observed, rules: &[DeletionRule]) -> Plan {
    let applying =
        rules.iter().filter(|rule| applies(observed.object(), rule) && !has_happened(observed, rule.policy));
    let mut overdue = Vec::new();
    let mut soonest: Option<Timestamp> = None;
    for rule in applying {
        match due(observed, rule.condition.ttl_seconds.unwrap_or_default()) {
            Some(time) if time > observed.now => {
                soonest = Some(soonest.map_or(time, |other| other.min(time)));
            }
            _ => overdue.push(rule.policy),
        }
    }
    let worst = overdue.into_iter().max_by_key(|policy| weight(*policy));
    Plan {
        steps: worst.map(|policy| carry_out(observed, policy)).unwrap_or_default(),
        next: soonest.map_or(Next::AwaitChange, |time| wait_for(observed.now, time)),
        ..Plan::default()
    }
}

fn applies(job: &RayJob, rule: &DeletionRule) -> bool {
    let status = job.status.as_ref();
    let job_status = status.and_then(|status| status.job_status.as_deref());
    let state = status.and_then(|status| status.job_deployment_status.as_deref());
    match (rule.condition.job_status, rule.condition.job_deployment_status) {
        (Some(DeletionJobStatus::Succeeded), _) => job_status == Some("SUCCEEDED"),
        (Some(DeletionJobStatus::Failed), _) => job_status == Some("FAILED"),
        (None, Some(_)) => state == Some("Failed"),
        (None, None) => false,
    }
}

fn weight(policy: DeletionPolicyType) -> u8 {
    match policy {
        DeletionPolicyType::DeleteNone => 0,
        DeletionPolicyType::DeleteWorkers => 1,
        DeletionPolicyType::DeleteCluster => 2,
        DeletionPolicyType::DeleteSelf => 3,
    }
}

fn has_happened(observed: &Observed, policy: DeletionPolicyType) -> bool {
    let cluster = observed.own_cluster().filter(|cluster| !cluster.deleting);
    match policy {
        DeletionPolicyType::DeleteNone => true,
        DeletionPolicyType::DeleteSelf => false,
        DeletionPolicyType::DeleteCluster => cluster.is_none(),
        DeletionPolicyType::DeleteWorkers => cluster.is_none_or(|cluster| {
            let groups = cluster.object.spec.worker_group_specs.as_deref().unwrap_or_default();
            groups.iter().all(|group| group.suspend == Some(true))
        }),
    }
}

fn carry_out(observed: &Observed, policy: DeletionPolicyType) -> Vec<Step> {
    let cluster = observed.own_cluster();
    match policy {
        DeletionPolicyType::DeleteNone => Vec::new(),
        DeletionPolicyType::DeleteSelf => vec![Action::delete(ApiKind::of::<RayJob>(), &observed.job).into()],
        DeletionPolicyType::DeleteCluster => {
            cluster.map(|cluster| delete_cluster(cluster)).into_iter().collect()
        }
        DeletionPolicyType::DeleteWorkers => {
            cluster.map(|cluster| suspend_workers(cluster)).into_iter().collect()
        }
    }
}

/// When something is due; without an end it is due now.
fn due(observed: &Observed, seconds: i32) -> Option<Timestamp> {
    let end = observed.status()?.end_time.as_ref()?.0;
    end.checked_add(SignedDuration::from_secs(seconds.into())).ok()
}

fn job_status(observed: &Observed) -> &str {
    observed.status().and_then(|status| status.job_status.as_deref()).unwrap_or_default()
}

fn wait_for(now: Timestamp, time: Timestamp) -> Next {
    std::time::Duration::try_from(time.duration_since(now)).map_or(Next::AwaitChange, Next::After)
}
