//! Deployments: every pod is a job of its own, in the queue of its Deployment. As
//! `pkg/controller/jobs/deployment/deployment_webhook.go` of Kueue.

use quintet_api::kueue::metadata::{MANAGED, PRIORITY_CLASS, QUEUE_NAME};
use serde_json::Value;

use super::defaulting::{label, put};
use super::{Facts, Kind, serving};
use crate::settings::{DEPLOYMENT, Settings};

pub(super) const KIND: Kind = Kind {
    group: "apps",
    version: "v1",
    name: "Deployment",
    resource: "deployments",
    mutating: "mdeployment.kb.io",
    validating: "vdeployment.kb.io",
    mutate_path: "/mutate-apps-v1-deployment",
    validate_path: "/validate-apps-v1-deployment",
    mutates: &["CREATE", "UPDATE"],
    is_enabled: |settings| settings.is_enabled(DEPLOYMENT),
    default,
    validate: |object, old, kind, _, settings| serving::check(object, old, kind, settings).verdict(),
    is_suspended: |_| false,
    takes_prebuilt: false,
    takes_elastic: false,
    related_kinds: Vec::new,
    references: |_| Vec::new(),
};

/// The labels of the template make its pods managed, in the same queue and with the same priority.
fn default(object: &mut Value, facts: &Facts, settings: &Settings) -> Result<(), String> {
    if !serving::default(object, DEPLOYMENT, facts, settings)? {
        return Ok(());
    }
    let copied = [QUEUE_NAME, PRIORITY_CLASS].map(|name| (name, label(object, name).map(str::to_owned)));
    let labels = &mut object["spec"]["template"]["metadata"]["labels"];
    put(labels, MANAGED, "true");
    for (name, value) in copied {
        if let Some(value) = value {
            put(labels, name, &value);
        }
    }
    Ok(())
}
