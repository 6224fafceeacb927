//! Reading what the status is made of.

use anyhow::{Context as _, ensure};
use http::{Request, header};
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod, Service};
use kube::api::{Api, ListParams};
use quintet_api::crd::Kind;
use serde::Deserialize;
use serde_json::Value;

use crate::catalog::Catalog;
use crate::cluster::Cluster;

/// How a client asks for the columns that `kubectl get` shows.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// What is on the cluster.
#[derive(Default)]
pub(super) struct Observed {
    pub(super) nodes: Vec<Node>,
    pub(super) pods: Vec<Pod>,
    /// The pods of other namespaces, where only one is looked at: they use the nodes, too.
    pub(super) other_pods: Vec<Pod>,
    pub(super) services: Vec<Service>,
    pub(super) warnings: Vec<Event>,
    pub(super) kinds: Vec<Listed>,
}

/// The objects of one kind.
pub(super) struct Listed {
    pub(super) component: &'static str,
    pub(super) kind: &'static str,
    pub(super) is_namespaced: bool,
    pub(super) table: Table,
}

/// What the server prints of a kind.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Table {
    #[serde(default)]
    pub(super) column_definitions: Vec<Column>,
    #[serde(default)]
    pub(super) rows: Vec<Row>,
}

#[derive(Deserialize)]
pub(super) struct Column {
    pub(super) name: String,
    /// Columns with a priority above 0 are for wide output.
    #[serde(default)]
    pub(super) priority: i32,
}

#[derive(Deserialize)]
pub(super) struct Row {
    pub(super) cells: Vec<Value>,
    #[serde(default)]
    pub(super) object: Value,
}

/// Reads everything, of one namespace or of all.
pub(super) async fn observe(
    cluster: &Cluster,
    catalog: &Catalog,
    namespace: Option<&str>,
) -> anyhow::Result<Observed> {
    let client = &cluster.client;
    let pods: Api<Pod> = within(client, namespace);
    let services: Api<Service> = within(client, namespace);
    let events: Api<Event> = within(client, namespace);
    let nodes: Api<Node> = Api::all(client.clone());
    if let Some(name) = namespace {
        // Who may not read namespaces sees what there is in this one.
        let found = Api::<Namespace>::all(client.clone()).get_opt(name).await;
        ensure!(!matches!(found, Ok(None)), "namespace {name:?} does not exist at {}", cluster.address);
    }
    let (all, warnings) = (ListParams::default(), ListParams::default().fields("type=Warning"));
    let mut kinds = Vec::new();
    for component in catalog.components() {
        for kind in newest(&component.kinds()) {
            if let Some(table) = table(cluster, kind, namespace).await? {
                let (component, is_namespaced) = (component.name(), kind.is_namespaced);
                kinds.push(Listed { component, kind: kind.name, is_namespaced, table });
            }
        }
    }
    let mut other_pods = Vec::new();
    if namespace.is_some()
        && let Ok(listed) = Api::<Pod>::all(client.clone()).list(&all).await
    {
        other_pods = listed.items;
        other_pods.retain(|pod| pod.metadata.namespace.as_deref() != namespace);
    }
    Ok(Observed {
        other_pods,
        nodes: nodes.list(&all).await.context("cannot list nodes")?.items,
        pods: pods.list(&all).await.context("cannot list pods")?.items,
        services: services.list(&all).await.context("cannot list services")?.items,
        warnings: events.list(&warnings).await.context("cannot list events")?.items,
        kinds,
    })
}

fn within<K>(client: &kube::Client, namespace: Option<&str>) -> Api<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// One version of each kind: the first one of the list, which is the one that is stored.
fn newest(kinds: &[Kind]) -> Vec<&Kind> {
    let is_first = |(index, kind): &(usize, &Kind)| {
        kinds.iter().take(*index).all(|earlier| (group(earlier), earlier.name) != (group(kind), kind.name))
    };
    kinds.iter().enumerate().filter(is_first).map(|(_, kind)| kind).collect()
}

fn group(kind: &Kind) -> &str {
    kind.api_version.split_once('/').map_or("", |(group, _)| group)
}

/// The table of a kind; `None` if the cluster does not serve it.
async fn table(cluster: &Cluster, kind: &Kind, namespace: Option<&str>) -> anyhow::Result<Option<Table>> {
    let place = match namespace {
        Some(namespace) if kind.is_namespaced => format!("namespaces/{namespace}/"),
        _ => String::new(),
    };
    let path = format!("/apis/{}/{place}{}", kind.api_version, kind.plural);
    let request = Request::get(path).header(header::ACCEPT, TABLE).body(Vec::new())?;
    match cluster.client.request::<Table>(request).await {
        Ok(table) => Ok(Some(table)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot list {}", kind.plural)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_shown_in_their_stored_version() {
        let kinds = quintet_ray::component().kinds();
        let shown: Vec<_> = newest(&kinds).iter().map(|kind| (kind.name, kind.api_version)).collect();
        let expected = ["RayCluster", "RayJob", "RayService", "RayCronJob"].map(|kind| (kind, "ray.io/v1"));
        assert_eq!(shown, expected);
    }
}
