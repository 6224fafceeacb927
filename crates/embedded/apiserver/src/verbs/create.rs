//! Create: decoded and defaulted -> metadata -> owners of fields -> admission -> identity -> checks -> store.

use std::sync::Arc;

use serde_json::Value;

use super::{Output, RequestContext, metadata};
use crate::{
    admission::{self, Operation},
    auth::rbac,
    commit::Held,
    json::text,
    model,
    status::Failure,
    store::{Expect, Write, WriteError, key_of},
};

/// How often another name is tried for generateName.
const NAMES_TRIED: usize = 8;

/// Creates a decoded object.
pub(crate) async fn create(context: &RequestContext, mut object: Value) -> Result<Output, Failure> {
    metadata::bind_to_url(context, &mut object)?;
    if !text(&object, "/metadata/resourceVersion").is_empty() {
        return Err(Failure::untyped("resourceVersion should not be set on objects to be created"));
    }
    metadata::clear_server_fields(&mut object);
    metadata::deduplicate_owners(context, &mut object);
    model::default(&context.resource, &mut object);
    model::own(context, &mut object, None);
    store_new(context, object).await
}

/// The rest of a creation: everything after field ownership is known.
pub(crate) async fn store_new(context: &RequestContext, mut object: Value) -> Result<Output, Failure> {
    model::prepare_create(&context.resource, &mut object);
    admission::mutate(context, Operation::Create, &mut object, None).await?;
    rbac::check_escalation(context, &object, None)?;
    let is_generated = metadata::generate_name(context, &mut object);
    metadata::set_identity(context, &mut object);
    let claim = admission::allocate(context, &mut object, None)?;
    model::finish_create(&context.resource, &mut object);
    let name = text(&object, "/metadata/name").to_owned();
    let errors = model::validate_create(context, &object);
    if !errors.is_empty() {
        return Err(Failure::invalid(context.named_kind(&name), &errors));
    }
    // A request that names the object is an update or a patch: neither alone allows to create it.
    if !context.name.is_empty() {
        context.check_may_create()?;
    }
    admission::validate(context, Operation::Create, Some(&object), None).await?;
    let reservation = admission::reserve(context, &object).await?;
    let mut held = Held { claim, reservation };
    for attempt in 0..NAMES_TRIED {
        let name = text(&object, "/metadata/name").to_owned();
        let named = crate::status::Named { name: &name, ..context.named() };
        let key: Arc<str> = key_of(&context.namespace, &name).into();
        let existing = context.api.store().get(&context.resource.bucket, &key);
        let outcome = match existing {
            Some(_) => Err((WriteError::Conflict, held)),
            None if context.options.is_dry_run => return Ok(Output::Value(object)),
            None => {
                let put = context.api.encode(&context.resource, &object).await?;
                let write = Write {
                    bucket: Arc::clone(&context.resource.bucket),
                    key,
                    expect: Expect::Absent,
                    put: Some(put),
                    parents: context.parents(),
                };
                context.api.commit(write, &context.resource, &name, held).await
            }
        };
        let (error, returned) = match outcome {
            Ok(entry) => return Ok(Output::Entry(entry)),
            Err(rejected) => rejected,
        };
        held = returned;
        match error {
            WriteError::Conflict if is_generated && attempt + 1 < NAMES_TRIED => {
                crate::json::metadata(&mut object).remove("name");
                metadata::generate_name(context, &mut object);
                held.rename(text(&object, "/metadata/name"));
            }
            WriteError::Conflict if is_generated => return Err(Failure::no_unique_name(named)),
            WriteError::Conflict => {
                let existing =
                    context.api.store().get(&context.resource.bucket, &key_of(&context.namespace, &name));
                let is_terminating = existing.is_some_and(|entry| entry.head.is_terminating);
                return Err(Failure::already_exists(named, is_terminating));
            }
            WriteError::MissingParent => return Err(admission::missing_parent(context, &object)),
            WriteError::Overloaded | WriteError::NoSpace(_) | WriteError::Failed(_) => {
                return Err(error.into());
            }
        }
    }
    Err(Failure::internal("no name was found"))
}
