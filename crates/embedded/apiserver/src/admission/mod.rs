//! Admission: built-in plugins, policies and webhooks.

mod allocate;
mod conditions;
mod limits;
mod matching;
mod plugins;
mod policies;
mod quota;
mod usage;
pub(crate) mod webhooks;

use serde_json::Value;

use crate::{request::options::DeleteOptions, status::Failure, verbs::RequestContext};

pub(crate) use allocate::{Claim, allocate};
pub(crate) use plugins::missing_parent;
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
    context: &RequestContext,
    operation: Operation<'_>,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<(), Failure> {
    plugins::check_namespace(context, operation, object)?;
    plugins::mutate(context, operation, object)?;
    let before = context.api.webhooks().has_mutating(&context.api).then(|| object.clone());
    let Some(before) = before else { return Ok(()) };
    webhooks::mutate(context, operation, object, old).await?;
    if *object != before {
        // What webhooks added is completed as if the client had sent it.
        plugins::mutate(context, operation, object)?;
    }
    Ok(())
}

/// Runs mutating webhooks on a deletion, which they may deny.
pub(crate) async fn mutate_deletion(
    context: &RequestContext,
    options: &DeleteOptions,
    old: &Value,
) -> Result<(), Failure> {
    webhooks::mutate_deletion(context, Operation::Delete(options), old).await
}

/// Refuses what must not be.
pub(crate) async fn validate(
    context: &RequestContext,
    operation: Operation<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Failure> {
    plugins::validate(context, operation, object, old)?;
    policies::validate(context, operation, object, old).await?;
    webhooks::validate(context, operation, object, old).await
}
