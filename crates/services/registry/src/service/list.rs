//! Lists.

use super::{EntityPage, Registry, parse_id};
use crate::error::Error;
use crate::filter::{self, Condition, FilterError};
use crate::model::Kind;
use crate::store::{ByName, Page, Query, StoreError};
use crate::text;

/// The query parameters of a list, as sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct List<'a> {
    pub(crate) filter: &'a str,
    pub(crate) page_size: &'a str,
    pub(crate) order_by: &'a str,
    pub(crate) sort_order: &'a str,
    pub(crate) next_page_token: &'a str,
}

impl List<'_> {
    /// Reads the parameters of the page; also checks those of a list that is refused for another reason later.
    pub(crate) fn page(&self) -> Result<Page, Error> {
        Page::new(self.page_size, self.order_by, self.sort_order, self.next_page_token)
            .map_err(Error::bad_request)
    }

    fn condition(&self, kind: Kind, words: &str) -> Result<Option<Condition>, Error> {
        let refuse = |error| match error {
            FilterError::Syntax(why) => Error::bad_request(why),
            FilterError::TypeMismatch => type_mismatch(words),
        };
        let Some(expression) = filter::parse(self.filter).map_err(refuse)? else { return Ok(None) };
        filter::resolve(&expression, kind).map(Some).map_err(refuse)
    }
}

/// The refusal of a comparison that cannot be made, in a list of `words`.
pub(crate) fn type_mismatch(words: &str) -> Error {
    let why = "invalid filter query, type mismatch or invalid value in comparison";
    Error::bad_request(format!("error listing {words}s: {why}"))
}

impl Registry {
    /// A page of the entities of these kinds, which share a table.
    pub(crate) async fn list(
        &self,
        kinds: &[Kind],
        parent: Option<&str>,
        list: &List<'_>,
    ) -> Result<EntityPage, Error> {
        let (filter_kind, words, parent_words) = match kinds {
            [kind] if kind.artifact_type().is_none() => (*kind, kind.words_of_store(), parent_words(*kind)),
            [Kind::MetricHistory] => (Kind::Metric, "metric history", "experiment run"),
            // Without a type, artifacts are filtered by the names of model artifacts.
            [kind] => (*kind, "artifact", "parent resource"),
            _ => (Kind::ModelArtifact, "artifact", "parent resource"),
        };
        let mut query = Query::new(kinds);
        query.page = list.page()?;
        query.parent = parent.map(|parent| parse_id(parent, parent_words)).transpose()?;
        query.condition = list.condition(filter_kind, words)?;
        self.run(query, words).await
    }

    /// A page of the model artifacts, which has no filter.
    pub(crate) async fn model_artifacts(&self, list: &List<'_>) -> Result<EntityPage, Error> {
        let mut query = Query::new(&[Kind::ModelArtifact]);
        query.page = list.page()?;
        self.run(query, Kind::ModelArtifact.words_of_store()).await
    }

    /// A page of the history of metrics, of one run or of all.
    pub(crate) async fn metric_history(
        &self,
        run: Option<&str>,
        name: &str,
        steps: &str,
        list: &List<'_>,
    ) -> Result<EntityPage, Error> {
        let words = Kind::MetricHistory.words_of_store();
        let mut query = Query::new(&[Kind::MetricHistory]);
        query.page = list.page()?;
        query.steps = parse_steps(steps)?;
        if let Some(run) = run {
            let found = self.get(Kind::ExperimentRun, run).await;
            query.parent = Some(found.map_err(|error| in_context(error, "experiment run not found"))?.id);
        }
        query.condition = list.condition(Kind::Metric, words)?;
        query.by_name = (!name.is_empty()).then(|| ByName::Name(format!("%{name}%")));
        self.run(query, words).await
    }

    /// A page of the runs of an experiment, which must exist.
    pub(crate) async fn runs_of(&self, experiment: &str, list: &List<'_>) -> Result<EntityPage, Error> {
        list.page()?;
        self.get(Kind::Experiment, experiment).await?;
        self.list(&[Kind::ExperimentRun], Some(experiment), list).await
    }

    async fn run(&self, query: Query, words: &str) -> Result<EntityPage, Error> {
        if !query.page.is_comparable() {
            return Err(type_mismatch(words));
        }
        let types = self.database.types.clone();
        let page = query.page.clone();
        let mut entities = self
            .database
            .read(move |session| Box::pin(async move { Ok(session.list(&types, &query).await?) }))
            .await
            .map_err(|error| match error {
                Error::Store(StoreError::Data(_)) => type_mismatch(words),
                other => other,
            })?;
        let next_page_token = page.next_token(&mut entities);
        Ok(EntityPage { entities, next_page_token, page_size: page.size })
    }
}

fn parent_words(kind: Kind) -> &'static str {
    match kind {
        Kind::ModelVersion => Kind::RegisteredModel.words(),
        Kind::InferenceService => Kind::ServingEnvironment.words(),
        Kind::ExperimentRun => Kind::Experiment.words(),
        Kind::ServeModel => Kind::InferenceService.words(),
        _ => "parent resource",
    }
}

/// Reads numbers separated by commas; empty parts are skipped.
fn parse_steps(steps: &str) -> Result<Vec<i32>, Error> {
    let parts = steps.split(',').map(str::trim).filter(|part| !part.is_empty());
    let parse = |part: &str| {
        let refused = |_| Error::bad_request(format!("invalid step ID '{part}': must be a valid integer"));
        text::int32(part).map_err(refused)
    };
    parts.map(parse).collect()
}

/// Puts words before a refusal's message.
pub(super) fn in_context(error: Error, context: &str) -> Error {
    match error {
        Error::BadRequest(why) => Error::BadRequest(format!("{context}: {why}")),
        Error::NotFound(why) => Error::NotFound(format!("{context}: {why}")),
        Error::Internal(why) => Error::Internal(format!("{context}: {why}")),
        other => other,
    }
}
