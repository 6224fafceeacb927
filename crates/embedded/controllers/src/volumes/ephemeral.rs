//! Ephemeral volumes: a pod's own claim for each, which goes with the pod.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::owners::is_controlled_by;
use quintet_controller::cache::{Cache, Entry};
use quintet_controller::{Action, ApiKind, Controller, Error, Event, NoCall, ObjectKey, Plan, Runtime, Step};
use serde::{Deserialize, Serialize};

use super::claims::FAILED_BINDING;
use crate::Context;
use crate::claim::BY_NAMESPACE;
use crate::pod::{PodView, Volume, owner_pod};

/// Everything that a decision about the ephemeral volumes of a pod needs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Observed {
    pub(super) pod: Arc<Entry<PodView>>,
    /// The claims that exist with the names of its volumes.
    pub(super) claims: Vec<Arc<Entry<PersistentVolumeClaim>>>,
}

/// The controller of ephemeral volumes.
struct EphemeralController {
    claims: Cache<PersistentVolumeClaim>,
    context: Context,
}

/// Adds the controller of ephemeral volumes.
pub(super) fn add(runtime: &Runtime, context: &Context, claims: &Cache<PersistentVolumeClaim>) {
    let controller = EphemeralController { claims: claims.clone(), context: context.clone() };
    let pods = context.pods.clone();
    runtime
        .add(controller, &context.pods, context.concurrency)
        .watches(claims, move |claim| {
            let pods = pods.by_index(BY_NAMESPACE, claim.key.namespace().unwrap_or_default());
            let uses = |pod: &Entry<PodView>| ephemeral(pod).any(|(_, name)| name == claim.key.name());
            pods.iter().filter(|pod| uses(pod)).map(|pod| pod.key.clone()).collect()
        })
        .done();
}

/// The ephemeral volumes of a pod with the names of their claims.
fn ephemeral(pod: &Entry<PodView>) -> impl Iterator<Item = (&Volume, String)> {
    let volumes = pod.object.spec.volumes.iter().filter(|volume| volume.ephemeral.is_some());
    volumes.filter_map(|volume| Some((volume, volume.claim(pod.key.name())?.into_owned())))
}

impl Controller for EphemeralController {
    type Observed = Observed;
    type Call = NoCall;

    // Upstream's component name of this controller.
    const NAME: &'static str = "ephemeral_volume";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(pod) = self.context.pods.get(key) else { return Ok(None) };
        let namespace = key.namespace().unwrap_or_default();
        let claims =
            ephemeral(&pod).filter_map(|(_, name)| self.claims.get(&ObjectKey::new(namespace, &name)));
        let claims = claims.collect();
        Ok(Some(Observed { pod, claims }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan(observed)
    }
}

/// Computes the plan.
pub(super) fn plan(observed: &Observed) -> Plan {
    let pod = &observed.pod;
    let mut plan = Plan::default();
    if pod.object.is_deleting() {
        return plan;
    }
    for (volume, name) in ephemeral(pod) {
        match observed.claims.iter().find(|claim| claim.key.name() == name) {
            Some(claim) => {
                if let Err(why) = is_for_pod(claim, pod) {
                    let note = format!("ephemeral volume {}: {why}", volume.name);
                    plan.events.push(Event::warning(FAILED_BINDING, "Bind", note));
                    plan.awaits.push(format!("the end of PersistentVolumeClaim {name}"));
                }
            }
            None => plan.steps.extend(create(pod, volume, name)),
        }
    }
    plan
}

/// The claim of another pod, or of a user, is never used: its data would be lost with the pod.
pub(crate) fn is_for_pod(claim: &Entry<PersistentVolumeClaim>, pod: &Entry<PodView>) -> Result<(), String> {
    if is_controlled_by(&claim.object.metadata, pod.uid.as_str()) {
        return Ok(());
    }
    Err(format!("PVC {} was not created for pod {} (pod is not owner)", claim.key, pod.key))
}

fn create(pod: &Entry<PodView>, volume: &Volume, name: String) -> Option<Step> {
    let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
    let metadata = template.metadata.clone().unwrap_or_default();
    let claim = PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: pod.key.namespace().map(str::to_owned),
            labels: metadata.labels,
            annotations: metadata.annotations,
            owner_references: Some(vec![owner_pod(pod)]),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec.clone()),
        status: None,
    };
    Some(Action::create(ApiKind::of::<PersistentVolumeClaim>(), &claim).into())
}
