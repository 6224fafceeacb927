//! Pages of a list: order, size and the token of the next page.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::sql::{Sql, Value};
use crate::model::Entity;
use crate::text;

/// Tokens are never longer; what is longer was not made here.
const MAX_TOKEN: usize = 1024;

/// What a list is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The default, also for names that are not known.
    Id,
    CreateTime,
    LastUpdateTime,
}

impl Order {
    pub(crate) fn column(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::CreateTime => "create_time_since_epoch",
            Self::LastUpdateTime => "last_update_time_since_epoch",
        }
    }

    fn value(self, entity: &Entity) -> i64 {
        match self {
            Self::Id => i64::from(entity.id),
            Self::CreateTime => entity.created,
            Self::LastUpdateTime => entity.updated,
        }
    }
}

/// Which part of a list is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    /// The most entities in the page; zero or less means all.
    pub(crate) size: i32,
    pub(crate) order: Order,
    pub(crate) is_descending: bool,
    /// The last entity of the page before: its id, and the value it was sorted by; none if the column cannot be
    /// compared with it.
    pub(crate) after: Option<(i32, Option<i64>)>,
}

impl Page {
    /// Everything, by id.
    pub(crate) fn all() -> Self {
        Self { size: 0, order: Order::Id, is_descending: false, after: None }
    }

    /// Reads the query parameters of a list. The text of an error says what is malformed.
    pub(crate) fn new(size: &str, order_by: &str, sort_order: &str, token: &str) -> Result<Self, String> {
        let size = if size.is_empty() {
            0
        } else {
            text::int32(size).map_err(|why| format!("invalid numeric string: {why}"))?
        };
        let order = match order_by {
            "CREATE_TIME" => Order::CreateTime,
            "LAST_UPDATE_TIME" => Order::LastUpdateTime,
            _ => Order::Id,
        };
        let after = if token.is_empty() { None } else { Some(decode(token, order_by)?) };
        Ok(Self { size, order, is_descending: sort_order == "DESC", after })
    }

    /// Whether the value in the token fits the column that the list is sorted by.
    pub(crate) fn is_comparable(&self) -> bool {
        self.after.is_none_or(|(_, value)| value.is_some())
    }

    /// The number of rows to fetch: one more than the page, to know if there is another.
    pub(crate) fn limit(&self) -> Option<i64> {
        (self.size > 0).then(|| i64::from(self.size) + 1)
    }

    /// Appends the condition that skips earlier pages.
    pub(crate) fn write_condition(&self, sql: &mut Sql) {
        let Some((id, Some(value))) = self.after else { return };
        let sign = if self.is_descending { "<" } else { ">" };
        if self.order == Order::Id && i64::from(id) == value {
            sql.push(&format!(" AND e.id {sign} "));
            sql.bind(Value::int(id));
            return;
        }
        let column = self.order.column();
        sql.push(&format!(" AND (e.{column} {sign} "));
        sql.bind(Value::Int(value));
        sql.push(&format!(" OR (e.{column} = "));
        sql.bind(Value::Int(value));
        sql.push(&format!(" AND e.id {sign} "));
        sql.bind(Value::int(id));
        sql.push("))");
    }

    /// Appends ORDER BY. Equal times are ordered by id, so that no page repeats or skips one.
    pub(crate) fn write_order(&self, sql: &mut Sql) {
        let direction = if self.is_descending { "DESC" } else { "ASC" };
        sql.push(&format!(" ORDER BY e.{} {direction}", self.order.column()));
        if self.order != Order::Id {
            sql.push(&format!(", e.id {direction}"));
        }
    }

    /// Cuts off the extra row and makes the token of the next page; empty at the end.
    pub(crate) fn next_token(&self, entities: &mut Vec<Entity>) -> String {
        let Ok(size) = usize::try_from(self.size) else { return String::new() };
        if size == 0 || entities.len() <= size {
            return String::new();
        }
        entities.truncate(size);
        entities.last().map_or_else(String::new, |last| {
            STANDARD.encode(format!("{}:{}", last.id, self.order.value(last)))
        })
    }
}

fn decode(token: &str, order_by: &str) -> Result<(i32, Option<i64>), String> {
    let malformed = |why: String| format!("invalid nextPageToken: {why}");
    let bad_format = || malformed("invalid cursor format".to_owned());
    if token.len() > MAX_TOKEN {
        return Err(bad_format());
    }
    let decoded = text::base64_decode(token).map_err(malformed)?;
    let decoded = String::from_utf8_lossy(&decoded).into_owned();
    let (id, value) = decoded.split_once(':').ok_or_else(bad_format)?;
    let id = text::int32(id).map_err(malformed)?;
    // The id column has 32 bits, and PostgreSQL refuses to compare it with more.
    let is_time = matches!(order_by, "CREATE_TIME" | "LAST_UPDATE_TIME");
    let value = value.trim().parse().ok().filter(|value| is_time || i32::try_from(*value).is_ok());
    Ok((id, value))
}
