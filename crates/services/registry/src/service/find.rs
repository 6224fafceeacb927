//! Finding one entity by name or external id.

use super::{Registry, parse_id, type_mismatch};
use crate::error::Error;
use crate::model::{Entity, Kind};
use crate::store::{ByName, Query, Session, StoreError, Types};

/// The query parameters of a find, as sent; empty means absent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Find<'a> {
    pub(crate) name: &'a str,
    pub(crate) parent: &'a str,
    pub(crate) external_id: &'a str,
}

/// How a kind is found, and how messages put it.
struct Rules {
    kinds: &'static [Kind],
    has_parent: bool,
    supply: &'static str,
    parent_id: &'static str,
    parent_label: &'static str,
    none: &'static str,
    several: &'static str,
}

const BY_NAME: &str = "name or externalId";
const BY_PARENT: &str = "(name and parentResourceId), or externalId";

fn rules(kind: Kind) -> Option<Rules> {
    let top = Rules {
        kinds: &[],
        has_parent: false,
        supply: BY_NAME,
        parent_id: "parent resource",
        parent_label: "parentResourceId",
        none: "",
        several: "",
    };
    let child = Rules { has_parent: true, supply: BY_PARENT, ..top };
    Some(match kind {
        Kind::RegisteredModel => Rules {
            kinds: &[Kind::RegisteredModel],
            none: "registered models",
            several: "registered models",
            ..top
        },
        Kind::Experiment => {
            Rules { kinds: &[Kind::Experiment], none: "experiments", several: "experiments", ..top }
        }
        Kind::ServingEnvironment => Rules {
            kinds: &[Kind::ServingEnvironment],
            none: "serving environment",
            several: "serving environments",
            ..top
        },
        Kind::ModelVersion => Rules {
            kinds: &[Kind::ModelVersion],
            parent_id: "registered model",
            none: "model versions",
            several: "model versions",
            ..child
        },
        Kind::InferenceService => Rules {
            kinds: &[Kind::InferenceService],
            none: "inference service",
            several: "inference services",
            ..child
        },
        Kind::ExperimentRun => Rules {
            kinds: &[Kind::ExperimentRun],
            supply: "(name and experimentId), or externalId",
            parent_id: "experiment",
            parent_label: "experimentId",
            none: "experiment runs",
            several: "experiment runs",
            ..child
        },
        _ => return None,
    })
}

const ARTIFACT: Rules = Rules {
    kinds: &Kind::ARTIFACTS,
    has_parent: true,
    supply: "(artifactName and parentResourceId), or externalId",
    parent_id: "parent resource",
    parent_label: "parentResourceId",
    none: "artifacts",
    several: "artifacts",
};

impl Registry {
    /// The one entity of `kind` that matches.
    pub(crate) async fn find(&self, kind: Kind, find: &Find<'_>) -> Result<Entity, Error> {
        let rules = rules(kind).ok_or_else(|| Error::Internal(format!("{kind:?} cannot be searched for")))?;
        self.find_by(&rules, find).await
    }

    /// The one artifact that matches, of whatever kind.
    pub(crate) async fn find_artifact(&self, find: &Find<'_>) -> Result<Entity, Error> {
        self.find_by(&ARTIFACT, find).await
    }

    /// The one artifact that matches, which must be a model artifact.
    pub(crate) async fn find_model_artifact(&self, find: &Find<'_>) -> Result<Entity, Error> {
        let rules = Rules { none: "model artifacts", several: "model artifacts", ..ARTIFACT };
        let artifact = self.find_by(&rules, find).await?;
        if artifact.kind == Kind::ModelArtifact {
            return Ok(artifact);
        }
        let Find { name, parent, external_id } = find;
        let what = format!("artifact with name={name}, parentResourceId={parent}, externalId={external_id}");
        Err(Error::not_found(format!("{what} is not a model artifact")))
    }

    async fn find_by(&self, rules: &Rules, find: &Find<'_>) -> Result<Entity, Error> {
        let query = query(rules, find)?;
        let types = self.database.types.clone();
        let found = self
            .database
            .read(move |session| Box::pin(async move { Ok(session.list(&types, &query).await?) }))
            .await;
        only(rules, find, found.map_err(|error| incomparable(rules, error))?)
    }
}

/// The refusal of a name that is no pattern.
fn incomparable(rules: &Rules, error: Error) -> Error {
    match (error, rules.kinds) {
        (Error::Store(StoreError::Data(_)), [kind]) => type_mismatch(kind.words_of_store()),
        (Error::Store(StoreError::Data(_)), _) => type_mismatch("artifact"),
        (other, _) => other,
    }
}

/// Finds the artifact called `name` under `parent`, of any kind, for an upsert by name.
pub(super) async fn artifact_by_name(
    session: &mut Session,
    types: &Types,
    name: &str,
    parent: &str,
) -> Result<Option<Entity>, Error> {
    let find = Find { name, parent, external_id: "" };
    let query = query(&ARTIFACT, &find)?;
    let found = session.list(types, &query).await;
    let found = found.map_err(|error| incomparable(&ARTIFACT, error.into()))?;
    match only(&ARTIFACT, &find, found) {
        Ok(entity) => Ok(Some(entity)),
        Err(Error::NotFound(_)) => Ok(None),
        Err(other) => Err(other),
    }
}

fn query(rules: &Rules, find: &Find<'_>) -> Result<Query, Error> {
    let has_name = !find.name.is_empty() && (!rules.has_parent || !find.parent.is_empty());
    if !has_name && find.external_id.is_empty() {
        return Err(Error::bad_request(format!("invalid parameters call, supply either {}", rules.supply)));
    }
    let mut query = Query::new(rules.kinds);
    if rules.has_parent && !find.parent.is_empty() {
        query.parent = Some(parse_id(find.parent, rules.parent_id)?);
    }
    query.by_name = Some(if find.name.is_empty() {
        ByName::ExternalId(find.external_id.to_owned())
    } else {
        ByName::Name(match query.parent {
            _ if !rules.has_parent => find.name.to_owned(),
            // Artifacts may have another prefix than the parent they are found under.
            Some(parent) if rules.kinds.len() == 1 => format!("{parent}:{}", find.name),
            _ => format!("%:{}", find.name),
        })
    });
    // Two are enough to know that there are several.
    query.page.size = 1;
    Ok(query)
}

fn only(rules: &Rules, find: &Find<'_>, mut found: Vec<Entity>) -> Result<Entity, Error> {
    let parent =
        if rules.has_parent { format!("{}={}, ", rules.parent_label, find.parent) } else { String::new() };
    let what = format!("found for name={}, {parent}externalId={}", find.name, find.external_id);
    match found.pop() {
        None => Err(Error::not_found(format!("no {} {what}", rules.none))),
        Some(_) if !found.is_empty() => Err(Error::not_found(format!("multiple {} {what}", rules.several))),
        Some(entity) => Ok(entity),
    }
}
