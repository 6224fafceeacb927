//! Creating and updating entities other than artifacts.

use super::apply::{apply, blank, generated_name, prefixed};
use super::list::in_context;
use super::{Registry, get, parse_id};
use crate::body::{self, Body};
use crate::error::Error;
use crate::model::{Entity, Kind, PropertyValue};
use crate::store::{Session, StoreError, Types};
use crate::text;

impl Registry {
    /// Creates an entity. `parent` is the id in the path of a nested route.
    pub(crate) async fn create(&self, kind: Kind, body: Body, parent: Option<&str>) -> Result<Entity, Error> {
        let (types, now, parent) = (self.database.types.clone(), self.now(), parent.map(str::to_owned));
        self.database
            .write(move |session| {
                Box::pin(async move { create(session, &types, kind, body, parent.as_deref(), now).await })
            })
            .await
    }

    /// Updates the entity with this id.
    pub(crate) async fn update(&self, kind: Kind, id: &str, body: Body) -> Result<Entity, Error> {
        let (types, now, id) = (self.database.types.clone(), self.now(), id.to_owned());
        self.database
            .write(move |session| {
                Box::pin(async move { update(session, &types, kind, &id, &body, now).await })
            })
            .await
    }
}

async fn create(
    session: &mut Session,
    types: &Types,
    kind: Kind,
    mut body: Body,
    parent: Option<&str>,
    now: i64,
) -> Result<Entity, Error> {
    // The parent in the path wins over the one in the body, which is required all the same.
    let parent = parent
        .map(str::to_owned)
        .or_else(|| parent_field(kind).and_then(|it| body.text(it)).map(str::to_owned));
    if let (Some(parent), Some(field)) = (&parent, parent_field(kind)) {
        body.set_text(kind, field, parent);
    }
    let related = check_parents(session, types, kind, &body, parent.as_deref()).await?;
    if let Some(id) = &body.id {
        // Only the bodies of nested versions and runs have an id.
        let id = id.clone();
        return update(session, types, kind, &id, &body, now).await;
    }
    let name = match (kind.requires_name(), &body.name) {
        (_, Some(name)) => name.clone(),
        (true, None) => String::new(),
        (false, None) => generated_name(),
    };
    let stored = match &parent {
        Some(parent) => prefixed(parent, &name),
        None => name.clone(),
    };
    let mut entity = blank(kind, stored, now);
    if kind == Kind::ExperimentRun {
        // The order of a run's times is checked before anything else.
        let own = Body { custom: None, ..body.clone() };
        apply(&mut entity, &own)?;
        check_times(&entity)?;
    }
    body::check_times(&body).map_err(Error::bad_request)?;
    apply(&mut entity, &body)?;
    let parent = related.or_else(|| parent.and_then(|it| text::int32(&it).ok()));
    let conflict = conflict(&entity, &name);
    session.insert(types, entity, parent).await.map_err(conflict)
}

async fn update(
    session: &mut Session,
    types: &Types,
    kind: Kind,
    id: &str,
    body: &Body,
    now: i64,
) -> Result<Entity, Error> {
    let number = parse_id(id, kind.words())?;
    session.lock(kind.table(), number).await?;
    let before = get(session, types, kind, id).await?;
    let mut after = Entity { updated: now, ..before.clone() };
    apply(&mut after, body)?;
    check_times(&after)?;
    let name = after.shown_name().unwrap_or_default().to_owned();
    let conflict = conflict(&after, &name);
    session.update(&before, after, None).await.map_err(conflict)
}

/// The field that holds the id of the parent.
fn parent_field(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::ModelVersion => Some("registeredModelId"),
        Kind::InferenceService => Some("servingEnvironmentId"),
        Kind::ExperimentRun => Some("experimentId"),
        _ => None,
    }
}

/// Checks that what must exist exists. A version's registered model need not. Returns the id of
/// the parent where it is not in a field.
async fn check_parents(
    session: &mut Session,
    types: &Types,
    kind: Kind,
    body: &Body,
    parent: Option<&str>,
) -> Result<Option<i32>, Error> {
    match kind {
        Kind::InferenceService => {
            let id = parent.unwrap_or_default();
            match get(session, types, Kind::ServingEnvironment, id).await {
                Err(Error::BadRequest(_) | Error::NotFound(_)) => {
                    Err(Error::not_found(format!("no serving environment found for id {id}")))
                }
                other => other.map(|_| None),
            }
        }
        Kind::ExperimentRun => {
            let id = parent.unwrap_or_default();
            parse_id(id, Kind::Experiment.words())?;
            let found = get(session, types, Kind::Experiment, id).await;
            found.map(|_| None).map_err(|error| in_context(error, "experiment not found"))
        }
        Kind::ServeModel => {
            let version = body.text("modelVersionId").unwrap_or_default();
            let version = get(session, types, Kind::ModelVersion, version).await?;
            check_deployable(&version)?;
            if let Some(custom) = &body.custom {
                crate::model::custom::to_properties(custom).map_err(|why| {
                    Error::bad_request(format!("error setting field CustomProperties: {why}"))
                })?;
            }
            let id = parse_id(parent.unwrap_or_default(), Kind::InferenceService.words())?;
            let service = get(session, types, Kind::InferenceService, &id.to_string()).await?;
            Ok(Some(service.id))
        }
        _ => Ok(None),
    }
}

/// Models that need a login at their hub cannot be deployed.
fn check_deployable(version: &Entity) -> Result<(), Error> {
    let custom = |name: &str| match version.custom_property(name) {
        Some(PropertyValue::Text(text)) => text.as_str(),
        _ => "",
    };
    let unsupported = "authentication not yet supported";
    if !matches!(custom("hf_gated"), "" | "false") {
        let why = format!("{unsupported} (model requires approval or authentication)");
        return Err(Error::bad_request(format!("cannot deploy gated HuggingFace model: {why}")));
    }
    if custom("hf_private") == "true" {
        return Err(Error::bad_request(format!("cannot deploy private HuggingFace model: {unsupported}")));
    }
    Ok(())
}

/// A run must not end before it starts. The times are only read when both are there.
fn check_times(entity: &Entity) -> Result<(), Error> {
    if entity.kind != Kind::ExperimentRun {
        return Ok(());
    }
    let times =
        (entity.text_property("start_time_since_epoch"), entity.text_property("end_time_since_epoch"));
    let (Some(start), Some(end)) = times else { return Ok(()) };
    let read = |name: &str, time: &str| {
        text::int64(time).map_err(|why| Error::bad_request(format!("invalid {name} value: {why}")))
    };
    let end = read("EndTimeSinceEpoch", end)?;
    let start = read("StartTimeSinceEpoch", start)?;
    if end < start {
        let why = format!("EndTimeSinceEpoch ({end}) cannot be less than StartTimeSinceEpoch ({start})");
        return Err(Error::bad_request(why));
    }
    Ok(())
}

/// Maps a violated unique index to a conflict. The message blames the name, even where the
/// external id is the reason.
pub(super) fn conflict(entity: &Entity, name: &str) -> impl FnOnce(StoreError) -> Error + use<> {
    let stored = entity.name.clone().unwrap_or_default();
    let name = if entity.kind == Kind::InferenceService { stored } else { name.to_owned() };
    let words = entity.kind.words();
    move |error| match error {
        StoreError::Duplicate => Error::conflict(format!("{words} with name {name} already exists")),
        other => Error::Store(other),
    }
}
