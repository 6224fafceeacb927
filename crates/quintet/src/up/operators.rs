//! The operators in the process of the embedded API: its client is a function call, and so are their webhooks.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use futures::future::ready;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::Request;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use quintet_api::config::Configuration;
use quintet_apiserver::kubelet::Handler;
use quintet_apiserver::{Cluster, InProcessWebhook};
use quintet_component::{AggregatedApi, Component, Platform, WebhookScope};
use quintet_controller::Runtime;
use quintet_controller::admin::{self, Admin};
use quintet_controller::api::FIELD_MANAGER;
use quintet_controller::clock::Clock;
use quintet_controller::leader::Leadership;
use quintet_controller::webhook::Routes;
use serde_json::{Value, json};

use crate::catalog::Catalog;
use crate::manifests::webhook_configurations;
use crate::names::DEFAULT_NAMESPACE;
use crate::operator::addresses::{Endpoints, Placement};
use crate::operator::{admin_components, conversion_route, start_operators};

/// Marks webhook configurations that only this process answers for; the next start removes those it does not need.
const IN_PROCESS: &str = "quintet.dev/in-process";

/// Running operators.
pub(super) struct Operators {
    runtime: Runtime,
    /// The components that run.
    names: Vec<&'static str>,
    /// Enabled components that have no controllers yet.
    idle: Vec<&'static str>,
}

impl Operators {
    /// Starts the operators that the configuration enables.
    pub(super) async fn start(
        configuration: &Configuration,
        cluster: &Cluster,
        catalog: &Catalog,
    ) -> anyhow::Result<Self> {
        let process = &configuration.process;
        ensure!(
            process.watch_namespaces.is_empty(),
            "watchNamespaces is for operators that share a cluster; 'quintet up' watches all namespaces"
        );
        let client = cluster.api().admin_client();
        create_namespace(&client).await.context("cannot create the namespace of the operators")?;
        let platform = Platform::discover(&client).await.context("cannot discover the APIs")?;
        let operators = catalog.configure_outside(configuration, &platform)?;
        let components = catalog.enabled(configuration);
        let named = |has_controllers: bool| {
            let some = components.iter().filter(move |one| one.configure.is_some() == has_controllers);
            some.map(Component::name).collect()
        };
        let (names, idle) = (named(true), named(false));
        let admin_components = admin_components(&components);

        let clock = Clock::system();
        let (runtime, registry) = Runtime::alone(client.clone(), &clock, "quintet", None);
        let service = &process.webhook.service_name;
        let scope = WebhookScope { namespace: DEFAULT_NAMESPACE, service, watched: &[] };
        let configurations = webhook_configurations(&operators, &scope);
        let apis: Vec<AggregatedApi> = operators.iter().flat_map(|one| one.operator.apis.clone()).collect();
        let process_parts = quintet_component::Process {
            runtime: &runtime,
            client: &client,
            clock: &clock,
            metrics: &registry,
            concurrency: process.concurrency,
        };
        let routes = start_operators(operators, &process_parts, conversion_route(components))?;
        answer_webhooks(cluster, service, routes);
        register(&client, configurations).await.context("cannot register the webhooks")?;
        serve_apis(cluster, &apis).await?;
        let admin = Admin {
            components: admin_components,
            registry,
            runtime: runtime.clone(),
            leadership: Leadership::always(),
            certificates: None,
            api: runtime.api().clone(),
            tasks: runtime.tasks().clone(),
        };
        serve_admin(&admin, &Endpoints::of(process, Placement::Machine)?).await;
        runtime.start();
        Ok(Self { runtime, names, idle })
    }

    /// Who runs, for people.
    pub(super) fn summary(&self) -> String {
        let running = self.names.join(", ");
        if self.idle.is_empty() {
            return running;
        }
        format!("{running}; only the API of {} so far", self.idle.join(", "))
    }

    /// Stops the operators, and returns when reconciles in progress have ended.
    pub(super) async fn stop(self) {
        let late = self.runtime.shut_down().await;
        if !late.is_empty() {
            tracing::warn!("stopped without waiting for: {}", late.join(", "));
        }
    }
}

/// Removes the webhooks of operators that ran in an earlier process: without them every write would fail.
pub(super) async fn unregister_all(cluster: &Cluster) -> anyhow::Result<()> {
    register(&cluster.api().admin_client(), Vec::new()).await
}

async fn create_namespace(client: &Client) -> kube::Result<()> {
    let metadata = ObjectMeta { name: Some(DEFAULT_NAMESPACE.into()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    let namespaces: Api<Namespace> = Api::all(client.clone());
    match namespaces.create(&PostParams::default(), &namespace).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        outcome => outcome.map(drop),
    }
}

/// Calls webhooks as functions of this process.
fn answer_webhooks(cluster: &Cluster, service: &str, routes: Routes) {
    let routes = Arc::new(routes);
    let webhook: InProcessWebhook = Arc::new(move |path, review, limit| {
        let routes = Arc::clone(&routes);
        Box::pin(async move { routes.handle(&path, review, limit).await.map_err(|error| error.to_string()) })
    });
    cluster.api().answer_webhooks(DEFAULT_NAMESPACE, service, Some(webhook));
}

/// Serves the operators' own groups by functions of this process.
async fn serve_apis(cluster: &Cluster, apis: &[AggregatedApi]) -> anyhow::Result<()> {
    for api in apis {
        let own = Arc::clone(&api.handler);
        let handler: Handler = Arc::new(move |request: Request<Bytes>| {
            let response = own(request.into_parts().0);
            async move { response.await.map(|body| stream::once(ready(Bytes::from(body))).boxed()) }.boxed()
        });
        for version in api.versions {
            let group = (api.group, *version);
            let served = cluster.api().serve_group(group, api.service.name, Arc::clone(&handler)).await;
            served.with_context(|| format!("cannot serve {}/{version}", api.group))?;
        }
    }
    Ok(())
}

/// Applies the webhook configurations, and removes those of an earlier process that are no longer wanted.
async fn register(client: &Client, configurations: Vec<Value>) -> anyhow::Result<()> {
    let names: Vec<String> = configurations.iter().filter_map(name).collect();
    remove_others::<MutatingWebhookConfiguration>(client, &names).await?;
    remove_others::<ValidatingWebhookConfiguration>(client, &names).await?;
    for mut configuration in configurations {
        let Some(name) = name(&configuration) else { continue };
        configuration["metadata"]["labels"][IN_PROCESS] = json!("true");
        let kind = configuration.get("kind").and_then(Value::as_str).unwrap_or_default();
        let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        api.patch(&name, &parameters, &Patch::Apply(&configuration)).await?;
    }
    Ok(())
}

fn name(object: &Value) -> Option<String> {
    Some(object.pointer("/metadata/name")?.as_str()?.to_owned())
}

async fn remove_others<K>(client: &Client, wanted: &[String]) -> kube::Result<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    let marked = api.list_metadata(&ListParams::default().labels(IN_PROCESS)).await?;
    for object in marked.items {
        if let Some(name) = object.metadata.name.filter(|name| !wanted.contains(name)) {
            api.delete(&name, &DeleteParams::default()).await?;
        }
    }
    Ok(())
}

/// Serves health, metrics and debug state. The platform runs without them where their address is taken.
async fn serve_admin(admin: &Admin, endpoints: &Endpoints) {
    let mut addresses: Vec<_> = [endpoints.health, endpoints.metrics].into_iter().flatten().collect();
    addresses.dedup();
    for address in addresses {
        match admin::bind(address).await {
            Ok(listener) => admin.clone().serve(listener),
            Err(error) => tracing::warn!("health and metrics are not served at {address}: {error}"),
        }
    }
}
