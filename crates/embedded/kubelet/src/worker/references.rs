//! Objects that a pod refers to: read when they are needed.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core;
use quintet_controller::{ApiKind, Error, ObjectKey};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::context::Context;
use crate::pod::environment::References;
use crate::pod::lifecycle::ephemeral_containers;
use crate::volumes::{Sources, TokenRequest, token_requests};

/// Names of the objects that a pod refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub config_maps: BTreeSet<String>,
    pub secrets: BTreeSet<String>,
}

/// All ConfigMaps and Secrets that volumes and variables of a pod name.
pub(crate) fn names(pod: &core::Pod) -> Names {
    let mut names = Names::default();
    let Some(spec) = &pod.spec else { return names };
    for volume in spec.volumes.iter().flatten() {
        names.config_maps.extend(volume.config_map.as_ref().map(|source| source.name.clone()));
        names.secrets.extend(volume.secret.as_ref().and_then(|source| source.secret_name.clone()));
        let projected = volume.projected.as_ref().and_then(|source| source.sources.as_ref());
        for source in projected.into_iter().flatten() {
            names.config_maps.extend(source.config_map.as_ref().map(|source| source.name.clone()));
            names.secrets.extend(source.secret.as_ref().map(|source| source.name.clone()));
        }
    }
    let ephemeral = ephemeral_containers(pod);
    for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()).chain(&ephemeral) {
        for source in container.env_from.iter().flatten() {
            names.config_maps.extend(source.config_map_ref.as_ref().map(|source| source.name.clone()));
            names.secrets.extend(source.secret_ref.as_ref().map(|source| source.name.clone()));
        }
        for variable in container.env.iter().flatten() {
            let Some(source) = &variable.value_from else { continue };
            names.config_maps.extend(source.config_map_key_ref.as_ref().map(|key| key.name.clone()));
            names.secrets.extend(source.secret_key_ref.as_ref().map(|key| key.name.clone()));
        }
    }
    names
}

/// Tokens that were issued for a pod.
#[derive(Debug, Default)]
pub(crate) struct Tokens(BTreeMap<TokenRequest, Token>);

#[derive(Debug)]
struct Token {
    text: String,
    refresh_at: Timestamp,
}

impl Tokens {
    /// When the first of them has to be replaced.
    pub(crate) fn refresh_at(&self) -> Option<Timestamp> {
        self.0.values().map(|token| token.refresh_at).min()
    }
}

/// Reads everything that volumes and variables of a pod refer to. What is missing is left out; who needs it says so.
pub(crate) async fn read(
    context: &Context,
    pod: &core::Pod,
    pod_ips: &[String],
    tokens: &mut Tokens,
) -> Result<Sources, Error> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let names = names(pod);
    let mut references = References {
        services: context.services.all().iter().map(|entry| entry.object.clone()).collect(),
        pod_ips: pod_ips.to_vec(),
        host_ips: vec![context.node_address.to_string()],
        allocatable: context.allocatable.clone(),
        ..References::default()
    };
    for name in names.config_maps {
        if let Some(found) = get::<core::ConfigMap>(context, &ObjectKey::new(namespace, &name)).await? {
            references.config_maps.insert(name, found);
        }
    }
    for name in names.secrets {
        if let Some(found) = get::<core::Secret>(context, &ObjectKey::new(namespace, &name)).await? {
            references.secrets.insert(name, found);
        }
    }
    let now = context.clock.now();
    for request in token_requests(pod) {
        let is_fresh = tokens.0.get(&request).is_some_and(|token| token.refresh_at > now);
        if !is_fresh {
            let token = issue(context, pod, &request, now).await?;
            tokens.0.insert(request, token);
        }
    }
    let tokens = tokens.0.iter().map(|(request, token)| (request.clone(), token.text.clone())).collect();
    Ok(Sources { references, tokens })
}

/// Reads one object.
pub(crate) async fn get<K>(context: &Context, key: &ObjectKey) -> Result<Option<K>, Error>
where
    K: kube::Resource<DynamicType = ()> + DeserializeOwned,
    K::Scope: quintet_controller::object::Scoped,
{
    let kind = ApiKind::of::<K>();
    let Some(text) = context.api.get(&kind, key).await? else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|error| {
        Error::new(
            quintet_controller::Class::Transient,
            format!("cannot read {kind} {key}"),
            error.to_string(),
        )
    })
}

/// Requests a token that is bound to the pod.
async fn issue(
    context: &Context,
    pod: &core::Pod,
    request: &TokenRequest,
    now: Timestamp,
) -> Result<Token, Error> {
    let metadata = &pod.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let account =
        pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
    let audiences: Vec<&str> =
        Some(request.audience.as_str()).filter(|one| !one.is_empty()).into_iter().collect();
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {
            "audiences": audiences, "expirationSeconds": request.expiration_seconds,
            "boundObjectRef": { "apiVersion": "v1", "kind": "Pod", "name": metadata.name, "uid": metadata.uid },
        },
    });
    let key = ObjectKey::new(namespace, account);
    let kind = ApiKind::of::<core::ServiceAccount>();
    let response = context.api.create_subresource(&kind, &key, "token", &body).await?;
    let unreadable = |why: String| {
        Error::new(quintet_controller::Class::Transient, format!("cannot read a token of {key}"), why)
    };
    let response: Value = serde_json::from_str(&response).map_err(|error| unreadable(error.to_string()))?;
    let text = response["status"]["token"].as_str();
    let text = text.ok_or_else(|| unreadable("the response holds none".into()))?.to_owned();
    Ok(Token { text, refresh_at: refresh_time(now, request.expiration_seconds) })
}

/// Tokens are replaced when four fifths of their time are over, or after a day.
fn refresh_time(now: Timestamp, seconds: i64) -> Timestamp {
    let after = SignedDuration::from_secs((seconds * 4 / 5).min(24 * 3600));
    now.checked_add(after).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_a_pod_names_is_found() {
        let pod = json!({ "metadata": {}, "spec": {
            "volumes": [
                { "name": "a", "configMap": { "name": "m1" } },
                { "name": "b", "secret": { "secretName": "s1" } },
                { "name": "c", "projected": { "sources": [{ "configMap": { "name": "m2" } }, { "secret": { "name": "s2" } }] } },
            ],
            "initContainers": [{ "name": "i", "envFrom": [{ "secretRef": { "name": "s3" } }] }],
            "containers": [{ "name": "c", "env": [{ "name": "X", "valueFrom": { "configMapKeyRef": { "name": "m3", "key": "k" } } }] }],
        } });
        let found = names(&serde_json::from_value(pod).unwrap());
        assert_eq!(found.config_maps.into_iter().collect::<Vec<_>>(), ["m1", "m2", "m3"]);
        assert_eq!(found.secrets.into_iter().collect::<Vec<_>>(), ["s1", "s2", "s3"]);
    }

    #[test]
    fn tokens_are_replaced_before_they_expire() {
        let now = Timestamp::from_second(0).unwrap();
        assert_eq!(refresh_time(now, 3600).as_second(), 2880);
        assert_eq!(refresh_time(now, 1 << 30).as_second(), 86_400);
    }
}
