//! Availability and discovery of aggregated API servers.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full, Limited};
use serde_json::{Value, json};

use super::{in_process, send, services::BUCKET};
use crate::{
    api::Api,
    auth::Caller,
    json::{self, items, text, texts, timestamp},
    outbound,
    store::key_of,
    verbs::{RequestContext, update},
};

/// How long a server may take to say what it has.
const DEADLINE: Duration = Duration::from_secs(5);
/// How often availability is checked when nothing changes.
const ASK_EVERY: Duration = Duration::from_secs(30);
/// Lists of resources are short; longer ones are none.
const ANSWER_AT_MOST: usize = 4 << 20;

/// Asks other servers, again and again, and whenever where they are changes.
pub(crate) fn start(api: &Api) {
    let task_api = api.clone();
    let mut services = api.store().follow(&BUCKET.into());
    api.spawn(async move {
        loop {
            // A cluster without other servers has nothing to ask for.
            while task_api.services().all(&task_api).is_empty() {
                services.borrow_and_update();
                if task_api.services().all(&task_api).is_empty() && services.changed().await.is_err() {
                    return;
                }
            }
            let buckets = ["core/services", "core/endpoints", "discovery.k8s.io/endpointslices"];
            let mut changes = buckets.map(|bucket| task_api.store().follow(&bucket.into()));
            let names: BTreeSet<String> = task_api.services().all(&task_api).keys().cloned().collect();
            for name in names {
                check(&task_api, &name).await;
            }
            let [one, two, three] = &mut changes;
            tokio::select! {
                _ = one.changed() => {}
                _ = two.changed() => {}
                _ = three.changed() => {}
                _ = services.changed() => {}
                () = tokio::time::sleep(ASK_EVERY) => {}
            }
        }
    });
}

/// Checks the availability of a server and writes its `Available` condition.
pub(super) async fn check(api: &Api, name: &str) {
    let Some(service) = api.services().all(api).get(name).cloned() else { return };
    let (is_available, reason, message) = match discover(api, &service).await {
        Ok(resources) => {
            api.services().learn(name, Some(resources));
            (true, "Passed", "all checks passed".to_owned())
        }
        Err((reason, message)) => {
            api.services().learn(name, None);
            (false, reason, message)
        }
    };
    let status = if is_available { "True" } else { "False" };
    let Ok(resource) = api.built_in("apiregistration.k8s.io", "apiservices") else { return };
    let (now, message) = (timestamp(api.now()), message.as_str());
    let now = now.as_str();
    let known = items(&service, "/status/conditions").iter().find(|one| text(one, "/type") == "Available");
    let shown = |one: &Value| (text(one, "/status") == status, text(one, "/message") == message);
    if known.is_some_and(|known| shown(known) == (true, true)) {
        return;
    }
    let context = RequestContext::internal(api, &resource, "", name).for_subresource("status");
    let change = move |mut service: Value| async move {
        let status_map = json::child(json::as_map(&mut service), "status");
        let conditions = status_map.entry("conditions").or_insert_with(|| json!([]));
        if let Some(conditions) = conditions.as_array_mut() {
            let before = conditions.iter().find(|one| text(one, "/type") == "Available");
            let since = before.filter(|one| text(one, "/status") == status);
            let since = since.map_or(now, |one| text(one, "/lastTransitionTime")).to_owned();
            conditions.retain(|one| text(one, "/type") != "Available");
            conditions.push(json!({"type": "Available", "status": status, "reason": reason,
                "message": message, "lastTransitionTime": since}));
        }
        Ok(service)
    };
    if let Err(failure) = Box::pin(update::update(&context, false, update::Made::Changed, change)).await
        && failure.code() != 404
    {
        tracing::debug!("the state of APIService {name} was not written: {failure}");
    }
}

/// The resources of a server, or the reason why it is not available.
async fn discover(api: &Api, service: &Value) -> Result<Vec<Value>, (&'static str, String)> {
    let (group, version) = (text(service, "/spec/group"), text(service, "/spec/version"));
    let path = format!("/apis/{group}/{version}");
    if let Some(handler) = api.servers().of(text(service, "/metadata/name")) {
        let list = in_process::resources(&handler, &path).await;
        return list
            .map(|list| aggregated(&list, group, version))
            .map_err(|why| ("FailedDiscoveryCheck", why));
    }
    let reference = service.pointer("/spec/service").cloned().unwrap_or_default();
    let (namespace, name) = (text(&reference, "/namespace"), text(&reference, "/name"));
    let shown = format!("service/{name} in {namespace:?}");
    let Some(entry) = api.store().get("core/services", &key_of(namespace, name)) else {
        return Err(("ServiceNotFound", format!("{shown} is not present")));
    };
    let object = entry.parse();
    let wanted = reference.get("port").and_then(Value::as_i64).unwrap_or(443);
    let is_wanted = |port: &Value| port.get("port").and_then(Value::as_i64) == Some(wanted);
    let Some(port) = items(&object, "/spec/ports").iter().find(|port| is_wanted(port)) else {
        return Err(("ServicePortError", format!("{shown} is not listening on port {wanted}")));
    };
    if text(&object, "/spec/type") != "ExternalName"
        && outbound::ready(api, namespace, name, text(port, "/name")).is_none()
    {
        return Err((
            "MissingEndpoints",
            format!("endpoints for {shown} have no addresses with port name {:?}", text(port, "/name")),
        ));
    }
    let failed = |why: &str| {
        (
            "FailedDiscoveryCheck",
            format!("failing or missing response from https://{name}.{namespace}.svc:{wanted}{path}: {why}"),
        )
    };
    let answer = async {
        let request = Request::get(path.as_str()).header(http::header::ACCEPT, "application/json");
        let request = request.body(Full::<Bytes>::default()).map_err(|error| error.to_string())?;
        let response = send(api, service, &Caller::server(), request).await?;
        if !response.status().is_success() {
            return Err(format!("bad status from server: {}", response.status().as_u16()));
        }
        let body = Limited::new(response.into_body(), ANSWER_AT_MOST).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        serde_json::from_slice::<Value>(&body).map_err(|error| error.to_string())
    };
    match tokio::time::timeout(DEADLINE, answer).await {
        // An empty list is `null` in Go.
        Ok(Ok(list))
            if !(list.is_object() && (list["resources"].is_array() || list["resources"].is_null())) =>
        {
            Err(failed("the response is not an APIResourceList"))
        }
        Ok(Ok(list)) => Ok(aggregated(&list, group, version)),
        Ok(Err(why)) => Err(failed(&why)),
        Err(_) => Err(failed("context deadline exceeded")),
    }
}

/// A list of resources in the form of aggregated discovery.
fn aggregated(list: &Value, group: &str, version: &str) -> Vec<Value> {
    let kind = |entry: &Value| {
        let own = |key: &str, otherwise: &str| match text(entry, key) {
            "" => otherwise.to_owned(),
            found => found.to_owned(),
        };
        json!({"group": own("/group", group), "version": own("/version", version), "kind": text(entry, "/kind")})
    };
    let entries = items(list, "/resources");
    let below = |plural: &str| -> Vec<Value> {
        let subs = entries.iter().filter_map(|entry| Some((text(entry, "/name").split_once('/')?, entry)));
        subs.filter(|((parent, _), _)| *parent == plural)
            .map(|((_, sub), entry)| json!({"subresource": sub, "responseKind": kind(entry), "verbs": entry["verbs"]}))
            .collect()
    };
    let plain = entries.iter().filter(|entry| !text(entry, "/name").contains('/'));
    plain
        .map(|entry| {
            let plural = text(entry, "/name");
            let is_namespaced = entry.get("namespaced") == Some(&Value::Bool(true));
            let mut resource = json!({"resource": plural, "responseKind": kind(entry),
                "scope": if is_namespaced { "Namespaced" } else { "Cluster" },
                "singularResource": text(entry, "/singularName"), "verbs": entry["verbs"]});
            let map = json::as_map(&mut resource);
            for key in ["shortNames", "categories"] {
                if texts(entry, &format!("/{key}")).next().is_some() {
                    map.insert(key.into(), entry[key].clone());
                }
            }
            let subresources = below(plural);
            if !subresources.is_empty() {
                map.insert("subresources".into(), subresources.into());
            }
            resource
        })
        .collect()
}
