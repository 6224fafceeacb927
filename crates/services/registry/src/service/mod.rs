//! What the API's operations do: names and uniqueness, parents, defaults of names, and the
//! messages of refusals. HTTP is not known here.

mod apply;
mod artifacts;
mod find;
mod list;
mod upsert;

use quintet_foundation::clock::Clock;

pub(crate) use artifacts::{Parent, unknown_type};
pub(crate) use find::Find;
pub(crate) use list::{List, type_mismatch};

use crate::error::Error;
use crate::model::{Entity, Kind};
use crate::store::{Database, Session, Types};
use crate::text;

/// The operations on a database.
#[derive(Clone)]
pub(crate) struct Registry {
    pub(crate) database: Database,
    clock: Clock,
}

/// A page of a list.
#[derive(Debug)]
pub(crate) struct EntityPage {
    pub(crate) entities: Vec<Entity>,
    pub(crate) next_page_token: String,
    pub(crate) page_size: i32,
}

impl Registry {
    pub(crate) fn new(database: Database, clock: Clock) -> Self {
        Self { database, clock }
    }

    fn now(&self) -> i64 {
        self.clock.now().as_millisecond()
    }

    /// The current time, for people.
    pub(crate) fn timestamp(&self) -> String {
        self.clock.now().to_string()
    }

    /// The entity of `kind` with this id.
    pub(crate) async fn get(&self, kind: Kind, id: &str) -> Result<Entity, Error> {
        let (types, id) = (self.database.types.clone(), id.to_owned());
        self.database
            .read(move |session| Box::pin(async move { get(session, &types, kind, &id).await }))
            .await
    }

    /// The artifact with this id, of whatever kind.
    pub(crate) async fn get_artifact(&self, id: &str) -> Result<Entity, Error> {
        let (types, id) = (self.database.types.clone(), id.to_owned());
        self.database
            .read(move |session| Box::pin(async move { get_artifact(session, &types, &id).await }))
            .await
    }

    /// The artifact with this id, which must be a model artifact.
    pub(crate) async fn get_model_artifact(&self, id: &str) -> Result<Entity, Error> {
        let artifact = self.get_artifact(id).await?;
        if artifact.kind == Kind::ModelArtifact {
            return Ok(artifact);
        }
        Err(Error::not_found(format!("artifact with id {id} is not a model artifact")))
    }

    /// The registered model that an inference service serves.
    pub(crate) async fn served_model(&self, service: &str) -> Result<Entity, Error> {
        let service = self.get_service(service).await?;
        let Some(id) = service.int_property("registered_model_id") else {
            return Err(Error::not_found("no registered model id found for inference service"));
        };
        match self.get(Kind::RegisteredModel, &id.to_string()).await {
            Err(Error::NotFound(_)) => {
                Err(Error::Internal("registered model by id not found: record not found".to_owned()))
            }
            other => other,
        }
    }

    /// The version that an inference service serves: the one it names, or the newest.
    pub(crate) async fn served_version(&self, service_id: &str) -> Result<Entity, Error> {
        let service = self.get_service(service_id).await?;
        if let Some(id) = service.int_property("model_version_id").filter(|id| *id != 0) {
            return self.get(Kind::ModelVersion, &id.to_string()).await;
        }
        let model = service.int_property("registered_model_id").map(|id| id.to_string());
        let newest = List { order_by: "CREATE_TIME", sort_order: "DESC", page_size: "1", ..List::default() };
        let page = self.list(&[Kind::ModelVersion], model.as_deref(), &newest).await?;
        let newest = page.entities.into_iter().next();
        newest.ok_or_else(|| Error::not_found(format!("no model versions found for id {service_id}")))
    }

    async fn get_service(&self, id: &str) -> Result<Entity, Error> {
        match self.get(Kind::InferenceService, id).await {
            Err(Error::NotFound(_)) => {
                Err(Error::not_found(format!("no inference service found for id {id}")))
            }
            other => other,
        }
    }
}

/// Reads the id of what artifacts are listed under.
pub(crate) fn owner_id(id: &str) -> Result<i32, Error> {
    parse_id(id, "parent resource")
}

/// Reads an id; the error calls it the id of `words`.
fn parse_id(id: &str, words: &str) -> Result<i32, Error> {
    text::int32(id).map_err(|why| Error::bad_request(format!("invalid {words} ID: {why}")))
}

async fn get(session: &mut Session, types: &Types, kind: Kind, id: &str) -> Result<Entity, Error> {
    let number = parse_id(id, kind.words())?;
    let found = session.get(types, &[kind], number).await?;
    found.ok_or_else(|| {
        // One kind goes by its schema name.
        let words = if kind == Kind::InferenceService { kind.schema_name() } else { kind.words() };
        Error::not_found(format!("no {words} found for id {id}"))
    })
}

async fn get_artifact(session: &mut Session, types: &Types, id: &str) -> Result<Entity, Error> {
    let number = parse_id(id, "artifact")?;
    let found = session.get(types, &Kind::ARTIFACTS, number).await?;
    found.ok_or_else(|| Error::not_found(format!("no artifact found for id {id}")))
}
