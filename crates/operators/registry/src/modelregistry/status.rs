//! The status of a registry.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Endpoints;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quintet_api::conditions::{self, Finding};
use quintet_api::modelregistry::conditions::{
    AVAILABLE, KUBE_RBAC_PROXY_AVAILABLE, OAUTH_PROXY_AVAILABLE, PROGRESSING,
};
use quintet_api::modelregistry::v1beta1::ModelRegistryStatus;
use quintet_api::modelregistry::{messages, reasons};
use quintet_controller::{ApiKind, ObjectKey, StatusPatch};
use serde_json::Value;

use super::effective::has_https_route;
use super::objects::external_host;
use super::observe::Observed;
use super::plan::Specs;
use super::{pod_details, proxy_readiness};
use crate::availability::{self, Availability, Server};
use crate::kinds;
use crate::managed::Change;
use crate::names::RegistryNames;

/// `Progressing`: objects are being changed.
const UPDATING_DEPLOYMENT: &str = "UpdatingDeployment";
const UPDATING: &str = "Updating deployment";

/// The next status, as it is put together.
pub(super) struct Draft<'a> {
    observed: &'a Observed,
    specs: &'a Specs,
    status: ModelRegistryStatus,
    now: Time,
}

impl<'a> Draft<'a> {
    /// The status as it is.
    pub(super) fn new(observed: &'a Observed, specs: &'a Specs) -> Self {
        Self { observed, specs, status: observed.status(), now: Time(observed.now) }
    }

    /// The difference to the status as it is.
    pub(super) fn patch(self) -> Option<StatusPatch> {
        StatusPatch::between(&self.observed.registry, &self.observed.status(), &self.status)
    }

    fn set(&mut self, type_: &str, holds: bool, reason: &str, message: &str) {
        let finding = Finding { type_, holds: Some(holds), reason, message, observed_generation: None };
        conditions::set(self.status.conditions.get_or_insert_default(), &finding, &self.now);
    }

    /// Hosts, and what the operator has filled in.
    pub(super) fn set_addresses(&mut self) {
        let (name, namespace) = (self.observed.name(), self.observed.namespace());
        let gateway = self.observed.settings.gateway.as_ref();
        let gateway = gateway.map(|gateway| format!("{}/model-registry/{name}", gateway.domain));
        let outside = has_https_route(&self.specs.stored).then(|| external_host(name, &self.specs.filled));
        let inside =
            [format!("{name}.{namespace}.svc.cluster.local"), format!("{name}.{namespace}"), name.to_owned()];
        let hosts: Vec<_> = gateway.into_iter().chain(outside).chain(inside).collect();
        self.status.hosts_str = Some(hosts.join(","));
        self.status.hosts = Some(hosts);
        self.status.spec_defaults = Some(self.specs.filled_in());
    }

    /// Whether objects are being made.
    pub(super) fn set_progress(&mut self, change: Option<Change>) {
        match change {
            Some(Change::Created) => {
                self.set(PROGRESSING, true, reasons::CREATING_DEPLOYMENT, messages::CREATING);
            }
            Some(_) => self.set(PROGRESSING, true, UPDATING_DEPLOYMENT, UPDATING),
            None => self.set(PROGRESSING, false, reasons::CREATED_DEPLOYMENT, messages::CREATED),
        }
    }

    /// Whether the server and its proxy serve. Returns when to look again.
    pub(super) fn set_availability(&mut self, awaits: &mut Vec<String>) -> Option<Duration> {
        let mut found = self.availability();
        if self.specs.filled.kube_rbac_proxy.is_some() {
            let obstacle = if found.holds { self.proxy_obstacle() } else { Some(found.message.clone()) };
            if let Some(message) = obstacle {
                let reason = reasons::RESOURCES_UNAVAILABLE;
                self.set(KUBE_RBAC_PROXY_AVAILABLE, false, reason, &message);
                if found.holds {
                    found = Availability::no(reason, message);
                }
            } else {
                let reason = reasons::RESOURCES_AVAILABLE;
                self.set(KUBE_RBAC_PROXY_AVAILABLE, true, reason, messages::PROXY_CREATED);
            }
        }
        self.set(AVAILABLE, found.holds, found.reason, &found.message);
        if let Some(all) = &mut self.status.conditions {
            conditions::remove(all, OAUTH_PROXY_AVAILABLE);
        }
        if !found.holds {
            awaits.push(found.message);
        }
        found.next
    }

    /// A write was rejected.
    pub(super) fn set_error(&mut self, cause: &str) {
        let message = format!("unexpected reconcile error: {cause}");
        self.set(AVAILABLE, false, reasons::DEPLOYMENT_UNAVAILABLE, &message);
    }

    fn availability(&self) -> Availability {
        let observed = self.observed;
        let key = &observed.registry.key;
        let live = |kind: ApiKind| observed.live.get(&kind, key).map(|entry| &entry.object);
        let server = Server {
            name: observed.name(),
            // One that does not exist yet is made by the same plan.
            deployment: live(ApiKind::of::<Deployment>()).unwrap_or(&Value::Null),
            endpoints: live(ApiKind::of::<Endpoints>()),
            now: observed.now,
        };
        availability::of(&server, |unavailable| {
            Some(pod_details::of(&observed.pods, observed.alert.as_ref(), unavailable))
        })
    }

    /// Why the proxy does not serve.
    fn proxy_obstacle(&self) -> Option<String> {
        let observed = self.observed;
        proxy_readiness::obstacle(observed.name(), &observed.pods).or_else(|| {
            let is_routed = observed.apis.routes && has_https_route(&self.specs.filled);
            is_routed.then(|| self.route_obstacle()).flatten()
        })
    }

    fn route_obstacle(&self) -> Option<String> {
        let observed = self.observed;
        let name = RegistryNames(observed.name()).https_route();
        let key = ObjectKey::new(observed.namespace(), &name);
        let route = observed.live.get(&kinds::route(), &key).map(|entry| &entry.object);
        let why = match route.and_then(last_admission) {
            None => String::new(),
            Some((_, admission)) if admission["status"] == "True" => return None,
            Some((ingress, admission)) => {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let (host, reason) = (text(&ingress["host"]), text(&admission["reason"]));
                let message = text(&admission["message"]);
                format!(
                    "Host {host} in Route {name} is unavailable: {{reason: {reason}, message: {message}}}"
                )
            }
        };
        Some(format!("KubeRBACProxy Route {name} is unavailable: {why}"))
    }
}

/// The last ingress of a Route that says whether it admits it, and how it says so: as upstream, the last one counts.
fn last_admission(route: &Value) -> Option<(&Value, &Value)> {
    let all = route["status"]["ingress"].as_array()?;
    let admission = |ingress: &Value| {
        let mut conditions = ingress["conditions"].as_array()?.iter();
        conditions.position(|condition| condition["type"] == "Admitted")
    };
    let (ingress, index) = all.iter().rev().find_map(|ingress| Some((ingress, admission(ingress)?)))?;
    Some((ingress, &ingress["conditions"][index]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_ingress_that_has_decided_counts() {
        let ingress = |host: &str, conditions: Value| json!({"host": host, "conditions": conditions});
        let admitted = |status: &str| json!([{"type": "Other"}, {"type": "Admitted", "status": status}]);
        let host = |all: Value| {
            let route = json!({"status": {"ingress": all}});
            last_admission(&route)
                .map(|(ingress, admission)| format!("{} {}", ingress["host"], admission["status"]))
        };
        assert_eq!(host(Value::Null), None);
        assert_eq!(host(json!([ingress("a", json!([]))])), None);
        let both = json!([ingress("a", admitted("True")), ingress("b", admitted("False"))]);
        assert_eq!(host(both).as_deref(), Some(r#""b" "False""#));
        let undecided = json!([ingress("a", admitted("True")), ingress("b", json!([]))]);
        assert_eq!(host(undecided).as_deref(), Some(r#""a" "True""#));
    }
}
