//! What a controller observes, decides and waits for, without acting on it.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use serde::Serialize;
use serde_json::Value;

use super::{Controller, Runtime};
use crate::{
    error::{Class, Error},
    object::{ApiKind, ObjectKey},
    plan::Next,
};

/// How long an explanation waits for caches to sync. The first list of a large cluster takes seconds.
const SYNC: Duration = Duration::from_secs(30);

/// How long an explanation waits for what is polled outside Kubernetes. A Ray dashboard that does not answer
/// within its own timeout counts as an answer, so this is a last resort.
const POLL: Duration = Duration::from_secs(15);

/// What one controller observes of an object, and what it would do about it now.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The controller.
    pub controller: &'static str,
    /// Its [`Controller::Observed`]: reads back as that type, and [`Controller::plan`] of it gives `plan`.
    pub observed: Value,
    /// Its [`Plan`](crate::Plan).
    pub plan: Value,
    /// The steps of the plan, in words for people.
    pub actions: Vec<String>,
    /// What the object waits for, in words for people.
    pub awaits: Vec<String>,
    /// When the object would be requeued.
    pub next: Next,
}

impl Runtime {
    /// Observes and plans without acting, for every controller of the kind; none if the object does not exist.
    /// `kind` is a kind or a plural name in any case. The runtime need not be started: an explanation needs
    /// neither the lease nor the right to write.
    pub async fn explain(&self, kind: &str, key: &ObjectKey) -> Result<Vec<Explanation>, Error> {
        let failed = |class, cause: String| Error::new(class, format!("cannot explain {kind} {key}"), cause);
        let (reconcilers, synced): (Vec<_>, Vec<_>) = {
            let controllers = self.0.controllers.read();
            let of_kind = controllers.iter().filter(|added| is_called(added.reconciler.kind(), kind));
            of_kind.map(|added| (Arc::clone(&added.reconciler), added.synced.clone())).unzip()
        };
        if reconcilers.is_empty() {
            return Err(failed(Class::Invalid, "no controller reconciles this kind".to_owned()));
        }
        let synced = join_all(synced.into_iter().flatten());
        if tokio::time::timeout(SYNC, synced).await.is_err() {
            let missing = self.caches().missing().join("; ");
            return Err(failed(Class::Transient, format!("caches are not synced after {SYNC:?}: {missing}")));
        }
        let mut explanations = Vec::new();
        for reconciler in reconcilers {
            explanations.extend(reconciler.explain(key).await?);
        }
        Ok(explanations)
    }
}

fn is_called(kind: &ApiKind, name: &str) -> bool {
    kind.kind.eq_ignore_ascii_case(name) || kind.plural.eq_ignore_ascii_case(name)
}

pub(super) async fn explain<C: Controller>(
    controller: &C,
    key: &ObjectKey,
) -> Result<Option<Explanation>, Error> {
    // The first look starts polls, the second one has their answers.
    if controller.observe(key).await?.is_none() {
        return Ok(None);
    }
    let _ = tokio::time::timeout(POLL, controller.polled(key)).await;
    let Some(observed) = controller.observe(key).await? else { return Ok(None) };
    let plan = C::plan(&observed);
    let json = |value: Result<Value, serde_json::Error>| {
        let attempt = || format!("cannot serialize what {} observed of {key}", C::NAME);
        value.map_err(|error| Error::new(Class::Bug, attempt(), error.to_string()))
    };
    Ok(Some(Explanation {
        controller: C::NAME,
        observed: json(serde_json::to_value(&observed))?,
        plan: json(serde_json::to_value(&plan))?,
        actions: plan.steps.iter().map(|step| step.action.to_string()).collect(),
        awaits: plan.awaits,
        next: plan.next,
    }))
}
