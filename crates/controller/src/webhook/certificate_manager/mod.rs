//! Keeps the served certificate and the published authorities in step.
//!
//! Every replica does the same and needs no leader: it reads the Secret, makes a certificate if none is there
//! or it is due, and writes it with the resource version it read, so that of many one succeeds and the
//! others read again. Then it publishes the authorities where they are missing, and only then serves the
//! certificate. Older authorities stay published until they expire: replicas that have not changed over yet
//! go on being trusted.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::Secret,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use parking_lot::RwLock;
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use serde_json::{Value, json};

use super::Certificates;
use crate::{
    api::{Api, PatchKind},
    clock::Clock,
    error::{Class, Error},
    object::{ApiKind, ObjectKey},
    tasks::Tasks,
};

/// Where certificates come from.
#[derive(Clone, Debug)]
pub enum CertificateSource {
    /// Made by ourselves and shared by all replicas through a Secret.
    Own {
        /// The Secret.
        secret: ObjectKey,
        /// How long a certificate is valid.
        lifetime: Duration,
    },
    /// `tls.crt` and `tls.key` in a directory that somebody else fills and renews; that somebody publishes the
    /// authorities, too.
    Directory(PathBuf),
}

/// An object that says which authorities the API server trusts for our webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Publication {
    /// A `ValidatingWebhookConfiguration` of this name.
    Validating(String),
    /// A `MutatingWebhookConfiguration` of this name.
    Mutating(String),
    /// The conversion section of the CRD of this name.
    Conversion(String),
}

/// What to keep.
#[derive(Clone, Debug)]
pub struct KeeperSettings {
    /// Where certificates come from.
    pub source: CertificateSource,
    /// Names in the certificate; the first is the one the API server calls, `service.namespace.svc`.
    pub names: Vec<String>,
    /// Where the authorities are published.
    pub publications: Vec<Publication>,
    /// How often to look.
    pub period: Duration,
    /// How long after publishing a new authority the certificate is changed: API servers learn of it by a
    /// watch.
    pub grace: Duration,
}

impl KeeperSettings {
    /// Certificates of our own in `secret`, valid for a year, looked after every minute.
    pub fn own(secret: ObjectKey, names: Vec<String>, publications: Vec<Publication>) -> Self {
        let lifetime = Duration::from_hours(365 * 24);
        Self {
            source: CertificateSource::Own { secret, lifetime },
            names,
            publications,
            period: Duration::from_mins(1),
            grace: Duration::from_secs(10),
        }
    }
}

/// Keeps certificates; the server takes the current one from it.
#[derive(Clone, Debug)]
pub struct Keeper(Arc<RwLock<State>>);

#[derive(Debug)]
struct State {
    served: Option<(Certificates, Arc<CertifiedKey>)>,
    missing: Option<String>,
}

impl Keeper {
    /// Starts looking after certificates.
    pub fn start(api: Api, clock: Clock, settings: KeeperSettings, tasks: &Tasks) -> Self {
        let missing = Some("webhook certificates have not been looked at yet".to_owned());
        let keeper = Self(Arc::new(RwLock::new(State { served: None, missing })));
        let work = Work { api, clock, settings, keeper: keeper.clone() };
        let stopping = tasks.clone();
        tasks.spawn("webhook certificates", async move {
            tokio::select! {
                () = stopping.stopping() => {}
                () = work.run() => {}
            }
        });
        keeper
    }

    /// What keeps webhooks from being trusted, in words; `None` once the served certificate verifies against
    /// the published authorities.
    pub fn missing(&self) -> Option<String> {
        self.0.read().missing.clone()
    }

    /// The certificate that is served.
    pub fn served(&self) -> Option<Certificates> {
        self.0.read().served.as_ref().map(|(certificates, _)| certificates.clone())
    }
}

impl Keeper {
    /// Takes the outcome of a look in. What was verified goes on being served while the API server has trouble of
    /// its own: taking all replicas away from it then would only make things worse.
    fn looked(&self, error: Option<&Error>) {
        let mut state = self.0.write();
        let is_only_unsure = error.is_some_and(|error| error.class() != Class::Invalid);
        if state.missing.is_some() || !is_only_unsure {
            state.missing = error.map(ToString::to_string);
        }
    }
}

impl ResolvesServerCert for Keeper {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().served.as_ref().map(|(_, key)| Arc::clone(key))
    }
}

struct Work {
    api: Api,
    clock: Clock,
    settings: KeeperSettings,
    keeper: Keeper,
}

impl Work {
    async fn run(self) {
        loop {
            let result = self.look().await;
            if let Err(error) = &result {
                tracing::warn!("webhook certificates: {error}");
            }
            self.keeper.looked(result.as_ref().err());
            // Until all is well, look often: the process is not ready meanwhile.
            let wait = if result.is_ok() { self.settings.period } else { Duration::from_secs(2) };
            tokio::time::sleep(wait.min(self.settings.period)).await;
        }
    }

    async fn look(&self) -> Result<(), Error> {
        let now = self.clock.now();
        match &self.settings.source {
            CertificateSource::Own { secret, lifetime } => {
                let certificates = self.own(secret, *lifetime, now).await?;
                for publication in &self.settings.publications {
                    self.publish(publication, &certificates).await?;
                }
                // Whoever published it, perhaps a moment ago: API servers learn of it by a watch.
                if self.keeper.served().is_some_and(|served| served != certificates) {
                    tokio::time::sleep(self.settings.grace).await;
                }
                self.serve(certificates)?;
            }
            CertificateSource::Directory(directory) => self.serve(read_directory(directory)?)?,
        }
        self.verify(now).await
    }

    /// The shared certificates, made or renewed if need be.
    async fn own(&self, key: &ObjectKey, lifetime: Duration, now: Timestamp) -> Result<Certificates, Error> {
        let kind = ApiKind::of::<Secret>();
        let found = self.api.get(&kind, key).await?;
        let secret = match &found {
            Some(text) => serde_json::from_str::<Secret>(text).map_err(|error| {
                Error::new(Class::Transient, format!("cannot read Secret {key}"), error.to_string())
            })?,
            None => Secret {
                metadata: ObjectMeta {
                    name: Some(key.name().to_owned()),
                    namespace: key.namespace().map(ToOwned::to_owned),
                    ..ObjectMeta::default()
                },
                type_: Some("kubernetes.io/tls".to_owned()),
                ..Secret::default()
            },
        };
        let stored = from_secret(&secret);
        if let Some(stored) = &stored
            && !stored.is_due(&self.settings.names, now)
        {
            return Ok(stored.clone());
        }
        let trusted = stored.as_ref().map_or("", |stored| &stored.ca);
        let fresh = Certificates::make(&self.settings.names, now, lifetime, trusted)
            .map_err(|error| Error::new(Class::Bug, "cannot serve webhooks", error.to_string()))?;
        let body = to_secret(secret, &fresh);
        let written = match found {
            Some(_) => self.api.replace(&kind, key, &body).await,
            None => self.api.create(&kind, key, &body).await,
        };
        match written {
            Ok(_) => Ok(fresh),
            // Another replica was faster: its certificate is as good as ours.
            Err(error) if error.class() == Class::Conflict => {
                let text = self.api.get(&kind, key).await?.unwrap_or_default();
                serde_json::from_str(&text).ok().as_ref().and_then(from_secret).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Publishes the authorities where the newest is missing.
    async fn publish(&self, publication: &Publication, certificates: &Certificates) -> Result<(), Error> {
        let (kind, key, object) = self.publication(publication).await?;
        let newest = certificates.newest_authority();
        let bundles = bundle_paths(publication, &object);
        let lacking = bundles.iter().filter(|path| !read_bundle(&object, path).contains(newest));
        let mut patch: Vec<_> = lacking
            .map(|path| json!({ "op": "add", "path": path, "value": ByteString(certificates.ca.clone().into_bytes()) }))
            .collect();
        if patch.is_empty() {
            return Ok(());
        }
        // Positions in a list are worth something only for the state they were read from.
        let version = object.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
        patch.insert(0, json!({ "op": "test", "path": "/metadata/resourceVersion", "value": version }));
        self.api.patch(&kind, &key, None, &PatchKind::Json, &Value::Array(patch)).await.map(drop)
    }

    async fn publication(&self, publication: &Publication) -> Result<(ApiKind, ObjectKey, Value), Error> {
        let (kind, name) = match publication {
            Publication::Validating(name) => (ApiKind::of::<ValidatingWebhookConfiguration>(), name),
            Publication::Mutating(name) => (ApiKind::of::<MutatingWebhookConfiguration>(), name),
            Publication::Conversion(name) => (ApiKind::of::<CustomResourceDefinition>(), name),
        };
        let key = ObjectKey::cluster(name);
        let attempt = || format!("cannot publish webhook authorities in {kind} {key}");
        let Some(text) = self.api.get(&kind, &key).await? else {
            return Err(Error::new(Class::Transient, attempt(), "it does not exist; apply the manifests"));
        };
        let object = serde_json::from_str(&text)
            .map_err(|error| Error::new(Class::Transient, attempt(), error.to_string()))?;
        Ok((kind, key, object))
    }

    fn serve(&self, certificates: Certificates) -> Result<(), Error> {
        if self.keeper.served().as_ref() == Some(&certificates) {
            return Ok(());
        }
        let key = certificates
            .certified_key()
            .map_err(|error| Error::new(Class::Invalid, "cannot serve webhooks", error.to_string()))?;
        tracing::info!("serving webhooks with a new certificate");
        self.keeper.0.write().served = Some((certificates, Arc::new(key)));
        Ok(())
    }

    /// Checks the served certificate against what is published, under the name the API server calls.
    async fn verify(&self, now: Timestamp) -> Result<(), Error> {
        let Some(served) = self.keeper.served() else {
            return Ok(());
        };
        for publication in &self.settings.publications {
            let (kind, key, object) = self.publication(publication).await?;
            for path in bundle_paths(publication, &object) {
                let authorities = read_bundle(&object, &path);
                let Some(name) = self.settings.names.first() else { continue };
                served.verify(&authorities, name, now).map_err(|error| {
                    let attempt = format!("the API server cannot trust webhooks by {kind} {key}");
                    Error::new(Class::Invalid, attempt, error.to_string())
                })?;
            }
        }
        Ok(())
    }
}

/// Where an object holds our authorities.
fn bundle_paths(publication: &Publication, object: &Value) -> Vec<String> {
    match publication {
        Publication::Validating(_) | Publication::Mutating(_) => {
            let webhooks = object["webhooks"].as_array().map_or(0, Vec::len);
            (0..webhooks).map(|index| format!("/webhooks/{index}/clientConfig/caBundle")).collect()
        }
        Publication::Conversion(_) => {
            let path = "/spec/conversion/webhook/clientConfig";
            object.pointer(path).map(|_| format!("{path}/caBundle")).into_iter().collect()
        }
    }
}

fn read_bundle(object: &Value, path: &str) -> String {
    object
        .pointer(path)
        .and_then(|value| serde_json::from_value::<ByteString>(value.clone()).ok())
        .and_then(|bytes| String::from_utf8(bytes.0).ok())
        .unwrap_or_default()
}

fn from_secret(secret: &Secret) -> Option<Certificates> {
    let data = secret.data.as_ref()?;
    let text = |name: &str| String::from_utf8(data.get(name)?.0.clone()).ok();
    Some(Certificates { ca: text("ca.crt")?, certificate: text("tls.crt")?, key: text("tls.key")? })
}

fn to_secret(mut secret: Secret, certificates: &Certificates) -> Value {
    let data = secret.data.get_or_insert_default();
    let Certificates { ca, certificate, key } = certificates;
    for (name, text) in [("ca.crt", ca), ("tls.crt", certificate), ("tls.key", key)] {
        data.insert(name.to_owned(), ByteString(text.clone().into_bytes()));
    }
    serde_json::to_value(&secret).unwrap_or_default()
}

fn read_directory(directory: &Path) -> Result<Certificates, Error> {
    let read = |name: &str| {
        let path = directory.join(name);
        std::fs::read_to_string(&path).map_err(|error| {
            Error::new(Class::Transient, format!("cannot read {}", path.display()), error.to_string())
        })
    };
    Ok(Certificates {
        ca: read("ca.crt").unwrap_or_default(),
        certificate: read("tls.crt")?,
        key: read("tls.key")?,
    })
}
