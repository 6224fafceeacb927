use serde_json::Value::Null;

use super::*;
use crate::testing::steps;

#[test]
fn a_suspension_is_written_down_before_anything_is_deleted() {
    let running = status("chat-a", "", json!({"serviceStatus": "Running", "numServeEndpoints": 2}));
    let world = world(json!({"suspend": true}), running).with(
        Side::Active,
        cluster("chat-a", &cluster_spec()),
        Some(CONFIG),
        Serve::App("RUNNING"),
    );
    let plan = world.plan();
    assert!(plan.steps.is_empty());
    let status = world.status_after(&plan);
    assert_eq!(names_of(&status), (String::new(), String::new()));
    assert_eq!((status.num_serve_endpoints, status.service_status.as_deref()), (Some(0), Some("")));
    assert_eq!(
        conditions_of(&status),
        [
            "Ready=False/SuspendInProgress",
            "UpgradeInProgress=False/SuspendInProgress",
            "Suspending=True/SuspendRequested",
            "RollbackInProgress=False/SuspendInProgress",
        ]
    );
    assert_eq!(
        ["Suspending", "Ready", "UpgradeInProgress", "RollbackInProgress"]
            .map(|type_| message_of(&status, type_)),
        [
            "Spec.Suspend is true; will delete all Kubernetes resources owned by this RayService.",
            "RayService is suspending.",
            "No upgrade in progress.",
            "No rollback in progress.",
        ]
    );
}

/// An object made for the service.
fn owned() -> Value {
    json!({"metadata": {"ownerReferences": [{"uid": "uid-of-chat", "controller": true}]}})
}

#[test]
fn routing_that_users_made_stays() {
    let suspending = json!({"conditions": [condition("Suspending", "True", "SuspendRequested")]});
    let mut world = world(json!({"suspend": true}), suspending);
    let other = json!({"metadata": {"ownerReferences": [{"uid": "uid-of-another", "controller": true}]}});
    world.observed.gateway = Some(Arc::new(entry(NAMESPACE, "chat-gateway", json!({}))));
    world.observed.route = Some(Arc::new(entry(NAMESPACE, "chat-httproute", other)));
    let plan = world.plan();
    assert!(plan.steps.is_empty(), "{:?}", steps(&plan));
    let conditions = conditions_of(&world.status_after(&plan));
    assert!(conditions.contains(&"Suspended=True/SuspendComplete".to_owned()), "{conditions:?}");
}

#[test]
fn everything_goes_even_if_the_user_thinks_again() {
    let suspending = || json!({"conditions": [condition("Suspending", "True", "SuspendRequested")]});
    for suspend in [true, false] {
        let mut world = world(json!({"suspend": suspend}), suspending());
        world.observed.clusters =
            vec![Arc::new(cluster("chat-a", &cluster_spec())), Arc::new(cluster("chat-b", &cluster_spec()))];
        world.observed.services = vec![Arc::new(entry(NAMESPACE, "chat-head-svc", ServiceView::default()))];
        world.observed.gateway = Some(Arc::new(entry(NAMESPACE, "chat-gateway", owned())));
        world.observed.route = Some(Arc::new(entry(NAMESPACE, "chat-httproute", owned())));
        let plan = world.plan();
        assert_eq!(
            steps(&plan),
            [
                "delete RayCluster.ray.io ns/chat-a",
                "delete RayCluster.ray.io ns/chat-b",
                "delete Service ns/chat-head-svc",
                "delete Gateway.gateway.networking.k8s.io ns/chat-gateway",
                "delete HTTPRoute.gateway.networking.k8s.io ns/chat-httproute",
            ]
        );
        let status = world.status_after(&plan);
        assert_eq!(conditions_of(&status), ["Suspending=True/SuspendInProgress"]);
        assert_eq!(
            message_of(&status, "Suspending"),
            "Waiting for all Kubernetes resources owned by this RayService to be deleted."
        );
        let clear = super::world(json!({"suspend": suspend}), suspending());
        let status = clear.status_after(&clear.plan());
        assert_eq!(
            conditions_of(&status),
            [
                "Suspending=False/SuspendComplete",
                "Suspended=True/SuspendComplete",
                "Ready=False/SuspendComplete",
                "UpgradeInProgress=False/SuspendComplete",
                "RollbackInProgress=False/SuspendComplete",
            ]
        );
        assert_eq!(
            ["Suspending", "Suspended", "Ready", "UpgradeInProgress", "RollbackInProgress"]
                .map(|type_| message_of(&status, type_)),
            [
                "All owned resources have been deleted.",
                "All owned resources have been deleted.",
                "RayService is suspended.",
                "No upgrade in progress.",
                "No rollback in progress.",
            ]
        );
    }
}

#[test]
fn suspended_until_resumed() {
    let suspended = || {
        json!({"conditions": [
            condition("Suspending", "False", "SuspendComplete"), condition("Suspended", "True", "SuspendComplete"),
            condition("Ready", "False", "SuspendComplete"), condition("UpgradeInProgress", "False", "SuspendComplete"),
        ]})
    };
    let still = world(json!({"suspend": true}), suspended());
    assert_eq!(still.plan(), Plan::awaiting("spec.suspend to be false"));
    let resumed = world(json!({}), suspended());
    let status = resumed.status_after(&resumed.plan());
    assert_eq!(
        conditions_of(&status),
        [
            "Suspending=False/SuspendComplete",
            "Suspended=False/RayServiceResumed",
            "Ready=False/Initializing",
            "UpgradeInProgress=False/Initializing",
        ]
    );
    assert_eq!(message_of(&status, "Suspended"), "Spec.Suspend is false; RayService has resumed.");
    for type_ in ["Ready", "UpgradeInProgress"] {
        assert_eq!(message_of(&status, type_), "RayService is initializing after resuming from suspend.");
    }
    let ready = status.conditions.as_ref().unwrap().iter().find(|one| one.type_ == "Ready").unwrap();
    assert_eq!(ready.last_transition_time.0, now(), "the time to initialize begins anew");
    assert!(!names_of(&status).1.is_empty(), "the same pass goes on");
}

#[test]
fn born_suspended_it_makes_nothing() {
    let world = world(json!({"suspend": true}), Null);
    let status = world.status_after(&world.plan());
    assert_eq!(names_of(&status), (String::new(), String::new()));
    assert!(conditions_of(&status).contains(&"Suspending=True/SuspendRequested".to_owned()));
}
