//! Models and their artifacts.

use super::api::{is_found, labelled, parts, types as artifact_types};
use super::encode;
use super::filter::Filter;
use super::item::{Item, ItemKind, Value};
use super::load::Catalog;
use super::page::{Cursor, List, Page, size};
use super::recommend::{Wish, flag};
use super::sources::AssetType;
use crate::api::query::Query;
use crate::error::Error;
use crate::filter::pattern;
use crate::json::Json;
use crate::text;

/// What `q` is looked for in, besides the name.
const SEARCHED: [&str; 4] = ["description", "provider", "tasks", "validated_tasks"];
const PERFORMANCE: &str = "performance-metrics";

/// The list of models.
pub(crate) fn list(catalog: &Catalog, query: &Query) -> Result<Json, Error> {
    // This one is read before the others here, and after them in the list of measurements.
    flag(query, "recommendations")?;
    let wish = Wish::read(query)?;
    let is_recommendation = wish.is_recommendation || query.get("orderBy") == "RECOMMENDED";
    let page_size = size(query)?;
    let offset = if is_recommendation { offset(query)? } else { 0 };
    if !is_recommendation {
        Cursor::read(query)?;
    }
    let mut sources = parts(query, "source");
    if !sources.is_empty() && !query.get("sourceLabel").is_empty() {
        return Err(Error::BadRequest("source and sourceLabel cannot be used together".to_owned()));
    }
    let is_named = !sources.is_empty();
    sources.retain(|it| !it.is_empty());
    let sources = if is_named { Some(sources) } else { labelled(catalog, AssetType::Models, query) };
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
    let token = query.get("nextPageToken");
    if token.is_empty() {
        return Ok(0);
    }
    let is_number = token.bytes().all(|it| it.is_ascii_digit());
    let offset = token.parse::<i32>().ok().filter(|_| is_number).and_then(|it| usize::try_from(it).ok());
    offset.ok_or_else(|| {
        let token = text::quoted(token);
        let why = if is_number { "value out of range" } else { "invalid syntax" };
        Error::BadRequest(format!(
            "invalid nextPageToken: must be a non-negative integer (0..{}), got {token}: strconv.ParseUint: parsing {token}: {why}",
            i32::MAX
        ))
    })
}

/// Models by the best latency among their recommended measurements; those without any are last.
fn recommended<'a>(
    models: impl Iterator<Item = &'a Item>,
    query: &Query,
    wish: &Wish,
    offset: usize,
    page_size: i32,
) -> Result<Page<&'a Item>, Error> {
    const CONTEXT: &str = "failed to find models with recommended latency: failed to fetch models";
    let conditions = query.get("filterQuery");
    let filter = Filter::parse(conditions, ItemKind::Model).map_err(|error| match error {
        Error::BadRequest(why) => Error::BadRequest(format!("{CONTEXT}: {why}")),
        other => other,
    })?;
    // As upstream (FindModelsWithRecommendedLatency), which asks the measurements all that is asked of the models.
    let of_measurements = Filter::parse(&conditions.replace("artifacts.", ""), ItemKind::MetricsArtifact);
    let best_latency = |model: &Item| {
        let filter = of_measurements.as_ref().ok()?.as_ref();
        let measurements = measurements(model).filter(|it| filter.is_none_or(|filter| filter.accepts(it)));
        wish.best_latency(measurements.cloned().collect())
    };
    let mut models: Vec<(Option<f64>, &Item)> = models
        .filter(|model| filter.as_ref().is_none_or(|filter| filter.accepts(model)))
        .map(|model| (best_latency(model), model))
        .collect();
    let is_descending = query.get("sortOrder").eq_ignore_ascii_case("DESC");
    models.sort_by(|(left, _), (right, _)| match (left, right) {
        (Some(left), Some(right)) if is_descending => right.total_cmp(left),
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
    if name.contains('\0') {
        // As upstream's database refuses it.
        let why = "invalid filter query, type mismatch or invalid value in comparison";
        return Err(Error::bad_request(format!("error listing catalog models: {why}")));
    }
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
        for ty in artifact_types(query, parameter) {
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
    // As upstream (buildPerformanceFilterQuery); positions in messages count the parentheses.
    let filter = match query.get("filterQuery") {
        "" => String::new(),
        filter => format!("({filter}) AND (metricsType.string_value = '{PERFORMANCE}')"),
    };
    // What is recommended has tokens of its own, without a value.
    let order = if wish.is_recommendation { "" } else { "ID" };
    let list =
        List::filtered(query, ItemKind::MetricsArtifact, order, &filter).map_err(|error| match error {
            Error::BadRequest(why) => Error::BadRequest(format!(
                "failed to get performance artifacts: failed to list artifacts: {why}"
            )),
            other => other,
        })?;
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
