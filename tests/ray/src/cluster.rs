//! A real cluster, or the embedded API as one: what tests and measurements on it have in common.

use std::{collections::BTreeMap, pin::pin};

use futures::StreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Client, Config,
    api::{Api, Patch, PatchParams, WatchEvent, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use quintet_api::crd;
use quintet_node::{NodeShape, Settings, Simulation};

/// The kubeconfig of the cluster under test, if there is one.
pub fn under_test() -> Option<Kubeconfig> {
    let path = std::env::var_os("KUBECONFIG_UNDER_TEST").filter(|path| !path.is_empty())?;
    Some(Kubeconfig::read_from(path).unwrap())
}

/// How to reach the cluster of a kubeconfig.
pub async fn config(kubeconfig: Kubeconfig) -> Config {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
}

/// Teaches the cluster the Ray kinds.
pub async fn install(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let service = crd::WebhookService { namespace: "quintet-system".into(), name: "quintet".into() };
    for definition in crd::all(&service).into_iter().filter(|crd| crd.spec.group == "ray.io") {
        let name = definition.metadata.name.clone().unwrap();
        let wish = PatchParams::apply("quintet").force();
        definitions.patch(&name, &wish, &Patch::Apply(&definition)).await.unwrap();
        established(&definitions, &name).await;
    }
}

/// Waits until a definition is served. Whoever runs this gives up before the cluster does.
async fn established(definitions: &Api<CustomResourceDefinition>, name: &str) {
    let wish = WatchParams::default().fields(&format!("metadata.name={name}"));
    let changes = definitions.watch(&wish, "0").await.unwrap();
    let mut served = pin!(changes.filter(|change| {
        let Ok(WatchEvent::Added(live) | WatchEvent::Modified(live)) = change else {
            return std::future::ready(false);
        };
        let conditions = live.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
        let mut established = conditions.filter(|one| one.type_ == "Established");
        std::future::ready(established.any(|one| one.status == "True"))
    }));
    assert!(served.next().await.is_some(), "{name} was never established");
}

/// Adds nodes that take pods through their lives. Our own API has no scheduler: there they bind them, too.
pub async fn add_nodes(client: &Client, name: &str, count: u32, capacity: &[(&str, &str)]) -> Simulation {
    let amounts = capacity.iter().map(|(name, amount)| ((*name).to_owned(), amount.parse().unwrap()));
    let nodes = NodeShape {
        name: name.to_owned(),
        count,
        capacity: amounts.collect(),
        labels: BTreeMap::new(),
        levels: Vec::new(),
    };
    let has_scheduler = !client.apiserver_version().await.unwrap().git_version.contains("quintet");
    Simulation::start(client.clone(), Settings { nodes, schedule: !has_scheduler }).await.unwrap()
}
