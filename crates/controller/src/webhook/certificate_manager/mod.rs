//! The certificate manager: issues, rotates and serves the webhooks' certificate, and publishes its CA.
//!
//! Every replica does the same and needs no leader: it reads the Secret, makes a certificate if there is none or
//! it is due for rotation, and writes it with the resource version it read, so that one replica succeeds and the
//! others read again. Then it publishes the authorities, and after that serves the certificate. Older authorities
//! stay published until they expire, so replicas that still serve an older certificate stay trusted.
//!
//! Publications do not depend on one another. One that fails is retried soon, one that is absent at the next check,
//! and neither keeps the certificate from being served.

mod publication;
mod source;

use std::{path::PathBuf, sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::RwLock;
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use serde::Serialize;
use tokio::time::Instant;

use super::Certificates;
use crate::{
    api::Api,
    clock::Clock,
    error::{Class, Error},
    object::ObjectKey,
    tasks::Tasks,
};
pub use publication::{Publication, PublicationState};

/// How long after the start objects that do not call our Service yet are expected to appear: they are often
/// installed together with us.
const INSTALLATION: Duration = Duration::from_mins(1);

/// Where certificates come from.
#[derive(Clone, Debug)]
pub enum CertificateSource {
    /// Issued by the certificate manager and shared by all replicas through a Secret.
    Own {
        /// The Secret.
        secret: ObjectKey,
        /// How long a certificate is valid.
        lifetime: Duration,
    },
    /// `tls.crt` and `tls.key` in a directory that another program (cert-manager) fills and renews. It publishes
    /// the authorities, too.
    Directory(PathBuf),
}

/// What the certificate manager works with.
#[derive(Clone, Debug)]
pub struct CertificateManagerSettings {
    /// Where certificates come from.
    pub source: CertificateSource,
    /// The Service of the webhooks: the certificate is valid for its names, and the CA is published where it is
    /// called.
    pub service: ObjectKey,
    /// Services of aggregated APIs, for whose names the certificate is valid, too.
    pub api_services: Vec<ObjectKey>,
    /// Where the CA is published.
    pub publications: Vec<Publication>,
    /// The interval between checks; objects that appear later are found within it.
    pub period: Duration,
    /// The interval between checks while one fails, and while objects are absent in the first minute.
    pub retry: Duration,
    /// The delay between publishing a new authority and serving its certificate: API servers learn of it by a
    /// watch.
    pub grace: Duration,
}

impl CertificateManagerSettings {
    /// Own certificates in `secret`, valid for a year, checked every minute.
    pub fn own(secret: ObjectKey, service: ObjectKey, publications: Vec<Publication>) -> Self {
        let lifetime = Duration::from_hours(365 * 24);
        Self {
            source: CertificateSource::Own { secret, lifetime },
            service,
            api_services: Vec::new(),
            publications,
            period: Duration::from_mins(1),
            retry: Duration::from_secs(5),
            grace: Duration::from_secs(10),
        }
    }

    /// All Services that lead to this process.
    fn services(&self) -> Vec<ObjectKey> {
        std::iter::once(&self.service).chain(&self.api_services).cloned().collect()
    }

    /// The DNS names of the Services.
    fn dns_names(&self) -> Vec<String> {
        let names = |service: &ObjectKey| {
            let (name, namespace) = (service.name(), service.namespace().unwrap_or("default"));
            [format!("{name}.{namespace}.svc"), format!("{name}.{namespace}.svc.cluster.local")]
        };
        self.services().iter().flat_map(names).collect()
    }
}

/// Manages certificates; the server takes the current one from it. Clones share their state.
#[derive(Clone, Debug)]
pub struct CertificateManager(Arc<RwLock<State>>);

#[derive(Debug)]
struct State {
    served: Option<(Certificates, Arc<CertifiedKey>)>,
    /// Why there is no new certificate, if there should be one.
    error: Option<String>,
    publications: Vec<PublicationReport>,
}

/// The state of the certificate manager, for debugging.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateReport {
    /// When the served certificate expires.
    pub expires: Option<Timestamp>,
    /// Why the last check failed.
    pub error: Option<String>,
    /// Where the CA is published.
    pub publications: Vec<PublicationReport>,
}

/// One publication and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PublicationReport {
    /// Where.
    #[serde(flatten)]
    pub publication: Publication,
    /// Whether.
    #[serde(flatten)]
    pub state: PublicationState,
}

impl CertificateManager {
    /// Starts managing certificates.
    pub fn start(api: Api, clock: Clock, settings: CertificateManagerSettings, tasks: &Tasks) -> Self {
        let error = Some("not checked yet".to_owned());
        let state = State { served: None, error, publications: Vec::new() };
        let manager = Self(Arc::new(RwLock::new(state)));
        let worker = Worker { api, clock, settings, manager: manager.clone() };
        let stopping = tasks.clone();
        tasks.spawn("webhook certificates", async move {
            tokio::select! {
                () = stopping.stopping() => {}
                () = worker.run() => {}
            }
        });
        manager
    }

    /// Why webhooks cannot be served; `None` once there is a certificate.
    pub fn missing(&self) -> Option<String> {
        let state = self.0.read();
        if state.served.is_some() {
            return None;
        }
        let error = state.error.as_deref().unwrap_or("not issued yet");
        Some(format!("no webhook certificate: {error}"))
    }

    /// The certificate that is served.
    pub fn served(&self) -> Option<Certificates> {
        self.0.read().served.as_ref().map(|(certificates, _)| certificates.clone())
    }

    /// Its state.
    pub fn report(&self) -> CertificateReport {
        let state = self.0.read();
        CertificateReport {
            expires: state.served.as_ref().and_then(|(certificates, _)| certificates.expires()),
            error: state.error.clone(),
            publications: state.publications.clone(),
        }
    }
}

impl ResolvesServerCert for CertificateManager {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().served.as_ref().map(|(_, key)| Arc::clone(key))
    }
}

/// How far the CA is published; of several publications, the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    /// Everywhere.
    Complete,
    /// Except for objects that do not exist or do not call our Service, which may never change.
    Absent,
    /// Something cannot be published now.
    Failed,
}

impl Progress {
    fn of(state: &PublicationState) -> Self {
        match state {
            PublicationState::Published => Self::Complete,
            PublicationState::Absent | PublicationState::Unreferenced => Self::Absent,
            PublicationState::Failed { .. } => Self::Failed,
        }
    }
}

struct Worker {
    api: Api,
    clock: Clock,
    settings: CertificateManagerSettings,
    manager: CertificateManager,
}

impl Worker {
    async fn run(self) {
        let started = Instant::now();
        loop {
            let outcome = self.check().await;
            let is_settled = match outcome {
                Ok(Progress::Complete) => true,
                Ok(Progress::Absent) => started.elapsed() >= INSTALLATION,
                Ok(Progress::Failed) | Err(_) => false,
            };
            self.record_error(outcome.err());
            let wait = if is_settled { self.settings.period } else { self.settings.retry };
            tokio::time::sleep(wait.min(self.settings.period)).await;
        }
    }

    /// Issues, publishes and serves as necessary. Returns how far the CA is published.
    async fn check(&self) -> Result<Progress, Error> {
        let now = self.clock.now();
        let certificates = match &self.settings.source {
            CertificateSource::Own { secret, lifetime } => {
                let names = self.settings.dns_names();
                let served = self.manager.served();
                source::from_secret(&self.api, secret, &names, *lifetime, served.as_ref(), now).await?
            }
            CertificateSource::Directory(directory) => source::from_directory(directory)?,
        };
        let key = certificates.certified_key().map_err(|error| {
            Error::new(Class::Invalid, "cannot serve the webhook certificate", error.to_string())
        })?;
        let mut progress = Progress::Complete;
        for (index, publication) in self.settings.publications.iter().enumerate() {
            match self.publish(publication, &certificates, now).await {
                Err(error) if error.is_quiet() => return Err(error),
                state => {
                    let state =
                        state.unwrap_or_else(|error| PublicationState::Failed { error: error.to_string() });
                    progress = progress.max(Progress::of(&state));
                    self.record_publication(index, publication, state);
                }
            }
        }
        if let Some(served) = self.manager.served().filter(|served| *served != certificates) {
            // Those who could not learn of the new authority trust the old one until it expires.
            if progress == Progress::Failed && !served.is_expired(now) {
                return Ok(progress);
            }
            tokio::time::sleep(self.settings.grace).await;
        }
        self.serve(certificates, key);
        Ok(progress)
    }

    /// Publishes the authorities, if that is our task, and checks that they are what the API server needs.
    async fn publish(
        &self,
        publication: &Publication,
        certificates: &Certificates,
        now: Timestamp,
    ) -> Result<PublicationState, Error> {
        let services = self.settings.services();
        match &self.settings.source {
            CertificateSource::Own { .. } => publication.publish(&self.api, &services, certificates).await,
            CertificateSource::Directory(_) => {
                let trusts = |bundle: &str, name: &str| certificates.verify(bundle, name, now);
                publication.verify(&self.api, &services, trusts).await
            }
        }
    }

    fn serve(&self, certificates: Certificates, key: CertifiedKey) {
        if self.manager.served().as_ref() != Some(&certificates) {
            tracing::info!("serving webhooks with a new certificate");
            self.manager.0.write().served = Some((certificates, Arc::new(key)));
        }
    }

    /// Logs an error once, and not again while it stays the same.
    fn record_error(&self, error: Option<Error>) {
        let is_quiet = error.as_ref().is_some_and(Error::is_quiet);
        let error = error.map(|error| error.to_string());
        let mut state = self.manager.0.write();
        if state.error != error {
            if let Some(error) = error.as_ref().filter(|_| !is_quiet) {
                tracing::warn!("webhook certificates: {error}");
            }
            state.error = error;
        }
    }

    /// Logs the state of a publication when it changes.
    fn record_publication(&self, index: usize, publication: &Publication, state: PublicationState) {
        let is_published = state == PublicationState::Published;
        self.api.metrics().ca_published(publication.kind_name(), publication.name(), is_published);
        let report = PublicationReport { publication: publication.clone(), state };
        let reports = &mut self.manager.0.write().publications;
        if reports.get(index) == Some(&report) {
            return;
        }
        match &report.state {
            PublicationState::Failed { error } => tracing::warn!("webhook CA of {publication}: {error}"),
            state => tracing::info!("webhook CA of {publication}: {state}"),
        }
        match reports.get_mut(index) {
            Some(known) => *known = report,
            None => reports.push(report),
        }
    }
}
