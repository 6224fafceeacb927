//! Webhooks of the kinds that are read and written as JSON.

use std::borrow::Cow;

use quintet_controller::webhook::Verdict;
use serde_json::Value;

use super::super::json::{JsonKind, UpdateCheck, is_suspended};
use super::defaulting::queue_of;
use super::{Facts, Kind, Template, defaulting, templates, validation};
use crate::settings::Settings;
use crate::validation::Errors;

/// The webhooks of a kind.
pub(super) const fn of<K: JsonKind>() -> Kind {
    Kind {
        group: K::NAMES.group,
        version: K::NAMES.version,
        name: K::NAMES.kind,
        resource: K::NAMES.plural,
        mutating: K::NAMES.mutating,
        validating: K::NAMES.validating,
        mutate_path: K::NAMES.mutate_path,
        validate_path: K::NAMES.validate_path,
        mutates: &["CREATE"],
        is_enabled: |settings| settings.is_enabled(K::NAMES.framework),
        default: default::<K>,
        validate: validate::<K>,
        is_suspended: is_suspended::<K>,
        takes_prebuilt: K::TAKES_PREBUILT,
        takes_elastic: K::TAKES_ELASTIC,
        related_kinds: K::related_kinds,
        references: K::references,
    }
}

fn default<K: JsonKind>(job: &mut Value, facts: &Facts, settings: &Settings) -> Result<(), String> {
    defaulting::default(job, K::SUSPEND, facts, settings)?;
    K::default(job, settings);
    Ok(())
}

fn validate<K: JsonKind>(
    job: &Value,
    old: Option<&Value>,
    kind: &Kind,
    facts: &Facts,
    settings: &Settings,
) -> Verdict {
    let mut errors = Errors::default();
    let checked = match old {
        None => state::<K>(job, kind, facts, settings, &mut errors),
        Some(old) => change::<K>(job, old, kind, facts, settings, &mut errors),
    };
    if let Err(why) = checked {
        return Verdict::deny(why);
    }
    if K::SORTS_ERRORS {
        errors.sort_by_field();
    }
    errors.verdict()
}

/// Checks the change of a job. The error is why that is not possible.
fn change<K: JsonKind>(
    job: &Value,
    old: &Value,
    kind: &Kind,
    facts: &Facts,
    settings: &Settings,
    errors: &mut Errors,
) -> Result<(), String> {
    let has_queue = |job| !queue_of(job).is_empty();
    let manages_all = settings.configuration.manage_jobs_without_queue_name;
    let was_queued = settings.gates.validate_ray_and_spark_updates && has_queue(old);
    if K::UPDATE == UpdateCheck::OfManaged && !(manages_all || has_queue(job) || was_queued) {
        return Ok(());
    }
    validation::change(job, old, kind, facts, settings, errors);
    if K::UPDATE == UpdateCheck::ChangeOnly {
        return topology_requests::<K>(job, facts, settings, errors);
    }
    state::<K>(job, kind, facts, settings, errors)
}

/// Checks the state of a job.
fn state<K: JsonKind>(
    job: &Value,
    kind: &Kind,
    facts: &Facts,
    settings: &Settings,
    errors: &mut Errors,
) -> Result<(), String> {
    if K::check(job, settings, errors).is_break() {
        return Ok(());
    }
    validation::state(job, kind, settings, errors);
    topology_requests::<K>(job, facts, settings, errors)
}

/// Checks what the templates of a job ask of a topology. The error says why its templates are not known.
fn topology_requests<K: JsonKind>(
    job: &Value,
    facts: &Facts,
    settings: &Settings,
    errors: &mut Errors,
) -> Result<(), String> {
    if !settings.scheduling.tas {
        return Ok(());
    }
    let asks = K::topology_requests(job, &facts.related, &settings.scheduling)?;
    let templates: Vec<Template<'_>> = asks
        .into_iter()
        .map(|ask| Template {
            path: ask.path,
            annotations: Cow::Owned(ask.annotations),
            count: ask.count.into(),
        })
        .collect();
    let found = templates::check(&templates, K::TOPOLOGY_ORDER, K::TAKES_GROUPS, &settings.scheduling)?;
    errors.add(found, K::TOPOLOGY_HINT);
    Ok(())
}
