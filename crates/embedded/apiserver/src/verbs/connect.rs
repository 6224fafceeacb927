//! Requests that are no plain reads or writes: reviews, tokens, bindings, logs.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use quintet_objects::{FieldError, Path};
use serde_json::{Value, json};

use super::{RequestContext, eviction, update};
use crate::{
    auth::{
        Caller,
        rbac::{self, Attributes},
        serviceaccount, tokens,
    },
    decode,
    encoding::response::{self, Representation},
    json::{self, items, text, texts, timestamp},
    kubelet,
    request::{body::ResponseBody, content_type::ContentType, url::Query},
    status::{self, Failure, Named},
    store::key_of,
};

type Outcome = Result<Response<ResponseBody>, Failure>;

/// Streaming subresources, which accept every verb.
pub(crate) fn takes_any_verb(subresource: &str) -> bool {
    matches!(subresource, "exec" | "attach" | "portforward")
}

/// Serves a request that is special; `None` if it is not.
pub(crate) async fn serve(
    context: &RequestContext,
    verb: &str,
    query: &Query,
    parts: &http::request::Parts,
    body: &Bytes,
    wanted: Representation,
) -> Option<Outcome> {
    let content_type = parts.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let group = &*context.resource.group;
    let is_create = verb == "create";
    let outcome = match (group, &*context.resource.plural, context.subresource.as_str()) {
        ("authentication.k8s.io", "tokenreviews", "") if is_create => {
            token_review(context, content_type, body)
        }
        ("authentication.k8s.io", "selfsubjectreviews", "") if is_create => {
            decode::object(context, content_type, body)
                .map(|review| with_status(review, json!({"userInfo": context.caller.to_value()})))
        }
        ("authorization.k8s.io", _, "") if is_create => access_review(context, content_type, body),
        ("", "serviceaccounts", "token") if is_create => token_request(context, content_type, body),
        ("", "pods", "binding") | ("", "bindings", "") if is_create => {
            bind(context, content_type, body).await
        }
        ("", "pods", "eviction") if is_create => eviction::evict(context, content_type, body).await,
        ("", "pods", "log") => return Some(log(context, query, parts).await),
        ("", "pods", "exec" | "attach" | "portforward") => return Some(stream(context, query, parts).await),
        ("", "componentstatuses", "") => {
            if verb == "list" {
                Ok(json!({"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": []}))
            } else {
                Err(Failure::not_found(context.named()))
            }
        }
        _ => return None,
    };
    let code = if is_create { 201 } else { 200 };
    Some(outcome.and_then(|value| response::value(code, &value, wanted)))
}

fn with_status(mut review: Value, status: Value) -> Value {
    json::as_map(&mut review).insert("status".into(), status);
    review
}

fn token_review(context: &RequestContext, content_type: Option<&str>, body: &[u8]) -> Result<Value, Failure> {
    let review = decode::object(context, content_type, body)?;
    let mut audiences: Vec<&str> = texts(&review, "/spec/audiences").collect();
    if audiences.is_empty() {
        audiences.push(tokens::ISSUER);
    }
    let status = match tokens::authenticate(&context.api, text(&review, "/spec/token"), &audiences) {
        Some((caller, audiences)) => {
            json!({"authenticated": true, "user": caller.to_value(), "audiences": audiences})
        }
        None => json!({"user": {}, "error": "invalid bearer token"}),
    };
    Ok(with_status(review, status))
}

/// The SubjectAccessReview family.
fn access_review(
    context: &RequestContext,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Value, Failure> {
    let review = decode::object(context, content_type, body)?;
    if &*context.resource.plural == "selfsubjectrulesreviews" {
        let namespace = text(&review, "/spec/namespace");
        let rules = rbac::rules_for(&context.api, &context.caller, namespace);
        let (paths, resources): (Vec<_>, Vec<_>) = rules.iter().partition(|rule| rule.is_about_paths());
        let shown = |rules: Vec<&rbac::Rule>| rules.into_iter().map(rbac::Rule::to_value).collect::<Vec<_>>();
        let status =
            json!({"resourceRules": shown(resources), "nonResourceRules": shown(paths), "incomplete": false});
        return Ok(with_status(review, status));
    }
    let caller = if context.resource.plural.starts_with("self") {
        Arc::clone(&context.caller)
    } else {
        let extra = review.pointer("/spec/extra").and_then(Value::as_object).into_iter().flatten();
        Arc::new(Caller {
            name: text(&review, "/spec/user").to_owned(),
            uid: text(&review, "/spec/uid").to_owned(),
            groups: texts(&review, "/spec/groups").map(str::to_owned).collect(),
            extra: extra
                .map(|(key, value)| (key.clone(), texts(value, "").map(str::to_owned).collect()))
                .collect(),
        })
    };
    let mistakes = review_mistakes(context, &review);
    if !mistakes.is_empty() {
        return Err(Failure::invalid(context.named_kind(""), &mistakes));
    }
    let decision = if let Some(wanted) = review.pointer("/spec/resourceAttributes") {
        let attributes = Attributes {
            verb: text(wanted, "/verb"),
            group: text(wanted, "/group"),
            version: text(wanted, "/version"),
            resource: text(wanted, "/resource"),
            subresource: text(wanted, "/subresource"),
            namespace: text(wanted, "/namespace"),
            name: text(wanted, "/name"),
        };
        rbac::decide(&context.api, &caller, &attributes)
    } else {
        let wanted = |key: &str| text(&review, &format!("/spec/nonResourceAttributes/{key}")).to_owned();
        rbac::decide_path(&context.api, &caller, &wanted("verb"), &wanted("path"))
    };
    let mut status = json!({"allowed": decision.is_ok()});
    let (Ok(reason) | Err(reason)) = decision;
    if !reason.is_empty() {
        json::as_map(&mut status).insert("reason".into(), reason.into());
    }
    Ok(with_status(review, status))
}

/// What is wrong with a review that asks whether a user may do something.
fn review_mistakes(context: &RequestContext, review: &Value) -> Vec<FieldError> {
    let spec = Path::new("spec");
    let [resource, path] = ["resourceAttributes", "nonResourceAttributes"].map(|key| {
        review.get("spec").and_then(|spec| spec.get(key)).filter(|attributes| !attributes.is_null())
    });
    let mut mistakes = Vec::new();
    match (resource, path) {
        (Some(_), Some(path)) => mistakes.push(FieldError::invalid(
            &spec.field("nonResourceAttributes"),
            path,
            "cannot be specified in combination with resourceAttributes",
        )),
        (None, None) => mistakes.push(FieldError::invalid(
            &spec.field("resourceAttributes"),
            &Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        _ => {}
    }
    let plural = &*context.resource.plural;
    let is_about_nobody = text(review, "/spec/user").is_empty() && items(review, "/spec/groups").is_empty();
    if !plural.starts_with("self") && is_about_nobody {
        let why = "at least one of user or group must be specified";
        mistakes.push(FieldError::invalid(&spec.field("user"), &json!(""), why));
    }
    if plural == "localsubjectaccessreviews" {
        if let Some(resource) = resource
            && text(resource, "/namespace") != context.namespace
        {
            let attributes = spec.field("resourceAttributes");
            let found = json!(text(resource, "/namespace"));
            let why = "must match metadata.namespace";
            mistakes.push(FieldError::invalid(&attributes.field("namespace"), &found, why));
        }
        if let Some(path) = path {
            let field = spec.field("nonResourceAttributes");
            mistakes.push(FieldError::invalid(&field, path, "disallowed on this kind of request"));
        }
    }
    mistakes
}

fn token_request(
    context: &RequestContext,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Value, Failure> {
    let mut request = decode::object(context, content_type, body)?;
    let entry = context.entry()?;
    let seconds = request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(3600);
    let refusal = match seconds {
        ..600 => Some("may not specify a duration less than 10 minutes"),
        4_294_967_297.. => Some("may not specify a duration larger than 2^32 seconds"),
        _ => None,
    };
    if let Some(refusal) = refusal {
        let spec = Path::new("spec");
        let error = FieldError::invalid(&spec.field("expirationSeconds"), &seconds.into(), refusal);
        let named = Named { group: "authentication.k8s.io", resource: "TokenRequest", name: "" };
        return Err(Failure::invalid(named, &[error]));
    }
    let mut audiences: Vec<String> = texts(&request, "/spec/audiences").map(str::to_owned).collect();
    if audiences.is_empty() {
        audiences.push(tokens::ISSUER.to_owned());
    }
    let now = context.now.as_second();
    let mut bound = json!({"namespace": context.namespace, "serviceaccount": {"name": context.name, "uid": &*entry.head.uid}});
    if let Some(reference) = request.pointer("/spec/boundObjectRef").cloned().filter(Value::is_object) {
        let (kind, name) = (text(&reference, "/kind").to_lowercase(), text(&reference, "/name"));
        let (bucket, key) = match kind.as_str() {
            "pod" => ("core/pods", key_of(&context.namespace, name)),
            "secret" => ("core/secrets", key_of(&context.namespace, name)),
            "node" => ("core/nodes", name.to_owned()),
            _ => {
                return Err(Failure::bad_request(format!("cannot bind token to object of type {kind}")));
            }
        };
        let plural = format!("{kind}s");
        let object = context.api.store().get(bucket, &key);
        let object =
            object.ok_or_else(|| Failure::not_found(Named { group: "", resource: &plural, name }))?;
        let uid = text(&reference, "/uid");
        if !uid.is_empty() && uid != &*object.head.uid {
            let why = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(Failure::conflict(Named { group: "", resource: &plural, name }, &why));
        }
        json::as_map(&mut bound).insert(kind, json!({"name": name, "uid": &*object.head.uid}));
    }
    let claims = json!({"iss": tokens::ISSUER, "aud": audiences, "iat": now, "nbf": now, "exp": now + seconds,
        "jti": context.api.rng().uuid(), "sub": serviceaccount::user_name(&context.namespace, &context.name), "kubernetes.io": bound});
    let token = context.api.tokens().sign(&claims).map_err(Failure::internal)?;
    let expires =
        context.now.checked_add(jiff::SignedDuration::from_secs(seconds)).map_err(Failure::internal)?;
    let expires = timestamp(expires);
    let spec = json::child(json::as_map(&mut request), "spec");
    spec.insert("audiences".into(), json!(audiences));
    spec.insert("expirationSeconds".into(), seconds.into());
    let metadata = json::metadata(&mut request);
    metadata.insert("name".into(), context.name.as_str().into());
    metadata.insert("namespace".into(), context.namespace.as_str().into());
    metadata.insert("creationTimestamp".into(), timestamp(context.now).into());
    Ok(with_status(request, json!({"token": token, "expirationTimestamp": expires})))
}

/// Puts a pod on a node.
async fn bind(context: &RequestContext, content_type: Option<&str>, body: &[u8]) -> Result<Value, Failure> {
    let binding = decode::object(context, content_type, body)?;
    let name = text(&binding, "/metadata/name");
    if !context.name.is_empty() && context.name != name {
        return Err(Failure::bad_request("name in URL does not match name in Binding object"));
    }
    let pods = context.api.built_in("", "pods")?;
    let pod = RequestContext { resource: pods, name: name.to_owned(), ..context.clone() }
        .for_subresource("binding");
    let node = text(&binding, "/target/name");
    if node.is_empty() {
        let error = FieldError::required(&Path::new("target").field("name"), "");
        return Err(Failure::invalid(Named { group: "", resource: "Binding", name }, &[error]));
    }
    let annotations =
        binding.pointer("/metadata/annotations").and_then(Value::as_object).cloned().unwrap_or_default();
    let annotations = &annotations;
    update::update(&pod, false, update::Made::Changed, move |mut object: Value| async move {
        let refuse = |why: String| {
            Err(Failure::conflict(Named { group: "", resource: "pods/binding", name }, &why))
        };
        let bound = text(&object, "/spec/nodeName");
        if super::metadata::is_terminating(&object) {
            return refuse(format!("pod {name} is being deleted, cannot be assigned to a host"));
        }
        if !bound.is_empty() {
            return refuse(format!("pod {name} is already assigned to node {bound:?}"));
        }
        if !items(&object, "/spec/schedulingGates").is_empty() {
            return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
        }
        json::child(json::as_map(&mut object), "spec").insert("nodeName".into(), node.into());
        let metadata = json::metadata(&mut object);
        for (key, value) in annotations {
            json::child(metadata, "annotations").insert(key.clone(), value.clone());
        }
        let now = timestamp(context.api.now());
        let status = json::child(json::as_map(&mut object), "status");
        if let Some(conditions) = status.entry("conditions").or_insert_with(|| json!([])).as_array_mut() {
            conditions.retain(|condition| text(condition, "/type") != "PodScheduled");
            conditions.push(json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now}));
        }
        Ok(object)
    })
    .await?;
    Ok(status::done())
}

/// The container that a request is about: the one it names, or the only one.
fn container_of<'a>(
    context: &RequestContext,
    pod: &'a Value,
    wanted: Option<&'a str>,
) -> Result<&'a str, Failure> {
    let named = |list: &str| items(pod, list).iter().map(|container| text(container, "/name"));
    let regular: Vec<&str> = named("/spec/containers").collect();
    let mut all = regular
        .iter()
        .copied()
        .chain(named("/spec/initContainers"))
        .chain(named("/spec/ephemeralContainers"));
    match wanted.filter(|wanted| !wanted.is_empty()) {
        Some(wanted) if all.any(|name| name == wanted) => Ok(wanted),
        Some(wanted) => {
            Err(Failure::bad_request(format!("container {wanted} is not valid for pod {}", context.name)))
        }
        None if regular.len() > 1 => Err(Failure::bad_request(format!(
            "a container name must be specified for pod {}, choose one of: [{}]",
            context.name,
            regular.join(" ")
        ))),
        None => Ok(regular.first().copied().unwrap_or_default()),
    }
}

async fn log(context: &RequestContext, query: &Query, parts: &http::request::Parts) -> Outcome {
    let entry = context.entry()?;
    let pod = entry.to_value("v1", "Pod");
    let container = container_of(context, &pod, query.get("container"))?;
    check_log_options(context, query)?;
    let node = text(&pod, "/spec/nodeName");
    if node.is_empty() {
        // Empty, as Kubernetes responds for a pod that waits for a node.
        context.warn(no_node(&context.name));
        return Ok(response::with_body(204, ContentType::Text, ""));
    }
    let Some(kubelet) = context.api.kubelets().of(node) else {
        return Err(Failure::internal(no_containers(&context.name, node)));
    };
    let path = format!("/containerLogs/{}/{}/{container}", context.namespace, context.name);
    kubelet::forward(&kubelet, parts, &path).await
}

/// What upstream's `ValidatePodLogOptions` rejects.
fn check_log_options(context: &RequestContext, query: &Query) -> Result<(), Failure> {
    let mut mistakes = Vec::new();
    let number = |name: &str| query.get(name).and_then(|text| text.parse::<i64>().ok());
    let too_small = [
        ("tailLines", 0, "must be greater than or equal to 0"),
        ("limitBytes", 1, "must be greater than 0"),
        ("sinceSeconds", 1, "must be greater than 0"),
    ];
    for (name, least, why) in too_small {
        if let Some(value) = number(name).filter(|value| *value < least) {
            mistakes.push(FieldError::invalid(&Path::new(name), &value.into(), why));
        }
    }
    if query.get("sinceSeconds").is_some() && query.get("sinceTime").is_some() {
        let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        mistakes.push(FieldError::forbidden(&Path::new(""), why));
    }
    if mistakes.is_empty() {
        return Ok(());
    }
    let named = Named { group: "", resource: "PodLogOptions", name: &context.name };
    Err(Failure::invalid(named, &mistakes))
}

/// A pod that nothing runs: this cluster has no scheduler and no nodes of its own.
fn no_node(pod: &str) -> String {
    format!(
        "pod {pod} does not have a host assigned: nothing runs it; this cluster has no scheduler, and \
         'quintet simulate-nodes --schedule' assigns pods to simulated nodes, which run no containers"
    )
}

/// A pod on a node that only reports it as running.
fn no_containers(pod: &str, node: &str) -> String {
    format!("node {node} runs no containers of pod {pod}: nodes of this cluster are simulated")
}

/// Asks those who may refuse a stream to a container of a pod.
async fn connect(context: &RequestContext, query: &Query) -> Result<(), Failure> {
    context.entry()?;
    let kind = match context.subresource.as_str() {
        "exec" => "PodExecOptions",
        "attach" => "PodAttachOptions",
        _ => "PodPortForwardOptions",
    };
    let mut options = json!({"kind": kind, "apiVersion": "v1"});
    let map = json::as_map(&mut options);
    for stream in ["stdin", "stdout", "stderr", "tty"] {
        if query.is_set(stream) {
            map.insert(stream.into(), true.into());
        }
    }
    if let Some(container) = query.get("container") {
        map.insert("container".into(), container.into());
    }
    let command: Vec<Value> = query.all("command").map(Value::from).collect();
    if !command.is_empty() {
        map.insert("command".into(), command.into());
    }
    let ports: Vec<Value> =
        query.all("ports").filter_map(|port| port.parse::<i32>().ok()).map(Value::from).collect();
    if !ports.is_empty() {
        map.insert("ports".into(), ports.into());
    }
    crate::admission::connect(context, &options).await
}

/// Streams of a container, or a port of a pod.
async fn stream(context: &RequestContext, query: &Query, parts: &http::request::Parts) -> Outcome {
    connect(context, query).await?;
    let entry = context.entry()?;
    let pod = entry.to_value("v1", "Pod");
    let node = text(&pod, "/spec/nodeName");
    if node.is_empty() {
        return Err(Failure::bad_request(no_node(&context.name)));
    }
    let Some(kubelet) = context.api.kubelets().of(node) else {
        return Err(Failure::bad_request(no_containers(&context.name, node)));
    };
    let (namespace, name) = (&context.namespace, &context.name);
    let path = match context.subresource.as_str() {
        "portforward" => format!("/portForward/{namespace}/{name}"),
        action => {
            let container = container_of(context, &pod, query.get("container"))?;
            format!("/{action}/{namespace}/{name}/{container}")
        }
    };
    kubelet::forward(&kubelet, parts, &path).await
}
