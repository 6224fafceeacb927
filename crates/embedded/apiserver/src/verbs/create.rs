//! Creation: decoded and defaulted -> metadata -> owners of fields -> admission -> identity -> checks -> store.

use std::sync::Arc;

use serde_json::Value;

use super::{Ask, Shown, metadata};
use crate::{
    admission::{self, Operation},
    commit::Held,
    json::text,
    model,
    status::Failure,
    store::{Expect, Write, WriteError, key_of},
};

/// How often another name is tried for generateName.
const NAMES_TRIED: usize = 8;

/// Creates a decoded object.
pub(crate) async fn create(ask: &Ask, mut object: Value) -> Result<Shown, Failure> {
    metadata::settle(ask, &mut object)?;
    if !text(&object, "/metadata/resourceVersion").is_empty() {
        return Err(Failure::untyped("resourceVersion should not be set on objects to be created"));
    }
    metadata::wipe(&mut object);
    metadata::unite_owners(ask, &mut object);
    model::default(&ask.resource, &mut object);
    model::own(ask, &mut object, None);
    store_new(ask, object).await
}

/// The rest of a creation: everything after field ownership is known.
pub(crate) async fn store_new(ask: &Ask, mut object: Value) -> Result<Shown, Failure> {
    model::prepare_create(&ask.resource, &mut object);
    admission::mutate(ask, Operation::Create, &mut object, None).await?;
    let is_generated = metadata::generate_name(ask, &mut object);
    metadata::identify(ask, &mut object);
    let claim = admission::allocate(ask, &mut object, None)?;
    model::finish_create(&ask.resource, &mut object);
    let name = text(&object, "/metadata/name").to_owned();
    let errors = model::validate_create(ask, &object);
    if !errors.is_empty() {
        return Err(Failure::invalid(ask.named_kind(&name), &errors));
    }
    admission::validate(ask, Operation::Create, Some(&object), None).await?;
    let reservation = admission::reserve(ask, &object).await?;
    let mut held = Held { claim, reservation };
    for attempt in 0..NAMES_TRIED {
        let name = text(&object, "/metadata/name").to_owned();
        let named = crate::status::Named { name: &name, ..ask.named() };
        let key: Arc<str> = key_of(&ask.namespace, &name).into();
        let existing = ask.api.store().get(&ask.resource.bucket, &key);
        let outcome = match existing {
            Some(_) => Err((WriteError::Conflict, held)),
            None if ask.options.is_dry_run => return Ok(Shown::Value(object)),
            None => {
                let put = ask.api.encode(&ask.resource, &object).await?;
                let write = Write {
                    bucket: Arc::clone(&ask.resource.bucket),
                    key,
                    expect: Expect::Absent,
                    put: Some(put),
                    homes: ask.homes(),
                };
                ask.api.commit(write, &ask.resource, &name, held).await
            }
        };
        let (error, returned) = match outcome {
            Ok(entry) => return Ok(Shown::Entry(entry)),
            Err(rejected) => rejected,
        };
        held = returned;
        match error {
            WriteError::Conflict if is_generated && attempt + 1 < NAMES_TRIED => {
                crate::json::metadata(&mut object).remove("name");
                metadata::generate_name(ask, &mut object);
                if let Some(reservation) = &held.reservation {
                    reservation.rename(text(&object, "/metadata/name"));
                }
            }
            WriteError::Conflict if is_generated => return Err(Failure::no_unique_name(named)),
            WriteError::Conflict => {
                let existing = ask.api.store().get(&ask.resource.bucket, &key_of(&ask.namespace, &name));
                let is_terminating = existing.is_some_and(|entry| entry.head.is_terminating);
                return Err(Failure::already_exists(named, is_terminating));
            }
            WriteError::Homeless => return Err(admission::homeless(ask, &object)),
            WriteError::Failed(_) => return Err(Failure::internal(error)),
        }
    }
    Err(Failure::internal("no name was found"))
}
