//! Reading and writing objects of the cluster, with errors that say what to do.

use std::fmt::Debug;

use anyhow::{Context as _, anyhow};
use k8s_openapi::NamespaceResourceScope;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, Resource};
use quintet_controller::api::FIELD_MANAGER;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Objects per request.
const PAGE: u32 = 500;

/// All objects of a kind, in a namespace or everywhere.
pub(super) async fn list<K>(client: &Client, namespace: Option<&str>) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    pages(namespaced(client, namespace), ListParams::default()).await
}

/// All objects of a kind, of a cluster-scoped one or in all namespaces.
pub(super) async fn list_all<K>(client: &Client) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    pages(Api::all(client.clone()), ListParams::default()).await
}

/// All objects of a kind that older versions of Kubernetes do not serve, and that not everyone may list.
pub(super) async fn list_if_served<K>(client: &Client) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let first: Result<_, kube::Error> =
        Api::<K>::all(client.clone()).list(&ListParams::default().limit(1)).await;
    match first {
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(Vec::new()),
        _ => list_all(client).await,
    }
}

/// Those that a label selector and a field selector choose.
pub(super) async fn select<K>(
    client: &Client,
    namespace: Option<&str>,
    selectors: &Selectors,
) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    pages(namespaced(client, namespace), selectors.parameters()).await
}

/// The same of a cluster-scoped kind.
pub(super) async fn select_all<K>(client: &Client, selectors: &Selectors) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    pages(Api::all(client.clone()), selectors.parameters()).await
}

/// Which objects of a kind are listed.
#[derive(clap::Args, Clone, Default)]
pub(super) struct Selectors {
    /// Only objects with these labels, as in kubectl.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// Only objects with these fields, as in kubectl.
    #[arg(long, value_name = "SELECTOR")]
    field_selector: Option<String>,
}

impl Selectors {
    fn parameters(&self) -> ListParams {
        ListParams {
            label_selector: self.selector.clone(),
            field_selector: self.field_selector.clone(),
            ..ListParams::default()
        }
    }
}

/// A kind in a namespace or in all of them.
pub(super) fn namespaced<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

async fn pages<K>(api: Api<K>, parameters: ListParams) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let mut parameters = parameters.limit(PAGE);
    let mut objects = Vec::new();
    loop {
        let page =
            api.list(&parameters).await.map_err(|error| explained(error, &K::kind(&()), &K::plural(&())))?;
        objects.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(objects),
        }
    }
}

/// One object; an error if it does not exist.
pub(super) async fn get<K>(api: &Api<K>, name: &str) -> anyhow::Result<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let kind = K::kind(&());
    match api.get_opt(name).await {
        Ok(Some(object)) => Ok(object),
        Ok(None) => Err(anyhow!("{kind} {name} does not exist")),
        Err(error) => Err(explained(error, &kind, &K::plural(&()))),
    }
}

/// Changes fields of an object.
pub(super) async fn merge<K>(api: &Api<K>, name: &str, patch: &Value, dry_run: bool) -> anyhow::Result<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let kind = K::kind(&());
    let parameters =
        PatchParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch(name, &parameters, &Patch::Merge(patch)).await {
        Ok(object) => Ok(object),
        Err(kube::Error::Api(status)) if status.code == 404 => Err(anyhow!("{kind} {name} does not exist")),
        Err(error) => Err(anyhow!(error)).with_context(|| format!("cannot change {kind} {name}")),
    }
}

/// An error of a read.
fn explained(error: kube::Error, kind: &str, plural: &str) -> anyhow::Error {
    match &error {
        kube::Error::Api(status) if status.code == 404 => {
            anyhow!("the cluster does not know the kind {kind}; install it with 'quintet crds --apply'")
        }
        kube::Error::Api(status) if status.code == 403 => {
            anyhow!("you may not read {plural}: {}", status.message)
        }
        _ => anyhow!(error).context(format!("cannot read {plural}")),
    }
}
