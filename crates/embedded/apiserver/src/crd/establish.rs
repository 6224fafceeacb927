//! Establishes CustomResourceDefinitions: names, conditions, served resources.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{BUCKET, is_true, refresh};
use crate::{
    aggregation,
    api::Api,
    json::{self, items, text, timestamp},
    status::Failure,
    store::{Write, WriteError},
};

/// Brings names, conditions and the served resources in line with a definition that was written.
pub(crate) async fn establish(api: &Api, name: &str) -> Result<(), Failure> {
    let Some(entry) = api.store().get(BUCKET, name) else {
        refresh(api);
        return aggregation::publish(api).await;
    };
    if entry.head.is_terminating {
        // Its objects are removed by the finalization controller (`removal`).
        refresh(api);
        return Ok(());
    }
    write_status(api, name).await?;
    refresh(api);
    aggregation::publish(api).await
}

/// Writes the status a definition should have. Only the server writes it, so there is nothing to admit.
async fn write_status(api: &Api, name: &str) -> Result<(), Failure> {
    let resource = api.built_in("apiextensions.k8s.io", "customresourcedefinitions")?;
    loop {
        let Some(entry) = api.store().get(BUCKET, name) else { return Ok(()) };
        let mut definition = entry.to_value("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        let status = status_of(api, name, &definition);
        if definition.get("status") == Some(&status) {
            return Ok(());
        }
        json::as_map(&mut definition).insert("status".into(), status);
        let put = api.encode(&resource, &definition).await?;
        let write = Write::replace(&resource.bucket, name.into(), entry.rv, put);
        match api.write(write).await {
            Ok(_) => return Ok(()),
            Err(WriteError::Conflict) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

pub(super) fn condition(
    now: Timestamp,
    definition: &Value,
    kind: &str,
    is_true: bool,
    reason: &str,
    message: &str,
) -> Value {
    let status = if is_true { "True" } else { "False" };
    let before = items(definition, "/status/conditions").iter().find(|one| text(one, "/type") == kind);
    let since = match before {
        Some(before) if text(before, "/status") == status => {
            before.get("lastTransitionTime").cloned().unwrap_or_default()
        }
        _ => timestamp(now).into(),
    };
    json!({"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message})
}

/// Names that other definitions of the group already have.
fn taken(api: &Api, name: &str, group: &str) -> Vec<Value> {
    let registry = api.registry();
    let versions = registry.group(group).into_iter().flat_map(|group| &group.versions);
    versions
        .flat_map(|version| &version.resources)
        .filter(|other| other.as_custom().is_some_and(|custom| custom.definition != name))
        .map(|other| {
            json!({"plural": &*other.plural, "singular": other.singular, "kind": &*other.kind,
                "listKind": &*other.list_kind, "shortNames": other.short_names})
        })
        .collect()
}

/// The status a definition should have.
pub(super) fn status_of(api: &Api, name: &str, definition: &Value) -> Value {
    let now = api.now();
    let group = text(definition, "/spec/group");
    let taken = taken(api, name, group);
    let nouns = |names: &Value| -> Vec<String> {
        let mut all: Vec<String> = json::texts(names, "/shortNames").map(str::to_owned).collect();
        all.push(text(names, "/plural").to_owned());
        all.push(text(names, "/singular").to_owned());
        all
    };
    let kinds = |names: &Value| [text(names, "/kind").to_owned(), text(names, "/listKind").to_owned()];
    let has_noun = |wanted: &str| {
        !wanted.is_empty() && taken.iter().any(|names| nouns(names).iter().any(|n| n == wanted))
    };
    let has_kind = |wanted: &str| {
        !wanted.is_empty() && taken.iter().any(|names| kinds(names).iter().any(|k| k == wanted))
    };
    let wanted = definition.pointer("/spec/names").cloned().unwrap_or_default();
    let mut accepted = definition.pointer("/status/acceptedNames").cloned().unwrap_or_else(|| json!({}));
    let mut conflict = None;
    for (key, reason, is_taken) in [
        ("plural", "PluralConflict", has_noun(text(&wanted, "/plural"))),
        ("singular", "SingularConflict", has_noun(text(&wanted, "/singular"))),
        ("kind", "KindConflict", has_kind(text(&wanted, "/kind"))),
        ("listKind", "ListKindConflict", has_kind(text(&wanted, "/listKind"))),
    ] {
        if is_taken {
            conflict = Some((reason, text(&wanted, &format!("/{key}")).to_owned()));
        } else if let Some(value) = wanted.get(key) {
            json::as_map(&mut accepted).insert(key.into(), value.clone());
        }
    }
    let short_conflict = json::texts(&wanted, "/shortNames").find(|short| has_noun(short)).map(str::to_owned);
    let nothing = serde_json::Map::new();
    let spelled = wanted.as_object().unwrap_or(&nothing);
    match short_conflict {
        Some(short) => conflict = Some(("ShortNamesConflict", short)),
        None => json::carry(spelled, json::as_map(&mut accepted), "shortNames"),
    }
    json::carry(spelled, json::as_map(&mut accepted), "categories");
    let was_established = is_true(definition, "Established");
    let mut conditions = Vec::new();
    match &conflict {
        None => {
            conditions.push(condition(
                now,
                definition,
                "NamesAccepted",
                true,
                "NoConflicts",
                "no conflicts found",
            ));
            conditions.push(condition(
                now,
                definition,
                "Established",
                true,
                "InitialNamesAccepted",
                "the initial names have been accepted",
            ));
        }
        Some((reason, name)) => {
            let message = format!("{name:?} is already in use");
            conditions.push(condition(now, definition, "NamesAccepted", false, reason, &message));
            if was_established {
                conditions.push(condition(
                    now,
                    definition,
                    "Established",
                    true,
                    "InitialNamesAccepted",
                    "the initial names have been accepted",
                ));
            } else {
                let message = "not all names are accepted";
                conditions.push(condition(now, definition, "Established", false, "NotAccepted", message));
            }
        }
    }
    let others = items(definition, "/status/conditions")
        .iter()
        .filter(|one| !matches!(text(one, "/type"), "NamesAccepted" | "Established"));
    conditions.extend(others.cloned());
    let mut stored: Vec<Value> = items(definition, "/status/storedVersions").to_vec();
    let storage = items(definition, "/spec/versions")
        .iter()
        .filter(|version| version.get("storage") == Some(&Value::Bool(true)))
        .filter_map(|version| version.get("name").cloned());
    for version in storage {
        if !stored.contains(&version) {
            stored.push(version);
        }
    }
    json!({"conditions": conditions, "acceptedNames": accepted, "storedVersions": stored})
}
