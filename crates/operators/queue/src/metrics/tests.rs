use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::kueue::v1beta2::Workload;
use quintet_controller::ObjectKey;
use quintet_controller::cache::Entry;
use quintet_controller::metrics::MetricsRegistry;
use serde_json::{Value, json};

use super::transitions::{Change, between};
use super::{Kind, Metric, QueueMetrics, QueueTree, Sample};
use crate::custom_labels::{self, SourceKind};
use crate::settings::Settings;

/// Name, type and labels of every metric that Kueue v0.19 exposes, a line each. `L` adds the twin of
/// LocalQueues, which has `name` and `namespace` in the place of `cluster_queue`.
const KUEUE: &str = "
admission_attempts_total C result
admission_attempt_duration_seconds H result
admission_cycle_preemption_skips G cluster_queue
preemption_target_recomputations_total C cluster_queue,result
build_info G git_version,git_commit,build_date,go_version,compiler,platform
pending_workloads GL cluster_queue,status
pending_scheduling_hashes G cluster_queue,status
unadmitted_workloads G cluster_queue,reason,underlying_cause
local_queue_unadmitted_workloads G name,namespace,cluster_queue,reason,underlying_cause
finished_workloads GL cluster_queue
reserving_active_workloads GL cluster_queue
admitted_active_workloads GL cluster_queue
cluster_queue_status G cluster_queue,status
local_queue_status G name,namespace,active
quota_reserved_workloads_total CL cluster_queue,priority_class
admitted_workloads_total CL cluster_queue,priority_class
finished_workloads_total CL cluster_queue,priority_class
quota_reserved_wait_time_seconds HL cluster_queue,priority_class
admission_wait_time_seconds HL cluster_queue,priority_class
admission_checks_wait_time_seconds HL cluster_queue,priority_class
ready_wait_time_seconds HL cluster_queue,priority_class
admitted_until_ready_wait_time_seconds HL cluster_queue,priority_class
execution_time_seconds HL cluster_queue,priority_class
evicted_workloads_total CL cluster_queue,reason,underlying_cause,priority_class
evicted_workloads_once_total C cluster_queue,reason,underlying_cause,priority_class
pods_ready_to_evicted_time_seconds H cluster_queue,reason,underlying_cause
workload_eviction_latency_seconds H cluster_queue,reason
preempted_workloads_total C preempting_cluster_queue,reason
workload_creation_latency_seconds H job_kind
pod_scheduling_gate_removal_seconds H name,cluster_queue,is_group
cluster_queue_resource_reservation G cohort,cluster_queue,flavor,resource
cluster_queue_resource_usage G cohort,cluster_queue,flavor,resource
cluster_queue_nominal_quota G cohort,cluster_queue,flavor,resource
cluster_queue_borrowing_limit G cohort,cluster_queue,flavor,resource
cluster_queue_lending_limit G cohort,cluster_queue,flavor,resource
cluster_queue_resource_pending G cluster_queue,resource
cluster_queue_weighted_share G cluster_queue,cohort
local_queue_resource_reservation G name,namespace,flavor,resource
local_queue_resource_usage G name,namespace,flavor,resource
local_queue_admission_fair_sharing_usage G name,namespace,cluster_queue
cohort_weighted_share G cohort
cohort_subtree_quota G cohort,flavor,resource
cohort_subtree_resource_reservations G cohort,flavor,resource
cohort_subtree_admitted_workloads_total C cohort,priority_class
cohort_subtree_admitted_active_workloads G cohort
cohort_info G cohort,parent_cohort,root_cohort
cluster_queue_info G cluster_queue,parent_cohort,root_cohort
multikueue_workloads_dispatched_total C cluster_queue,cluster
multikueue_workloads_admitted_total C cluster_queue,cluster
";

fn sorted(labels: &[&str]) -> Vec<String> {
    let mut labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
    labels.sort();
    labels
}

#[test]
fn names_types_and_labels_are_those_of_kueue() {
    let mut wanted = BTreeSet::new();
    for line in KUEUE.trim().lines() {
        let parts: Vec<&str> = line.split(' ').collect();
        let labels: Vec<&str> = parts[2].split(',').collect();
        let kind = parts[1][..1].to_owned();
        if parts[1].ends_with('L') {
            let more = labels.iter().copied().filter(|label| *label != "cluster_queue");
            let local: Vec<&str> = ["name", "namespace"].into_iter().chain(more).collect();
            wanted.insert((format!("local_queue_{}", parts[0]), kind.clone(), sorted(&local)));
        }
        wanted.insert((parts[0].to_owned(), kind, sorted(&labels)));
    }
    let ours = Metric::ALL.iter().map(|metric| {
        let family = metric.family();
        let (kind, suffix) = match family.kind {
            Kind::Counter => ("C", "_total"),
            Kind::Gauge => ("G", ""),
            Kind::Histogram(_) => ("H", ""),
        };
        (format!("{}{suffix}", family.name), kind.to_owned(), sorted(family.labels))
    });
    let ours: BTreeSet<_> = ours.collect();
    let missing: Vec<_> = wanted.difference(&ours).collect();
    let surplus: Vec<_> = ours.difference(&wanted).collect();
    assert!(missing.is_empty() && surplus.is_empty(), "missing {missing:#?}, surplus {surplus:#?}");
    assert_eq!(ours.len(), Metric::ALL.len(), "each once");
}

#[test]
fn metrics_are_exposed_with_their_prefix_role_and_buckets() {
    let registry = MetricsRegistry::new();
    let metrics = QueueMetrics::register(&registry, true, &Settings::default());
    metrics.count(Metric::Admitted, &["cq".to_owned(), "high".to_owned()], 1);
    metrics.lead();
    metrics.observe(Metric::AdmissionWait, &["cq".to_owned(), String::new()], 3.0);
    let text = registry.encode();
    for line in [
        "kueue_admitted_workloads_total{cluster_queue=\"cq\",priority_class=\"high\",replica_role=\"follower\"} 1",
        "kueue_admission_wait_time_seconds_bucket{le=\"2.5\",cluster_queue=\"cq\",priority_class=\"\",replica_role=\"leader\"} 0",
        "kueue_admission_wait_time_seconds_bucket{le=\"40960.0\",cluster_queue=\"cq\",priority_class=\"\",replica_role=\"leader\"} 1",
    ] {
        assert!(text.lines().any(|own| own == line), "{line} is not in\n{text}");
    }
    assert!(text.contains("kueue_build_info{git_version="));
}

#[test]
fn gauges_of_queues_that_are_gone_are_removed() {
    let registry = MetricsRegistry::new();
    let metrics = QueueMetrics::register(&registry, false, &Settings::default());
    let of = |queue: &str, value: f64| Sample::new(Metric::AdmittedNow, vec![queue.to_owned()], value);
    metrics.publish(&[of("a", 1.0), of("b", 2.0)]);
    metrics.publish(&[of("b", 3.0)]);
    let text = registry.encode();
    assert!(!text.contains("cluster_queue=\"a\""), "{text}");
    assert!(
        text.contains("kueue_admitted_active_workloads{cluster_queue=\"b\",replica_role=\"standalone\"} 3")
    );
}

#[test]
fn feature_gates_leave_metrics_out() {
    let registry = MetricsRegistry::new();
    let mut settings = Settings::default();
    let metrics = QueueMetrics::register(&registry, false, &settings);
    let cohort = || [Sample::new(Metric::CohortInfo, texts(&["cohort", "", "cohort"]), 1.0)];
    metrics.publish(&cohort());
    assert!(registry.encode().contains("kueue_cohort_info{"));
    settings.gates.cohort_metrics = false;
    let registry = MetricsRegistry::new();
    let metrics = QueueMetrics::register(&registry, false, &settings);
    metrics.publish(&cohort());
    metrics.count(Metric::CohortAdmitted, &texts(&["cohort", ""]), 1);
    metrics.count(Metric::Admitted, &texts(&["cq", ""]), 1);
    let text = registry.encode();
    assert!(!text.contains("cohort=") && text.contains("kueue_admitted_workloads_total{"), "{text}");
}

#[test]
fn counters_end_with_the_object_that_they_are_about() {
    let registry = MetricsRegistry::new();
    let metrics = QueueMetrics::register(&registry, false, &Settings::default());
    let count = || {
        metrics.count(Metric::Admitted, &texts(&["cq", ""]), 1);
        metrics.count(Metric::LocalAdmitted, &texts(&["lq", "ns", ""]), 1);
        metrics.observe(Metric::LocalAdmissionWait, &texts(&["lq", "ns", ""]), 1.0);
        metrics.count(Metric::CohortAdmitted, &texts(&["cohort", ""]), 1);
    };
    let has = |what: &str| registry.encode().contains(what);
    count();
    metrics.follow_object(SourceKind::LocalQueue, &ObjectKey::new("ns", "lq"), None);
    assert!(!has("name=\"lq\"") && has("cluster_queue=\"cq\"") && has("cohort=\"cohort\""));
    metrics.follow_object(SourceKind::ClusterQueue, &ObjectKey::cluster("cq"), None);
    assert!(!has("cluster_queue=\"cq\"") && has("cohort=\"cohort\""));
    metrics.publish(&[]);
    assert!(!has("cohort=\"cohort\""), "no queue names it");
    count();
    let info = Sample::new(Metric::CohortInfo, texts(&["cohort", "", "cohort"]), 1.0);
    metrics.publish(&[info]);
    assert!(has("kueue_cohort_subtree_admitted_workloads_total{cohort=\"cohort\""));
}

#[test]
fn a_deleted_cohort_has_no_quota_until_it_is_created_again() {
    let metrics = QueueMetrics::register(&MetricsRegistry::new(), false, &Settings::default());
    let (cohort, info) =
        (ObjectKey::cluster("c"), Sample::new(Metric::CohortInfo, texts(&["c", "", "c"]), 1.0));
    metrics.follow_object(SourceKind::Cohort, &cohort, None);
    metrics.publish(&[info]);
    assert!(!metrics.has_quota("c"), "a queue names it");
    metrics.follow_object(SourceKind::Cohort, &cohort, Some(&ObjectMeta::default()));
    assert!(metrics.has_quota("c"));
    metrics.follow_object(SourceKind::Cohort, &cohort, None);
    metrics.publish(&[]);
    assert!(metrics.has_quota("c"), "no queue names it");
}

#[test]
fn series_have_the_custom_labels_of_their_object() {
    let configuration = json!({ "metrics": { "customLabels": [
        { "name": "team" },
        { "name": "lq_team", "sourceLabelKey": "team", "sourceKind": "LocalQueue" },
        { "name": "kind", "sourceKind": "Workload", "trackedValues": ["a"] }] } });
    let configuration = serde_json::from_value(configuration).unwrap();
    let custom_labels = custom_labels::read(&configuration).unwrap();
    let settings = Settings { custom_labels, ..Settings::default() };
    let registry = MetricsRegistry::new();
    let metrics = QueueMetrics::register(&registry, false, &settings);
    let labelled = |value: &str| serde_json::from_value(json!({ "labels": { "team": value } })).unwrap();
    let of_workload =
        metrics.labels_of_workload(&serde_json::from_value(json!({ "labels": { "kind": "a" } })).unwrap());
    let sample = || Sample {
        of_workload: of_workload.clone(),
        ..Sample::new(Metric::AdmittedNow, texts(&["cq"]), 2.0)
    };
    let gauge = |team: &str| {
        format!(
            "kueue_admitted_active_workloads{{cluster_queue=\"cq\",replica_role=\"standalone\",custom_team=\"{team}\",custom_kind=\"a\"}} 2"
        )
    };
    for (team, other) in [("x", "y"), ("y", "x")] {
        metrics.follow_object(SourceKind::ClusterQueue, &ObjectKey::cluster("cq"), Some(&labelled(team)));
        metrics.publish(&[sample()]);
        let text = registry.encode();
        assert!(text.contains(&gauge(team)) && !text.contains(&gauge(other)), "{text}");
    }
    metrics.follow_object(SourceKind::LocalQueue, &ObjectKey::new("ns", "lq"), Some(&labelled("z")));
    metrics.count(Metric::LocalAdmitted, &texts(&["lq", "ns", ""]), 1);
    metrics.count(Metric::Admitted, &texts(&["unknown", ""]), 1);
    let text = registry.encode();
    assert!(text.contains(
        "namespace=\"ns\",priority_class=\"\",replica_role=\"standalone\",custom_lq_team=\"z\"} 1"
    ));
    assert!(text.contains(
        "cluster_queue=\"unknown\",priority_class=\"\",replica_role=\"standalone\",custom_team=\"\"} 1"
    ));
}

#[test]
fn queues_that_are_not_selected_have_no_metrics() {
    let mut settings = Settings::default();
    let selected = json!({ "enable": true, "localQueueSelector": { "matchLabels": { "shown": "yes" } } });
    settings.configuration.metrics.local_queue_metrics = serde_json::from_value(selected).unwrap();
    let registry = MetricsRegistry::new();
    let metrics = QueueMetrics::register(&registry, false, &settings);
    let labelled = |value: &str| serde_json::from_value(json!({ "labels": { "shown": value } })).unwrap();
    assert!(metrics.exposes(&labelled("yes")) && !metrics.exposes(&labelled("no")));
    metrics.count(Metric::LocalAdmitted, &texts(&["lq", "ns", ""]), 1);
    metrics.follow_object(SourceKind::LocalQueue, &ObjectKey::new("ns", "lq"), Some(&labelled("yes")));
    assert!(registry.encode().contains("name=\"lq\""));
    metrics.follow_object(SourceKind::LocalQueue, &ObjectKey::new("ns", "lq"), Some(&labelled("no")));
    assert!(!registry.encode().contains("name=\"lq\""));
    settings.gates.local_queue_metrics = false;
    let none = QueueMetrics::register(&MetricsRegistry::new(), false, &settings);
    assert!(!none.exposes(&labelled("yes")));
}

fn condition(kind: &str, status: &str, reason: &str, minute: u32) -> Value {
    json!({ "type": kind, "status": status, "reason": reason, "message": "",
        "lastTransitionTime": format!("2026-01-01T00:{minute:02}:00Z") })
}

fn workload(conditions: &[Value], evictions: &Value) -> Workload {
    let workload = json!({
        "metadata": { "name": "w", "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "queueName": "lq", "podSets": [] },
        "status": { "conditions": conditions, "admission": { "clusterQueue": "cq" },
            "schedulingStats": { "evictions": evictions } } });
    serde_json::from_value(workload).unwrap()
}

fn changes(old: &Workload, new: &Workload) -> Vec<Change> {
    let parent = json!({ "metadata": { "name": "cohort" }, "spec": { "parentName": "root" } });
    let queue = json!({ "metadata": { "name": "cq" }, "spec": { "cohortName": "cohort" } });
    let entry = |name: &str, object: &Value| {
        (
            ObjectKey::cluster(name),
            Arc::new(Entry::new(ObjectKey::cluster(name), serde_json::from_value(object.clone()).unwrap())),
        )
    };
    let cohorts = BTreeMap::from([{
        let key = ObjectKey::cluster("cohort");
        (key.clone(), Arc::new(Entry::new(key, serde_json::from_value(parent).unwrap())))
    }]);
    let cluster_queues = BTreeMap::from([entry("cq", &queue)]);
    let local_queues = BTreeMap::new();
    let queues =
        QueueTree { cluster_queues: &cluster_queues, local_queues: &local_queues, cohorts: &cohorts };
    between(old, new, &queues)
}

fn texts(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

#[test]
fn an_admission_is_counted_for_its_queues_and_all_cohorts_above() {
    let old = workload(&[], &json!([]));
    let new = workload(
        &[
            condition("QuotaReserved", "True", "QuotaReserved", 2),
            condition("Admitted", "True", "Admitted", 3),
        ],
        &json!([]),
    );
    let found = changes(&old, &new);
    assert!(found.contains(&Change::Count(Metric::Admitted, texts(&["cq", ""]))));
    assert!(found.contains(&Change::Count(Metric::LocalAdmitted, texts(&["lq", "ns", ""]))));
    assert!(found.contains(&Change::Observe(Metric::QuotaReservedWait, texts(&["cq", ""]), 120.0)));
    assert!(found.contains(&Change::Observe(Metric::AdmissionWait, texts(&["cq", ""]), 180.0)));
    for cohort in ["cohort", "root"] {
        assert!(found.contains(&Change::Count(Metric::CohortAdmitted, texts(&[cohort, ""]))), "{cohort}");
    }
    assert!(changes(&new, &new).is_empty(), "only transitions count");
}

#[test]
fn an_eviction_is_counted_with_its_cause_and_how_long_it_took() {
    let reserved = condition("QuotaReserved", "True", "QuotaReserved", 1);
    let ready = condition("PodsReady", "True", "Started", 2);
    let evicted = condition("Evicted", "True", "PodsReadyTimeout", 5);
    let stats = json!([{ "reason": "PodsReadyTimeout", "underlyingCause": "WaitForRecovery", "count": 1 }]);
    let running = workload(&[reserved.clone(), ready], &json!([]));
    let stopping = workload(&[reserved, evicted.clone()], &stats);
    let found = changes(&running, &stopping);
    let cause = ["cq", "PodsReadyTimeout", "WaitForRecovery"];
    assert!(found.contains(&Change::Count(Metric::Evicted, texts(&[&cause[..], &[""]].concat()))));
    assert!(found.contains(&Change::Count(Metric::EvictedOnce, texts(&[&cause[..], &[""]].concat()))));
    assert!(found.contains(&Change::Observe(Metric::PodsReadyToEvicted, texts(&cause), 180.0)));
    let released = workload(&[condition("QuotaReserved", "False", "Pending", 6), evicted], &stats);
    let found = changes(&stopping, &released);
    assert_eq!(found, [Change::Observe(Metric::EvictionLatency, texts(&["cq", "PodsReadyTimeout"]), 60.0)]);
}
