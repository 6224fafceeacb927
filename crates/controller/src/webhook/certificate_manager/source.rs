//! Where certificates come from: a Secret that all replicas share, or a directory.

use std::{io::ErrorKind, path::Path, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::Value;

use super::super::Certificates;
use crate::{
    api::Api,
    error::{Class, Error},
    object::{ApiKind, ObjectKey},
};

/// The certificates in a Secret, issued or rotated if necessary. The authority of the certificate that is `served`
/// stays trusted even if the Secret has lost it.
pub(super) async fn from_secret(
    api: &Api,
    key: &ObjectKey,
    names: &[String],
    lifetime: Duration,
    served: Option<&Certificates>,
    now: Timestamp,
) -> Result<Certificates, Error> {
    let kind = ApiKind::of::<Secret>();
    let found = read(api, key).await?;
    let stored = found.as_ref().and_then(decode);
    if let Some(stored) = &stored
        && !stored.is_due(names, now)
    {
        return Ok(stored.clone());
    }
    let served = served.map_or("", Certificates::newest_authority);
    let stored = stored.as_ref().map_or("", |stored| &stored.ca);
    let fresh = Certificates::issue(names, now, lifetime, &format!("{served}{stored}"))
        .map_err(|error| Error::new(Class::Bug, "cannot issue the webhook certificate", error.to_string()))?;
    let is_new = found.is_none();
    let body = encode(found.unwrap_or_else(|| empty(key)), &fresh)?;
    let written =
        if is_new { api.create(&kind, key, &body).await } else { api.replace(&kind, key, &body).await };
    match written {
        Ok(_) => Ok(fresh),
        // Another replica was faster: its certificate is as good as this one.
        Err(error) if error.class() == Class::Conflict => {
            read(api, key).await?.as_ref().and_then(decode).ok_or(error)
        }
        Err(error) => Err(error),
    }
}

/// The certificates in a directory. `ca.crt` is optional.
pub(super) fn from_directory(directory: &Path) -> Result<Certificates, Error> {
    let read = |name: &str| {
        let path = directory.join(name);
        std::fs::read_to_string(&path).map_err(|error| (path, error))
    };
    let failed = |(path, error): (std::path::PathBuf, std::io::Error)| {
        Error::new(Class::Transient, format!("cannot read {}", path.display()), error.to_string())
    };
    let ca = match read("ca.crt") {
        Err((_, error)) if error.kind() == ErrorKind::NotFound => String::new(),
        outcome => outcome.map_err(failed)?,
    };
    let (certificate, key) = (read("tls.crt").map_err(failed)?, read("tls.key").map_err(failed)?);
    Ok(Certificates { ca, certificate, key })
}

async fn read(api: &Api, key: &ObjectKey) -> Result<Option<Secret>, Error> {
    let Some(text) = api.get(&ApiKind::of::<Secret>(), key).await? else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|error| {
        Error::new(Class::Transient, format!("cannot decode Secret {key}"), error.to_string())
    })
}

fn empty(key: &ObjectKey) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(key.name().to_owned()),
            namespace: key.namespace().map(ToOwned::to_owned),
            ..ObjectMeta::default()
        },
        type_: Some("kubernetes.io/tls".to_owned()),
        ..Secret::default()
    }
}

/// `None` if the Secret does not hold certificates, which are then issued anew.
fn decode(secret: &Secret) -> Option<Certificates> {
    let data = secret.data.as_ref()?;
    let text = |name: &str| String::from_utf8(data.get(name)?.0.clone()).ok();
    Some(Certificates { ca: text("ca.crt")?, certificate: text("tls.crt")?, key: text("tls.key")? })
}

fn encode(mut secret: Secret, certificates: &Certificates) -> Result<Value, Error> {
    let data = secret.data.get_or_insert_default();
    let Certificates { ca, certificate, key } = certificates;
    for (name, text) in [("ca.crt", ca), ("tls.crt", certificate), ("tls.key", key)] {
        data.insert(name.to_owned(), ByteString(text.clone().into_bytes()));
    }
    serde_json::to_value(&secret)
        .map_err(|error| Error::new(Class::Bug, "cannot encode the Secret of webhooks", error.to_string()))
}
