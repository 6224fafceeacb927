//! Admission: what the server and its webhooks add to a request, and what they refuse.

mod allocate;
mod conditions;
mod limits;
mod plugins;
mod policies;
mod quota;
mod usage;
pub(crate) mod webhooks;

use serde_json::Value;

use crate::{request::options::DeleteOptions, status::Failure, verbs::Ask};

pub(crate) use allocate::{Claim, allocate};
pub(crate) use plugins::homeless;
pub(crate) use policies::Policies;
pub(crate) use quota::{Ledger, Reservation, reserve};
pub(crate) use usage::{ScopeTraits, Usage, counted_by, depends_on_content, usage};

/// What a request does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation<'a> {
    Create,
    Update,
    Delete(&'a DeleteOptions),
}

impl Operation<'_> {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete(_) => "DELETE",
        }
    }
}

/// Changes an object on its way in.
pub(crate) async fn mutate(
    ask: &Ask,
    operation: Operation<'_>,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<(), Failure> {
    plugins::check_namespace(ask, operation, object)?;
    plugins::mutate(ask, operation, object)?;
    let before = ask.api.webhooks().has_mutating(&ask.api).then(|| object.clone());
    let Some(before) = before else { return Ok(()) };
    webhooks::mutate(ask, operation, object, old).await?;
    if *object != before {
        // What webhooks added is completed as if the client had sent it.
        plugins::mutate(ask, operation, object)?;
    }
    Ok(())
}

/// Lets those who may change objects refuse that one goes.
pub(crate) async fn mutate_deletion(ask: &Ask, options: &DeleteOptions, old: &Value) -> Result<(), Failure> {
    webhooks::mutate_deletion(ask, Operation::Delete(options), old).await
}

/// Refuses what must not be.
pub(crate) async fn validate(
    ask: &Ask,
    operation: Operation<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Failure> {
    plugins::validate(ask, operation, object, old)?;
    policies::validate(ask, operation, object, old).await?;
    webhooks::validate(ask, operation, object, old).await
}
