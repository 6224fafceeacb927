//! Built-in CustomResourceDefinitions.
//!
//! They were checked when the program was tested. So they are stored in one step, established, and served all at once:
//! what a client's definition goes through would be most of the time that it takes to start.

use std::sync::Arc;

use quintet_api::crd::Maker;
use serde_json::Value;

use super::{BUCKET, establish::status_of, refresh};
use crate::{
    aggregation,
    api::Api,
    json::{self, text},
    model,
    status::Failure,
    store::{Expect, Write, WriteError},
    verbs::{
        RequestContext, metadata,
        patch::{PatchType, patch},
    },
};

/// Definitions that are made at the same time: each is large while it is on its way.
const AT_A_TIME: usize = 2;

impl Api {
    /// Serves kinds whose definitions come with the program, as `manager`.
    pub async fn define(
        &self,
        manager: &str,
        definitions: impl IntoIterator<Item = Maker>,
    ) -> Result<(), Failure> {
        let (api, manager) = (self.clone(), manager.to_owned());
        let definitions: Vec<Maker> = definitions.into_iter().collect();
        // What is stored is served too, whether or not the caller waits for it.
        let work = async move { api.define_all(&manager, definitions).await };
        self.detached(work).await.map_err(Failure::internal)?
    }

    async fn define_all(&self, manager: &str, definitions: Vec<Maker>) -> Result<(), Failure> {
        let mut tasks = tokio::task::JoinSet::new();
        let done = |outcome: Result<Result<(), Failure>, tokio::task::JoinError>| {
            outcome.unwrap_or_else(|error| Err(Failure::internal(error)))
        };
        for make in definitions {
            if tasks.len() >= AT_A_TIME
                && let Some(outcome) = tasks.join_next().await
            {
                done(outcome)?;
            }
            let (api, manager) = (self.clone(), manager.to_owned());
            tasks.spawn(async move {
                match make() {
                    Some(definition) => define(&api, manager, definition).await,
                    None => Ok(()),
                }
            });
        }
        while let Some(outcome) = tasks.join_next().await {
            done(outcome)?;
        }
        refresh(self);
        aggregation::publish(self).await
    }
}

async fn define(api: &Api, manager: String, mut definition: Value) -> Result<(), Failure> {
    let resource = api.built_in("apiextensions.k8s.io", "customresourcedefinitions")?;
    let name = text(&definition, "/metadata/name").to_owned();
    let mut context = RequestContext { manager, ..RequestContext::internal(api, &resource, "", &name) };
    // As it is stored, so that it can be compared with what is.
    model::fit_applied(&context, &mut definition)?;
    if let Some(entry) = api.store().get(BUCKET, &name) {
        let stored = entry.to_value("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        if is_up_to_date(&stored, &definition) {
            return Ok(());
        }
        context.options.force = Some(true);
        context.options.field_manager = Some(context.manager.clone());
        // Webhooks have a say here, and may be wrong or not there yet: that must not keep a cluster from starting.
        if let Err(failure) = patch(&context, PatchType::Apply, definition.to_string().as_bytes()).await {
            tracing::warn!("cannot bring the definition {name} up to date: {failure}");
        }
        return Ok(());
    }
    let mut object = model::apply(&context, None, &definition)?;
    drop(definition);
    model::default(&resource, &mut object);
    metadata::set_identity(&context, &mut object);
    model::finish_create(&resource, &mut object);
    let status = status_of(api, &name, &object);
    json::as_map(&mut object).insert("status".into(), status);
    let put = api.encode(&resource, &object).await?;
    drop(object);
    let write = Write {
        bucket: Arc::clone(&resource.bucket),
        key: name.into(),
        expect: Expect::Absent,
        put: Some(put),
        parents: Vec::new(),
    };
    match api.write(write).await {
        // Another writer defined it meanwhile; theirs stays.
        Ok(_) | Err(WriteError::Conflict) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether a stored definition needs no change: it has the wanted versions and no others, and of the rest at least what
/// is wanted.
fn is_up_to_date(stored: &Value, wanted: &Value) -> bool {
    stored.pointer("/spec/versions") == wanted.pointer("/spec/versions")
        && includes(&stored["spec"], &wanted["spec"])
}

/// Whether a value says at least what another one does.
fn includes(stored: &Value, wanted: &Value) -> bool {
    match (stored, wanted) {
        (Value::Object(stored), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| stored.get(key).is_some_and(|stored| includes(stored, wanted)))
        }
        (Value::Array(stored), Value::Array(wanted)) => {
            stored.len() == wanted.len()
                && stored.iter().zip(wanted).all(|(stored, wanted)| includes(stored, wanted))
        }
        _ => stored == wanted,
    }
}
