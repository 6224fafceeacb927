//! Other clusters: an operator that sends objects there has caches of them, and writes to them.

use std::{sync::Arc, time::Duration};

use super::Runtime;
use crate::{
    api::{Api, ApiSettings},
    cache::Caches,
    error::Error,
    executor::Executor,
    limiter::{Limiter, LimiterSettings},
    plan::{Action, NoCall, Step},
    tasks::Tasks,
};

/// How long watches may take to end when a connection is closed. They only wait.
const CLOSING: Duration = Duration::from_secs(5);

/// A connection to another cluster, with caches of its own. It lasts until [`Remote::disconnect`], or until the process
/// ends.
pub struct Remote {
    executor: Executor,
    caches: Caches,
    tasks: Tasks,
}

impl Runtime {
    /// Connects to another cluster. Writes there are fenced by the lease of this process, as those to its own cluster.
    pub fn connect(&self, name: &str, client: kube::Client, settings: ApiSettings) -> Remote {
        let shared = &self.0;
        let limiter = Limiter::adaptive(LimiterSettings::default());
        let api = Api::new(client, limiter, settings, Arc::clone(&shared.metrics));
        let tasks = Tasks::new();
        let caches = Caches::new(api.clone(), tasks.clone(), Arc::clone(&shared.metrics), None);
        let (of_process, of_connection) = (shared.tasks.clone(), tasks.clone());
        shared.tasks.spawn(format!("connection to {name}"), async move {
            tokio::select! {
                () = of_process.stopping() => {}
                () = of_connection.stopping() => {}
            }
            let late = of_connection.shut_down(CLOSING).await;
            if !late.is_empty() {
                tracing::warn!(?late, "tasks of a closed connection have not ended");
            }
            if !of_connection.panicked().is_empty() {
                of_process.stop();
            }
        });
        let executor = Executor::new(api.fenced(shared.leadership.clone()), caches.clone());
        Remote { executor, caches, tasks }
    }
}

impl Remote {
    /// The caches of the cluster.
    pub fn caches(&self) -> &Caches {
        &self.caches
    }

    /// The tasks of the connection.
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Writes to the cluster, in order, up to the first action that fails. The results are in the caches afterwards.
    pub async fn execute(&self, actions: Vec<Action>) -> Result<(), Error> {
        let steps: Vec<Step> = actions.into_iter().map(Step::from).collect();
        let no_call = |call: NoCall| async move { match call {} };
        let done = self.executor.act_out(&steps, no_call, |_| {}).await;
        done.map(drop).map_err(|failed| failed.error)
    }

    /// Closes the connection. Its caches stay as they are.
    pub fn disconnect(&self) {
        self.tasks.stop();
    }
}
