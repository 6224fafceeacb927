//! The options of a request: those of its query, or of the body of a DELETE.

use std::time::Duration;

use quintet_api::selector::{Requirement, Selector, SelectorError, Test};
use quintet_objects::{error::quoted, field_selector::FieldSelector, names};
use serde_json::Value;

use super::url::Query;
use crate::status::Failure;

/// What to do with fields that a kind does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them and say so.
    Warn,
    /// Refuse the request.
    Strict,
}

/// Options of a write.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// Do everything but store.
    pub is_dry_run: bool,
    /// Who owns the fields that are written; as asked for, possibly empty.
    pub field_manager: Option<String>,
    /// What to do with unknown fields.
    pub field_validation: FieldValidation,
    /// Take fields from other managers.
    pub force: Option<bool>,
}

impl WriteOptions {
    /// Reads the options out of a query; `kind` is the name of the options in error messages.
    pub fn parse(query: &Query, kind: &str) -> Result<Self, Failure> {
        let field_manager = query.get("fieldManager").map(str::to_owned);
        if field_manager.as_ref().is_some_and(|manager| manager.len() > 128) {
            let body = "Too long: may not be more than 128 bytes";
            return Err(Failure::invalid_options(kind, "fieldManager", body, "FieldValueTooLong"));
        }
        if let Some(manager) = &field_manager
            && manager.chars().any(char::is_control)
        {
            let body =
                format!("Invalid value: {}: should only contain printable characters", quoted(manager));
            return Err(Failure::invalid_options(kind, "fieldManager", &body, "FieldValueInvalid"));
        }
        let field_validation = match query.get("fieldValidation") {
            None | Some("Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                let body = format!(
                    "Unsupported value: {}: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
                    quoted(other)
                );
                return Err(Failure::invalid_options(
                    kind,
                    "fieldValidation",
                    &body,
                    "FieldValueNotSupported",
                ));
            }
        };
        let is_dry_run = dry_run(query.all("dryRun").filter(|value| !value.is_empty()), kind)?;
        let force = query.get("force").map(|_| query.is_set("force"));
        Ok(Self { is_dry_run, field_manager, field_validation, force })
    }
}

fn dry_run<'a>(values: impl Iterator<Item = &'a str>, kind: &str) -> Result<bool, Failure> {
    let values: Vec<&str> = values.collect();
    if values.iter().all(|value| *value == "All") {
        return Ok(!values.is_empty());
    }
    let shown = serde_json::to_string(&values).unwrap_or_default();
    let body = format!("Unsupported value: {shown}: supported values: \"All\"");
    Err(Failure::invalid_options(kind, "dryRun", &body, "FieldValueNotSupported"))
}

/// What happens to the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They lose their owner.
    Orphan,
    /// They are deleted afterwards.
    Background,
    /// They are deleted before.
    Foreground,
}

/// Options of a deletion.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Do everything but delete.
    pub is_dry_run: bool,
    /// Seconds a pod gets to stop.
    pub grace_period: Option<i64>,
    /// What happens to dependents.
    pub propagation: Option<Propagation>,
    /// Delete only the object with this uid.
    pub uid: Option<String>,
    /// Delete only this version of the object.
    pub resource_version: Option<String>,
}

impl DeleteOptions {
    /// Reads the options out of a query.
    pub fn from_query(query: &Query) -> Result<Self, Failure> {
        let mut options = serde_json::Map::new();
        let dry_run: Vec<Value> =
            query.all("dryRun").filter(|value| !value.is_empty()).map(Value::from).collect();
        if !dry_run.is_empty() {
            options.insert("dryRun".into(), dry_run.into());
        }
        if let Some(policy) = query.get("propagationPolicy") {
            options.insert("propagationPolicy".into(), policy.into());
        }
        if let Some(grace) = query.get("gracePeriodSeconds") {
            let grace: i64 = grace.parse().map_err(|_| {
                Failure::bad_request(format!("strconv.ParseInt: parsing {}: invalid syntax", quoted(grace)))
            })?;
            options.insert("gracePeriodSeconds".into(), grace.into());
        }
        if query.get("orphanDependents").is_some() {
            options.insert("orphanDependents".into(), query.is_set("orphanDependents").into());
        }
        Self::from_value(&Value::Object(options))
    }

    /// Reads a DeleteOptions object.
    pub fn from_value(options: &Value) -> Result<Self, Failure> {
        const KIND: &str = "DeleteOptions";
        let malformed = |field: &str| {
            Failure::bad_request(format!("DeleteOptions cannot be handled: {field} has the wrong type"))
        };
        let values = match options.get("dryRun") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(values)) => values
                .iter()
                .map(Value::as_str)
                .collect::<Option<Vec<&str>>>()
                .ok_or_else(|| malformed("dryRun"))?,
            Some(_) => return Err(malformed("dryRun")),
        };
        let is_dry_run = dry_run(values.into_iter(), KIND)?;
        let policy = options.get("propagationPolicy").filter(|policy| !policy.is_null());
        let orphan = options.get("orphanDependents").and_then(Value::as_bool);
        if let (Some(policy), Some(_)) = (policy, orphan) {
            let body = format!(
                "Invalid value: {policy}: orphanDependents and deletionPropagation cannot be both set"
            );
            return Err(Failure::invalid_options(KIND, "propagationPolicy", &body, "FieldValueInvalid"));
        }
        let propagation = match (policy.map(Value::as_str), orphan) {
            (None, None) => None,
            (None, Some(false)) | (Some(Some("Background")), _) => Some(Propagation::Background),
            (Some(Some("Foreground")), _) => Some(Propagation::Foreground),
            (None, Some(true)) | (Some(Some("Orphan")), _) => Some(Propagation::Orphan),
            (Some(other), _) => {
                let body = format!(
                    "Unsupported value: {}: supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
                    quoted(other.unwrap_or_default())
                );
                return Err(Failure::invalid_options(
                    KIND,
                    "propagationPolicy",
                    &body,
                    "FieldValueNotSupported",
                ));
            }
        };
        let precondition = |field: &str| {
            options.get("preconditions").and_then(|p| p.get(field)).and_then(Value::as_str).map(str::to_owned)
        };
        Ok(Self {
            is_dry_run,
            grace_period: options.get("gracePeriodSeconds").and_then(Value::as_i64),
            propagation,
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
        })
    }
}

/// How a resource version limits a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// The newest.
    Latest,
    /// Anything.
    Any,
    /// This version or a newer one.
    NotOlderThan(u64),
    /// This version.
    Exactly(u64),
}

/// Options of a list or watch.
#[derive(Clone, Debug)]
pub struct ListOptions {
    /// Labels.
    pub labels: Option<Selector>,
    /// Fields.
    pub fields: FieldSelector,
    /// Most items of one response.
    pub limit: Option<usize>,
    /// Where the last response stopped.
    pub continue_token: Option<String>,
    /// Resource version as given; 0 and absent differ.
    pub resource_version: Option<u64>,
    /// How a list is limited by it.
    pub since: Since,
    /// Bookmarks are welcome.
    pub allow_bookmarks: bool,
    /// Start a watch with what is there.
    pub send_initial_events: Option<bool>,
    /// When a watch ends.
    pub timeout: Option<Duration>,
}

/// Keys and values of a selector must be such as labels can have.
fn check_labels(selector: &Selector) -> Result<(), Failure> {
    for Requirement { key, test } in selector.requirements() {
        let values = match test {
            Test::Is(value) | Test::IsNot(value) => std::slice::from_ref(value),
            Test::In(values) | Test::NotIn(values) => values,
            Test::Exists | Test::DoesNotExist | Test::GreaterThan(_) | Test::LessThan(_) => &[],
        };
        let of_key = names::qualified_name(key).into_iter().map(|problem| ("<nil>".to_owned(), key, problem));
        let of_values = values.iter().enumerate().flat_map(|(index, value)| {
            let problems = names::label_value(value).into_iter();
            problems.map(move |problem| (format!("values[{index}][{key}]"), value, problem))
        });
        if let Some((place, value, problem)) = of_key.chain(of_values).next() {
            let value = quoted(value);
            return Err(Failure::bad_request(format!(
                "unable to parse requirement: {place}: Invalid value: {value}: {problem}"
            )));
        }
    }
    Ok(())
}

impl ListOptions {
    /// Reads the options out of a query.
    pub fn parse(query: &Query, is_watch: bool) -> Result<Self, Failure> {
        let labels = match query.get("labelSelector") {
            None => None,
            Some(text) => {
                let selector: Selector =
                    text.parse().map_err(|error: SelectorError| Failure::bad_request(error.to_string()))?;
                check_labels(&selector)?;
                Some(selector).filter(|selector| !selector.selects_all())
            }
        };
        let fields = FieldSelector::parse(query.get("fieldSelector").unwrap_or_default())
            .map_err(|error| Failure::bad_request(error.to_string()))?;
        let number = |name: &str| -> Result<Option<i64>, Failure> {
            query
                .get(name)
                .map(|text| {
                    text.parse().map_err(|_| {
                        Failure::bad_request(format!(
                            "strconv.ParseInt: parsing {}: invalid syntax",
                            quoted(text)
                        ))
                    })
                })
                .transpose()
        };
        let resource_version = query
            .get("resourceVersion")
            .map(|text| {
                text.parse::<u64>().map_err(|_| {
                    Failure::bad_request(format!(
                        "invalid resource version: resourceVersion: Invalid value: {0}: strconv.ParseUint: parsing {0}: invalid syntax",
                        quoted(text)
                    ))
                })
            })
            .transpose()?;
        let limit = number("limit")?.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
        let continue_token = query.get("continue").map(str::to_owned);
        let send_initial_events = query.get("sendInitialEvents").map(|_| query.is_set("sendInitialEvents"));
        let matching = query.get("resourceVersionMatch");
        check_match(query, is_watch, matching, send_initial_events, continue_token.is_some())?;
        let since = match (resource_version, matching, limit) {
            (None, _, _) => Since::Latest,
            (Some(0), _, _) => Since::Any,
            (Some(rv), Some("Exact"), _) | (Some(rv), None, Some(_)) => Since::Exactly(rv),
            (Some(rv), _, _) => Since::NotOlderThan(rv),
        };
        let timeout = number("timeoutSeconds")?
            .and_then(|seconds| u64::try_from(seconds).ok())
            .filter(|seconds| *seconds > 0)
            .map(Duration::from_secs);
        Ok(Self {
            labels,
            fields,
            // From version 0 a client gets everything at once.
            limit: limit.filter(|_| since != Since::Any),
            continue_token,
            resource_version,
            since,
            allow_bookmarks: query.is_set("allowWatchBookmarks"),
            send_initial_events,
            timeout,
        })
    }
}

fn check_match(
    query: &Query,
    is_watch: bool,
    matching: Option<&str>,
    send_initial_events: Option<bool>,
    has_continue: bool,
) -> Result<(), Failure> {
    let forbidden = |field: &str, why: &str| {
        Err(Failure::invalid_options(
            "ListOptions",
            field,
            &format!("Forbidden: {why}"),
            "FieldValueForbidden",
        ))
    };
    if !is_watch {
        if send_initial_events.is_some() {
            return forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
        }
        let resource_version = query.get("resourceVersion");
        match matching {
            Some("Exact" | "NotOlderThan")
                if !has_continue
                    && resource_version.is_some_and(|rv| rv != "0" || matching != Some("Exact")) => {}
            Some(_) if has_continue => {
                return forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden when continue is provided",
                );
            }
            Some(_) if resource_version.is_none() => {
                return forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                );
            }
            Some("Exact") if resource_version == Some("0") => {
                return forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                );
            }
            None => {}
            Some(other) => {
                let body = format!(
                    "Unsupported value: {}: supported values: \"Exact\", \"NotOlderThan\", \"\"",
                    quoted(other)
                );
                return Err(Failure::invalid_options(
                    "ListOptions",
                    "resourceVersionMatch",
                    &body,
                    "FieldValueNotSupported",
                ));
            }
        }
        return Ok(());
    }
    match (send_initial_events, matching) {
        (None, Some(_)) => forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
        (Some(_), None) => forbidden(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (Some(_), Some(other)) if other != "NotOlderThan" => forbidden(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        _ => Ok(()),
    }
}
