//! Named background tasks that are joined at shutdown.

use std::{collections::BTreeMap, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use parking_lot::Mutex;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The tasks of the process, and the signal that tells them to end.
#[derive(Clone, Debug, Default)]
pub struct Tasks(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    tracker: TaskTracker,
    stop: CancellationToken,
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Names {
    next: u64,
    running: BTreeMap<u64, String>,
    panicked: Vec<String>,
}

impl Tasks {
    /// No tasks yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs a task. It should end soon after [`Tasks::stopping`] resolves. A panic in it is a bug that
    /// shuts the process down: part of a controller is worse than none.
    pub fn spawn(&self, name: impl Into<String>, task: impl Future<Output = ()> + Send + 'static) {
        let name = name.into();
        let id = {
            let mut names = self.0.names.lock();
            names.next += 1;
            let id = names.next;
            names.running.insert(id, name.clone());
            id
        };
        let inner = Arc::clone(&self.0);
        self.0.tracker.spawn(async move {
            let outcome = AssertUnwindSafe(task).catch_unwind().await;
            let mut names = inner.names.lock();
            names.running.remove(&id);
            if let Err(panic) = outcome {
                tracing::error!(task = name, "task panicked, stopping: {}", panic_text(&*panic));
                names.panicked.push(name);
                inner.stop.cancel();
            }
        });
    }

    /// Resolves when it is time to end.
    pub async fn stopping(&self) {
        self.0.stop.cancelled().await;
    }

    /// Whether it is time to end.
    pub fn is_stopping(&self) -> bool {
        self.0.stop.is_cancelled()
    }

    /// The signal itself, for parts that take one.
    pub fn stop_token(&self) -> CancellationToken {
        self.0.stop.clone()
    }

    /// Tells all tasks to end without waiting for them.
    pub fn stop(&self) {
        self.0.stop.cancel();
    }

    /// Tells all tasks to end and waits for them, at most `timeout`; returns the names of those that did not.
    pub async fn shut_down(&self, timeout: Duration) -> Vec<String> {
        self.0.stop.cancel();
        self.0.tracker.close();
        let in_time = tokio::time::timeout(timeout, self.0.tracker.wait()).await.is_ok();
        if in_time { Vec::new() } else { self.running() }
    }

    /// Names of the tasks that run.
    pub fn running(&self) -> Vec<String> {
        self.0.names.lock().running.values().cloned().collect()
    }

    /// Names of the tasks that panicked.
    pub fn panicked(&self) -> Vec<String> {
        self.0.names.lock().panicked.clone()
    }
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn shutdown_waits_for_all_tasks_and_names_the_late() {
        let tasks = Tasks::new();
        let good = tasks.clone();
        tasks.spawn("good", async move { good.stopping().await });
        tasks.spawn("late", std::future::pending());
        assert_eq!(tasks.running(), ["good", "late"]);
        assert_eq!(tasks.shut_down(Duration::from_secs(5)).await, ["late"]);
    }

    #[tokio::test]
    async fn a_panic_shuts_the_process_down() {
        let tasks = Tasks::new();
        tasks.spawn("bad", async { panic!("no") });
        tasks.stopping().await;
        assert_eq!(tasks.panicked(), ["bad"]);
        assert!(tasks.shut_down(Duration::from_secs(5)).await.is_empty());
    }
}
