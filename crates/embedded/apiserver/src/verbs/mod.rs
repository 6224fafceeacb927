//! The verbs: create, get, list, watch, update, patch, delete, and special subresources.

pub(crate) mod connect;
pub(crate) mod create;
pub(crate) mod delete;
mod eviction;
pub(crate) mod filter;
mod links;
pub(crate) mod list;
pub(crate) mod metadata;
pub(crate) mod patch;
pub(crate) mod proxy;
pub(crate) mod scale;
pub(crate) mod update;
pub(crate) mod watch;

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    api::Api,
    auth::{self, Caller, rbac::Attributes},
    crd,
    request::options::{FieldValidation, WriteOptions},
    resources::Resource,
    status::{Failure, Named},
    store::{Entry, Id, key_of},
};

/// More are never shown: together they would be longer than the headers of a response.
const WARNINGS_AT_MOST: usize = 1024;

/// An authorized request for a resource.
#[derive(Clone)]
pub(crate) struct RequestContext {
    pub(crate) api: Api,
    pub(crate) caller: Arc<Caller>,
    pub(crate) resource: Arc<Resource>,
    /// Empty for cluster-wide objects.
    pub(crate) namespace: String,
    /// Empty if the request names no object.
    pub(crate) name: String,
    /// Empty for the object itself.
    pub(crate) subresource: String,
    pub(crate) options: WriteOptions,
    /// Who will own what is written.
    pub(crate) manager: String,
    pub(crate) now: Timestamp,
    pub(crate) warnings: Arc<Mutex<Vec<String>>>,
}

/// The result of a verb.
#[derive(Debug)]
pub(crate) enum Output {
    /// A stored object.
    Entry(Arc<Entry>),
    /// An object or anything else, as it is.
    Value(Value),
}

impl RequestContext {
    /// How errors name the object.
    pub(crate) fn named(&self) -> Named<'_> {
        Named { group: &self.resource.group, resource: &self.resource.plural, name: &self.name }
    }

    /// How errors about its content name it.
    pub(crate) fn named_kind<'a>(&'a self, name: &'a str) -> Named<'a> {
        Named { group: &self.resource.group, resource: &self.resource.kind, name }
    }

    pub(crate) fn key(&self) -> String {
        key_of(&self.namespace, &self.name)
    }

    /// What a new object cannot be without: its namespace, and the definition of its kind.
    pub(crate) fn parents(&self) -> Vec<Id> {
        let namespace = self.resource.is_namespaced.then_some(("core/namespaces", self.namespace.as_str()));
        let definition = self.resource.as_custom().map(|custom| (crd::BUCKET, custom.definition.as_str()));
        let parents = namespace.into_iter().chain(definition);
        parents.map(|(bucket, key)| (bucket.into(), key.into())).collect()
    }

    /// The stored object that the request names.
    pub(crate) fn entry(&self) -> Result<Arc<Entry>, Failure> {
        let entry = self.api.store().get(&self.resource.bucket, &self.key());
        entry.ok_or_else(|| Failure::not_found(self.named()))
    }

    /// The stored object as it was at a version, as far back as that is known.
    pub(crate) fn entry_at(&self, rv: u64) -> Result<Arc<Entry>, Failure> {
        let key = self.key();
        match self.api.store().list(&self.resource.bucket, &key, None, Some(rv)) {
            Err(_) => self.entry(),
            Ok((entries, _)) => {
                let entry = entries.into_iter().find(|(one, _)| **one == *key).map(|(_, entry)| entry);
                entry.ok_or_else(|| Failure::not_found(self.named()))
            }
        }
    }

    /// Whether fields that are unknown or given twice matter.
    pub(crate) fn is_strict(&self) -> bool {
        self.options.field_validation != FieldValidation::Ignore
    }

    /// Tells the client something that is no error.
    pub(crate) fn warn(&self, warning: impl Into<String>) {
        let warning = warning.into();
        let mut warnings = self.warnings.lock();
        if warnings.len() < WARNINGS_AT_MOST && !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    /// The same request for another object or subresource, as the server itself.
    pub(crate) fn internal(api: &Api, resource: &Arc<Resource>, namespace: &str, name: &str) -> Self {
        Self {
            api: api.clone(),
            caller: Arc::new(Caller::server()),
            resource: Arc::clone(resource),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: String::new(),
            options: WriteOptions {
                is_dry_run: false,
                field_manager: None,
                field_validation: FieldValidation::Ignore,
                force: None,
            },
            manager: "quintet".into(),
            now: api.now(),
            warnings: Arc::default(),
        }
    }

    /// The same request with or without dry run.
    #[must_use]
    pub(crate) fn with_dry_run(mut self, is_dry_run: bool) -> Self {
        self.options.is_dry_run = is_dry_run;
        self
    }

    /// Refuses to create what the request names, unless the caller may: a patch or an update alone does not allow it.
    pub(crate) fn check_may_create(&self) -> Result<(), Failure> {
        let wanted = Attributes {
            verb: "create",
            group: &self.resource.group,
            version: &self.resource.version,
            resource: &self.resource.plural,
            subresource: "",
            namespace: &self.namespace,
            name: &self.name,
        };
        auth::authorize(&self.api, &self.caller, &wanted)
    }

    /// The same request with another subresource.
    #[must_use]
    pub(crate) fn for_subresource(mut self, subresource: &str) -> Self {
        subresource.clone_into(&mut self.subresource);
        self
    }
}
