//! Models and their artifacts.

use super::api::{is_found, labelled, parts};
use super::encode;
use super::filter::Filter;
use super::item::{Item, ItemKind, Value};
use super::load::Catalog;
use super::page::{Cursor, List, Page, size};
use super::recommend::Wish;
use super::sources::AssetType;
use crate::api::query::Query;
use crate::error::Error;
use crate::filter::pattern;
use crate::json::Json;

/// What `q` is looked for in, besides the name.
const SEARCHED: [&str; 4] = ["description", "provider", "tasks", "validated_tasks"];
const PERFORMANCE: &str = "performance-metrics";

/// The list of models.
pub(crate) fn list(catalog: &Catalog, query: &Query) -> Result<Json, Error> {
    let wish = Wish::read(query)?;
    let is_recommendation = wish.is_recommendation || query.get("orderBy") == "RECOMMENDED";
    let page_size = size(query)?;
    let offset = if is_recommendation { offset(query)? } else { 0 };
    if !is_recommendation {
        Cursor::read(query)?;
    }
    let sources = parts(query, "source");
    if !sources.is_empty() && !query.get("sourceLabel").is_empty() {
        return Err(Error::BadRequest("source and sourceLabel cannot be used together".to_owned()));
    }
    let sources =
        if sources.is_empty() { labelled(catalog, AssetType::Models, query) } else { Some(sources) };
    let Some(sources) = sources else {
        return Ok(encode::page(&Page::<()>::empty(page_size), |()| Json::Null));
    };
    let search = query.get("q");
    let found = catalog
        .models
        .iter()
        .filter(|it| is_found(it, search, &SEARCHED) && (sources.is_empty() || sources.contains(&it.source)));
    let page = if is_recommendation {
        recommended(found, query, &wish.into_recommendation(), offset, page_size)?
    } else {
        List::read(query, ItemKind::Model, "NAME")?.page(found)
    };
    Ok(encode::page(&page, |model| Json::Object(encode::encode(model))))
}

/// The token of a list by recommendation is a number: where the page starts.
fn offset(query: &Query) -> Result<usize, Error> {
    match query.get("nextPageToken") {
        "" => Ok(0),
        token => token.parse().map_err(|_| {
            Error::BadRequest(
                "invalid nextPageToken: it is no number, as in lists by recommendation".to_owned(),
            )
        }),
    }
}

/// Models by the best latency among their recommended measurements; those without any are last.
fn recommended<'a>(
    models: impl Iterator<Item = &'a Item>,
    query: &Query,
    wish: &Wish,
    offset: usize,
    page_size: i32,
) -> Result<Page<&'a Item>, Error> {
    let filter = Filter::parse(query.get("filterQuery"), ItemKind::Model)?;
    let conditions = filter.as_ref().map(Filter::artifact_conditions).unwrap_or_default();
    let mut models: Vec<(Option<f64>, &Item)> = models
        .filter(|model| filter.as_ref().is_none_or(|filter| filter.accepts(model)))
        .map(|model| {
            let measurements = measurements(model).filter(|it| conditions.iter().all(|one| one.accepts(it)));
            (wish.best_latency(measurements.cloned().collect()), model)
        })
        .collect();
    models.sort_by(|(left, _), (right, _)| match (left, right) {
        (Some(left), Some(right)) => left.total_cmp(right),
        (left, right) => left.is_none().cmp(&right.is_none()),
    });
    let total = models.len();
    let size = usize::try_from(page_size).unwrap_or_default();
    let items: Vec<&Item> = models.into_iter().skip(offset).take(size).map(|(_, model)| model).collect();
    let end = offset.saturating_add(items.len());
    let next_page_token = if end < total { end.to_string() } else { String::new() };
    Ok(Page { items, next_page_token, size: page_size })
}

/// Finds a model. A name with wildcards finds the only model it fits, as upstream's look-up does.
pub(crate) fn find<'a>(catalog: &'a Catalog, source: &str, name: &str) -> Result<&'a Item, Error> {
    let stored = format!("{source}:{name}");
    let of_source = || catalog.models.iter().filter(|it| it.source == source);
    let exact = of_source().find(|it| it.stored_name.as_deref() == Some(stored.as_str()));
    let similar = || {
        let fits = |it: &&Item| it.stored_name.as_deref().is_some_and(|it| pattern::matches(&stored, it));
        let mut fitting = of_source().filter(fits);
        fitting.next().filter(|_| fitting.next().is_none())
    };
    exact.or_else(similar).ok_or_else(|| missing(source, name))
}

fn missing(source: &str, name: &str) -> Error {
    Error::NotFound(format!("No model found '{name}' in source '{source}'"))
}

/// The artifacts of a model.
pub(crate) fn artifacts(catalog: &Catalog, source: &str, name: &str, query: &Query) -> Result<Json, Error> {
    let mut types = Vec::new();
    for parameter in ["artifactType", "artifact_type"] {
        for ty in parts(query, parameter) {
            let kinds = [ItemKind::ModelArtifact, ItemKind::MetricsArtifact];
            let Some(kind) = kinds.into_iter().find(|it| it.artifact_type() == Some(ty.as_str())) else {
                let why = format!("invalid value '{ty}' for ArtifactTypeQueryParam");
                let valid = "valid values are [model-artifact metrics-artifact]";
                return Err(Error::BadRequest(format!("{parameter}: {why}: {valid}")));
            };
            types.push(kind);
        }
    }
    size(query)?;
    Cursor::read(query)?;
    let unknown = |_| Error::bad_request(format!("invalid model name '{name}' for source '{source}'"));
    let model = find(catalog, source, name).map_err(unknown)?;
    let list = List::read(query, ItemKind::ModelArtifact, "ID")?;
    let of_type = model.children.iter().filter(|it| types.is_empty() || types.contains(&it.kind));
    Ok(encode::page(&list.page(of_type), |it| Json::Object(encode::encode(it))))
}

fn measurements(model: &Item) -> impl Iterator<Item = &Item> {
    let is_measurement =
        |it: &&Item| it.property("metricsType") == Some(&Value::Text(PERFORMANCE.to_owned()));
    model.children.iter().filter(is_measurement)
}

/// The measurements of a model, or those worth a look.
pub(crate) fn performance(catalog: &Catalog, source: &str, name: &str, query: &Query) -> Result<Json, Error> {
    let wish = Wish::read(query)?;
    let page_size = size(query)?;
    let cursor = Cursor::read(query)?;
    let model = find(catalog, source, name)?;
    let list = List::read(query, ItemKind::MetricsArtifact, "")?;
    let page = if wish.is_recommendation {
        let all = list.unpaged().page(measurements(model));
        let mut all: Vec<Item> = all.items.into_iter().cloned().collect();
        wish.check(&all)?;
        wish.add_replicas(&mut all);
        let mut kept = wish.recommended(all);
        if let Some(cursor) = cursor {
            let after = kept.iter().position(|it| it.id == cursor.id).map_or(kept.len(), |at| at + 1);
            kept.drain(..after);
        }
        let limit = usize::try_from(page_size).unwrap_or_default();
        let has_more = kept.len() > limit;
        kept.truncate(limit);
        let last = kept.last().filter(|_| has_more).map(|it| it.id);
        let token = last.map(|id| Cursor { id, value: String::new() }.encode());
        Page { items: kept, next_page_token: token.unwrap_or_default(), size: page_size }
    } else {
        let Page { items, next_page_token, size } = list.page(measurements(model));
        let mut items: Vec<Item> = items.into_iter().cloned().collect();
        wish.check(&items)?;
        wish.add_replicas(&mut items);
        Page { items, next_page_token, size }
    };
    Ok(encode::page(&page, |it| Json::Object(encode::encode(it))))
}
