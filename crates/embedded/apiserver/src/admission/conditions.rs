//! Match conditions of webhooks: expressions that decide whether a hook is asked at all.

use serde_json::Value;

use super::Operation;
use crate::{json::items, status::Failure, verbs::Ask};

/// Whether all conditions of a hook hold.
#[expect(clippy::unnecessary_wraps, reason = "an expression can fail")]
pub(super) fn hold(
    _ask: &Ask,
    hook: &Value,
    _operation: Operation<'_>,
    _object: Option<&Value>,
    _old: Option<&Value>,
) -> Result<bool, Failure> {
    Ok(items(hook, "/matchConditions").is_empty())
}
