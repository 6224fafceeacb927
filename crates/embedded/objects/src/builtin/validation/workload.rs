//! Workloads: what keeps pods running.

use serde_json::{Value, json};

use super::super::Kind;
use super::super::value::{is_set, items, number, text};
use super::{IMMUTABLE, forbidden, immutable, not_negative, one_of, pod, selector, selects};
use crate::error::{ErrorKind, FieldError};
use crate::path::Path;

const STATEFUL: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";

/// Deployments, ReplicaSets and DaemonSets.
pub(super) fn workload(kind: &Kind, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    not_negative(new, "/spec/replicas", errors);
    not_negative(new, "/spec/minReadySeconds", errors);
    not_negative(new, "/spec/revisionHistoryLimit", errors);
    selected_template(new, errors);
    always_restarts(new, errors);
    if kind.kind == "Deployment" {
        deployment(new, errors);
    }
    if let Some(old) = old {
        immutable(new, old, "/spec/selector", errors);
    }
}

fn deployment(new: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec");
    let strategy = path.field("strategy");
    match text(new, "/spec/strategy/type") {
        "Recreate" => {
            if is_set(new, "/spec/strategy/rollingUpdate") {
                errors.push(FieldError::forbidden(
                    &strategy.field("rollingUpdate"),
                    "may not be specified when strategy `type` is 'Recreate'",
                ));
            }
        }
        other => one_of(other, &["Recreate", "RollingUpdate"], &strategy.field("type"), errors),
    }
    let zero = |name: &str| {
        let value = new.pointer(&format!("/spec/strategy/rollingUpdate/{name}"));
        value.is_some_and(|value| *value == 0 || *value == "0%")
    };
    if zero("maxUnavailable") && zero("maxSurge") {
        let rolling = strategy.field("rollingUpdate");
        errors.push(FieldError::invalid(
            &rolling.field("maxUnavailable"),
            &json!(0),
            "may not be 0 when `maxSurge` is 0",
        ));
    }
    let (progress, ready) =
        (number(new, "/spec/progressDeadlineSeconds"), number(new, "/spec/minReadySeconds"));
    if let Some(progress) = progress
        && progress <= ready.unwrap_or(0)
    {
        errors.push(FieldError::invalid(
            &path.field("progressDeadlineSeconds"),
            &json!(progress),
            "must be greater than minReadySeconds",
        ));
    }
}

fn selected_template(new: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec");
    match new.pointer("/spec/selector") {
        None => errors.push(FieldError::required(&path.field("selector"), "")),
        Some(found) => {
            selector(Some(found), &path.field("selector"), errors);
            let is_empty = ["matchLabels", "matchExpressions"]
                .iter()
                .all(|key| found.get(*key).is_none_or(|part| part == &json!({}) || part == &json!([])));
            if is_empty {
                errors.push(FieldError::invalid(
                    &path.field("selector"),
                    found,
                    "empty selector is invalid for deployment",
                ));
            } else if !selects(found, new.pointer("/spec/template/metadata/labels")) {
                let labels = new.pointer("/spec/template/metadata/labels").cloned().unwrap_or(Value::Null);
                errors.push(FieldError::invalid(
                    &path.field("template.metadata.labels"),
                    &labels,
                    "`selector` does not match template `labels`",
                ));
            }
        }
    }
    pod::template(new.pointer("/spec/template"), &path.field("template"), errors);
}

fn always_restarts(new: &Value, errors: &mut Vec<FieldError>) {
    let policy = text(new, "/spec/template/spec/restartPolicy");
    if !policy.is_empty() && policy != "Always" {
        errors.push(FieldError::not_supported(
            &Path::new("spec.template.spec.restartPolicy"),
            &json!(policy),
            &["Always"],
        ));
    }
}

pub(super) fn replication_controller(new: &Value, errors: &mut Vec<FieldError>) {
    not_negative(new, "/spec/replicas", errors);
    let path = Path::new("spec");
    match new.pointer("/spec/selector").and_then(Value::as_object) {
        None => errors.push(FieldError::required(&path.field("selector"), "")),
        Some(wanted) => {
            let labels = new.pointer("/spec/template/metadata/labels");
            let is_matched =
                wanted.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value));
            if !is_matched {
                errors.push(FieldError::invalid(
                    &path.field("template.metadata.labels"),
                    labels.unwrap_or(&Value::Null),
                    "`selector` does not match template `labels`",
                ));
            }
        }
    }
    pod::template(new.pointer("/spec/template"), &path.field("template"), errors);
    always_restarts(new, errors);
}

pub(super) fn stateful_set(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    not_negative(new, "/spec/replicas", errors);
    selected_template(new, errors);
    let claims: Vec<&str> =
        items(new, "/spec/volumeClaimTemplates").iter().map(|claim| text(claim, "/metadata/name")).collect();
    // Every claim becomes a volume of the pod under its name.
    errors.retain(|error| {
        let is_claim =
            error.value.as_ref().and_then(Value::as_str).is_some_and(|name| claims.contains(&name));
        error.kind != ErrorKind::NotFound || !is_claim
    });
    always_restarts(new, errors);
    let path = Path::new("spec");
    one_of(
        text(new, "/spec/podManagementPolicy"),
        &["OrderedReady", "Parallel"],
        &path.field("podManagementPolicy"),
        errors,
    );
    let Some(old) = old else { return };
    let rest = |object: &Value| {
        let mut spec = object.get("spec").cloned().unwrap_or_default();
        if let Value::Object(fields) = &mut spec {
            for free in [
                "replicas",
                "ordinals",
                "template",
                "updateStrategy",
                "revisionHistoryLimit",
                "persistentVolumeClaimRetentionPolicy",
                "minReadySeconds",
            ] {
                fields.remove(free);
            }
        }
        spec
    };
    if rest(new) != rest(old) {
        errors.push(forbidden("spec", STATEFUL));
    }
}

pub(super) fn job(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    job_spec(new.get("spec").unwrap_or(&Value::Null), "spec", errors);
    let Some(old) = old else { return };
    immutable(new, old, "/spec/selector", errors);
    immutable(new, old, "/spec/completionMode", errors);
    immutable(new, old, "/spec/podFailurePolicy", errors);
    immutable(new, old, "/spec/backoffLimitPerIndex", errors);
    immutable(new, old, "/spec/managedBy", errors);
    immutable(new, old, "/spec/successPolicy", errors);
    let is_elastic = text(new, "/spec/completionMode") == "Indexed"
        && new.pointer("/spec/completions") == new.pointer("/spec/parallelism");
    if !is_elastic {
        immutable(new, old, "/spec/completions", errors);
    }
    let (after, before) = (new.pointer("/spec/template"), old.pointer("/spec/template"));
    if after == before {
        return;
    }
    // A suspended Job that never ran may still be told where to run.
    let was_suspended =
        old.pointer("/spec/suspend") == Some(&json!(true)) && !is_set(old, "/status/startTime");
    let (mut after, mut before) = (after.cloned().unwrap_or_default(), before.cloned().unwrap_or_default());
    if was_suspended {
        for template in [&mut after, &mut before] {
            if let Some(Value::Object(metadata)) = template.get_mut("metadata") {
                metadata.remove("labels");
                metadata.remove("annotations");
            }
            if let Some(Value::Object(spec)) = template.get_mut("spec") {
                for free in ["nodeSelector", "affinity", "tolerations", "schedulingGates"] {
                    spec.remove(free);
                }
                for list in ["containers", "initContainers"] {
                    for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                        if let Value::Object(container) = container {
                            container.remove("resources");
                        }
                    }
                }
            }
        }
    }
    if after != before {
        let shown = new.pointer("/spec/template").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(&Path::new("spec.template"), &shown, IMMUTABLE));
    }
}

fn job_spec(spec: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let path = Path::new(at);
    for name in
        ["parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"]
    {
        if let Some(count) = number(spec, &format!("/{name}"))
            && count < 0
        {
            errors.push(FieldError::invalid(
                &path.field(name),
                &json!(count),
                "must be greater than or equal to 0",
            ));
        }
    }
    pod::template(spec.get("template"), &path.field("template"), errors);
    let policy = text(spec, "/template/spec/restartPolicy");
    let template = path.field("template");
    let template_spec = template.field("spec");
    let at = template_spec.field("restartPolicy");
    match policy {
        "OnFailure" | "Never" => {}
        "Always" | "" => errors.push(FieldError::required(&at, "valid values: \"OnFailure\", \"Never\"")),
        other => errors.push(FieldError::not_supported(&at, &json!(other), &["OnFailure", "Never"])),
    }
    if text(spec, "/completionMode") == "Indexed" && !is_set(spec, "/completions") {
        errors.push(FieldError::required(&path.field("completions"), "when completion mode is Indexed"));
    }
}

pub(super) fn cron_job(new: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec");
    let schedule = text(new, "/spec/schedule");
    if schedule.is_empty() {
        errors.push(FieldError::required(&path.field("schedule"), ""));
    } else if let Some(problem) = schedule_problem(schedule) {
        errors.push(FieldError::invalid(&path.field("schedule"), &json!(schedule), problem));
    }
    one_of(
        text(new, "/spec/concurrencyPolicy"),
        &["Allow", "Forbid", "Replace"],
        &path.field("concurrencyPolicy"),
        errors,
    );
    job_spec(new.pointer("/spec/jobTemplate/spec").unwrap_or(&Value::Null), "spec.jobTemplate.spec", errors);
}

fn schedule_problem(schedule: &str) -> Option<String> {
    if let Some(every) = schedule.strip_prefix('@') {
        let is_known =
            matches!(every, "yearly" | "annually" | "monthly" | "weekly" | "daily" | "midnight" | "hourly");
        let is_period =
            every.strip_prefix("every ").is_some_and(|span| quintet_cel::duration(span).is_some());
        return (!is_known && !is_period).then(|| format!("unrecognized descriptor: {schedule}"));
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != 5 {
        return Some(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    let bounds = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)];
    for (field, (least, most)) in fields.iter().zip(bounds) {
        for part in field.split(',') {
            let (range, step) =
                part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
            if step.is_some_and(|step| step.parse::<u32>().map_or(true, |step| step == 0)) {
                return Some(format!("failed to parse int from {part}"));
            }
            if range == "*" || range == "?" {
                continue;
            }
            for end in range.split('-') {
                let is_name = end.len() == 3 && end.chars().all(|one| one.is_ascii_alphabetic());
                match end.parse::<i32>() {
                    _ if is_name => {}
                    Ok(number) if (least..=most).contains(&number) => {}
                    Ok(number) if number > most => {
                        return Some(format!("end of range ({number}) above maximum ({most}): {part}"));
                    }
                    Ok(number) => {
                        return Some(format!(
                            "beginning of range ({number}) below minimum ({least}): {part}"
                        ));
                    }
                    Err(_) => {
                        return Some(format!(
                            "failed to parse int from {end}: strconv.Atoi: parsing \"{end}\": invalid syntax"
                        ));
                    }
                }
            }
        }
    }
    None
}

pub(super) fn autoscaler(new: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec");
    let (least, most) = (number(new, "/spec/minReplicas"), number(new, "/spec/maxReplicas").unwrap_or(0));
    if most < 1 {
        errors.push(FieldError::invalid(&path.field("maxReplicas"), &json!(most), "must be greater than 0"));
    }
    if let Some(least) = least {
        if least < 1 {
            errors.push(FieldError::invalid(
                &path.field("minReplicas"),
                &json!(least),
                "must be greater than or equal to 1",
            ));
        } else if most >= 1 && most < least {
            errors.push(FieldError::invalid(
                &path.field("maxReplicas"),
                &json!(most),
                "must be greater than or equal to `minReplicas`",
            ));
        }
    }
    let target = path.field("scaleTargetRef");
    for name in ["kind", "name"] {
        if text(new, &format!("/spec/scaleTargetRef/{name}")).is_empty() {
            errors.push(FieldError::required(&target.field(name), ""));
        }
    }
}

pub(super) fn disruption_budget(new: &Value, errors: &mut Vec<FieldError>) {
    if is_set(new, "/spec/minAvailable") && is_set(new, "/spec/maxUnavailable") {
        errors.push(FieldError::invalid(
            &Path::new("spec"),
            new.get("spec").unwrap_or(&Value::Null),
            "minAvailable and maxUnavailable cannot be both set",
        ));
    }
    selector(new.pointer("/spec/selector"), &Path::new("spec.selector"), errors);
}
