//! Writes with everything that follows from them, as units that cancellation cannot split.
//!
//! A request is cancelled when its client disconnects or its deadline passes: its future is dropped at whatever await
//! point it had reached. A write that was handed to the store happens nevertheless. So a task that cannot be cancelled
//! owns the write together with what the write holds (service addresses, quota) and what must follow it (a definition
//! is established, a namespace gets its service account).

use std::{sync::Arc, time::Duration};

use futures::{FutureExt as _, future::BoxFuture};
use tokio::task::JoinError;

use crate::{
    admission::{Claim, Reservation},
    aggregation,
    api::Api,
    auth::rbac,
    controllers, crd,
    resources::Resource,
    status::Failure,
    store::{Entry, Write, WriteError},
};

/// When to try again after the store was overloaded.
const OVERLOAD_RETRY_SECONDS: u32 = 1;

/// What a write holds until the store has decided: given back if the write fails.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) claim: Option<Claim>,
    pub(crate) reservation: Option<Reservation>,
}

impl Held {
    /// The object gets another name for its next attempt.
    pub(crate) fn rename(&self, name: &str) {
        if let Some(claim) = &self.claim {
            claim.rename(name);
        }
        if let Some(reservation) = &self.reservation {
            reservation.rename(name);
        }
    }

    /// The object is stored: its address and its share of quotas are counted from the store from now on.
    fn settle(self) {
        let Self { claim, reservation } = self;
        drop(claim);
        if let Some(reservation) = reservation {
            reservation.keep();
        }
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Overloaded => {
                Self::new(429, "TooManyRequests", error.to_string()).retry_after(OVERLOAD_RETRY_SECONDS)
            }
            _ => Self::internal(error),
        }
    }
}

/// A write that did not happen, with what it held: another attempt may need it.
pub(crate) type Rejected = (WriteError, Held);

/// What has to be done after every write of a resource, before the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowUp {
    Definition,
    Namespace,
    ClusterRole,
    ApiService,
}

impl FollowUp {
    fn of(resource: &Resource) -> Option<Self> {
        match (&*resource.group, &*resource.plural) {
            ("apiextensions.k8s.io", "customresourcedefinitions") => Some(Self::Definition),
            ("", "namespaces") => Some(Self::Namespace),
            ("rbac.authorization.k8s.io", "clusterroles") => Some(Self::ClusterRole),
            ("apiregistration.k8s.io", "apiservices") => Some(Self::ApiService),
            _ => None,
        }
    }
}

impl Api {
    /// Carries out a write and what follows from it. If the caller is cancelled, both happen all the same.
    pub(crate) async fn commit(
        &self,
        write: Write,
        resource: &Resource,
        name: &str,
        held: Held,
    ) -> Result<Arc<Entry>, Rejected> {
        let (api, name, follow_up) = (self.clone(), name.to_owned(), FollowUp::of(resource));
        let work = async move {
            let entry = match api.store().write(write).await {
                Ok(entry) => entry,
                Err(error) => return Err((error, held)),
            };
            held.settle();
            if let Some(follow_up) = follow_up {
                // A start does what a stop left undone, see `catch_up`.
                let stop = api.stopping().clone();
                stop.run_until_cancelled(api.follow_up(follow_up, &name)).await;
            }
            Ok(entry)
        };
        let failed = |error: JoinError| Err((WriteError::Failed(error.to_string()), Held::default()));
        self.detached(work).await.unwrap_or_else(failed)
    }

    /// Runs work to its end, whether or not the caller is still there to see it.
    pub(crate) async fn detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, JoinError> {
        let mut work = Box::pin(work);
        // Work that does not wait, such as a write to memory, needs no task of its own.
        match (&mut work).now_or_never() {
            Some(outcome) => Ok(outcome),
            None => self.spawn_draining(work).await,
        }
    }

    fn follow_up<'a>(&'a self, follow_up: FollowUp, name: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            // The write stands, and nothing else repeats its follow-up while the store is overloaded.
            let outcome = loop {
                let outcome = match follow_up {
                    FollowUp::Definition => crd::establish(self, name).await,
                    FollowUp::Namespace => controllers::namespaces::complete(self, name).await,
                    FollowUp::ApiService => aggregation::refresh_service(self, name).await,
                    FollowUp::ClusterRole => rbac::aggregate(self).await,
                };
                match outcome {
                    Err(failure) if failure.code() == 429 => {
                        tokio::time::sleep(Duration::from_secs(OVERLOAD_RETRY_SECONDS.into())).await;
                    }
                    outcome => break outcome,
                }
            };
            if let Err(failure) = outcome {
                tracing::warn!("follow-up {follow_up:?} of a write of {name:?} failed: {failure}");
            }
        })
    }

    /// Does what was left undone when the process ended between a write and its follow-up.
    pub(crate) async fn catch_up(&self) {
        let names = |bucket: &str| -> Vec<Arc<str>> {
            self.store().objects(bucket, "").into_iter().map(|(name, _)| name).collect()
        };
        let registry = self.registry();
        for name in names(crd::BUCKET) {
            let is_settled = registry
                .all()
                .filter_map(|resource| resource.as_custom())
                .any(|custom| *custom.definition == *name && !custom.is_terminating);
            if !is_settled {
                self.follow_up(FollowUp::Definition, &name).await;
            }
        }
        for name in names("core/namespaces") {
            self.follow_up(FollowUp::Namespace, &name).await;
        }
        self.follow_up(FollowUp::ClusterRole, "").await;
    }
}
