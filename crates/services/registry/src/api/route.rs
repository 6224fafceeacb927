//! The paths of the registry's API.

use http::Method;

use super::query;
use crate::model::Kind;
use crate::service::Parent;

/// What a path leads to. An id is carried beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// `/registered_model?name=`
    Find(Kind),
    FindArtifact,
    FindModelArtifact,
    /// `/registered_models`
    Collection(Kind),
    Artifacts,
    ModelArtifacts,
    /// `/registered_models/{id}`
    One(Kind),
    Artifact,
    ModelArtifact,
    /// `/registered_models/{id}/versions`: children of this kind.
    Children(Kind),
    ArtifactsOf(Parent),
    ServedModel,
    ServedVersion,
    MetricHistory,
    MetricHistoryOf,
}

impl Route {
    pub(crate) fn methods(self) -> &'static [&'static Method] {
        match self {
            Self::Collection(_)
            | Self::Artifacts
            | Self::ModelArtifacts
            | Self::Children(_)
            | Self::ArtifactsOf(_) => &[&Method::GET, &Method::POST],
            // A run cannot be called so, but its path is that of one.
            Self::One(_) | Self::Artifact | Self::ModelArtifact | Self::MetricHistory => {
                &[&Method::GET, &Method::PATCH]
            }
            _ => &[&Method::GET],
        }
    }

    /// What it lists, as messages call one of them.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Find(kind) | Self::Collection(kind) | Self::One(kind) | Self::Children(kind) => {
                kind.words_of_store()
            }
            Self::ModelArtifacts => Kind::ModelArtifact.words_of_store(),
            Self::MetricHistory | Self::MetricHistoryOf => Kind::MetricHistory.words_of_store(),
            _ => "artifact",
        }
    }

    /// What the id in a path belongs to that leads to something of an entity.
    pub(crate) fn owner(self) -> Option<Kind> {
        Some(match self {
            Self::Children(Kind::ModelVersion) => Kind::RegisteredModel,
            Self::Children(Kind::InferenceService) => Kind::ServingEnvironment,
            Self::Children(Kind::ExperimentRun) => Kind::Experiment,
            Self::Children(_) | Self::ServedModel | Self::ServedVersion => Kind::InferenceService,
            Self::ArtifactsOf(Parent::ModelVersion) => Kind::ModelVersion,
            Self::ArtifactsOf(Parent::ExperimentRun) | Self::MetricHistoryOf => Kind::ExperimentRun,
            _ => return None,
        })
    }

    /// Whether only the alpha version of the API has it.
    fn is_experimental(self) -> bool {
        match self {
            Self::Find(kind) | Self::Collection(kind) | Self::One(kind) | Self::Children(kind) => {
                matches!(kind, Kind::Experiment | Kind::ExperimentRun)
            }
            Self::ArtifactsOf(Parent::ExperimentRun) | Self::MetricHistory | Self::MetricHistoryOf => true,
            _ => false,
        }
    }
}

/// The alpha version of the API.
const ALPHA: &str = "/api/model_registry/v1alpha3/";

/// Whether a path is one of the alpha version.
pub(crate) fn is_alpha(path: &str) -> bool {
    path.starts_with(ALPHA)
}

/// Finds the route of a path, and the id in it.
pub(crate) fn find(path: &str) -> Option<(Route, String)> {
    let rest = path.strip_prefix(ALPHA).or_else(|| path.strip_prefix("/api/model_registry/v1/"))?;
    let segments: Vec<&str> = rest.split('/').collect();
    let (route, id) = match segments.as_slice() {
        [name] => (top(name)?, ""),
        ["experiment_runs", "metric_history"] => (Route::MetricHistory, ""),
        [collection, id] if !id.is_empty() => (one(collection)?, *id),
        [collection, id, children] => (below(collection, children)?, *id),
        _ => return None,
    };
    if route.is_experimental() && !is_alpha(path) {
        return None;
    }
    Some((route, query::segment(id, query::is_plain_path(path)?)))
}

fn top(name: &str) -> Option<Route> {
    Some(match name {
        "registered_model" => Route::Find(Kind::RegisteredModel),
        "model_version" => Route::Find(Kind::ModelVersion),
        "serving_environment" => Route::Find(Kind::ServingEnvironment),
        "inference_service" => Route::Find(Kind::InferenceService),
        "experiment" => Route::Find(Kind::Experiment),
        "experiment_run" => Route::Find(Kind::ExperimentRun),
        "artifact" => Route::FindArtifact,
        "model_artifact" => Route::FindModelArtifact,
        "artifacts" => Route::Artifacts,
        "model_artifacts" => Route::ModelArtifacts,
        collection => Route::Collection(kind_of(collection)?),
    })
}

fn kind_of(collection: &str) -> Option<Kind> {
    Some(match collection {
        "registered_models" => Kind::RegisteredModel,
        "model_versions" => Kind::ModelVersion,
        "serving_environments" => Kind::ServingEnvironment,
        "inference_services" => Kind::InferenceService,
        "experiments" => Kind::Experiment,
        "experiment_runs" => Kind::ExperimentRun,
        _ => return None,
    })
}

fn one(collection: &str) -> Option<Route> {
    Some(match collection {
        "artifacts" => Route::Artifact,
        "model_artifacts" => Route::ModelArtifact,
        collection => Route::One(kind_of(collection)?),
    })
}

fn below(collection: &str, children: &str) -> Option<Route> {
    Some(match (collection, children) {
        ("registered_models", "versions") => Route::Children(Kind::ModelVersion),
        ("serving_environments", "inference_services") => Route::Children(Kind::InferenceService),
        ("experiments", "experiment_runs") => Route::Children(Kind::ExperimentRun),
        ("inference_services", "serves") => Route::Children(Kind::ServeModel),
        ("inference_services", "model") => Route::ServedModel,
        ("inference_services", "version") => Route::ServedVersion,
        ("model_versions", "artifacts") => Route::ArtifactsOf(Parent::ModelVersion),
        ("experiment_runs", "artifacts") => Route::ArtifactsOf(Parent::ExperimentRun),
        ("experiment_runs", "metric_history") => Route::MetricHistoryOf,
        _ => return None,
    })
}
