//! Evictions: deletions of pods that disruption budgets may refuse.

use serde_json::{Value, json};

use super::{Output, RequestContext, delete, update};
use crate::{
    decode,
    json::{self, items, text, timestamp},
    model,
    request::options::DeleteOptions,
    status::{self, Failure},
    store::Head,
};

/// Deletes a pod unless a disruption budget protects it.
pub(super) async fn evict(
    context: &RequestContext,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Value, Failure> {
    let eviction = decode::object(context, content_type, body)?;
    let entry = context.entry()?;
    let pod = context.api.load(&context.resource, &entry).await?;
    let options = match eviction.get("deleteOptions") {
        Some(options) => DeleteOptions::from_value(options)?,
        None => DeleteOptions::default(),
    };
    let is_exempt = entry.head.is_terminating
        || matches!(text(&pod, "/status/phase"), "Succeeded" | "Failed" | "Pending" | "");
    let is_dry_run = options.is_dry_run || context.options.is_dry_run;
    let (api, context) = (context.api.clone(), context.clone());
    // Once the budget is spent, the pod has to go, whether or not the caller waits for it.
    let work = async move {
        if !is_exempt {
            spend_budget(&context, (&pod, &entry.head), is_dry_run).await?;
        }
        let mut options = DeleteOptions { is_dry_run, ..options };
        if !is_dry_run {
            mark(&context, &options).await?;
            // The version was the right one before the pod was marked.
            options.resource_version = None;
        }
        delete::delete(&context.for_subresource(""), &options).await
    };
    api.detached(work).await.map_err(Failure::internal)??;
    Ok(status::done())
}

/// Says in the pod's conditions why it goes, as upstream's `addConditionAndDeletePod` does: Jobs look at it.
async fn mark(context: &RequestContext, options: &DeleteOptions) -> Result<(), Failure> {
    let pod = RequestContext::internal(&context.api, &context.resource, &context.namespace, &context.name);
    update::update(
        &pod.for_subresource("status"),
        false,
        update::Made::Changed,
        move |mut object: Value| async move {
            delete::check_preconditions(context, &object, options)?;
            let generation = object.pointer("/metadata/generation").cloned().unwrap_or_default();
            let now = timestamp(context.api.now());
            let status = json::child(json::as_map(&mut object), "status");
            if let Some(conditions) = status.entry("conditions").or_insert_with(|| json!([])).as_array_mut() {
                conditions.retain(|condition| text(condition, "/type") != "DisruptionTarget");
                conditions.push(json!({
                    "type": "DisruptionTarget", "status": "True", "observedGeneration": generation,
                    "lastProbeTime": null, "lastTransitionTime": now,
                    "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
                }));
            }
            Ok(object)
        },
    )
    .await
    .map(|_: Output| ())
}

fn is_true(pod: &Value, condition: &str) -> bool {
    items(pod, "/status/conditions")
        .iter()
        .any(|one| text(one, "/type") == condition && text(one, "/status") == "True")
}

/// Whether a pod that is not ready may go without counting: with `AlwaysAllow`, or if the others are enough.
fn spares_budget(budget: &Value) -> bool {
    let number = |pointer: &str| budget.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let desired = number("/status/desiredHealthy");
    text(budget, "/spec/unhealthyPodEvictionPolicy") == "AlwaysAllow"
        || (desired > 0 && number("/status/currentHealthy") >= desired)
}

/// Takes one disruption from the budget of a pod, or refuses.
async fn spend_budget(
    context: &RequestContext,
    (pod, head): (&Value, &Head),
    is_dry_run: bool,
) -> Result<(), Failure> {
    let prefix = format!("{}/", context.namespace);
    let budgets = context.api.store().objects("policy/poddisruptionbudgets", &prefix);
    let budgets: Vec<Value> = budgets
        .iter()
        .map(|(_, entry)| entry.to_value("policy/v1", "PodDisruptionBudget"))
        .filter(|budget| {
            model::label_selector(budget.pointer("/spec/selector"))
                .is_some_and(|selector| super::filter::selects(&selector, head))
        })
        .collect();
    let budget = match budgets.as_slice() {
        [] => return Ok(()),
        [one] => one,
        _ => {
            return Err(Failure::internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    if !is_true(pod, "Ready") && spares_budget(budget) {
        return Ok(());
    }
    let name = text(budget, "/metadata/name");
    let refuse = &|why: &str| {
        Failure::new(
            429,
            "TooManyRequests",
            "Cannot evict pod as it would violate the pod's disruption budget.",
        )
        .with_cause("DisruptionBudget", why, "")
    };
    let registry = context.api.registry();
    let Some(resource) = registry.get("policy", "v1", "poddisruptionbudgets") else { return Ok(()) };
    let one = RequestContext::internal(&context.api, resource, &context.namespace, name)
        .for_subresource("status")
        .with_dry_run(is_dry_run);
    let pod_name = &context.name;
    update::update(&one, false, update::Made::Changed, move |mut budget: Value| async move {
        // Decided from what is replaced: of two evictions one finds the budget spent.
        let number = |pointer: &str| budget.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
        if number("/status/observedGeneration") < number("/metadata/generation") {
            let why = format!("The disruption budget {name} is still being processed by the server.");
            return Err(refuse(&why).retry_after(10));
        }
        let left = number("/status/disruptionsAllowed");
        if left <= 0 {
            return Err(refuse(&format!(
                "The disruption budget {name} needs {} healthy pods and has {} currently",
                number("/status/desiredHealthy"),
                number("/status/currentHealthy")
            )));
        }
        let status = json::child(json::as_map(&mut budget), "status");
        status.insert("disruptionsAllowed".into(), (left - 1).max(0).into());
        let now = timestamp(context.api.now());
        json::child(status, "disruptedPods").insert(pod_name.clone(), now.into());
        Ok(budget)
    })
    .await
    .map(|_: Output| ())
}
