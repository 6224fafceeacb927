//! Creating and updating artifacts, alone or under a version or a run.

use super::apply::{apply, blank, generated_name, prefixed};
use super::find::artifact_by_name;
use super::upsert::conflict;
use super::{Registry, get, get_artifact, parse_id};
use crate::body::{self, Body, FieldValue};
use crate::error::Error;
use crate::model::custom::{EXPERIMENT_ID, EXPERIMENT_RUN_ID};
use crate::model::{Entity, Kind, Property, PropertyValue, Table};
use crate::store::{ByName, Query, Session, Types};

/// What an artifact is sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parent {
    ModelVersion,
    ExperimentRun,
}

impl Registry {
    /// Creates an artifact without a parent.
    pub(crate) async fn create_artifact(&self, kind: Kind, body: Body) -> Result<Entity, Error> {
        let (types, now) = (self.database.types.clone(), self.now());
        self.database
            .write(move |session| {
                Box::pin(async move {
                    require_value(kind, &body)?;
                    insert(session, &types, kind, &body, None, now).await
                })
            })
            .await
    }

    /// Updates an artifact. The type in the body, if it is needed, must be that of the artifact.
    pub(crate) async fn update_artifact(
        &self,
        id: &str,
        kind: Option<Kind>,
        body: Body,
    ) -> Result<Entity, Error> {
        let (types, now, id) = (self.database.types.clone(), self.now(), id.to_owned());
        self.database
            .write(move |session| {
                Box::pin(async move {
                    let before = lock_artifact(session, &types, &id).await?;
                    if kind != Some(before.kind) {
                        let name =
                            |kind: Option<Kind>| kind.and_then(Kind::artifact_type).unwrap_or("unknown");
                        let (old, new) = (name(Some(before.kind)), name(kind));
                        let why = format!("cannot change artifact type from '{old}' to '{new}'");
                        return Err(Error::BadRequest(format!("{why}: artifact type is immutable")));
                    }
                    update(session, before, &body, None, now).await
                })
            })
            .await
    }

    /// Updates an artifact through the route of model artifacts.
    pub(crate) async fn update_model_artifact(&self, id: &str, body: Body) -> Result<Entity, Error> {
        self.get_model_artifact(id).await?;
        self.update_artifact(id, Some(Kind::ModelArtifact), body).await
    }

    /// Creates or updates an artifact under a parent. Metrics of a run are also kept as history.
    pub(crate) async fn upsert_artifact(
        &self,
        parent: Parent,
        parent_id: &str,
        kind: Option<Kind>,
        body: Body,
    ) -> Result<Entity, Error> {
        let (types, now, parent_id) = (self.database.types.clone(), self.now(), parent_id.to_owned());
        self.database
            .write(move |session| {
                Box::pin(async move { upsert(session, &types, parent, &parent_id, kind, body, now).await })
            })
            .await
    }
}

async fn upsert(
    session: &mut Session,
    types: &Types,
    parent: Parent,
    parent_id: &str,
    kind: Option<Kind>,
    body: Body,
    now: i64,
) -> Result<Entity, Error> {
    let parent_kind = match parent {
        Parent::ModelVersion => Kind::ModelVersion,
        Parent::ExperimentRun => Kind::ExperimentRun,
    };
    let owner = get(session, types, parent_kind, parent_id).await?;
    let kind = kind.ok_or_else(unknown_type)?;
    let owner = Owner { id: owner.id, prefix: parent_id.to_owned(), ids: experiment_ids(&owner) };
    require_value(kind, &body)?;
    let existing = match &body.id {
        Some(id) => Some(by_id(session, types, kind, id).await?),
        None => by_name(session, types, kind, &body, parent_id).await?,
    };
    let saved = match existing {
        Some(before) => update(session, before, &body, Some(&owner), now).await?,
        None => insert(session, types, kind, &body, Some(&owner), now).await?,
    };
    if kind == Kind::Metric && parent == Parent::ExperimentRun {
        record_history(session, types, &saved, &owner).await?;
    }
    Ok(saved)
}

/// The refusal of a body without a known `artifactType`.
pub(crate) fn unknown_type() -> Error {
    Error::bad_request(
        "invalid artifact type, must be either ModelArtifact, DocArtifact, DataSet, Metric, or Parameter",
    )
}

/// The parent of an artifact.
struct Owner {
    id: i32,
    prefix: String,
    /// The ids of the experiment and the run, if the parent is a run.
    ids: Vec<Property>,
}

fn experiment_ids(owner: &Entity) -> Vec<Property> {
    let Some(experiment) = owner.int_property("experiment_id") else { return Vec::new() };
    let property =
        |name: &str, id| Property { name: name.to_owned(), is_custom: true, value: PropertyValue::Int(id) };
    vec![property(EXPERIMENT_ID, experiment), property(EXPERIMENT_RUN_ID, owner.id)]
}

async fn lock_artifact(session: &mut Session, types: &Types, id: &str) -> Result<Entity, Error> {
    let number = parse_id(id, "artifact")?;
    session.lock(Table::Artifact, number).await?;
    get_artifact(session, types, id).await
}

async fn by_id(session: &mut Session, types: &Types, kind: Kind, id: &str) -> Result<Entity, Error> {
    let words = kind.words();
    let found = match lock_artifact(session, types, id).await {
        Err(Error::BadRequest(_) | Error::NotFound(_)) => {
            return Err(Error::bad_request(format!(
                "mismatched types, artifact with id {id} is not a {words}"
            )));
        }
        other => other?,
    };
    if found.kind != kind {
        return Err(Error::bad_request(format!("artifact with id {id} is not a {words}")));
    }
    Ok(found)
}

/// Metrics and parameters of the same name under the same parent are one.
async fn by_name(
    session: &mut Session,
    types: &Types,
    kind: Kind,
    body: &Body,
    parent: &str,
) -> Result<Option<Entity>, Error> {
    let name = body.name.as_deref().unwrap_or_default();
    if !matches!(kind, Kind::Metric | Kind::Parameter) || name.is_empty() {
        return Ok(None);
    }
    let found = artifact_by_name(session, types, name, parent).await?;
    Ok(found.filter(|artifact| artifact.kind == kind))
}

fn require_value(kind: Kind, body: &Body) -> Result<(), Error> {
    let has_value = body.fields.iter().any(|(_, value)| matches!(value, FieldValue::Double(_)));
    if kind == Kind::Metric && !has_value {
        return Err(Error::bad_request("metric value is required"));
    }
    Ok(())
}

async fn insert(
    session: &mut Session,
    types: &Types,
    kind: Kind,
    body: &Body,
    owner: Option<&Owner>,
    now: i64,
) -> Result<Entity, Error> {
    body::check_times(body).map_err(Error::bad_request)?;
    let name = body.name.clone().unwrap_or_else(generated_name);
    let stored = match owner {
        // Data sets are never the same by name.
        Some(owner) if kind != Kind::DataSet => prefixed(&owner.prefix, &name),
        _ => prefixed(&generated_name(), &name),
    };
    let mut entity = blank(kind, stored, now);
    apply(&mut entity, body)?;
    set_ids(&mut entity, owner);
    let conflict = conflict(&entity, &name);
    session.insert(types, entity, owner.map(|owner| owner.id)).await.map_err(conflict)
}

async fn update(
    session: &mut Session,
    before: Entity,
    body: &Body,
    owner: Option<&Owner>,
    now: i64,
) -> Result<Entity, Error> {
    let mut after = Entity { updated: now, ..before.clone() };
    apply(&mut after, body)?;
    let is_of_run = owner.is_some_and(|owner| !owner.ids.is_empty());
    if is_of_run && body.custom.is_none() {
        // The server's own properties make a set of their own, which replaces the stored one.
        after.properties.retain(|property| !property.is_custom);
    }
    // Answers hide the server's own properties, and an update keeps only what answers show.
    let is_own = |name: &str| name == EXPERIMENT_ID || name == EXPERIMENT_RUN_ID;
    let sent = |name: &str| body.custom.as_ref().is_some_and(|custom| custom.contains_key(name));
    after.properties.retain(|it| !it.is_custom || !is_own(&it.name) || sent(&it.name));
    set_ids(&mut after, owner);
    let name = after.shown_name().unwrap_or_default().to_owned();
    let conflict = conflict(&after, &name);
    session.update(&before, after, owner.map(|owner| owner.id)).await.map_err(conflict)
}

fn set_ids(entity: &mut Entity, owner: Option<&Owner>) {
    for property in owner.map_or(&[][..], |owner| &owner.ids) {
        entity.set(&property.name, true, property.value.clone());
    }
}

/// Keeps a copy of a metric as it is now. Its name ends in the time; of two copies in one
/// millisecond, the later one takes the next free time.
async fn record_history(
    session: &mut Session,
    types: &Types,
    metric: &Entity,
    owner: &Owner,
) -> Result<(), Error> {
    let name = metric.shown_name().unwrap_or_default();
    let mut time = metric.updated;
    let stored = loop {
        let stored = format!("{}:{name}__{time}", owner.prefix);
        let mut query = Query::new(&[Kind::MetricHistory]);
        query.by_name = Some(ByName::StoredName(stored.clone()));
        if session.list(types, &query).await?.is_empty() {
            break stored;
        }
        time += 1;
    };
    let copy = Entity {
        kind: Kind::MetricHistory,
        name: Some(stored),
        external_id: None,
        created: metric.updated,
        ..metric.clone()
    };
    session.insert(types, copy, Some(owner.id)).await?;
    Ok(())
}
