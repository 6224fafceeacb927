//! Admission webhooks of an operator: the registration with the API server, and the handler that answers.

use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use quintet_controller::webhook::Routes;
use quintet_controller::{Error, Runtime};
use serde_json::{Value, json};

/// One admission webhook.
pub struct Webhook {
    /// Name of the webhook configuration object it is part of. Upstream's name, so that applying ours replaces the one of
    /// an operator that no longer runs.
    pub configuration: &'static str,
    /// Whether it may change objects.
    pub kind: WebhookKind,
    /// Its name within the configuration: `vraycluster.kb.io`.
    pub name: &'static str,
    /// The path that answers.
    pub path: &'static str,
    /// The requests it is asked about. Without any it is served, and not registered.
    pub rules: Vec<RuleWithOperations>,
    /// What happens while it cannot be reached.
    pub failure_policy: FailurePolicy,
    /// Objects it is asked about, by label; all if absent.
    pub object_selector: Option<LabelSelector>,
    /// Namespaces it is asked about, by label; all watched ones if absent.
    pub namespace_selector: Option<LabelSelector>,
    /// Adds the handler to the server. Handlers may read the caches of the runtime.
    pub handler: Handler,
}

/// Adds a handler to the webhook server. Called at most once.
pub type Handler = Box<dyn FnOnce(Routes, &Runtime) -> Result<Routes, Error> + Send>;

/// Whether a webhook may change objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WebhookKind {
    /// It sets defaults.
    Mutating,
    /// It allows or denies.
    Validating,
}

/// What the API server does while a webhook cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Requests fail.
    #[default]
    Fail,
    /// Requests go on without it.
    Ignore,
}

/// Where the API server reaches webhooks, and which namespaces they serve.
pub struct WebhookScope<'a> {
    /// Namespace of the Service.
    pub namespace: &'a str,
    /// Name of the Service.
    pub service: &'a str,
    /// Namespaces the operator watches; empty for all.
    pub watched: &'a [String],
}

impl WebhookKind {
    /// The kind of the configuration object.
    pub fn configuration_kind(self) -> &'static str {
        match self {
            Self::Mutating => "MutatingWebhookConfiguration",
            Self::Validating => "ValidatingWebhookConfiguration",
        }
    }

    /// The plural of [`Self::configuration_kind`].
    pub fn configuration_resource(self) -> &'static str {
        match self {
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating => "validatingwebhookconfigurations",
        }
    }
}

impl Webhook {
    /// A validating webhook at `path`, called `name` in the object `configuration`. It is asked about nothing until
    /// [`Webhook::on`] says so.
    pub fn validating(
        configuration: &'static str,
        name: &'static str,
        path: &'static str,
        handler: impl FnOnce(Routes, &Runtime) -> Result<Routes, Error> + Send + 'static,
    ) -> Self {
        Self {
            configuration,
            kind: WebhookKind::Validating,
            name,
            path,
            rules: Vec::new(),
            failure_policy: FailurePolicy::default(),
            object_selector: None,
            namespace_selector: None,
            handler: Box::new(handler),
        }
    }

    /// The same for a webhook that may change objects.
    pub fn mutating(
        configuration: &'static str,
        name: &'static str,
        path: &'static str,
        handler: impl FnOnce(Routes, &Runtime) -> Result<Routes, Error> + Send + 'static,
    ) -> Self {
        Self { kind: WebhookKind::Mutating, ..Self::validating(configuration, name, path, handler) }
    }

    /// It is asked about these operations on these resources.
    #[must_use]
    pub fn on(mut self, operations: &[&str], group: &str, version: &str, resources: &[&str]) -> Self {
        self.rules.extend(Self::rules(operations, group, version, resources));
        self
    }

    /// The rules of operations on resources.
    pub fn rules(
        operations: &[&str],
        group: &str,
        version: &str,
        resources: &[&str],
    ) -> Vec<RuleWithOperations> {
        let owned = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect());
        vec![RuleWithOperations {
            api_groups: owned(&[group]),
            api_versions: owned(&[version]),
            operations: owned(operations),
            resources: owned(resources),
            scope: None,
        }]
    }

    /// Its entry in the configuration object.
    pub fn registration(&self, scope: &WebhookScope<'_>) -> Value {
        let mut entry = json!({
            "name": self.name,
            "admissionReviewVersions": ["v1"],
            "clientConfig": { "service": { "namespace": scope.namespace, "name": scope.service, "path": self.path } },
            "rules": self.rules,
            "failurePolicy": match self.failure_policy { FailurePolicy::Fail => "Fail", FailurePolicy::Ignore => "Ignore" },
            "sideEffects": "None",
            "timeoutSeconds": 10,
        });
        if let Some(selector) = &self.object_selector {
            entry["objectSelector"] = json!(selector);
        }
        if let Some(selector) = self.namespaces(scope.watched) {
            entry["namespaceSelector"] = json!(selector);
        }
        entry
    }

    /// Requests in namespaces that the operator does not watch must not depend on it.
    fn namespaces(&self, watched: &[String]) -> Option<LabelSelector> {
        if watched.is_empty() {
            return self.namespace_selector.clone();
        }
        let mut selector = self.namespace_selector.clone().unwrap_or_default();
        selector.match_expressions.get_or_insert_default().push(LabelSelectorRequirement {
            key: "kubernetes.io/metadata.name".into(),
            operator: "In".into(),
            values: Some(watched.to_vec()),
        });
        Some(selector)
    }
}
