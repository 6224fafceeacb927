//! MultiKueue's AdmissionChecks: whether the clusters that they name can be used.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quintet_api::conditions::{self, Finding};
use quintet_api::kueue::conditions::ACTIVE;
use quintet_api::kueue::metadata::MULTIKUEUE_CONTROLLER;
use quintet_api::kueue::reasons::AdmissionCheckActiveReason as Reason;
use quintet_api::kueue::v1beta2::{AdmissionCheck, MultiKueueCluster, MultiKueueConfig};
use quintet_controller::cache::{Cache, Entry, WatchSpec};
use quintet_controller::{Controller, Error, NoCall, ObjectKey, Plan, StatusPatch};
use serde::{Deserialize, Serialize};

use super::cluster::active;
use crate::Context;

/// The kind of the parameters of a check.
const PARAMETERS: &str = "MultiKueueConfig";

/// The controller.
struct CheckController {
    context: Context,
    checks: Cache<AdmissionCheck>,
    configs: Cache<MultiKueueConfig>,
    clusters: Cache<MultiKueueCluster>,
}

/// A check and its clusters.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Observed {
    check: Arc<Entry<AdmissionCheck>>,
    config: Option<Arc<Entry<MultiKueueConfig>>>,
    /// Those that exist.
    clusters: BTreeSet<String>,
    /// Those that are connected.
    active: BTreeSet<String>,
    now: Timestamp,
}

/// Adds the controller.
pub(super) fn add(context: &Context) -> Result<(), Error> {
    let caches = context.runtime.caches();
    let checks = caches.watch(WatchSpec::<AdmissionCheck>::typed())?;
    let configs = caches.watch(WatchSpec::<MultiKueueConfig>::typed())?;
    let clusters = caches.watch(WatchSpec::<MultiKueueCluster>::typed())?;
    let controller = CheckController {
        context: context.clone(),
        checks: checks.clone(),
        configs: configs.clone(),
        clusters: clusters.clone(),
    };
    let (of_config, of_cluster, named) = (checks.clone(), checks.clone(), configs.clone());
    context
        .runtime
        .add(controller, &checks, context.concurrency)
        .watches(&configs, move |entry| users(&of_config, &[entry.key.name()]))
        .watches(&clusters, move |entry| {
            let names = |config: &&Arc<Entry<MultiKueueConfig>>| {
                config.object.spec.clusters.iter().any(|name| name == entry.key.name())
            };
            let configs = named.all();
            let configs: Vec<&str> = configs.iter().filter(names).map(|config| config.key.name()).collect();
            users(&of_cluster, &configs)
        })
        .done();
    Ok(())
}

/// The checks with one of these configurations.
fn users(checks: &Cache<AdmissionCheck>, configs: &[&str]) -> Vec<ObjectKey> {
    let is_user = |entry: &&Arc<Entry<AdmissionCheck>>| {
        config_of(&entry.object).is_some_and(|config| configs.contains(&config))
    };
    checks.all().iter().filter(is_user).map(|entry| entry.key.clone()).collect()
}

/// The configuration of a check, if it is one of MultiKueue.
pub(super) fn config_of(check: &AdmissionCheck) -> Option<&str> {
    let parameters = check.spec.parameters.as_ref()?;
    let is_ours = check.spec.controller_name == MULTIKUEUE_CONTROLLER && parameters.kind == PARAMETERS;
    is_ours.then_some(parameters.name.as_str())
}

impl Controller for CheckController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "multikueue-admissioncheck";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(check) = self.checks.get(key) else { return Ok(None) };
        if check.object.spec.controller_name != MULTIKUEUE_CONTROLLER {
            return Ok(None);
        }
        let config = config_of(&check.object).and_then(|name| self.configs.get(&ObjectKey::cluster(name)));
        let clusters = self.clusters.all();
        Ok(Some(Observed {
            check,
            config,
            active: active(clusters.iter().map(|entry| &entry.object)),
            clusters: clusters.iter().map(|entry| entry.key.name().to_owned()).collect(),
            now: self.context.clock.now(),
        }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan(observed)
    }
}

/// The plan for a check: its condition.
fn plan(observed: &Observed) -> Plan {
    let (holds, reason, message) = verdict(observed);
    let check = &observed.check;
    let before = check.object.status.clone().unwrap_or_default();
    let mut after = before.clone();
    let finding = Finding {
        type_: ACTIVE,
        holds: Some(holds),
        reason: reason.as_str(),
        message: &message,
        observed_generation: check.object.metadata.generation,
    };
    conditions::set(after.conditions.get_or_insert_default(), &finding, &Time(observed.now));
    Plan { status: StatusPatch::between(check, &before, &after), ..Plan::default() }
}

fn verdict(observed: &Observed) -> (bool, Reason, String) {
    let Some(config) = &observed.config else {
        let why = match config_of(&observed.check.object) {
            Some(name) => format!("MultiKueueConfig.kueue.x-k8s.io {name:?} not found"),
            None => "parameters: name a MultiKueueConfig".to_owned(),
        };
        return (false, Reason::BadConfig, format!("Cannot load the AdmissionChecks parameters: {why}"));
    };
    let names = &config.object.spec.clusters;
    let (known, missing): (Vec<&String>, Vec<&String>) =
        names.iter().partition(|name| observed.clusters.contains(*name));
    let inactive: Vec<&String> = known.into_iter().filter(|name| !observed.active.contains(*name)).collect();
    let parts = [("Missing clusters", &missing), ("Inactive clusters", &inactive)];
    let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
    let message: Vec<String> = parts.map(|(what, names)| format!("{what}: {}", listed(names))).collect();
    let message = message.join(", ");
    match missing.len() + inactive.len() {
        0 => (true, Reason::Active, "The admission check is active".to_owned()),
        count if count < names.len() => (true, Reason::SomeActiveClusters, message),
        _ => (false, Reason::NoUsableClusters, message),
    }
}

/// As Go prints a list of texts.
fn listed(names: &[&String]) -> String {
    let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    format!("[{}]", names.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::entry;

    /// Clusters, those of them that are active, and the condition.
    type Row<'r> = (&'r [&'r str], &'r [&'r str], bool, Reason, &'r str);

    #[test]
    fn a_check_is_active_while_any_of_its_clusters_is() {
        let check = entry(&json!({ "metadata": { "name": "c" }, "spec": {
            "controllerName": MULTIKUEUE_CONTROLLER, "parameters": {
                "apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "config" } } }));
        let config =
            entry(&json!({ "metadata": { "name": "config" }, "spec": { "clusters": ["a", "b", "c"] } }));
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let of = |config: Option<&Arc<Entry<MultiKueueConfig>>>, clusters: &[&str], active: &[&str]| {
            let (clusters, active) = (names(clusters), names(active));
            verdict(&Observed { check: Arc::clone(&check), config: config.cloned(), clusters, active, now })
        };
        let all = ["a", "b", "c"];
        let table: [Row<'_>; 4] = [
            (&all, &all, true, Reason::Active, "The admission check is active"),
            (&all, &["a", "b"], true, Reason::SomeActiveClusters, "Inactive clusters: [c]"),
            (
                &["b", "c"],
                &["c"],
                true,
                Reason::SomeActiveClusters,
                "Missing clusters: [a], Inactive clusters: [b]",
            ),
            (&[], &[], false, Reason::NoUsableClusters, "Missing clusters: [a b c]"),
        ];
        for (clusters, active, holds, reason, message) in table {
            assert_eq!(of(Some(&config), clusters, active), (holds, reason, message.to_owned()));
        }
        let (holds, reason, message) = of(None, &all, &all);
        assert!(
            !holds && reason == Reason::BadConfig && message.contains("\"config\" not found"),
            "{message}"
        );
    }
}
