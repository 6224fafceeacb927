use quintet_api::kueue::v1beta2::{ClusterQueue, Cohort, ResourceFlavor, Workload};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

fn read<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// The only denial of a verdict; empty if it is allowed.
fn said(errors: Errors) -> String {
    errors.verdict().denials.into_iter().next().unwrap_or_default()
}

fn quota(name: &str, fields: &Value) -> Value {
    let mut quota = json!({ "name": name, "nominalQuota": "4" });
    for (key, value) in fields.as_object().unwrap() {
        quota[key] = value.clone();
    }
    quota
}

fn group(flavor: &str, quota: &Value) -> Value {
    json!({ "coveredResources": [quota["name"]], "flavors": [{ "name": flavor, "resources": [quota] }] })
}

fn queue(spec: &Value) -> ClusterQueue {
    read(json!({ "metadata": { "name": "q" }, "spec": spec }))
}

fn created(spec: &Value) -> String {
    said(cluster_queue::validate_create(&queue(spec), &Gates::default()))
}

#[test]
fn limits_need_a_cohort_and_quotas_are_not_negative() {
    let one = "spec.resourceGroups[0].flavors[0].resources[0]";
    let with = |fields: Value| json!({ "resourceGroups": [group("f", &quota("cpu", &fields))] });
    assert_eq!(created(&with(json!({}))), "");
    assert_eq!(
        created(&with(json!({ "lendingLimit": "1" }))),
        format!("{one}.lendingLimit: Invalid value: \"1\": must be nil when cohort is empty")
    );
    let mut in_cohort = with(json!({ "borrowingLimit": "-1", "lendingLimit": "5" }));
    in_cohort["cohortName"] = "c".into();
    assert_eq!(
        created(&in_cohort),
        format!(
            "[{one}.borrowingLimit: Invalid value: \"-1\": must be greater than or equal to 0, \
             {one}.lendingLimit: Invalid value: \"5\": must be less than or equal to the nominalQuota]"
        )
    );
    assert_eq!(
        created(&with(json!({ "nominalQuota": "much" }))).split(": ").next().unwrap(),
        format!("{one}.nominalQuota")
    );
}

#[test]
fn a_cohort_may_lend_what_its_children_have() {
    let cohort = |spec: Value| -> Cohort { read(json!({ "metadata": { "name": "c" }, "spec": spec })) };
    let groups = json!([group("f", &quota("cpu", &json!({ "lendingLimit": "9" })))]);
    assert_eq!(said(cohort::validate(&cohort(json!({ "parentName": "p", "resourceGroups": groups })))), "");
    assert_eq!(
        said(cohort::validate(&cohort(json!({ "resourceGroups": groups })))),
        "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: Invalid value: \"9\": must be nil when parent is empty"
    );
    for (weight, allowed) in [("0", true), ("1n", false), ("2n", true), ("-1", false)] {
        let errors = cohort::validate(&cohort(json!({ "fairSharing": { "weight": weight } })));
        assert_eq!(said(errors).is_empty(), allowed, "{weight}");
    }
}

#[test]
fn resources_and_flavors_are_in_one_group_and_in_the_same_order() {
    let twice = json!({ "resourceGroups": [group("f", &quota("cpu", &json!({}))), group("f", &quota("cpu", &json!({})))] });
    assert_eq!(
        created(&twice),
        "[spec.resourceGroups[1].coveredResources[0]: Duplicate value: \"cpu\", \
         spec.resourceGroups[1].flavors[0].name: Duplicate value: \"f\"]"
    );
    let swapped = json!({ "resourceGroups": [{ "coveredResources": ["cpu", "memory"], "flavors": [
        { "name": "f", "resources": [quota("memory", &json!({})), quota("cpu", &json!({}))] }] }] });
    let path = "spec.resourceGroups[0].flavors[0].resources";
    assert_eq!(
        created(&swapped),
        format!(
            "[{path}[0].name: Invalid value: \"memory\": must match the name in coveredResources, \
             {path}[1].name: Invalid value: \"cpu\": must match the name in coveredResources]"
        )
    );
}

#[test]
fn groups_have_bounds_in_total() {
    let flavors = |from: usize, count: usize| -> Vec<Value> {
        (from..from + count)
            .map(|number| json!({ "name": format!("f{number}"), "resources": [quota("cpu", &json!({}))] }))
            .collect()
    };
    let groups: Vec<Value> = (0..5)
        .map(|number| json!({ "coveredResources": [format!("r{number}")], "flavors": flavors(number * 60, 60) }))
        .collect();
    let said = created(&json!({ "resourceGroups": groups }));
    let wanted = "spec.resourceGroups: Invalid value: 300: total number of flavors across all resourceGroups must be ≤ 256, got 300";
    assert!(said.contains(wanted), "{said}");
}

#[test]
fn unknown_flavors_of_checks_are_tolerated_only_while_nothing_about_them_changes() {
    let spec = |flavors: &[&str], on: &str| {
        let groups: Vec<Value> = flavors
            .iter()
            .enumerate()
            .map(|(number, flavor)| group(flavor, &quota(&format!("r{number}"), &json!({}))))
            .collect();
        json!({ "resourceGroups": groups, "admissionChecksStrategy": {
            "admissionChecks": [{ "name": "c", "onFlavors": [on] }] } })
    };
    let path = "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]";
    assert_eq!(
        created(&spec(&["a", "b"], "x")),
        format!("{path}: Unsupported value: \"x\": supported values: \"a\", \"b\"")
    );
    let mut gates = Gates::default();
    let update = |old: Value, new: Value, gates: &Gates| {
        said(cluster_queue::validate_update(&queue(&new), &queue(&old), gates))
    };
    assert_eq!(update(spec(&["a"], "x"), spec(&["a"], "x"), &gates), "", "as it was");
    assert_ne!(update(spec(&["a"], "x"), spec(&["b"], "x"), &gates), "", "other flavors");
    assert_ne!(update(spec(&["a"], "a"), spec(&["a"], "x"), &gates), "", "another reference");
    gates.reject_invalid_on_flavors = true;
    assert_ne!(update(spec(&["a"], "x"), spec(&["a"], "x"), &gates), "");
}

#[test]
fn a_policy_of_concurrent_admission_never_changes_and_is_checked_with_its_gate() {
    let with = |mode: &str, last: Value| {
        json!({ "queueingStrategy": "StrictFIFO", "resourceGroups": [group("f", &quota("cpu", &json!({})))],
            "concurrentAdmissionPolicy": { "migration": {
                "mode": mode, "constraints": { "lastAcceptableFlavorName": last } } } })
    };
    assert_eq!(created(&with("RetainFirstAdmission", json!("x"))), "", "without the gate");
    let mut gates = Gates::default();
    gates.scheduling.concurrent_admission = true;
    let said_of = |spec: Value| said(cluster_queue::validate_create(&queue(&spec), &gates));
    assert_eq!(
        said_of(with("TryPreferredFlavors", json!("x"))),
        "[spec.concurrentAdmissionPolicy.migration.constraints.lastAcceptableFlavorName: Invalid value: \"x\": \
         must be one of the flavors defined in the ClusterQueue: [f], spec.queueingStrategy: Invalid value: \
         \"StrictFIFO\": StrictFIFO queueing strategy cannot be used when ConcurrentAdmissionPolicy is defined]"
    );
    assert!(said_of(with("RetainFirstAdmission", json!("f"))).contains(
        "constraints: Forbidden: may only be set when migration.mode is \"TryPreferredFlavors\" (got \"RetainFirstAdmission\")"
    ));
    let changed = cluster_queue::validate_update(
        &queue(&json!({})),
        &queue(&json!({ "concurrentAdmissionPolicy": { "migration": { "mode": "TryPreferredFlavors" } } })),
        &Gates::default(),
    );
    assert_eq!(said(changed), "spec.concurrentAdmissionPolicy: Invalid value: null: field is immutable");
}

#[test]
fn taints_of_a_flavor_are_unique_and_well_formed() {
    let flavor: ResourceFlavor = read(json!({ "metadata": { "name": "f" }, "spec": {
        "nodeLabels": { "a": "@" },
        "nodeTaints": [
            { "key": "k", "value": "1", "effect": "NoSchedule" },
            { "key": "k", "value": "2", "effect": "NoSchedule" },
            { "key": "k", "value": "2", "effect": "NoExecute" }],
        "tolerations": [{ "operator": "Exists" }, { "key": "@" }] } }));
    let said = said(resource_flavor::validate(&flavor));
    assert!(
        said.contains("spec.nodeLabels: Invalid value: \"@\": a valid label must be an empty string or"),
        "{said}"
    );
    assert!(said.contains("spec.nodeTaints[1]: Duplicate value: "), "{said}");
    assert!(!said.contains("nodeTaints[2]") && !said.contains("tolerations[0]"), "{said}");
    assert!(said.contains("spec.tolerations[1].key: Invalid value: \"@\": name part"), "{said}");
}

fn workload(changes: &[(&str, Value)]) -> Workload {
    let mut object = json!({ "metadata": { "name": "w", "annotations": {} }, "spec": { "podSets": [
        { "name": "main", "count": 3, "template": { "spec": { "containers": [
            { "name": "c", "resources": { "requests": { "cpu": "1" } } }] } } }] }, "status": {} });
    for (path, value) in changes {
        let (parent, key) = path.rsplit_once('/').unwrap();
        let parent = object.pointer_mut(parent).unwrap();
        match parent {
            Value::Array(items) => items[key.parse::<usize>().unwrap()] = value.clone(),
            fields => fields[key] = value.clone(),
        }
    }
    read(object)
}

/// A Workload that holds quota.
fn reserved(changes: &[(&str, Value)]) -> Workload {
    let conditions = json!([{ "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
        "lastTransitionTime": "2025-01-01T00:00:00Z" }]);
    let admission = json!({ "clusterQueue": "q", "podSetAssignments": [
        { "name": "main", "count": 3, "flavors": { "cpu": "f" }, "resourceUsage": { "cpu": "3" } }] });
    let mut all = vec![("/status/conditions", conditions), ("/status/admission", admission)];
    all.extend(changes.iter().cloned());
    workload(&all)
}

fn of_new(workload: &Workload) -> String {
    said(workload::validate_create(workload, &Gates::default()))
}

fn of_update(new: &Workload, old: &Workload) -> String {
    said(workload::validate_update(new, old, &Gates::default()))
}

#[test]
fn requests_of_pods_are_not_negative_and_do_not_use_the_reserved_name() {
    let container = "/spec/podSets/0/template/spec/containers/0";
    let with = |requests: Value| {
        workload(&[(container, json!({ "name": "c", "resources": { "requests": requests } }))])
    };
    let path = "spec.podSets[0].template.spec.containers[0].resources.requests";
    assert_eq!(of_new(&with(json!({ "cpu": "1" }))), "");
    assert_eq!(
        of_new(&with(json!({ "pods": "1" }))),
        format!("{path}[pods]: Invalid value: \"pods\": the key is reserved for internal kueue use")
    );
    assert_eq!(
        of_new(&with(json!({ "cpu": "-1" }))),
        format!("{path}[cpu]: Invalid value: \"-1\": must be greater than or equal to 0")
    );
    let pod_level =
        workload(&[("/spec/podSets/0/template/spec/resources", json!({ "limits": { "pods": "1" } }))]);
    assert!(of_new(&pod_level).starts_with("spec.podSets[0].template.spec.resources.limits[pods]: "));
    let gates = Gates::switched(&[("WorkloadValidateResourcesAreNonNegative".into(), false)].into());
    assert_eq!(said(workload::validate_create(&with(json!({ "cpu": "-1" })), &gates)), "");
}

#[test]
fn at_most_one_pod_set_has_a_minimum_and_elastic_jobs_have_none() {
    let minimum = ("/spec/podSets/0/minCount", json!(1));
    assert_eq!(of_new(&workload(std::slice::from_ref(&minimum))), "");
    let elastic = ("/metadata/annotations", json!({ "kueue.x-k8s.io/elastic-job": "true" }));
    assert_eq!(
        of_new(&workload(&[minimum, elastic])),
        "spec.podSets: Invalid value: 1: partial admission and elastic job cannot be used together"
    );
    let set = json!({ "name": "a", "count": 2, "minCount": 1, "template": {} });
    let two = workload(&[(
        "/spec/podSets",
        json!([set, { "name": "b", "count": 2, "minCount": 1, "template": {} }]),
    )]);
    assert_eq!(of_new(&two), "spec.podSets: Invalid value: 2: at most one podSet can use minCount");
}

#[test]
fn sizes_of_slices_go_with_their_topology() {
    let with = |request: Value| of_new(&workload(&[("/spec/podSets/0/topologyRequest", request)]));
    let path = "spec.podSets[0].topologyRequest";
    assert_eq!(with(json!({ "podSetSliceRequiredTopology": "rack", "podSetSliceSize": 1 })), "");
    assert_eq!(
        with(json!({ "podSetSliceRequiredTopology": "rack" })),
        format!(
            "{path}.podSetSliceSize: Required value: must be set when podSetSliceRequiredTopology is specified"
        )
    );
    assert_eq!(
        with(json!({ "podSetSliceSize": 2 })),
        format!(
            "{path}.podSetSliceSize: Forbidden: may not be set when podSetSliceRequiredTopology is not specified"
        )
    );
    assert_eq!(
        with(json!({ "podsetSliceRequiredTopologyConstraints": [{ "topology": "rack", "size": 0 }] })),
        format!(
            "{path}.podsetSliceRequiredTopologyConstraints[0].size: Invalid value: 0: must be greater than 0"
        )
    );
}

#[test]
fn a_reservation_needs_an_admission_unless_it_never_had_one() {
    let broken = reserved(&[("/status/admission", Value::Null)]);
    let required = "status.admission: Required value: must be set while the QuotaReserved condition is true";
    assert_eq!(of_new(&broken), required);
    assert_eq!(of_update(&broken, &reserved(&[])), required);
    assert_eq!(of_update(&broken, &broken), "", "it can be repaired and deleted");
}

#[test]
fn an_admission_names_known_pod_sets_and_divides_by_their_pods() {
    let with = |assignment: Value| {
        of_new(&reserved(&[(
            "/status/admission",
            json!({ "clusterQueue": "q", "podSetAssignments": [assignment] }),
        )]))
    };
    let path = "status.admission.podSetAssignments[0]";
    assert_eq!(with(json!({ "name": "main", "count": 3, "resourceUsage": { "cpu": "1500m" } })), "");
    assert_eq!(with(json!({ "name": "x", "count": 3 })), format!("{path}.name: Not found: \"x\""));
    assert_eq!(
        with(json!({ "name": "main", "count": 3, "resourceUsage": { "memory": "10" } })),
        format!("{path}.resourceUsage[memory]: Invalid value: \"10\": is not a multiple of 3")
    );
    assert_eq!(
        with(json!({ "name": "main", "resourceUsage": { "memory": "10" } })),
        "",
        "no count, nothing to divide"
    );
}

#[test]
fn an_admission_changes_in_its_placement_only() {
    let old = reserved(&[]);
    let placed = reserved(&[(
        "/status/admission/podSetAssignments/0/topologyAssignment",
        json!({ "levels": ["host"], "slices": [] }),
    )]);
    assert_eq!(of_update(&placed, &old), "");
    let gates = Gates::switched(&[("TopologyAwareScheduling".into(), false)].into());
    assert!(
        said(workload::validate_update(&placed, &old, &gates))
            .starts_with("status.admission: Invalid value: ")
    );
    let moved = reserved(&[("/status/admission/clusterQueue", json!("other"))]);
    assert!(of_update(&moved, &old).ends_with(": field is immutable"));
    let canonical =
        reserved(&[("/status/admission/podSetAssignments/0/resourceUsage", json!({ "cpu": "3000m" }))]);
    assert_eq!(of_update(&canonical, &old), "", "the same quantity");
    assert_eq!(of_update(&workload(&[]), &old), "", "it may be taken away");
}

#[test]
fn pod_sets_are_fixed_while_quota_is_reserved_but_may_shrink() {
    let count = |count: i32| reserved(&[("/spec/podSets/0/count", json!(count))]);
    let old = reserved(&[]);
    assert_eq!(of_update(&count(2), &old), "");
    assert!(of_update(&count(4), &old).starts_with("spec.podSets.0: Invalid value: "));
    let gates = Gates::switched(&[("ElasticJobsViaWorkloadSlices".into(), false)].into());
    assert!(!said(workload::validate_update(&count(2), &old, &gates)).is_empty());
    let request = "/spec/podSets/0/template/spec/containers/0/resources/requests";
    let same = reserved(&[(request, json!({ "cpu": "1000m" }))]);
    assert_eq!(of_update(&same, &old), "", "the same quantity");
    assert!(!of_update(&reserved(&[(request, json!({ "cpu": "2" }))]), &old).is_empty());
    assert_eq!(
        of_update(&workload(&[(request, json!({ "cpu": "2" }))]), &workload(&[])),
        "",
        "pending ones may change"
    );
}

#[test]
fn reclaimable_pods_are_known_and_do_not_come_back_while_quota_is_reserved() {
    let with = |pods: Value| reserved(&[("/status/reclaimablePods", pods)]);
    let main = |count: i32| json!([{ "name": "main", "count": count }]);
    assert_eq!(of_new(&with(main(3))), "");
    assert_eq!(
        of_new(&with(main(4))),
        "status.reclaimablePods[main].count: Invalid value: 4: should be less or equal to 3"
    );
    assert_eq!(
        of_new(&with(json!([{ "name": "x", "count": 1 }]))),
        "status.reclaimablePods[x].name: Unsupported value: \"x\": supported values: \"main\""
    );
    assert_eq!(
        of_update(&with(main(1)), &with(main(2))),
        "status.reclaimablePods[main].count: Invalid value: 1: cannot be less than 2"
    );
    assert_eq!(
        of_update(&with(json!([])), &with(main(2))),
        "status.reclaimablePods[main]: Required value: cannot be removed"
    );
    let elastic = ("/metadata/annotations", json!({ "kueue.x-k8s.io/elastic-job": "true" }));
    let shrunk = |pods: Value| {
        reserved(&[("/status/reclaimablePods", pods), ("/spec/podSets/0/count", json!(1)), elastic.clone()])
    };
    assert_eq!(of_update(&shrunk(main(1)), &shrunk(main(2))), "", "its pod set shrank");
    assert_eq!(of_update(&shrunk(main(2)), &shrunk(main(2))), "", "stale until corrected");
    assert!(!of_update(&shrunk(main(2)), &shrunk(main(1))).is_empty());
}

#[test]
fn updates_of_a_ready_check_are_fixed() {
    let check = |state: &str, label: &str| {
        workload(&[(
            "/status/admissionChecks",
            json!([{ "name": "c", "state": state, "message": "",
            "lastTransitionTime": "2025-01-01T00:00:00Z",
            "podSetUpdates": [{ "name": "main", "labels": { "a": label } }] }]),
        )])
    };
    assert_eq!(of_update(&check("Ready", "b"), &check("Pending", "a")), "");
    assert_eq!(of_update(&check("Pending", "b"), &check("Ready", "a")), "");
    assert_eq!(
        of_update(&check("Ready", "b"), &check("Ready", "a")),
        "status.admissionChecks[0].podSetUpdates: Invalid value: [{\"labels\":{\"a\":\"b\"},\"name\":\"main\"}]: field is immutable"
    );
    assert!(
        of_new(&check("Ready", "@")).contains("podSetUpdates[0].labels: Invalid value: \"@\": a valid label")
    );
}

#[test]
fn a_worker_cluster_was_nominated_before() {
    let with = |nominated: Value, cluster: Value| {
        workload(&[("/status/nominatedClusterNames", nominated), ("/status/clusterName", cluster)])
    };
    let old = with(json!(["a"]), Value::Null);
    assert_eq!(of_update(&with(Value::Null, json!("a")), &old), "");
    assert_eq!(
        of_update(&with(json!(["b"]), json!("b")), &old),
        "status.clusterName: Invalid value: \"b\": when setting clusterName it must be one of the nominatedClusterNames"
    );
}

#[test]
fn admission_gates_are_domain_paths_that_can_only_be_removed() {
    let with = |gates: &str| {
        workload(&[("/metadata/annotations", json!({ "kueue.x-k8s.io/admission-gated-by": gates }))])
    };
    let path = "metadata.annotations[kueue.x-k8s.io/admission-gated-by]";
    for allowed in ["", "a.io/x", "a.io/x, b.io/y"] {
        assert_eq!(of_new(&with(allowed)), "", "{allowed}");
    }
    let long = format!("a.io/{}", "x".repeat(63));
    for (denied, why) in [
        ("a", "Invalid value: \"a\": must be a domain-prefixed path (such as \"acme.io/foo\")"),
        ("a.io/x,", "Invalid value: \"a.io/x,\": cannot contain empty gate names"),
        ("a.io/x,a.io/x", "Invalid value: \"a.io/x,a.io/x\": duplicate gate name: a.io/x"),
        (long.as_str(), "Too long: may not be more than 63 bytes"),
    ] {
        assert_eq!(of_new(&with(denied)), format!("{path}: {why}"));
    }
    assert_eq!(of_update(&with("a.io/x"), &with("a.io/x,b.io/y")), "");
    assert_eq!(of_update(&workload(&[]), &with("a.io/x")), "");
    assert_eq!(
        of_update(&with("a.io/x"), &with("")),
        format!("{path}: Forbidden: cannot add admission gate after creation")
    );
    assert_eq!(
        of_update(&with("b.io/y"), &with("a.io/x")),
        format!("{path}: Forbidden: can only remove gates, not add new ones")
    );
}

#[test]
fn a_priority_boost_is_a_number_where_its_gate_is_on() {
    let with = |boost: &str| {
        workload(&[("/metadata/annotations", json!({ "kueue.x-k8s.io/priority-boost": boost }))])
    };
    let gates = Gates::switched(&[("PriorityBoost".into(), true)].into());
    for (boost, allowed) in [("-3", true), ("0", true), ("", false), ("high", false)] {
        let errors = workload::validate_create(&with(boost), &gates);
        assert_eq!(said(errors).is_empty(), allowed, "{boost:?}");
    }
    assert_eq!(of_new(&with("high")), "", "without the gate it means nothing");
}
