#![expect(clippy::needless_pass_by_value, reason = "tables are easier to read so")]

mod incremental_upgrades;
mod made;
mod passes;
mod suspension;

use std::sync::Arc;

use quintet_api::ray::v1::{RayCluster, RayService, RayServiceClusterStatus, RayServiceStatus};
use quintet_controller::{Class, cache::Entry};
use serde_json::{Value, json};

use super::{plan::serve, upgrade::Side, *};
use crate::{
    dashboard::{Address, Application, Applications, DashboardError, Observation},
    labels,
    spec_hash::upgrade_hash,
    testing::{ago, cluster_spec, entry, merge, now, replayed},
};

pub(super) const NAMESPACE: &str = "ns";
pub(super) const CONFIG: &str = "applications:\n- name: app\n  import_path: app:main\n";

/// A RayService in a world of its own, described by what differs from the ordinary.
pub(super) struct World {
    pub(super) service: Value,
    pub(super) observed: Observed,
}

/// A RayService whose spec and status have these fields too.
pub(super) fn world(spec: Value, status: Value) -> World {
    let mut service = json!({
        "metadata": {
            "name": "chat", "namespace": NAMESPACE, "uid": "uid-of-chat", "generation": 3,
            "labels": {"team": "a"}, "finalizers": [labels::SERVICE_FINALIZER],
        },
        "spec": {"serveConfigV2": CONFIG, "rayClusterConfig": cluster_spec()},
    });
    merge(&mut service["spec"], &spec);
    if !status.is_null() {
        service["status"] = status;
    }
    let object: RayService = serde_json::from_value(service.clone()).unwrap();
    let observed = Observed {
        service: Arc::new(entry(NAMESPACE, "chat", object)),
        clusters: Vec::new(),
        active: ObservedSide::default(),
        pending: ObservedSide::default(),
        services: Vec::new(),
        head_service: None,
        serve_service: None,
        gateway: None,
        route: None,
        endpoints: 0,
        settings: Arc::new(Settings::default()),
        now: now(),
    };
    World { service, observed }
}

/// The status of a service with these clusters, with these fields too.
pub(super) fn status(active: &str, pending: &str, more: Value) -> Value {
    let side = |name: &str| if name.is_empty() { json!(null) } else { json!({"rayClusterName": name}) };
    let mut status = json!({
        "activeServiceStatus": side(active), "pendingServiceStatus": side(pending), "observedGeneration": 3,
        "conditions": [condition("Ready", "False", "Initializing"), condition("UpgradeInProgress", "False", "Initializing")],
    });
    merge(&mut status, &more);
    status
}

pub(super) fn condition(type_: &str, status: &str, reason: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": ago(100),
           "observedGeneration": 3})
}

/// A cluster made by us from this spec, whose head is up.
pub(super) fn cluster(name: &str, spec: &Value) -> Entry<RayCluster> {
    let spec: quintet_api::ray::v1::RayClusterSpec = serde_json::from_value(spec.clone()).unwrap();
    let object = json!({
        "metadata": {
            "name": name, "namespace": NAMESPACE, "uid": format!("uid-of-{name}"),
            "annotations": {
                labels::UPGRADE_HASH: upgrade_hash(&spec), labels::OPERATOR_VERSION: Settings::default().version,
            },
        },
        "spec": spec,
        "status": {"conditions": [condition("HeadPodReady", "True", "HeadPodRunningAndReady")]},
    });
    entry(NAMESPACE, name, serde_json::from_value(object).unwrap())
}

/// How Serve is on a cluster.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Serve {
    /// Nothing has been heard.
    Unheard,
    /// It could not be asked.
    Silent,
    /// It has no applications.
    Empty,
    /// It has one in this state.
    App(&'static str),
}

impl World {
    /// A cluster on one side that has been given `config`.
    pub(super) fn with(
        mut self,
        side: Side,
        mut cluster: Entry<RayCluster>,
        config: Option<&str>,
        serve: Serve,
    ) -> Self {
        if let Some(config) = config {
            let annotations = cluster.object.metadata.annotations.get_or_insert_default();
            annotations.insert(objects::APPLIED_CONFIG.to_owned(), config.to_owned());
        }
        let cluster = Arc::new(cluster);
        let app = |state: &str| Application { status: state.to_owned(), ..Application::default() };
        let answer = match serve {
            Serve::Unheard => None,
            Serve::Silent => {
                Some(Err(DashboardError::Unreachable { url: "x".into(), cause: "refused".into() }))
            }
            Serve::Empty => Some(Ok(Applications::default())),
            Serve::App(state) => {
                Some(Ok(Applications { applications: BTreeMap::from([("app".to_owned(), app(state))]) }))
            }
        };
        let name = cluster.key.name().to_owned();
        let host = format!("{name}-head-svc.ns.svc.cluster.local:8265");
        let of_side = ObservedSide {
            address: Some(Address::of(&cluster.object, &host)),
            applications: answer.map(|response| Observation { at: now(), since: now(), response }),
            head: Some(Arc::new(entry(
                NAMESPACE,
                &format!("{name}-head"),
                PodView {
                    labels: BTreeMap::from([(labels::SERVE.to_owned(), "false".to_owned())]),
                    ..PodView::default()
                },
            ))),
            cluster: Some(Arc::clone(&cluster)),
            ..ObservedSide::default()
        };
        self.observed.clusters.push(cluster);
        match side {
            Side::Active => self.observed.active = of_side,
            Side::Pending => self.observed.pending = of_side,
        }
        self
    }

    /// Services that lead to a cluster.
    pub(super) fn leading_to(mut self, cluster: &str) -> Self {
        let view = || ServiceView {
            selector: BTreeMap::from([(labels::CLUSTER.to_owned(), cluster.to_owned())]),
            controller: Some("uid-of-chat".into()),
            ..ServiceView::default()
        };
        self.observed.head_service = Some(Arc::new(entry(NAMESPACE, "chat-head-svc", view())));
        self.observed.serve_service = Some(Arc::new(entry(NAMESPACE, "chat-serve-svc", view())));
        self
    }

    pub(super) fn with_endpoints(mut self, endpoints: usize) -> Self {
        self.observed.endpoints = endpoints;
        self
    }

    pub(super) fn plan(&self) -> Plan {
        replayed::<ServiceController>(&self.observed)
    }

    /// The status once a plan is carried out.
    pub(super) fn status_after(&self, plan: &Plan) -> RayServiceStatus {
        let mut status = self.service.get("status").cloned().unwrap_or_else(|| json!({}));
        if let Some(patch) = &plan.status {
            merge(&mut status, &patch.status);
        }
        serde_json::from_value(status).unwrap()
    }
}

/// The names of the two clusters.
pub(super) fn names_of(status: &RayServiceStatus) -> (String, String) {
    let name = |side: &Option<RayServiceClusterStatus>| {
        side.as_ref().and_then(|side| side.ray_cluster_name.clone()).unwrap_or_default()
    };
    (name(&status.active_service_status), name(&status.pending_service_status))
}

/// `Ready=False/Initializing` and the like, in order.
pub(super) fn conditions_of(status: &RayServiceStatus) -> Vec<String> {
    let all = status.conditions.iter().flatten();
    all.map(|one| format!("{}={}/{}", one.type_, one.status, one.reason)).collect()
}

/// The message of a condition.
pub(super) fn message_of<'a>(status: &'a RayServiceStatus, type_: &str) -> &'a str {
    let mut all = status.conditions.iter().flatten();
    all.find(|one| one.type_ == type_).map_or("", |one| one.message.as_str())
}

/// Another cluster spec.
pub(super) fn other_spec() -> Value {
    let mut spec = cluster_spec();
    spec["rayVersion"] = json!("2.54.0");
    spec
}
