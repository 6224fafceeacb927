//! The webhooks of AppWrappers.

use std::sync::Arc;

use futures::future::join_all;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use quintet_api::appwrapper::AppWrapper;
use quintet_api::config::codeflare::AppWrapperConfiguration;
use quintet_component::Webhook;
use quintet_controller::api::Api;
use quintet_controller::discovery::Discovery;
use quintet_controller::webhook::{Admission, AdmissionRequest, Mutation, Operation, UserInfo, Verdict};
use quintet_controller::{ApiKind, Error, ObjectKey};
use serde_json::Value;

use super::{Wrapped, check_creation, check_update, wrapped};
use crate::appwrapper::defaulting;
use crate::field_errors::aggregate;

/// Kueue has webhooks for the same kinds: paths distinguish them.
const MUTATE: &str = "/codeflare/mutate-workload-codeflare-dev-v1beta2-appwrapper";
const VALIDATE: &str = "/codeflare/validate-workload-codeflare-dev-v1beta2-appwrapper";

/// The webhooks, in configurations of these names.
pub(crate) fn webhooks(
    config: &Arc<AppWrapperConfiguration>,
    [mutating, validating]: [&'static str; 2],
) -> Vec<Webhook> {
    let on = |webhook: Webhook, operations: &[&str]| {
        webhook.on(operations, "workload.codeflare.dev", "v1beta2", &["appwrappers"])
    };
    let (for_defaults, for_checks) = (Arc::clone(config), Arc::clone(config));
    let defaults = Webhook::mutating(mutating, "mappwrapper.kb.io", MUTATE, move |routes, _| {
        Ok(routes.mutate(MUTATE, move |mut admission: Admission<Value>| {
            defaulting::set_defaults(&mut admission.object, &admission.request.user_info, &for_defaults);
            Mutation::to(admission.object)
        }))
    });
    let checks = Webhook::validating(validating, "vappwrapper.kb.io", VALIDATE, move |routes, runtime| {
        let reviewer = Reviewer::new(runtime.unfenced_api());
        Ok(routes.validate(VALIDATE, move |admission: Admission<AppWrapper>| {
            let (reviewer, config) = (reviewer.clone(), Arc::clone(&for_checks));
            async move { verdict(&admission, &reviewer, &config).await }
        }))
    });
    vec![on(defaults, &["CREATE"]), on(checks, &["CREATE", "UPDATE"])]
}

async fn verdict(
    admission: &Admission<AppWrapper>,
    reviewer: &Reviewer,
    config: &AppWrapperConfiguration,
) -> Verdict {
    let AdmissionRequest { operation, user_info, namespace, .. } = &admission.request;
    if let (Operation::Update, Some(old)) = (operation, &admission.old) {
        return denied_for(check_update(old, &admission.object));
    }
    let denied = if config.user_rbac_admission_check {
        match reviewer.denials(user_info, namespace, &wrapped(&admission.object)).await {
            Ok(denied) => denied,
            Err(error) => return Verdict::deny(format!("spec.components: Internal error: {error}")),
        }
    } else {
        Vec::new()
    };
    denied_for(check_creation(&admission.object, &denied))
}

/// Denied for these errors; allowed if there are none.
fn denied_for(errors: Vec<String>) -> Verdict {
    aggregate(errors).map_or_else(Verdict::allow, Verdict::deny)
}

/// Asks what users may create.
#[derive(Clone)]
struct Reviewer {
    api: Api,
    discovery: Discovery,
}

impl Reviewer {
    fn new(api: &Api) -> Self {
        Self { api: api.clone(), discovery: Discovery::new(api.clone()) }
    }

    /// Why a user may not create each of these; `None` for those that the user may.
    async fn denials(
        &self,
        user: &UserInfo,
        namespace: &str,
        wrapped: &[Wrapped],
    ) -> Result<Vec<Option<String>>, Error> {
        join_all(wrapped.iter().map(|wrapped| self.denial(user, namespace, wrapped)))
            .await
            .into_iter()
            .collect()
    }

    async fn denial(
        &self,
        user: &UserInfo,
        namespace: &str,
        wrapped: &Wrapped,
    ) -> Result<Option<String>, Error> {
        // A kind that is not known may be defined later: a user who may create all kinds may wrap it.
        let kind = self.discovery.find(&wrapped.api_version, &wrapped.kind).await.unwrap_or_else(|error| {
            tracing::debug!("{error}");
            None
        });
        let resource = kind.as_ref().map_or("*", |kind| &*kind.plural);
        // Rights in a namespace say nothing about objects that are in none.
        let place = match &kind {
            Some(kind) if !kind.namespaced => "",
            _ => namespace,
        };
        let review = review(user, place, &wrapped.api_version, resource);
        let kind = ApiKind::of::<SubjectAccessReview>();
        let answer = self.api.create(&kind, &ObjectKey::cluster(""), &review).await?;
        let allowed =
            serde_json::from_str::<Value>(&answer).is_ok_and(|answer| answer["status"]["allowed"] == true);
        Ok((!allowed)
            .then(|| format!("User {} is not authorized to create {resource} in {namespace}", user.username)))
    }
}

/// The question whether a user may create a resource.
fn review(user: &UserInfo, namespace: &str, api_version: &str, resource: &str) -> Value {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: text(&user.username),
            uid: text(&user.uid),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()),
            resource_attributes: Some(ResourceAttributes {
                namespace: text(namespace),
                verb: text("create"),
                group: text(group),
                version: text(version),
                resource: text(resource),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    serde_json::json!(review)
}
