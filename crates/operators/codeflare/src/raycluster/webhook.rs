//! The webhooks of RayClusters.

use std::sync::Arc;

use quintet_component::Webhook;
use quintet_controller::webhook::{Admission, Mutation, Operation, Verdict};
use serde_json::Value;

use super::domain::Domain;
use super::{inject, validation};
use crate::field_errors::aggregate;
use crate::settings::Hardening;

/// Ray and Kueue have webhooks for the same kind: paths distinguish them.
const MUTATE: &str = "/codeflare/mutate-ray-io-v1-raycluster";
const VALIDATE: &str = "/codeflare/validate-ray-io-v1-raycluster";

/// The webhooks, in configurations of these names.
pub(crate) fn webhooks(
    hardening: &Arc<Hardening>,
    [mutating, validating]: [&'static str; 2],
) -> Vec<Webhook> {
    let (for_pods, for_checks) = (Arc::clone(hardening), Arc::clone(hardening));
    let injects =
        Webhook::mutating(mutating, "mraycluster.ray.openshift.ai", MUTATE, move |routes, runtime| {
            let domain = Domain::watch(runtime.caches(), &for_pods)?;
            Ok(routes.mutate(MUTATE, move |admission: Admission<Value>| {
                let (hardening, domain) = (Arc::clone(&for_pods), domain.clone());
                async move {
                    domain.known().await;
                    let mut cluster = admission.object;
                    match inject::inject(&mut cluster, &hardening, &domain.get()) {
                        Ok(()) => Mutation::to(cluster),
                        Err(error) => Mutation::deny(error),
                    }
                }
            }))
        });
    let checks =
        Webhook::validating(validating, "vraycluster.ray.openshift.ai", VALIDATE, move |routes, runtime| {
            let domain = Domain::watch(runtime.caches(), &for_checks)?;
            Ok(routes.validate(VALIDATE, move |admission: Admission<Value>| {
                let (hardening, domain) = (Arc::clone(&for_checks), domain.clone());
                async move {
                    domain.known().await;
                    let errors = match admission.request.operation {
                        Operation::Update => {
                            validation::check_update(&admission.object, &hardening, &domain.get())
                        }
                        _ => validation::check_creation(&admission.object, &hardening),
                    };
                    aggregate(errors).map_or_else(Verdict::allow, Verdict::deny)
                }
            }))
        });
    let on = |webhook: Webhook| webhook.on(&["CREATE", "UPDATE"], "ray.io", "v1", &["rayclusters"]);
    vec![on(injects), on(checks)]
}
