//! Does a cluster keep the Kubernetes API's promises?
//!
//! Every case states one promise that clients rely on and checks it from outside, with nothing but a
//! kubeconfig. It knows nothing of the cluster it runs on, so that the embedded API and a real one are held to
//! the same. A case runs in a namespace of its own and leaves nothing behind.

mod authorization;
mod cases;
mod hook;
mod report;
mod table;
mod world;

pub use authorization::{Verdict, differences, verdicts};
pub use report::{Outcome, Report};
pub use table::table;
pub use world::{Answer, World};

use anyhow::Context as _;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// One promise.
#[derive(Clone, Copy)]
pub struct Case {
    /// What part of the API it is about.
    pub area: &'static str,
    /// The promise, as a sentence.
    pub promise: &'static str,
    /// Finds out whether it is kept.
    pub check: fn(World) -> BoxFuture<'static, anyhow::Result<()>>,
}

/// All promises, area by area.
pub fn cases() -> Vec<Case> {
    cases::all()
}

/// A client that hides nothing: every answer is the server's first.
pub async fn connect(kubeconfig: Kubeconfig) -> anyhow::Result<kube::Client> {
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(kube::Client::try_from(config)?)
}

/// Checks the promises whose area or sentence contains `filter`, several at a time. Fails if there is no cluster.
pub async fn run(client: kube::Client, filter: &str, at_a_time: usize) -> anyhow::Result<Report> {
    let version = client.apiserver_version().await.context("cannot reach the cluster")?.git_version;
    let selected =
        cases().into_iter().filter(|case| case.area.contains(filter) || case.promise.contains(filter));
    let outcomes = futures::stream::iter(selected)
        .map(|case| {
            let client = client.clone();
            async move { Outcome::of(case, world::check(client, case).await) }
        })
        .buffered(at_a_time);
    Ok(Report { version, outcomes: outcomes.collect().await })
}
