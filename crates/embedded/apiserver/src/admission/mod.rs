//! Admission: built-in plugins, policies and webhooks.

mod allocate;
mod conditions;
mod limits;
mod matching;
mod mutations;
mod plugins;
mod policies;
mod quota;
mod usage;
pub(crate) mod webhooks;

use serde_json::Value;

use crate::{request::options::DeleteOptions, status::Failure, verbs::RequestContext};

use mutations::Round;

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
    /// A stream to a container is asked for.
    Connect,
}

impl Operation<'_> {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete(_) => "DELETE",
            Self::Connect => "CONNECT",
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
    let has_others = context.api.webhooks().has_mutating(&context.api)
        || context.api.policies().has_mutating(&context.api);
    if !has_others {
        return Ok(());
    }
    let before = object.clone();
    mutations::mutate(context, operation, object, old, Round::First).await?;
    let by_policies = object.clone();
    webhooks::mutate(context, operation, object, old).await?;
    if *object != by_policies {
        mutations::mutate(context, operation, object, old, Round::Again).await?;
    }
    if *object != before {
        // What policies and webhooks added is completed as if the client had sent it.
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
    webhooks::ask_mutating(context, Operation::Delete(options), None, Some(old)).await
}

/// Lets webhooks and policies refuse a connection. `options` say what is asked for, as `PodExecOptions` do.
pub(crate) async fn connect(context: &RequestContext, options: &Value) -> Result<(), Failure> {
    webhooks::ask_mutating(context, Operation::Connect, Some(options), None).await?;
    policies::validate(context, Operation::Connect, Some(options), None).await?;
    webhooks::validate(context, Operation::Connect, Some(options), None).await
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
