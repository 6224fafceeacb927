//! Decodes requests, calls the service and encodes its results.

use http::{Method, StatusCode};

use super::Request;
use super::query::Query;
use super::response::Response;
use super::route::{self, Route};
use crate::body::{self, Body, Shape};
use crate::error::Error;
use crate::json::{self, Json, Value, object};
use crate::model::{self, Entity, Hidden, Kind};
use crate::service::{self, EntityPage, Find, List, Parent, Registry, type_mismatch, unknown_type};

/// Carries out a request; its method is one the route has.
pub(super) async fn handle(
    registry: &Registry,
    route: Route,
    id: &str,
    request: &Request,
) -> Result<Response, Error> {
    if let Some(owner) = route.owner().filter(|_| id.is_empty()) {
        let name = id_of(owner, route::is_alpha(&request.path));
        return Err(Error::Unprocessable(format!("required field '{name}' is zero value.")));
    }
    if request.method == Method::GET {
        read(registry, route, id, &request.query).await
    } else {
        write(registry, route, id, &request.body).await
    }
}

/// What upstream calls the id of an entity in the paths of a version of the API.
fn id_of(owner: Kind, is_alpha: bool) -> String {
    let words = owner.words();
    if is_alpha { format!("{}Id", words.replace(' ', "")) } else { format!("{}_id", words.replace(' ', "_")) }
}

async fn read(registry: &Registry, route: Route, id: &str, query: &Query) -> Result<Response, Error> {
    let ok = |entity: Entity| Ok(one(StatusCode::OK, &entity));
    match route {
        Route::One(kind) => ok(registry.get(kind, id).await?),
        Route::Artifact => ok(registry.get_artifact(id).await?),
        Route::ModelArtifact => ok(registry.get_model_artifact(id).await?),
        Route::ServedModel => ok(registry.served_model(id).await?),
        Route::ServedVersion => ok(registry.served_version(id).await?),
        _ => {
            if let Some(why) = query.error() {
                return Err(Error::BadRequest(why.to_owned()));
            }
            if query.is_binary(&compared(route, query)) {
                return Err(type_mismatch(route.words()));
            }
            search(registry, route, id, query).await
        }
    }
}

/// The parameters of a search that the database compares with what is stored; a name counts before an external id.
fn compared(route: Route, query: &Query) -> Vec<&'static str> {
    let own = if query.get("name").is_empty() { "externalId" } else { "name" };
    match route {
        Route::Find(_) | Route::FindArtifact | Route::FindModelArtifact => vec![own],
        Route::Children(Kind::ModelVersion) | Route::ArtifactsOf(Parent::ModelVersion) => {
            vec![own, "filterQuery"]
        }
        Route::MetricHistory | Route::MetricHistoryOf => vec!["name", "filterQuery"],
        _ => vec!["filterQuery"],
    }
}

/// Routes that read the query.
async fn search(registry: &Registry, route: Route, id: &str, query: &Query) -> Result<Response, Error> {
    let ok = |entity: Entity| Ok(one(StatusCode::OK, &entity));
    let find = Find {
        name: query.get("name"),
        parent: query.get("parentResourceId"),
        external_id: query.get("externalId"),
    };
    let list = List {
        filter: query.get("filterQuery"),
        page_size: query.get("pageSize"),
        order_by: query.get("orderBy"),
        sort_order: query.get("sortOrder"),
        next_page_token: query.get("nextPageToken"),
    };
    let unfiltered = List { filter: "", ..list.clone() };
    let page = match route {
        Route::Find(kind) => return ok(registry.find(kind, &find).await?),
        Route::FindArtifact => return ok(registry.find_artifact(&find).await?),
        Route::FindModelArtifact => return ok(registry.find_model_artifact(&find).await?),
        Route::Collection(kind @ (Kind::ServingEnvironment | Kind::InferenceService)) => {
            registry.list(&[kind], None, &unfiltered).await?
        }
        Route::Collection(kind) => registry.list(&[kind], None, &list).await?,
        Route::ModelArtifacts => registry.model_artifacts(&list).await?,
        Route::Artifacts => registry.list(&artifact_kinds(query, &list, None)?, None, &list).await?,
        Route::Children(Kind::ModelVersion) => {
            let filter = combined_filter(&list, &find);
            let list = List { filter: &filter, ..list };
            registry.list(&[Kind::ModelVersion], Some(id), &list).await?
        }
        Route::Children(Kind::ExperimentRun) => registry.runs_of(id, &list).await?,
        Route::Children(kind) => registry.list(&[kind], Some(id), &unfiltered).await?,
        Route::ArtifactsOf(Parent::ModelVersion) => {
            let filter = combined_filter(&list, &find);
            let list = List { filter: &filter, ..list };
            registry.list(&artifact_kinds(query, &list, Some(id))?, Some(id), &list).await?
        }
        Route::ArtifactsOf(Parent::ExperimentRun) => {
            registry.list(&artifact_kinds(query, &list, Some(id))?, Some(id), &list).await?
        }
        Route::MetricHistory | Route::MetricHistoryOf => {
            let run = (route == Route::MetricHistoryOf).then_some(id);
            registry.metric_history(run, find.name, query.get("stepIds"), &list).await?
        }
        _ => return Ok(Response::not_found()),
    };
    Ok(many(&page))
}

/// The kinds of a list of artifacts, whose page and parent are checked first.
fn artifact_kinds(query: &Query, list: &List<'_>, parent: Option<&str>) -> Result<Vec<Kind>, Error> {
    list.page()?;
    parent.map(service::owner_id).transpose()?;
    match query.get("artifactType") {
        "" => Ok(Kind::ARTIFACTS.to_vec()),
        "null" => Err(Error::bad_request("invalid artifact type: empty or null value provided")),
        name => match Kind::from_artifact_type(name) {
            Some(kind) => Ok(vec![kind]),
            None => Err(Error::bad_request(format!("invalid artifact type {name}"))),
        },
    }
}

/// `name` or `externalId` of a nested list become part of the filter, in its own language. Quotes
/// are doubled, which the language does not know: such names are refused, as upstream refuses them.
fn combined_filter(list: &List<'_>, find: &Find<'_>) -> String {
    let mut conditions = Vec::new();
    if !list.filter.is_empty() {
        conditions.push(format!("({})", list.filter));
    }
    if !find.name.is_empty() {
        conditions.push(format!("name = '{}'", find.name.replace('\'', "''")));
    } else if !find.external_id.is_empty() {
        conditions.push(format!("externalId = '{}'", find.external_id.replace('\'', "''")));
    }
    conditions.join(" AND ")
}

async fn write(registry: &Registry, route: Route, id: &str, content: &[u8]) -> Result<Response, Error> {
    let value = json::parse(content).map_err(Error::BadRequest)?;
    let created = |entity: Entity| Ok(one(StatusCode::CREATED, &entity));
    let updated = |entity: Entity| Ok(one(StatusCode::OK, &entity));
    match route {
        Route::Collection(kind) => {
            created(registry.create(kind, creation(&value, kind, Shape::Create)?, None).await?)
        }
        Route::Children(kind) => {
            // Versions and runs are sent as the entity itself, which may have an id.
            let is_full = matches!(kind, Kind::ModelVersion | Kind::ExperimentRun);
            let shape = if is_full { Shape::Full } else { Shape::Create };
            created(registry.create(kind, creation(&value, kind, shape)?, Some(id)).await?)
        }
        Route::One(kind) => updated(registry.update(kind, id, plain(&value, kind, Shape::Update)?).await?),
        Route::MetricHistory => {
            let body = plain(&value, Kind::ExperimentRun, Shape::Update)?;
            updated(registry.update(Kind::ExperimentRun, "metric_history", body).await?)
        }
        Route::ModelArtifacts => {
            let body = plain(&value, Kind::ModelArtifact, Shape::Create)?;
            created(registry.create_artifact(Kind::ModelArtifact, body).await?)
        }
        Route::ModelArtifact => {
            let body = plain(&value, Kind::ModelArtifact, Shape::Update)?;
            updated(registry.update_model_artifact(id, body).await?)
        }
        Route::Artifacts => {
            let (kind, body) = artifact(&value, Shape::Create)?;
            created(registry.create_artifact(kind.ok_or_else(unknown_type)?, body).await?)
        }
        Route::Artifact => {
            let (kind, body) = artifact(&value, Shape::Update)?;
            updated(registry.update_artifact(id, kind, body).await?)
        }
        Route::ArtifactsOf(parent) => upsert_artifact(registry, parent, id, &value).await,
        _ => Ok(Response::not_found()),
    }
}

async fn upsert_artifact(
    registry: &Registry,
    parent: Parent,
    id: &str,
    value: &Value,
) -> Result<Response, Error> {
    let (kind, body) = artifact(value, Shape::Full)?;
    // Other kinds are answered with 200 even when they are new.
    let is_created = body.id.is_none() && matches!(kind, Some(Kind::ModelArtifact | Kind::DocArtifact));
    let entity = registry.upsert_artifact(parent, id, kind, body).await?;
    let is_run_metric = parent == Parent::ExperimentRun && entity.kind == Kind::Metric;
    let hidden = if is_run_metric { Hidden::Shown } else { Hidden::LeftOut };
    let status = if is_created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(Response::json(status, &model::encode(&entity, hidden)))
}

/// Decodes a body of a plain route: strict, and with defaults.
fn plain(value: &Value, kind: Kind, shape: Shape) -> Result<Body, Error> {
    body::decode(value, kind, shape, true, body::with_defaults(kind)).map_err(Error::BadRequest)
}

fn creation(value: &Value, kind: Kind, shape: Shape) -> Result<Body, Error> {
    let body = plain(value, kind, shape)?;
    match body::missing(kind, &body) {
        Some(field) => Err(Error::Unprocessable(format!("required field '{field}' is zero value."))),
        None => Ok(body),
    }
}

/// Decodes an artifact by its `artifactType`: lenient, and without defaults.
fn artifact(value: &Value, shape: Shape) -> Result<(Option<Kind>, Body), Error> {
    if !matches!(value, Value::Object(_) | Value::Null) {
        let why = "failed to unmarshal JSON into map for the discriminator lookup";
        return Err(Error::BadRequest(why.to_owned()));
    }
    let kind = match value.member("artifactType") {
        Some(Value::String(name)) => Kind::from_artifact_type(name),
        _ => None,
    };
    let Some(kind) = kind else { return Ok((None, Body::default())) };
    let suffix = match shape {
        Shape::Create => "Create",
        Shape::Update => "Update",
        Shape::Full => "",
    };
    let body = body::decode(value, kind, shape, false, Body::default()).map_err(|why| {
        let name = kind.schema_name();
        Error::BadRequest(format!("failed to unmarshal Artifact{suffix} as {name}{suffix}: {why}"))
    })?;
    Ok((Some(kind), body))
}

fn one(status: StatusCode, entity: &Entity) -> Response {
    Response::json(status, &model::encode(entity, Hidden::LeftOut))
}

fn many(page: &EntityPage) -> Response {
    let items: Vec<Json> =
        page.entities.iter().map(|entity| model::encode(entity, Hidden::LeftOut)).collect();
    let size = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let body = object([
        ("items", Json::Array(items)),
        ("nextPageToken", page.next_page_token.as_str().into()),
        ("pageSize", Json::Int(i64::from(page.page_size))),
        ("size", Json::Int(size)),
    ]);
    Response::json(StatusCode::OK, &body)
}
