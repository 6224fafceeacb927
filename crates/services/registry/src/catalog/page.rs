//! Order and pages of lists.

use std::cmp::Ordering;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::filter::{Filter, compare, property_value, type_mismatch};
use super::item::{Item, ItemKind};
use crate::api::query::Query;
use crate::error::Error;
use crate::filter::{Operand, PropertyColumn};
use crate::text;

/// The size of a page, if none is asked for.
const DEFAULT_SIZE: i32 = 10;
/// Tokens are never longer; what is longer was not made here.
const MAX_TOKEN: usize = 1024;

/// A page of items.
#[derive(Debug)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next_page_token: String,
    pub(crate) size: i32,
}

impl<T> Page<T> {
    pub(crate) fn empty(size: i32) -> Self {
        Self { items: Vec::new(), next_page_token: String::new(), size }
    }
}

fn refusal(why: String) -> Error {
    Error::BadRequest(why)
}

/// The size of the page that a query asks for.
pub(crate) fn size(query: &Query) -> Result<i32, Error> {
    read_size(query, "invalid pageSize")
}

fn read_size(query: &Query, context: &str) -> Result<i32, Error> {
    match query.get("pageSize") {
        "" => Ok(DEFAULT_SIZE),
        digits => match text::int32(digits) {
            Ok(size) if size < 1 => Err(refusal(format!("pageSize must be at least 1, got {size}"))),
            Ok(size) => Ok(size),
            Err(why) => Err(refusal(format!("{context}: {why}"))),
        },
    }
}

/// The last item of the page before: its id, and the value that the list is ordered by.
#[derive(Debug, Clone)]
pub(crate) struct Cursor {
    pub(crate) id: i32,
    pub(crate) value: String,
}

impl Cursor {
    /// Reads the token of a query.
    pub(crate) fn read(query: &Query) -> Result<Option<Self>, Error> {
        let token = query.get("nextPageToken");
        if token.is_empty() {
            return Ok(None);
        }
        let malformed = |why: String| refusal(format!("invalid nextPageToken: {why}"));
        if token.len() > MAX_TOKEN {
            return Err(malformed("invalid cursor format".to_owned()));
        }
        let decoded = text::base64_decode(token).map_err(malformed)?;
        let decoded = String::from_utf8_lossy(&decoded).into_owned();
        let (id, value) =
            decoded.split_once(':').ok_or_else(|| malformed("invalid cursor format".to_owned()))?;
        Ok(Some(Self { id: text::int32(id).map_err(malformed)?, value: value.to_owned() }))
    }

    pub(crate) fn encode(&self) -> String {
        STANDARD.encode(format!("{}:{}", self.id, self.value))
    }
}

/// What a list of items is ordered by.
#[derive(Debug, Clone, PartialEq)]
enum Order {
    Id,
    Created,
    Updated,
    /// The name as clients see it, or as it is stored.
    Name,
    Property(String, PropertyColumn),
    /// The least value among a model's artifacts, or the greatest if the order is descending.
    Artifacts(String, PropertyColumn),
}

impl Order {
    fn read(order_by: &str, kind: ItemKind) -> Result<Self, Error> {
        let order_by = if order_by == "ACCURACY" && kind == ItemKind::Model {
            "artifacts.overall_average.double_value"
        } else {
            order_by
        };
        match order_by {
            "CREATE_TIME" => return Ok(Self::Created),
            "LAST_UPDATE_TIME" => return Ok(Self::Updated),
            // Tools are not ordered by name.
            "NAME" if kind == ItemKind::Tool => return Ok(Self::Id),
            "NAME" => return Ok(Self::Name),
            _ => {}
        }
        let of_artifacts = matches!(kind, ItemKind::ModelArtifact | ItemKind::MetricsArtifact);
        let by_property = of_artifacts || kind == ItemKind::Model;
        let column = |name: &str| PropertyColumn::from_suffix(name).filter(|it| *it != PropertyColumn::Bool);
        Ok(match order_by.split('.').collect::<Vec<_>>().as_slice() {
            ["artifacts", name, ty] if kind == ItemKind::Model => {
                column(ty).map_or(Self::Id, |column| Self::Artifacts((*name).to_owned(), column))
            }
            [name, ty] if by_property => match column(ty) {
                Some(_) if of_artifacts && (name.is_empty() || name.len() > 255) => {
                    return Err(Error::bad_request(format!("invalid custom property name '{name}'")));
                }
                Some(column) => Self::Property((*name).to_owned(), column),
                None if of_artifacts => {
                    let valid = "must be one of 'int_value', 'double_value', or 'string_value'";
                    let why = format!("invalid custom property value type '{ty}': {valid}");
                    return Err(Error::bad_request(why));
                }
                None => Self::Id,
            },
            _ => Self::Id,
        })
    }
}

/// The order and the part of a list that a query asks for.
#[derive(Debug)]
pub(crate) struct List {
    kind: ItemKind,
    pub(crate) size: i32,
    order: Order,
    /// Whether tokens have a value: without `orderBy`, those of some lists have none.
    has_value: bool,
    is_descending: bool,
    cursor: Option<Cursor>,
    filter: Option<Filter>,
}

impl List {
    /// Reads the parameters of a list of items of this kind.
    pub(crate) fn read(query: &Query, kind: ItemKind, default_order: &str) -> Result<Self, Error> {
        Self::filtered(query, kind, default_order, query.get("filterQuery"))
    }

    /// The same with a filter that is not that of the query as it is.
    pub(crate) fn filtered(
        query: &Query,
        kind: ItemKind,
        default_order: &str,
        filter: &str,
    ) -> Result<Self, Error> {
        let size = size(query)?;
        let cursor = Cursor::read(query)?;
        let filter = Filter::parse(filter, kind)?;
        let order_by = match query.get("orderBy") {
            "" => default_order,
            given => given,
        };
        let ignores_case =
            !matches!(kind, ItemKind::Model | ItemKind::ModelArtifact | ItemKind::MetricsArtifact);
        let upper = |text: &str| if ignores_case { text.to_uppercase() } else { text.to_owned() };
        let order = Order::read(&upper(order_by), kind)?;
        let sort_order = upper(query.get("sortOrder"));
        let is_descending = match order {
            // By a property, everything but ASC is descending.
            Order::Property(..) | Order::Artifacts(..) => !matches!(sort_order.as_str(), "" | "ASC"),
            _ => sort_order == "DESC",
        };
        let list = Self { kind, size, order, has_value: !order_by.is_empty(), is_descending, cursor, filter };
        list.check_cursor()?;
        Ok(list)
    }

    /// The same list in one page.
    pub(crate) fn unpaged(self) -> Self {
        Self { size: i32::MAX, cursor: None, ..self }
    }

    /// Adds a condition.
    pub(crate) fn require(&mut self, filter: Filter) {
        self.filter = Some(match self.filter.take() {
            Some(existing) => Filter::All(vec![existing, filter]),
            None => filter,
        });
    }

    pub(crate) fn accepts(&self, item: &Item) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.accepts(item))
    }

    /// The page of those of `items` that pass.
    pub(crate) fn page<'a>(&self, items: impl Iterator<Item = &'a Item>) -> Page<&'a Item> {
        let mut items: Vec<&Item> = items.filter(|item| self.accepts(item)).collect();
        items.sort_by(|left, right| self.compare(left, right));
        if let Some(cursor) = &self.cursor {
            items.retain(|item| self.is_after(item, cursor));
        }
        let size = usize::try_from(self.size).unwrap_or_default();
        let next_page_token = match (items.len() > size, size.checked_sub(1).and_then(|at| items.get(at))) {
            (true, Some(last)) => self.token(last),
            _ => String::new(),
        };
        items.truncate(size);
        Page { items, next_page_token, size: self.size }
    }

    /// What an item is ordered by; nothing sorts behind everything.
    fn key(&self, item: &Item) -> Option<Operand> {
        match &self.order {
            Order::Id => Some(Operand::Int(i64::from(item.id))),
            Order::Created => Some(Operand::Int(item.created)),
            Order::Updated => Some(Operand::Int(item.updated)),
            Order::Name => self.ordered_name(item).map(|name| Operand::Text(name.to_owned())),
            Order::Property(name, column) => {
                let values = item.properties.iter().filter(|it| it.name == *name);
                values.filter_map(|it| property_value(*column, &it.value)).max_by(order_values)
            }
            Order::Artifacts(name, column) => {
                let conditions = self.filter.as_ref().map(Filter::artifact_conditions).unwrap_or_default();
                let counted = item.children.iter().filter(|it| conditions.iter().all(|one| one.accepts(it)));
                let values = counted.flat_map(|artifact| &artifact.properties).filter(|it| it.name == *name);
                let values = values.filter_map(|it| property_value(*column, &it.value));
                if self.is_descending { values.max_by(order_values) } else { values.min_by(order_values) }
            }
        }
    }

    /// Servers are ordered by the name with the version, agents by that with the source; the others by the name that
    /// is shown.
    fn ordered_name<'a>(&self, item: &'a Item) -> Option<&'a str> {
        match self.kind {
            ItemKind::McpServer | ItemKind::Agent => item.stored_name.as_deref(),
            _ => item.name(),
        }
    }

    fn compare(&self, left: &Item, right: &Item) -> Ordering {
        let is_by_property = matches!(self.order, Order::Property(..) | Order::Artifacts(..));
        let by_key = match (self.key(left), self.key(right)) {
            (Some(left), Some(right)) => self.directed(order_values(&left, &right)),
            (None, None) => Ordering::Equal,
            // Nothing sorts last by a property; by a name, it is greater than any.
            (left, right) if is_by_property => left.is_none().cmp(&right.is_none()),
            (left, right) => self.directed(left.is_none().cmp(&right.is_none())),
        };
        by_key.then_with(|| self.compare_ids(left.id, right.id))
    }

    /// Equal values are ordered by id, upwards but for the standard orders.
    fn compare_ids(&self, left: i32, right: i32) -> Ordering {
        match self.order {
            Order::Id | Order::Created | Order::Updated => self.directed(left.cmp(&right)),
            _ => left.cmp(&right),
        }
    }

    fn directed(&self, ordering: Ordering) -> Ordering {
        if self.is_descending { ordering.reverse() } else { ordering }
    }

    fn is_of_artifacts(&self) -> bool {
        matches!(self.kind, ItemKind::ModelArtifact | ItemKind::MetricsArtifact)
    }

    fn check_cursor(&self) -> Result<(), Error> {
        let Some(cursor) = &self.cursor else { return Ok(()) };
        let is_number = match self.order {
            Order::Id | Order::Created | Order::Updated => {
                cursor.value.is_empty() && !self.has_value || cursor.value.parse::<i64>().is_ok()
            }
            // In lists of artifacts, the database compares the property with the token; elsewhere, texts with texts.
            Order::Property(_, PropertyColumn::Int | PropertyColumn::Double) if self.is_of_artifacts() => {
                cursor.value.is_empty() || cursor.value.parse::<f64>().is_ok()
            }
            _ => true,
        };
        if is_number { Ok(()) } else { Err(type_mismatch(self.kind)) }
    }

    fn is_after(&self, item: &Item, cursor: &Cursor) -> bool {
        let by_id = self.compare_ids(item.id, cursor.id).is_gt();
        let Some(key) = self.key(item) else {
            // Items without a value are last: after one that has a value, all of them follow.
            return !cursor.value.is_empty() || by_id;
        };
        let value = match &key {
            Operand::Int(_) if cursor.value.is_empty() => return by_id && self.order == Order::Id,
            Operand::Int(_) => cursor.value.parse().ok().map(Operand::Int),
            Operand::Double(_) => cursor.value.parse().ok().map(Operand::Double),
            Operand::Text(_) => Some(Operand::Text(cursor.value.clone())),
            Operand::Bool(_) => None,
        };
        let Some(value) = value else { return false };
        self.directed(order_values(&key, &value)).then_with(|| self.compare_ids(item.id, cursor.id)).is_gt()
    }

    fn token(&self, last: &Item) -> String {
        let value = match self.key(last) {
            _ if !self.has_value => String::new(),
            Some(Operand::Int(number)) => number.to_string(),
            Some(Operand::Double(number)) => format!("{number:.15}"),
            Some(Operand::Text(text)) => text,
            Some(Operand::Bool(flag)) => flag.to_string(),
            None if self.order == Order::Name => last.id.to_string(),
            None => String::new(),
        };
        Cursor { id: last.id, value }.encode()
    }
}

fn order_values(left: &Operand, right: &Operand) -> Ordering {
    compare(left, right).unwrap_or(Ordering::Equal)
}

/// A list of things with a text as their id: sources, labels, names of a preview.
pub(crate) struct Texts<'a> {
    pub(crate) size: i32,
    cursor: Option<(String, String)>,
    pub(crate) order_by: &'a str,
    pub(crate) sort_order: &'a str,
}

impl<'a> Texts<'a> {
    /// Reads the parameters of such a list; `by_field` if it can only be ordered by fields.
    pub(crate) fn read(query: &'a Query, by_field: bool) -> Result<Self, Error> {
        const FIELDS: [&str; 5] = ["CREATE_TIME", "LAST_UPDATE_TIME", "ID", "NAME", "RECOMMENDED"];
        let (order_by, sort_order) = (query.get("orderBy"), query.get("sortOrder"));
        if by_field && !order_by.is_empty() && !FIELDS.contains(&order_by) {
            return Err(refusal(format!("unsupported order by field: {order_by}")));
        }
        if !matches!(sort_order, "" | "ASC" | "DESC") {
            return Err(refusal(format!("unsupported sort order field: {sort_order}")));
        }
        let size = read_size(query, "error converting page size to int32")?;
        let cursor = match query.get("nextPageToken") {
            "" => None,
            token => {
                let malformed = |why: String| refusal(format!("invalid nextPageToken: {why}"));
                let decoded = text::base64_decode(token)
                    .map_err(|why| malformed(format!("invalid token encoding: {why}")))?;
                let decoded = String::from_utf8_lossy(&decoded).into_owned();
                let (value, id) =
                    decoded.split_once(':').ok_or_else(|| malformed("invalid token format".to_owned()))?;
                Some((value.to_owned(), id.to_owned()))
            }
        };
        Ok(Self { size, cursor, order_by, sort_order })
    }

    /// The page of `items`, which are in order. `position` gives the value they are ordered by, and their id.
    pub(crate) fn page<T>(&self, items: Vec<T>, position: impl Fn(&T) -> (String, String)) -> Page<T> {
        let start = match &self.cursor {
            Some(cursor) => items.iter().position(|item| position(item) == *cursor).map_or(0, |at| at + 1),
            None => 0,
        };
        let size = usize::try_from(self.size).unwrap_or_default();
        let has_more = items.len() > start + size;
        let items: Vec<T> = items.into_iter().skip(start).take(size).collect();
        let next_page_token = match items.last().filter(|_| has_more).map(position) {
            Some((value, id)) => STANDARD.encode(format!("{value}:{id}")),
            None => String::new(),
        };
        Page { items, next_page_token, size: self.size }
    }
}
