//! The operators as `quintet manifests` installs them, with no more rights than that, on the cluster of
//! `KUBECONFIG_UNDER_TEST` or on the embedded API. Pods are simulated.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod appwrapper;
mod bed;
mod hardening;
mod mlflow;
mod registry;

use bed::Bed;

#[tokio::test(flavor = "multi_thread")]
async fn operators_need_no_more_rights_than_they_are_installed_with() {
    let bed = Bed::new().await;
    Box::pin(mlflow::check(&bed)).await;
    Box::pin(appwrapper::check(&bed)).await;
    Box::pin(hardening::check(&bed)).await;
    Box::pin(registry::check(&bed)).await;
    bed.end().await;
}
