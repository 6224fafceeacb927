//! Passes of a RayService that is upgraded at once, or not at all.

use serde_json::Value::Null;

use super::*;
use crate::testing::{events, steps};

#[test]
fn a_new_service_gets_a_name_for_its_cluster_before_the_cluster() {
    let world = world(json!({}), Null);
    let plan = world.plan();
    assert!(plan.steps.is_empty(), "{:?}", steps(&plan));
    let status = world.status_after(&plan);
    let (active, pending) = names_of(&status);
    assert!(active.is_empty() && pending.starts_with("chat-") && pending.len() == 10, "{pending}");
    assert_eq!(conditions_of(&status), ["Ready=False/Initializing", "UpgradeInProgress=False/Initializing"]);
    assert_eq!((status.observed_generation, status.last_update_time.unwrap().0), (Some(3), now()));
}

#[test]
fn a_finalizer_comes_first() {
    let mut world = world(json!({}), Null);
    let mut service = entry(NAMESPACE, "chat", world.observed.service.object.clone());
    service.object.metadata.finalizers = None;
    world.observed.service = Arc::new(service);
    assert_eq!(steps(&world.plan()), ["patch RayService.ray.io ns/chat"]);
    assert!(world.plan().status.is_none());
}

#[test]
fn the_named_cluster_is_made() {
    let world = world(json!({}), status("", "chat-a", json!({})));
    let plan = world.plan();
    assert_eq!(steps(&plan), ["create RayCluster.ray.io ns/chat-a"]);
    assert_eq!(events(&plan), ["CreatedRayCluster"]);
    assert!(plan.status.is_none(), "nothing changed that is worth writing: {:?}", plan.status);
}

#[test]
fn serve_is_told_what_to_serve_once() {
    let pending = |config, serve| {
        world(json!({}), status("", "chat-a", json!({}))).with(
            Side::Pending,
            cluster("chat-a", &cluster_spec()),
            config,
            serve,
        )
    };
    for (name, world, deploys) in [
        ("it is new", pending(None, Serve::Empty), true),
        ("it has other applications", pending(Some("applications: []"), Serve::App("RUNNING")), true),
        ("it has lost its memory", pending(Some(CONFIG), Serve::Empty), true),
        (
            "it has them, and an operator that was restarted knows",
            pending(Some(CONFIG), Serve::App("DEPLOYING")),
            false,
        ),
        ("it cannot be asked", pending(None, Serve::Silent), false),
        ("it has not been asked", pending(None, Serve::Unheard), false),
    ] {
        let plan = world.plan();
        let is_told = steps(&plan).iter().any(|step| step.starts_with("deploy Serve config"));
        assert_eq!(is_told, deploys, "{name}: {:?}", steps(&plan));
        if is_told {
            assert!(events(&plan).contains(&"UpdatedServeApplications".to_owned()), "{name}");
        }
    }
    let plan = pending(None, Serve::Empty).plan();
    assert_eq!(
        steps(&plan),
        ["deploy Serve config on RayCluster ns/chat-a", "patch RayCluster.ray.io ns/chat-a"]
    );
    let Action::Call(ServeRequest::DeployServeConfig { config, .. }) = &plan.steps[0].action else {
        panic!("{plan:?}")
    };
    assert_eq!(*config, json!({"applications": [{"name": "app", "import_path": "app:main"}]}));
}

#[test]
fn an_empty_config_is_given_once() {
    let empty = |config| {
        world(json!({"serveConfigV2": ""}), status("", "chat-a", json!({})))
            .with(Side::Pending, cluster("chat-a", &cluster_spec()), config, Serve::Empty)
            .plan()
    };
    assert_eq!(steps(&empty(None)).len(), 2);
    assert!(steps(&empty(Some(""))).is_empty());
}

#[test]
fn a_config_that_is_no_yaml_is_told() {
    let plan = world(json!({"serveConfigV2": "a: [b"}), status("", "chat-a", json!({})))
        .with(Side::Pending, cluster("chat-a", &cluster_spec()), None, Serve::Empty)
        .plan();
    assert!(steps(&plan).is_empty());
    assert_eq!(events(&plan), ["FailedToUpdateServeApplications"]);
}

#[test]
fn a_head_that_is_not_ready_is_not_told_anything() {
    let mut starting = cluster("chat-a", &cluster_spec());
    starting.object.status = None;
    let plan = world(json!({}), status("", "chat-a", json!({})))
        .with(Side::Pending, starting, None, Serve::Empty)
        .plan();
    assert!(steps(&plan).is_empty());
}

#[test]
fn a_missing_head_pod_keeps_nothing_else_from_being_done() {
    let mut world = world(json!({}), status("chat-a", "", json!({})))
        .with(Side::Active, cluster("chat-a", &cluster_spec()), Some(CONFIG), Serve::App("RUNNING"))
        .with_endpoints(2);
    world.observed.active.head = None;
    let status = world.status_after(&world.plan());
    assert_eq!(
        conditions_of(&status),
        ["Ready=True/NonZeroServeEndpoints", "UpgradeInProgress=False/NoPendingCluster"]
    );
    assert_eq!((status.service_status.as_deref(), status.num_serve_endpoints), (Some("Running"), Some(2)));
}

#[test]
fn no_request_is_led_to_a_cluster_that_is_given_up_in_the_same_pass() {
    let world = world(json!({"rayClusterConfig": other_spec()}), status("chat-a", "chat-b", json!({})))
        .with(Side::Active, cluster("chat-a", &cluster_spec()), Some(CONFIG), Serve::App("RUNNING"))
        .with(Side::Pending, cluster("chat-b", &cluster_spec()), Some(CONFIG), Serve::App("RUNNING"))
        .leading_to("chat-a")
        .with_endpoints(1);
    let plan = world.plan();
    let (active, pending) = names_of(&world.status_after(&plan));
    assert!(active == "chat-a" && pending != "chat-b" && !pending.is_empty(), "{active} {pending}");
    assert!(steps(&plan).is_empty(), "{:?}", steps(&plan));
}

#[test]
fn services_of_the_same_names_that_are_anothers_stay_as_they_are() {
    let mut world = world(json!({}), status("", "chat-a", json!({})))
        .with(Side::Pending, cluster("chat-a", &cluster_spec()), Some(CONFIG), Serve::App("RUNNING"))
        .leading_to("chat-0");
    let mut service = world.observed.head_service.take().unwrap().object.clone();
    service.controller = Some("uid-of-another".into());
    service.labels = [(labels::ORIGIN_KIND, "RayJob"), (labels::ORIGIN_NAME, "chat")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    world.observed.head_service = Some(Arc::new(entry(NAMESPACE, "chat-head-svc", service)));
    let plan = world.plan();
    assert_eq!(steps(&plan), ["patch Service ns/chat-serve-svc"]);
    let note = &plan.events.iter().find(|event| event.reason == "FailedToUpdateService").unwrap().note;
    assert!(note.contains("RayJob chat"), "{note}");
    assert_eq!(names_of(&world.status_after(&plan)).0, "chat-a", "it serves without");
}

#[test]
fn the_first_cluster_takes_over_when_it_serves() {
    let ready = world(json!({}), status("", "chat-a", json!({}))).with(
        Side::Pending,
        cluster("chat-a", &cluster_spec()),
        Some(CONFIG),
        Serve::App("RUNNING"),
    );
    let plan = ready.plan();
    assert_eq!(steps(&plan), ["create Service ns/chat-head-svc", "create Service ns/chat-serve-svc"]);
    let status = ready.status_after(&plan);
    assert_eq!(names_of(&status), ("chat-a".to_owned(), String::new()));
    let apps = status.active_service_status.unwrap().application_statuses.unwrap();
    assert_eq!(apps["app"].status.as_deref(), Some("RUNNING"));
    let deploying = world(json!({}), self::status("", "chat-a", json!({}))).with(
        Side::Pending,
        cluster("chat-a", &cluster_spec()),
        Some(CONFIG),
        Serve::App("DEPLOYING"),
    );
    assert!(deploying.plan().steps.is_empty());
}

#[test]
fn another_cluster_spec_makes_another_cluster() {
    let changed = |spec: Value| {
        let mut all = json!({"rayClusterConfig": other_spec()});
        merge(&mut all, &spec);
        world(all, status("chat-a", "", json!({})))
            .with(Side::Active, cluster("chat-a", &cluster_spec()), Some(CONFIG), Serve::App("RUNNING"))
            .leading_to("chat-a")
    };
    let world = changed(json!({}));
    let plan = world.plan();
    let (active, pending) = names_of(&world.status_after(&plan));
    assert_eq!(active, "chat-a");
    assert!(pending.starts_with("chat-") && pending != "chat-a");
    assert!(plan.steps.is_empty(), "the old cluster does not get the new config");
    for (type_, prepares) in [("NewCluster", true), ("None", false)] {
        let world = changed(json!({"upgradeStrategy": {"type": type_}}));
        assert_eq!(!names_of(&world.status_after(&world.plan())).1.is_empty(), prepares, "{type_}");
    }
    let mut off = changed(json!({}));
    off.observed.settings = Arc::new(Settings { zero_downtime: false, ..Settings::default() });
    assert!(names_of(&off.status_after(&off.plan())).1.is_empty());
    let mut wins = changed(json!({"upgradeStrategy": {"type": "NewCluster"}}));
    wins.observed.settings = Arc::new(Settings { zero_downtime: false, ..Settings::default() });
    assert!(
        !names_of(&wins.status_after(&wins.plan())).1.is_empty(),
        "the type wins over the operator's default"
    );
}

#[test]
fn an_upgrade_switches_when_the_new_cluster_serves() {
    let upgrading = |serve| {
        world(json!({"rayClusterConfig": other_spec()}), status("chat-a", "chat-b", json!({})))
            .with(Side::Active, cluster("chat-a", &cluster_spec()), Some(CONFIG), Serve::App("RUNNING"))
            .with(Side::Pending, cluster("chat-b", &other_spec()), Some(CONFIG), serve)
            .leading_to("chat-a")
            .with_endpoints(1)
    };
    let waiting = upgrading(Serve::App("DEPLOYING"));
    let status = waiting.status_after(&waiting.plan());
    assert_eq!(names_of(&status), ("chat-a".into(), "chat-b".into()));
    assert_eq!(
        conditions_of(&status),
        ["Ready=True/NonZeroServeEndpoints", "UpgradeInProgress=True/BothActivePendingClustersExist"]
    );
    assert_eq!(status.active_service_status.unwrap().application_statuses, None, "only the new one is asked");
    let mut ready = upgrading(Serve::App("RUNNING"));
    let switch = ["patch Service ns/chat-head-svc", "patch Service ns/chat-serve-svc"];
    assert_eq!(steps(&ready.plan()), switch, "a head without an address is never an endpoint");
    let head = |serves: &str| {
        let labels = BTreeMap::from([(labels::SERVE.to_owned(), serves.to_owned())]);
        let pod = PodView { labels, ip: "10.0.0.1".into(), ..PodView::default() };
        Some(Arc::new(entry(NAMESPACE, "chat-b-head", pod)))
    };
    ready.observed.pending.head = head("false");
    assert_eq!(steps(&ready.plan()), Vec::<String>::new(), "no pod of it is an endpoint yet");
    let heard = |since, healthy| Some(Observation { at: now(), since, response: Ok(healthy) });
    ready.observed.pending.healthy = heard(now(), false);
    assert_eq!(steps(&ready.plan()), Vec::<String>::new(), "its proxy starts");
    ready.observed.pending.healthy = heard(ago(30), false);
    assert_eq!(steps(&ready.plan()), switch, "it has no proxy");
    ready.observed.pending.healthy = heard(now(), true);
    assert_eq!(steps(&ready.plan()), ["patch Pod ns/chat-b-head"], "it becomes an endpoint first");
    ready.observed.pending.head = head("true");
    let plan = ready.plan();
    assert_eq!(steps(&plan), switch);
    assert_eq!(events(&plan), ["UpdatedService", "UpdatedService"]);
    let status = ready.status_after(&plan);
    assert_eq!(names_of(&status), ("chat-b".into(), String::new()));
    assert_eq!(conditions_of(&status)[1], "UpgradeInProgress=False/NoPendingCluster");
    // The switch took place, but we ended before we could write it down.
    let interrupted = upgrading(Serve::Silent).leading_to("chat-b");
    assert_eq!(names_of(&interrupted.status_after(&interrupted.plan())).0, "chat-b");
}

#[test]
fn services_that_disagree_are_told_and_decide_nothing() {
    let mut world = world(json!({}), status("chat-a", "chat-b", json!({})))
        .with(Side::Active, cluster("chat-a", &cluster_spec()), Some(CONFIG), Serve::Silent)
        .with(Side::Pending, cluster("chat-b", &cluster_spec()), Some(CONFIG), Serve::Silent)
        .leading_to("chat-b");
    let view = ServiceView {
        selector: BTreeMap::from([(labels::CLUSTER.to_owned(), "who".to_owned())]),
        controller: Some("uid-of-chat".into()),
        ..ServiceView::default()
    };
    world.observed.serve_service = Some(Arc::new(entry(NAMESPACE, "chat-serve-svc", view)));
    let plan = world.plan();
    assert_eq!(events(&plan), ["FailedToUpdateService"]);
    assert_eq!(names_of(&world.status_after(&plan)), ("chat-a".into(), "chat-b".into()));
}

#[test]
fn groups_at_the_end_are_added_in_place() {
    let mut grown = cluster_spec();
    let mut group = grown["workerGroupSpecs"][0].clone();
    group["groupName"] = json!("large");
    grown["workerGroupSpecs"].as_array_mut().unwrap().push(group);
    let mut live = cluster("chat-a", &cluster_spec());
    live.object.spec.suspend = Some(true);
    let world = world(json!({"rayClusterConfig": grown}), status("chat-a", "", json!({})))
        .with(Side::Active, live, Some(CONFIG), Serve::App("RUNNING"))
        .leading_to("chat-a");
    let plan = world.plan();
    assert_eq!(steps(&plan), ["patch RayCluster.ray.io ns/chat-a"]);
    let Action::Patch { patch, .. } = &plan.steps[0].action else { panic!("{plan:?}") };
    assert_eq!(patch[0]["value"], "7", "only on the state that was observed");
    assert_eq!(patch[2]["value"][objects::APPLIED_CONFIG], CONFIG, "what is remembered stays");
    assert_eq!(
        patch[2]["value"].get(labels::NUM_WORKER_GROUPS),
        None,
        "without it KubeRay keeps the cluster"
    );
    assert_eq!(patch[3]["value"]["suspend"], true, "queueing's own");
}

#[test]
fn scaling_changes_nothing_and_replacing_a_group_is_an_upgrade() {
    let mut scaled = cluster_spec();
    scaled["workerGroupSpecs"][0]["replicas"] = json!(3);
    let mut renamed = cluster_spec();
    renamed["workerGroupSpecs"][0]["groupName"] = json!("other");
    for (name, spec, upgrades) in [("scaled", scaled, false), ("renamed", renamed, true)] {
        let world = world(json!({"rayClusterConfig": spec}), status("chat-a", "", json!({})))
            .with(Side::Active, cluster("chat-a", &cluster_spec()), Some(CONFIG), Serve::App("RUNNING"))
            .leading_to("chat-a");
        let plan = world.plan();
        assert!(plan.steps.is_empty(), "{name}: {:?}", steps(&plan));
        assert_eq!(!names_of(&world.status_after(&plan)).1.is_empty(), upgrades, "{name}");
    }
}

#[test]
fn a_cluster_of_another_operators_making_is_marked_anew_and_kept() {
    let mut foreign = cluster("chat-a", &cluster_spec());
    let annotations = foreign.object.metadata.annotations.as_mut().unwrap();
    annotations.insert(labels::OPERATOR_VERSION.to_owned(), "v1.5.0".to_owned());
    annotations.insert(labels::UPGRADE_HASH.to_owned(), "FOREIGN".to_owned());
    let world = world(json!({}), status("chat-a", "", json!({})))
        .with(Side::Active, foreign, Some(CONFIG), Serve::App("RUNNING"))
        .leading_to("chat-a");
    let plan = world.plan();
    assert_eq!(steps(&plan), ["patch RayCluster.ray.io ns/chat-a"]);
    assert!(names_of(&world.status_after(&plan)).1.is_empty());
}

/// A cluster as a Go operator writes it: marked by that operator, its spec read and written again.
fn of_a_go_operator(name: &str, mut spec: Value) -> Entry<RayCluster> {
    merge(&mut spec, &json!({"headGroupSpec": {"template": {"metadata": {"creationTimestamp": null}}}}));
    spec["workerGroupSpecs"][0]["replicas"] = json!(7);
    let mut foreign = cluster(name, &spec);
    let annotations = foreign.object.metadata.annotations.as_mut().unwrap();
    annotations.insert(labels::NUM_WORKER_GROUPS.to_owned(), "1".to_owned());
    annotations.insert(labels::OPERATOR_VERSION.to_owned(), "v1.6.2".to_owned());
    annotations.insert(labels::UPGRADE_HASH.to_owned(), "FOREIGN".to_owned());
    foreign
}

#[test]
fn a_pending_cluster_of_another_operators_making_is_adopted() {
    for active in ["", "chat-a"] {
        let mut world = world(json!({}), status(active, "chat-b", json!({})));
        if !active.is_empty() {
            let old = of_a_go_operator("chat-a", other_spec());
            world = world.with(Side::Active, old, Some(CONFIG), Serve::App("RUNNING"));
        }
        let world =
            world.with(Side::Pending, of_a_go_operator("chat-b", cluster_spec()), None, Serve::Unheard);
        let plan = world.plan();
        assert_eq!(steps(&plan), ["patch RayCluster.ray.io ns/chat-b"], "{active:?}");
        let Action::Patch { patch, .. } = &plan.steps[0].action else { panic!("{:?}", plan.steps[0]) };
        let marks = json!({"ray.io/hash-without-replicas-and-workers-to-delete":
            crate::spec_hash::upgrade_hash(&world.observed.object().spec.ray_cluster_config),
            "ray.io/num-worker-groups": null, "ray.io/kuberay-version": Settings::default().version});
        assert_eq!(*patch, json!({"metadata": {"annotations": marks}}), "its spec is left alone");
        assert_eq!(names_of(&world.status_after(&plan)), (active.to_owned(), "chat-b".to_owned()));
    }
    // One whose service has changed since is replaced, as upstream does.
    let world = world(json!({}), status("", "chat-b", json!({}))).with(
        Side::Pending,
        of_a_go_operator("chat-b", other_spec()),
        None,
        Serve::Unheard,
    );
    let (_, pending) = names_of(&world.status_after(&world.plan()));
    assert!(!pending.is_empty() && pending != "chat-b");
}

#[test]
fn a_third_spec_replaces_a_pending_cluster_that_does_not_serve() {
    let mut third = cluster_spec();
    third["rayVersion"] = json!("2.55.0");
    let world = world(json!({"rayClusterConfig": third}), status("chat-a", "chat-b", json!({})))
        .with(Side::Active, cluster("chat-a", &cluster_spec()), Some(CONFIG), Serve::App("RUNNING"))
        .with(Side::Pending, cluster("chat-b", &other_spec()), Some(CONFIG), Serve::App("DEPLOYING"))
        .leading_to("chat-a");
    let (active, pending) = names_of(&world.status_after(&world.plan()));
    assert_eq!(active, "chat-a");
    assert!(!pending.is_empty() && pending != "chat-b");
}

#[test]
fn an_active_cluster_that_is_gone_is_replaced() {
    let world = world(json!({}), status("chat-a", "", json!({}))).leading_to("chat-a");
    assert!(!names_of(&world.status_after(&world.plan())).1.is_empty());
}

#[test]
fn clusters_that_nobody_wants_go_after_a_while_even_if_we_are_restarted() {
    let dangling = |mark: Option<String>| {
        let mut world = world(json!({"rayClusterDeletionDelaySeconds": 30}), status("chat-a", "", json!({})))
            .with(Side::Active, cluster("chat-a", &cluster_spec()), Some(CONFIG), Serve::App("RUNNING"))
            .leading_to("chat-a");
        let mut old = cluster("chat-old", &cluster_spec());
        if let Some(mark) = mark {
            old.object.metadata.annotations.as_mut().unwrap().insert(objects::DELETE_AFTER.to_owned(), mark);
        }
        world.observed.clusters.push(Arc::new(old));
        world.plan()
    };
    let first = dangling(None);
    assert_eq!(steps(&first), ["patch RayCluster.ray.io ns/chat-old"]);
    let Action::Patch { patch, .. } = &first.steps[0].action else { panic!("{first:?}") };
    assert_eq!(patch["metadata"]["annotations"][objects::DELETE_AFTER], "2026-01-01T00:10:30Z");
    let waiting = dangling(Some(ago(-10).to_string()));
    assert!(waiting.steps.is_empty());
    assert_eq!(waiting.next, quintet_controller::Next::After(Duration::from_secs(10)));
    assert_eq!(steps(&dangling(Some(ago(0).to_string()))), ["delete RayCluster.ray.io ns/chat-old"]);
}

#[test]
fn heads_take_requests_while_their_proxy_does() {
    let labelled = |healthy: Option<bool>, excluded: bool| {
        let mut world =
            world(json!({"excludeHeadPodFromServeSvc": excluded}), status("chat-a", "", json!({})))
                .with(Side::Active, cluster("chat-a", &cluster_spec()), Some(CONFIG), Serve::App("RUNNING"))
                .leading_to("chat-a");
        world.observed.active.healthy =
            healthy.map(|healthy| Observation { at: now(), since: now(), response: Ok(healthy) });
        world.plan()
    };
    let plan = labelled(Some(true), false);
    assert_eq!(
        (steps(&plan), events(&plan)),
        (vec!["patch Pod ns/chat-a-head".to_owned()], vec!["UpdatedHeadPodServeLabel".to_owned()])
    );
    for (healthy, excluded) in [(Some(false), false), (None, false), (Some(true), true)] {
        assert!(labelled(healthy, excluded).steps.is_empty(), "{healthy:?} {excluded}");
    }
}

#[test]
fn endpoints_decide_whether_it_is_ready() {
    let service = |ready: Value, endpoints| {
        let world = world(json!({}), status("chat-a", "", json!({"conditions": [ready]})))
            .with(Side::Active, cluster("chat-a", &cluster_spec()), Some(CONFIG), Serve::App("RUNNING"))
            .leading_to("chat-a")
            .with_endpoints(endpoints);
        conditions_of(&world.status_after(&world.plan()))[0].clone()
    };
    let yes = || condition("Ready", "True", "NonZeroServeEndpoints");
    assert_eq!(service(yes(), 1), "Ready=True/NonZeroServeEndpoints");
    assert_eq!(service(yes(), 0), "Ready=False/ZeroServeEndpoints");
    let no = condition("Ready", "False", "Initializing");
    assert_eq!(service(no, 0), "Ready=False/Initializing", "the reason stays");
}

#[test]
fn what_has_settled_is_not_written_again() {
    let settled = status(
        "chat-a",
        "",
        json!({
            "conditions": [condition("Ready", "True", "NonZeroServeEndpoints"), condition("UpgradeInProgress", "False", "NoPendingCluster")],
            "serviceStatus": "Running", "numServeEndpoints": 1,
            "activeServiceStatus": {"applicationStatuses": {"app": {"status": "RUNNING", "serveDeploymentStatuses": {}}}},
        }),
    );
    let world = || {
        world(json!({}), settled.clone())
            .with(Side::Active, cluster("chat-a", &cluster_spec()), Some(CONFIG), Serve::App("RUNNING"))
            .leading_to("chat-a")
            .with_endpoints(1)
    };
    let first = world();
    let mut status = first.service["status"].clone();
    if let Some(patch) = first.plan().status {
        merge(&mut status, &patch.status);
    }
    let again = super::world(json!({}), status)
        .with(Side::Active, cluster("chat-a", &cluster_spec()), Some(CONFIG), Serve::App("RUNNING"))
        .leading_to("chat-a")
        .with_endpoints(1);
    assert!(again.plan().is_empty(), "{:?}", again.plan());
}

#[test]
fn a_service_that_never_serves_is_given_up() {
    let timed = |timeout: &str, endpoints| {
        let mut world = world(json!({}), status("", "chat-a", json!({})))
            .with(Side::Pending, cluster("chat-a", &cluster_spec()), Some(CONFIG), Serve::App("DEPLOYING"))
            .with_endpoints(endpoints);
        let mut service = entry(NAMESPACE, "chat", world.observed.service.object.clone());
        service.object.metadata.annotations =
            Some(BTreeMap::from([(labels::INITIALIZING_TIMEOUT.to_owned(), timeout.to_owned())]));
        world.observed.service = Arc::new(service);
        world
    };
    let expired = timed("100", 0);
    let plan = expired.plan();
    let status = expired.status_after(&plan);
    assert_eq!(names_of(&status), (String::new(), String::new()));
    assert_eq!(conditions_of(&status)[0], "Ready=False/InitializingTimeout");
    assert_eq!(events(&plan), ["RayServiceInitializingTimeout"]);
    assert_eq!(timed("2m", 0).plan().next, quintet_controller::Next::After(Duration::from_secs(20)));
    let served = timed("100", 1);
    assert_eq!(conditions_of(&served.status_after(&served.plan()))[0], "Ready=True/NonZeroServeEndpoints");
    // It stays given up, whatever the spec says, and its clusters go.
    let given_up = json!({"conditions": [condition("Ready", "False", "InitializingTimeout")]});
    let mut after = world(json!({"rayClusterConfig": other_spec()}), given_up);
    after.observed.clusters.push(Arc::new(cluster("chat-a", &cluster_spec())));
    assert_eq!(steps(&after.plan()), ["patch RayCluster.ray.io ns/chat-a"]);
    after.observed.clusters.clear();
    assert!(after.plan().is_empty());
}

#[test]
fn mistakes_are_told_and_what_serves_goes_on() {
    let spec = json!({"rayClusterDeletionDelaySeconds": -1});
    let running = status(
        "chat-a",
        "",
        json!({"serviceStatus": "Running", "conditions": [condition("Ready", "True", "NonZeroServeEndpoints")]}),
    );
    let world = world(spec.clone(), running);
    let plan = world.plan();
    let status = world.status_after(&plan);
    assert_eq!(conditions_of(&status), ["Ready=False/ValidationFailed"]);
    assert_eq!(events(&plan), ["InvalidRayServiceSpec"]);
    assert_eq!(status.service_status.as_deref(), Some("Running"));
    assert!(plan.steps.is_empty());
    let told = super::world(spec, serde_json::to_value(&status).unwrap());
    assert!(told.plan().is_empty(), "once");
    let mut old = cluster("chat-old", &cluster_spec());
    let annotations = old.object.metadata.annotations.get_or_insert_default();
    annotations.insert(objects::DELETE_AFTER.to_owned(), ago(0).to_string());
    let mut leaving = super::world(json!({"rayClusterDeletionDelaySeconds": -1}), json!(status));
    leaving.observed.clusters.push(Arc::new(old));
    assert_eq!(steps(&leaving.plan()), ["delete RayCluster.ray.io ns/chat-old"], "its time had come before");
    let fixed = super::world(json!({}), serde_json::to_value(&status).unwrap())
        .with(Side::Active, cluster("chat-a", &cluster_spec()), Some(CONFIG), Serve::App("RUNNING"))
        .leading_to("chat-a")
        .with_endpoints(1);
    assert_eq!(conditions_of(&fixed.status_after(&fixed.plan()))[0], "Ready=True/NonZeroServeEndpoints");
}

#[test]
fn a_deleted_service_takes_its_clusters_with_it() {
    let deleted = |clusters: Vec<Entry<RayCluster>>| {
        let mut world = world(json!({}), status("chat-a", "", json!({})));
        let mut service = entry(NAMESPACE, "chat", world.observed.service.object.clone());
        service.deleting = true;
        world.observed.service = Arc::new(service);
        world.observed.clusters = clusters.into_iter().map(Arc::new).collect();
        steps(&world.plan())
    };
    let both = vec![cluster("chat-a", &cluster_spec()), cluster("chat-b", &cluster_spec())];
    assert_eq!(deleted(both), ["delete RayCluster.ray.io ns/chat-a", "delete RayCluster.ray.io ns/chat-b"]);
    let mut going = cluster("chat-a", &cluster_spec());
    going.deleting = true;
    assert!(deleted(vec![going]).is_empty(), "it is waited for");
    assert_eq!(deleted(Vec::new()), ["patch RayService.ray.io ns/chat"]);
}

#[test]
fn what_others_manage_is_left_alone() {
    let world = world(json!({"managedBy": "kueue.x-k8s.io/multikueue"}), Null);
    assert_eq!(world.plan(), Plan::awaiting("the controller kueue.x-k8s.io/multikueue, which manages it"));
}

#[test]
fn a_dashboard_that_refuses_keeps_users_informed() {
    let world = world(json!({}), status("chat-a", "", json!({})))
        .with(Side::Active, cluster("chat-a", &cluster_spec()), Some("old"), Serve::App("RUNNING"))
        .leading_to("chat-a")
        .with_endpoints(1);
    let plan = world.plan();
    let call = &plan.steps[0].action;
    let error = Error::new(Class::Invalid, "cannot deploy", "bad schema");
    let on_error = on_error(&world.observed, call, &error);
    assert_eq!(on_error.events[0].reason, "FailedToUpdateServeApplications");
    assert_eq!(on_error.status, plan.status, "it says that the service is ready");
}
