//! Leader election by Lease: one replica writes, the others keep their caches warm.
//!
//! The lease is held for `duration` after each renewal, as others see it. We stop writing `renew_deadline`
//! after the *beginning* of the last renewal that succeeded, which is earlier: by the time another replica
//! may take the lease, our last write has finished or exceeded its deadline.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use serde::Serialize;
use serde_json::Value;
use tokio::{sync::watch, time::Instant};

use crate::{
    api::Api,
    clock::Clock,
    error::{Class, Error},
    object::{ApiKind, ObjectKey},
    tasks::Tasks,
};

/// The lease and its timing.
#[derive(Clone, Debug)]
pub struct LeaseSettings {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Identity of this replica.
    pub identity: String,
    /// How long the lease is valid without a renewal.
    pub duration: Duration,
    /// How long after a renewal we go on writing.
    pub renew_deadline: Duration,
    /// The interval between attempts to take or renew it.
    pub retry: Duration,
}

impl LeaseSettings {
    /// client-go's usual times: 15, 10 and 2 seconds.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// Whether this replica may write, and until when.
#[derive(Clone, Debug)]
pub struct Leadership(watch::Receiver<LeaderState>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum LeaderState {
    /// There is no election.
    Always,
    /// Another replica holds the lease, or it is unknown who does.
    Standby,
    /// We hold it and may write until then.
    Until(Instant),
    /// We do not compete any more; a replica that held the lease has to restart.
    Lost(Loss),
}

/// Why a replica leads no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Another replica holds the lease.
    Taken {
        /// Its identity.
        by: String,
    },
    /// The lease could not be renewed in time, so another replica may hold it.
    NotRenewed {
        /// Why the last attempt failed.
        reason: String,
    },
    /// The process stops.
    Stopped,
}

/// The state of the lease, for debugging.
#[derive(Clone, Debug, Serialize)]
pub struct LeaseReport {
    /// Whether we may write.
    pub leading: bool,
    /// For how many more seconds, if nothing renews it.
    pub seconds_left: Option<f64>,
}

impl Leadership {
    /// Leadership without an election, for a single replica.
    pub fn always() -> Self {
        Self(watch::Sender::new(LeaderState::Always).subscribe())
    }

    /// Never leads: for a process that only reads.
    pub fn never() -> Self {
        Self(watch::Sender::new(LeaderState::Standby).subscribe())
    }

    /// Whether there is an election, so that other replicas may have led before.
    pub fn is_contended(&self) -> bool {
        *self.0.borrow() != LeaderState::Always
    }

    /// How long we may go on writing without a renewal; zero if not at all.
    pub fn time_left(&self, now: Instant) -> Duration {
        match *self.0.borrow() {
            LeaderState::Always => Duration::MAX,
            LeaderState::Until(end) => end.saturating_duration_since(now),
            LeaderState::Standby | LeaderState::Lost(_) => Duration::ZERO,
        }
    }

    /// Resolves when we may write.
    pub async fn acquired(&self) {
        let mut state = self.0.clone();
        let leads = |state: &LeaderState| matches!(state, LeaderState::Always | LeaderState::Until(_));
        if state.wait_for(leads).await.is_err() {
            // The election has ended and we never led.
            std::future::pending::<()>().await;
        }
    }

    /// Why the lease was lost, if it was.
    pub fn loss(&self) -> Option<Loss> {
        match &*self.0.borrow() {
            LeaderState::Lost(loss) => Some(loss.clone()),
            _ => None,
        }
    }

    /// Whether the lease was held and lost.
    pub fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// Resolves when we held the lease and lost it.
    pub async fn lost(&self) {
        let mut state = self.0.clone();
        if state.wait_for(|state| matches!(state, LeaderState::Lost(_))).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The state, for debugging.
    pub fn report(&self) -> LeaseReport {
        let left = self.time_left(Instant::now());
        let seconds_left = matches!(*self.0.borrow(), LeaderState::Until(_)).then(|| left.as_secs_f64());
        LeaseReport { leading: !left.is_zero(), seconds_left }
    }
}

/// A candidate in the election for a lease.
pub struct Election {
    api: Api,
    clock: Clock,
    settings: LeaseSettings,
    state: watch::Sender<LeaderState>,
    /// The record that we saw last, and when it last changed, by our own clock: clocks of machines
    /// differ, so the times in the record are informational.
    observed: Option<(LeaseSpec, Instant)>,
}

impl Election {
    /// Not running yet. `api` must not be fenced by this election.
    pub fn new(api: Api, clock: Clock, settings: LeaseSettings) -> Self {
        let state = watch::Sender::new(LeaderState::Standby);
        Self { api, clock, settings, state, observed: None }
    }

    /// The leadership that follows this election.
    pub fn leadership(&self) -> Leadership {
        Leadership(self.state.subscribe())
    }

    /// Runs until the tasks stop, then releases the lease; or until the lease is lost.
    pub async fn run(mut self, tasks: Tasks) {
        self.api.metrics().leading(&self.settings.name, false);
        let stop = tasks.stop_token();
        let loss = stop.run_until_cancelled(self.compete()).await.unwrap_or(Loss::Stopped);
        let held = self.leads();
        let is_stopped = loss == Loss::Stopped;
        self.state.send_replace(LeaderState::Lost(loss));
        self.api.metrics().leading(&self.settings.name, false);
        if is_stopped
            && held
            && let Err(error) = self.release().await
        {
            tracing::warn!("{error}; the next leader waits until the lease expires");
        }
    }

    /// Competes for the lease, and holds it until it is lost.
    async fn compete(&mut self) -> Loss {
        let mut failure = None;
        loop {
            let started = Instant::now();
            match self.take_or_renew().await {
                Ok(Attempt::Ours) => {
                    let end = started + self.settings.renew_deadline;
                    failure = None;
                    let before = self.state.send_replace(LeaderState::Until(end));
                    if before == LeaderState::Standby {
                        self.api.metrics().leading(&self.settings.name, true);
                        tracing::info!(identity = self.settings.identity, "leading");
                    }
                }
                Ok(Attempt::Theirs) if self.leads() => {
                    let by = self.holder();
                    tracing::error!(holder = by, "the lease was taken by another replica");
                    return Loss::Taken { by };
                }
                // Another client wrote to the lease, perhaps only an annotation: the next attempt tells who holds it.
                Ok(Attempt::Theirs | Attempt::Raced) => {}
                Err(error) => {
                    if !error.is_quiet() {
                        tracing::warn!("{error}; retrying");
                    }
                    failure = Some(error);
                }
            }
            if let LeaderState::Until(end) = *self.state.borrow()
                && Instant::now() >= end
            {
                tracing::error!("the lease could not be renewed in time");
                let reason = failure
                    .map_or_else(|| "other clients keep writing to it".to_owned(), |error| error.cause());
                return Loss::NotRenewed { reason };
            }
            let mut wake = started + self.settings.retry;
            if let LeaderState::Until(end) = *self.state.borrow() {
                wake = wake.min(end);
            }
            tokio::time::sleep_until(wake).await;
        }
    }

    fn leads(&self) -> bool {
        matches!(*self.state.borrow(), LeaderState::Until(_))
    }

    /// Who held the lease when we last read it.
    fn holder(&self) -> String {
        let holder = self.observed.as_ref().and_then(|(spec, _)| spec.holder_identity.clone());
        holder.unwrap_or_default()
    }

    fn kind_and_key(&self) -> (ApiKind, ObjectKey) {
        (ApiKind::of::<Lease>(), ObjectKey::new(&self.settings.namespace, &self.settings.name))
    }

    /// One attempt to take or renew the lease.
    async fn take_or_renew(&mut self) -> Result<Attempt, Error> {
        // A response after the next renewal is due is useless.
        let patience = self.settings.renew_deadline / 2;
        let sent = Instant::now();
        if let Ok(answer) = tokio::time::timeout(patience, self.attempt()).await {
            answer
        } else {
            let (kind, key) = self.kind_and_key();
            let late = Error::deadline("take", &kind, Some(&key), patience);
            self.api.contact().record(sent, Err(late))
        }
    }

    async fn attempt(&mut self) -> Result<Attempt, Error> {
        let (kind, key) = self.kind_and_key();
        let Some(text) = self.api.get(&kind, &key).await? else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(self.settings.name.clone()),
                    namespace: Some(self.settings.namespace.clone()),
                    ..ObjectMeta::default()
                },
                spec: Some(self.record(None)),
            };
            return won(self.api.create(&kind, &key, &encode(&lease)?).await);
        };
        let mut lease: Lease = serde_json::from_str(&text).map_err(|error| {
            Error::new(Class::Transient, format!("cannot read Lease {key}"), error.to_string())
        })?;
        let seen = lease.spec.take().unwrap_or_default();
        if !self.may_take(&seen) {
            return Ok(Attempt::Theirs);
        }
        lease.spec = Some(self.record(Some(&seen)));
        // With the resource version we read: if another replica was faster, this is a conflict.
        won(self.api.replace(&kind, &key, &encode(&lease)?).await)
    }

    fn may_take(&mut self, seen: &LeaseSpec) -> bool {
        let now = Instant::now();
        let unchanged_since = match &self.observed {
            Some((before, at)) if before == seen => *at,
            _ => {
                self.observed = Some((seen.clone(), now));
                now
            }
        };
        let seconds = seen.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = seconds.map_or(self.settings.duration, Duration::from_secs);
        match seen.holder_identity.as_deref() {
            None | Some("") => true,
            Some(holder) if holder == self.settings.identity => true,
            Some(_) => now >= unchanged_since + duration,
        }
    }

    fn record(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(self.clock.now());
        let ours = before.filter(|spec| spec.holder_identity.as_ref() == Some(&self.settings.identity));
        let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or_default();
        LeaseSpec {
            holder_identity: Some(self.settings.identity.clone()),
            lease_duration_seconds: i32::try_from(self.settings.duration.as_secs()).ok(),
            acquire_time: ours.and_then(|spec| spec.acquire_time.clone()).or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if ours.is_some() || before.is_none() {
                transitions
            } else {
                transitions + 1
            }),
            ..LeaseSpec::default()
        }
    }

    /// Releases the lease, so that the next leader need not wait.
    async fn release(&self) -> Result<(), Error> {
        let (kind, key) = self.kind_and_key();
        let Some(text) = self.api.get(&kind, &key).await? else {
            return Ok(());
        };
        let Ok(mut lease) = serde_json::from_str::<Lease>(&text) else {
            return Ok(());
        };
        let Some(spec) = &mut lease.spec else {
            return Ok(());
        };
        if spec.holder_identity.as_ref() != Some(&self.settings.identity) {
            return Ok(());
        }
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(self.clock.now()));
        self.api.replace(&kind, &key, &encode(&lease)?).await.map(drop)
    }
}

/// The result of an attempt to take or renew the lease.
enum Attempt {
    /// We hold it.
    Ours,
    /// Another replica holds it.
    Theirs,
    /// Another client wrote to it between our read and our write.
    Raced,
}

fn won(answer: Result<String, Error>) -> Result<Attempt, Error> {
    match answer {
        Ok(_) => Ok(Attempt::Ours),
        Err(error) if error.class() == Class::Conflict => Ok(Attempt::Raced),
        Err(error) => Err(error),
    }
}

fn encode(lease: &Lease) -> Result<Value, Error> {
    serde_json::to_value(lease)
        .map_err(|error| Error::new(Class::Bug, "cannot encode the Lease", error.to_string()))
}

/// An identity for this replica: the host's name and the time of its start.
pub fn replica_identity(host: &str, start: Timestamp) -> String {
    format!("{host}_{:x}", start.as_nanosecond())
}
