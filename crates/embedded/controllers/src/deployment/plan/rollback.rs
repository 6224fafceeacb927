//! Rollback by annotation: the template of a former revision becomes that of the Deployment.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use quintet_controller::api::PatchKind;
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Event, Step};
use serde_json::{Value, json};

use super::super::labels;
use super::{Rollout, revisions};
use crate::template;

/// The steps of a rollback, if one is requested.
pub(super) fn plan(rollout: &Rollout<'_>) -> Option<Vec<Step>> {
    let annotations = rollout.deployment().metadata.annotations.as_ref()?;
    let requested = annotations.get(labels::ROLLBACK_TO)?;
    let name = rollout.observed.deployment.key.name();
    let revision =
        requested.parse().ok().filter(|revision| *revision > 0).or_else(|| former_revision(rollout));
    let source =
        revision.and_then(|revision| rollout.all().find(|set| revisions::revision_of(set) == revision));
    let template = source.and_then(template_of);
    let is_changed = |template: &_| !template::are_equal(template, &rollout.spec.template);
    let event = match (&template, revision) {
        (Some(template), Some(revision)) if is_changed(template) => {
            let note = format!("Rolled back deployment {name:?} to revision {revision}");
            Event::normal(labels::ROLLBACK_DONE, "Rollback", note)
        }
        (Some(_), Some(_)) => {
            let note =
                format!("The rollback revision contains the same template as current deployment {name:?}");
            Event::warning(labels::ROLLBACK_TEMPLATE_UNCHANGED, "Rollback", note)
        }
        _ => {
            let note = "Unable to find the revision to rollback to.";
            Event::warning(labels::ROLLBACK_REVISION_NOT_FOUND, "Rollback", note)
        }
    };
    let template = template.filter(is_changed).map(|template| json!(template));
    Some(vec![write(rollout, template).with_event(event)])
}

/// The revision before the current one.
fn former_revision(rollout: &Rollout<'_>) -> Option<i64> {
    let mut all: Vec<_> = rollout.all().map(revisions::revision_of).collect();
    all.sort_unstable();
    all.pop();
    all.pop().filter(|revision| *revision > 0)
}

fn template_of(set: &Entry<ReplicaSet>) -> Option<k8s_openapi::api::core::v1::PodTemplateSpec> {
    set.object.spec.as_ref()?.template.as_ref().map(template::without_hash)
}

/// Replaces the template as a whole, and removes the request.
fn write(rollout: &Rollout<'_>, template: Option<Value>) -> Action {
    let deployment = &rollout.observed.deployment;
    let pointer = labels::ROLLBACK_TO.replace('~', "~0").replace('/', "~1");
    let mut patch = vec![
        json!({ "op": "test", "path": "/metadata/uid", "value": deployment.uid }),
        json!({ "op": "remove", "path": format!("/metadata/annotations/{pointer}") }),
    ];
    patch.extend(
        template.map(|template| json!({ "op": "replace", "path": "/spec/template", "value": template })),
    );
    Action::Patch {
        kind: ApiKind::of::<Deployment>(),
        key: deployment.key.clone(),
        subresource: None,
        patch_kind: PatchKind::Json,
        patch: Value::Array(patch),
    }
}
