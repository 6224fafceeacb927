//! Ray, and an operator that may die while it talks to it.

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use quintet_ray::dashboard::{
    Address, Applications, Dashboard, DashboardResult, JobInfo, ProxyAddress, Submission,
    simulated::SimulatedDashboard,
};
use serde_json::Value;

use crate::Connection;

/// Ray as a process sees it that may be dead: the dead give no orders.
pub struct Mortal {
    /// Ray.
    pub ray: Arc<SimulatedDashboard>,
    /// What the life of the process hangs on.
    pub connection: Connection,
}

impl Mortal {
    async fn alive(&self) -> &SimulatedDashboard {
        if self.connection.is_dead() {
            std::future::pending::<()>().await;
        }
        &self.ray
    }
}

impl Dashboard for Mortal {
    fn job<'a>(&'a self, at: &'a Address, id: &'a str) -> DashboardResult<'a, Option<JobInfo>> {
        async move { self.alive().await.job(at, id).await }.boxed()
    }

    fn submit<'a>(&'a self, at: &'a Address, job: &'a Submission) -> DashboardResult<'a, ()> {
        async move { self.alive().await.submit(at, job).await }.boxed()
    }

    fn stop<'a>(&'a self, at: &'a Address, id: &'a str) -> DashboardResult<'a, ()> {
        async move { self.alive().await.stop(at, id).await }.boxed()
    }

    fn applications<'a>(&'a self, at: &'a Address) -> DashboardResult<'a, Applications> {
        async move { self.alive().await.applications(at).await }.boxed()
    }

    fn deploy<'a>(&'a self, at: &'a Address, config: &'a Value) -> DashboardResult<'a, ()> {
        async move { self.alive().await.deploy(at, config).await }.boxed()
    }

    fn is_healthy<'a>(&'a self, at: &'a ProxyAddress) -> BoxFuture<'a, bool> {
        async move { self.alive().await.is_healthy(at).await }.boxed()
    }
}
