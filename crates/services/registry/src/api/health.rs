//! The probes `/readyz/isDirty` and `/readyz/health`, recognised by the end of the path.

use std::collections::BTreeMap;
use std::time::Instant;

use http::{HeaderValue, Method, StatusCode, header};

use super::Request;
use super::response::Response;
use crate::error::Error;
use crate::json::{Json, object};
use crate::model::Kind;
use crate::service::{List, Registry};

/// What is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    /// The database answers, and no migration was left unfinished.
    Database,
    /// That, and every list can be read.
    Everything,
}

impl Check {
    pub(super) fn from_path(path: &str) -> Option<Self> {
        if path.ends_with("/readyz/isDirty") {
            Some(Self::Database)
        } else if path.ends_with("/readyz/health") {
            Some(Self::Everything)
        } else {
            None
        }
    }
}

/// What came of one check.
struct Outcome {
    name: &'static str,
    message: String,
    is_passed: bool,
    details: BTreeMap<String, Json>,
}

pub(super) async fn answer(registry: Option<&Registry>, check: Check, request: &Request) -> Response {
    if request.method != Method::GET {
        return Response::plain_error(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
    }
    let started = Instant::now();
    let mut outcomes = vec![check_database(registry).await];
    if check == Check::Everything
        && let Some(registry) = registry
    {
        outcomes.push(check_lists(registry).await);
    }
    let failed = outcomes.iter().find(|outcome| !outcome.is_passed);
    let status = if failed.is_some() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    if request.query.get("format") != "json" {
        let text = failed.map_or("OK", |outcome| outcome.message.as_str());
        return Response::text(status, text);
    }
    let milliseconds = i64::try_from(started.elapsed().as_millis()).unwrap_or(i64::MAX);
    outcomes.push(Outcome {
        name: "meta",
        message: String::new(),
        is_passed: true,
        details: BTreeMap::from([
            ("check_duration_ms".to_owned(), Json::Int(milliseconds)),
            ("timestamp".to_owned(), Json::text(registry.map(Registry::timestamp).unwrap_or_default())),
        ]),
    });
    let status_word = word(status == StatusCode::OK);
    let checks = outcomes.iter().map(|outcome| (outcome.name.to_owned(), encode(outcome))).collect();
    let body = object([("status", status_word.into()), ("checks", Json::Object(checks))]);
    let mut response = Response::json(status, &body);
    response.headers = vec![(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    response
}

fn word(is_passed: bool) -> &'static str {
    if is_passed { "pass" } else { "fail" }
}

fn encode(outcome: &Outcome) -> Json {
    object([
        ("Name", outcome.name.into()),
        ("Status", word(outcome.is_passed).into()),
        ("Message", outcome.message.as_str().into()),
        ("Details", Json::Object(outcome.details.clone())),
    ])
}

async fn check_database(registry: Option<&Registry>) -> Outcome {
    let outcome =
        |is_passed, message: String, details| Outcome { name: "database", message, is_passed, details };
    let Some(registry) = registry else {
        return outcome(false, "database connection is not ready yet".to_owned(), BTreeMap::new());
    };
    match registry.database.migration_state().await {
        Err(error) => outcome(false, format!("schema_migrations query error: {error}"), BTreeMap::new()),
        Ok((version, is_dirty)) => {
            let message = if is_dirty { "database schema is in dirty state" } else { "database is healthy" };
            let details = BTreeMap::from([
                ("schema_dirty".to_owned(), Json::Bool(is_dirty)),
                ("schema_version".to_owned(), Json::Int(version)),
            ]);
            outcome(!is_dirty, message.to_owned(), details)
        }
    }
}

/// Reads one entity of each list.
async fn check_lists(registry: &Registry) -> Outcome {
    let name = "model-registry";
    match count_all(registry).await {
        Ok(mut details) => {
            details.insert("total_resources_checked".to_owned(), Json::Int(5));
            Outcome {
                name,
                message: "model registry service is healthy".to_owned(),
                is_passed: true,
                details,
            }
        }
        Err((words, error)) => {
            let message = format!("failed to list {words}: {error}");
            Outcome { name, message, is_passed: false, details: BTreeMap::new() }
        }
    }
}

async fn count_all(registry: &Registry) -> Result<BTreeMap<String, Json>, (&'static str, Error)> {
    let lists: [(&'static str, &[Kind]); 7] = [
        ("registered models", &[Kind::RegisteredModel]),
        ("artifacts", &Kind::ARTIFACTS),
        ("model versions", &[Kind::ModelVersion]),
        ("serving environments", &[Kind::ServingEnvironment]),
        ("inference services", &[Kind::InferenceService]),
        ("experiments", &[Kind::Experiment]),
        ("experiment runs", &[Kind::ExperimentRun]),
    ];
    let first = List { page_size: "1", ..List::default() };
    let mut details = BTreeMap::new();
    for (words, kinds) in lists {
        let page = registry.list(kinds, None, &first).await.map_err(|error| (words, error))?;
        let key = words.replace(' ', "_");
        let size = i64::try_from(page.entities.len()).unwrap_or(i64::MAX);
        details.insert(format!("{key}_accessible"), Json::Bool(true));
        details.insert(format!("{key}_count"), Json::Int(size));
    }
    Ok(details)
}
