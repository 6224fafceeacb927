//! Label, field and namespace selection of lists and watches.

use std::borrow::Cow;

use quintet_api::selector::{Requirement, Selector, Test};
use quintet_objects::field_selector::FieldSelector;
use serde_json::Value;

use crate::{
    api::Api,
    model,
    request::options::ListOptions,
    resources::Resource,
    status::Failure,
    store::{Entry, Head, split_key},
};

/// Namespace, name and selectors of a request.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// What keys begin with: a namespace and a slash, or nothing.
    pub(crate) prefix: String,
    /// The one key that can match, if the request names it.
    pub(crate) key: Option<String>,
    labels: Option<Selector>,
    fields: FieldSelector,
    /// Fields other than name and namespace are asked for.
    reads_body: bool,
}

impl Filter {
    pub(crate) fn new(
        resource: &Resource,
        namespace: Option<&str>,
        options: &ListOptions,
    ) -> Result<Self, Failure> {
        let known = model::selectable_fields(resource);
        let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
        options.fields.check(&known).map_err(|error| Failure::bad_request(error.to_string()))?;
        let own_namespace = namespace.or_else(|| options.fields.required("metadata.namespace"));
        let name = options.fields.required("metadata.name");
        let key = match (name, own_namespace) {
            (Some(name), _) if !resource.is_namespaced => Some(name.to_owned()),
            (Some(name), Some(namespace)) => Some(format!("{namespace}/{name}")),
            _ => None,
        };
        let prefix = match own_namespace {
            Some(namespace) if resource.is_namespaced => format!("{namespace}/"),
            _ => String::new(),
        };
        let reads_body = options
            .fields
            .requirements()
            .iter()
            .any(|one| one.field != "metadata.name" && one.field != "metadata.namespace");
        Ok(Self { prefix, key, labels: options.labels.clone(), fields: options.fields.clone(), reads_body })
    }

    /// Whether everything under the prefix is wanted.
    pub(crate) fn is_open(&self) -> bool {
        self.labels.is_none() && self.fields.is_empty() && self.key.is_none()
    }

    /// Whether a key can match at all.
    pub(crate) fn covers(&self, key: &str) -> bool {
        key.starts_with(&self.prefix) && self.key.as_ref().is_none_or(|wanted| wanted == key)
    }

    /// Whether an object is wanted. Fields are those of the version that the request is for.
    pub(crate) async fn matches(
        &self,
        api: &Api,
        resource: &Resource,
        key: &str,
        entry: &Entry,
    ) -> Result<bool, Failure> {
        if !self.covers(key) || !self.labels.as_ref().is_none_or(|labels| selects(labels, &entry.head)) {
            return Ok(false);
        }
        let body = if self.reads_body { api.load(resource, entry).await? } else { Value::Null };
        let (namespace, name) = split_key(key);
        Ok(self.fields.matches(|field| match field {
            "metadata.name" => Cow::Borrowed(name),
            "metadata.namespace" => Cow::Borrowed(namespace),
            other => Cow::Owned(model::field_value(&body, other)),
        }))
    }
}

/// Whether labels of a stored object meet a selector.
pub(crate) fn selects(selector: &Selector, head: &Head) -> bool {
    selector.requirements().iter().all(|Requirement { key, test }| {
        let value = head.label(key);
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match test {
            Test::Is(wanted) => value == Some(wanted),
            Test::IsNot(unwanted) => value != Some(unwanted),
            Test::In(wanted) => value.is_some_and(|value| wanted.iter().any(|one| one == value)),
            Test::NotIn(unwanted) => !value.is_some_and(|value| unwanted.iter().any(|one| one == value)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::GreaterThan(than) => number().is_some_and(|number| number > *than),
            Test::LessThan(than) => number().is_some_and(|number| number < *than),
        }
    })
}
