//! Admission webhooks: matching, calling, interpreting responses.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Full, Limited};
use parking_lot::RwLock;
use serde_json::{Value, json};

use super::{
    Operation,
    matching::{accept_changed, in_version_of, matching_resource},
};
use crate::{
    api::Api,
    json::{self, items, text, texts},
    model,
    outbound::{self, Target, Trust},
    request::options::Propagation,
    resources::Resource,
    status::Failure,
    verbs::RequestContext,
};

const MUTATING: &str = "admissionregistration.k8s.io/mutatingwebhookconfigurations";
const VALIDATING: &str = "admissionregistration.k8s.io/validatingwebhookconfigurations";
/// Answers of webhooks are objects; longer ones are none.
const ANSWER_AT_MOST: usize = 8 << 20;

/// Responds to a review at a path, within a time limit. The error is for the client whose request needed it.
pub type InProcessWebhook =
    Arc<dyn Fn(String, Value, Duration) -> BoxFuture<'static, Result<Value, String>> + Send + Sync>;

/// The hooks of all configurations, in the order they are called.
#[derive(Default)]
pub(crate) struct Webhooks {
    mutating: RwLock<(u64, Arc<[Value]>)>,
    validating: RwLock<(u64, Arc<[Value]>)>,
    /// Services that this process answers for, by namespace and name.
    in_process: RwLock<BTreeMap<(String, String), InProcessWebhook>>,
}

impl std::fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhooks").field("in_process", &self.in_process.read().keys()).finish_non_exhaustive()
    }
}

impl Webhooks {
    fn hooks(&self, api: &Api, bucket: &str) -> Arc<[Value]> {
        let cache = if bucket == MUTATING { &self.mutating } else { &self.validating };
        let version = api.store().bucket_version(bucket);
        {
            let cached = cache.read();
            if cached.0 == version {
                return Arc::clone(&cached.1);
            }
        }
        let configurations = api.store().objects(bucket, "");
        let hooks: Arc<[Value]> = configurations
            .iter()
            .map(|(_, entry)| entry.parse())
            .flat_map(|configuration| items(&configuration, "/webhooks").to_vec())
            .collect();
        *cache.write() = (version, Arc::clone(&hooks));
        hooks
    }

    /// Whether any mutating hook exists at all.
    pub(crate) fn has_mutating(&self, api: &Api) -> bool {
        !self.hooks(api, MUTATING).is_empty()
    }

    /// Answers for a service in this process, without a connection; `None` ends that.
    pub(crate) fn answer(&self, namespace: &str, service: &str, webhook: Option<InProcessWebhook>) {
        let key = (namespace.to_owned(), service.to_owned());
        let mut in_process = self.in_process.write();
        match webhook {
            Some(webhook) => _ = in_process.insert(key, webhook),
            None => _ = in_process.remove(&key),
        }
    }

    fn in_process(&self, service: &Value) -> Option<InProcessWebhook> {
        let key = (text(service, "/namespace").to_owned(), text(service, "/name").to_owned());
        self.in_process.read().get(&key).cloned()
    }

    /// Sends a review to where a client configuration points, and reads the response.
    pub(crate) async fn call(
        &self,
        api: &Api,
        client_config: &Value,
        review: &Value,
        timeout: Duration,
    ) -> Result<Value, String> {
        if let Some(service) = client_config.get("service")
            && let Some(webhook) = self.in_process(service)
        {
            let path = cleaned(text(service, "/path"));
            return webhook(path, review.clone(), timeout)
                .await
                .map_err(|why| format!("failed to call webhook: {why}"));
        }
        let url = target_url(client_config);
        let shown = format!("{url}?timeout={}s", timeout.as_secs());
        let post = |why: String| format!("failed to call webhook: Post \"{shown}\": {why}");
        match tokio::time::timeout(timeout, exchange(api, client_config, &shown, review)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Problem::Resolve(why))) => Err(why),
            Ok(Err(Problem::Call(why))) => Err(post(why)),
            Err(_) => Err(post("context deadline exceeded".into())),
        }
    }
}

enum Problem {
    Resolve(String),
    Call(String),
}

/// The address as messages show it.
fn target_url(client_config: &Value) -> String {
    if let Some(service) = client_config.get("service") {
        let port = service.get("port").and_then(Value::as_i64).unwrap_or(443);
        let path = cleaned(text(service, "/path"));
        return format!(
            "https://{}.{}.svc:{port}{path}",
            text(service, "/name"),
            text(service, "/namespace")
        );
    }
    let url = text(client_config, "/url");
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    format!("{scheme}://{host}{}", cleaned(path))
}

/// A path without empty steps and dots, as Kubernetes sends it: envtest configures `https://host//path`.
fn cleaned(path: &str) -> String {
    let mut steps: Vec<&str> = Vec::new();
    for step in path.split('/') {
        match step {
            "" | "." => {}
            ".." => _ = steps.pop(),
            step => steps.push(step),
        }
    }
    format!("/{}", steps.join("/"))
}

async fn exchange(api: &Api, client_config: &Value, url: &str, review: &Value) -> Result<Value, Problem> {
    let call = |error: &dyn std::fmt::Display| Problem::Call(error.to_string());
    let uri: http::Uri = url.parse().map_err(|error| call(&error))?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = uri.port_u16().unwrap_or(443);
    let address = match client_config.get("service") {
        Some(service) => outbound::endpoint(api, service).map_err(Problem::Resolve)?,
        None => (host.clone(), port),
    };
    let bundle = STANDARD.decode(text(client_config, "/caBundle")).map_err(|error| call(&error))?;
    let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let request = http::Request::post(path)
        .header(http::header::HOST, &host)
        .header(http::header::CONTENT_TYPE, "application/json")
        .header(http::header::ACCEPT, "application/json, */*")
        .header(http::header::USER_AGENT, "kube-apiserver-admission")
        .body(Full::new(Bytes::from(review.to_string())))
        .map_err(|error| call(&error))?;
    let target = Target { address, name: host, trust: Trust::Bundle(&bundle), identity: None };
    let response = outbound::send(&target, request).await.map_err(Problem::Call)?;
    let code = response.status();
    let body = Limited::new(response.into_body(), ANSWER_AT_MOST).collect().await;
    let body = body.map_err(|error| Problem::Call(error.to_string()))?.to_bytes();
    if !code.is_success() {
        return Err(Problem::Call(format!("the server returned {code}: {}", String::from_utf8_lossy(&body))));
    }
    serde_json::from_slice(&body).map_err(|error| call(&error))
}

/// The options of a request, as hooks and expressions see them.
pub(super) fn options(context: &RequestContext, operation: Operation<'_>) -> Value {
    let mut options = match operation {
        Operation::Create => json!({"kind": "CreateOptions"}),
        Operation::Update => json!({"kind": "UpdateOptions"}),
        Operation::Delete(delete) => {
            let mut options = json!({"kind": "DeleteOptions"});
            let map = json::as_map(&mut options);
            if let Some(grace) = delete.grace_period {
                map.insert("gracePeriodSeconds".into(), grace.into());
            }
            if let Some(propagation) = delete.propagation {
                let propagation = match propagation {
                    Propagation::Orphan => "Orphan",
                    Propagation::Background => "Background",
                    Propagation::Foreground => "Foreground",
                };
                map.insert("propagationPolicy".into(), propagation.into());
            }
            options
        }
        // What is asked for is the object of the review.
        Operation::Connect => return Value::Null,
    };
    let map = json::as_map(&mut options);
    map.insert("apiVersion".into(), "meta.k8s.io/v1".into());
    if context.options.is_dry_run {
        map.insert("dryRun".into(), json!(["All"]));
    }
    if let Some(manager) = &context.options.field_manager {
        map.insert("fieldManager".into(), manager.as_str().into());
    }
    options
}

/// Whether hooks may change the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Mutating,
    Validating,
}

/// Calls one hook.
async fn call_hook(
    context: &RequestContext,
    (hook, phase): (&Value, Phase),
    seen: &Resource,
    operation: Operation<'_>,
    [object, old]: &[Value; 2],
) -> Result<Option<Value>, Failure> {
    let name = text(hook, "/name");
    let fails = text(hook, "/failurePolicy") != "Ignore";
    let version =
        texts(hook, "/admissionReviewVersions").find(|one| matches!(*one, "v1" | "v1beta1")).unwrap_or("v1");
    let uid = context.api.rng().uuid();
    let resource = &context.resource;
    let object_name = text(if object.is_null() { old } else { object }, "/metadata/name");
    let kind = |of: &Resource| match operation {
        Operation::Connect => json!({"group": "", "version": "v1", "kind": text(object, "/kind")}),
        _ => json!({"group": &*of.group, "version": &*of.version, "kind": &*of.kind}),
    };
    let mut request = json!({
        "uid": uid,
        "kind": kind(seen),
        "resource": {"group": &*seen.group, "version": &*seen.version, "resource": &*seen.plural},
        "requestKind": kind(resource),
        "requestResource": {"group": &*resource.group, "version": &*resource.version, "resource": &*resource.plural},
        "operation": operation.name(),
        "userInfo": context.caller.to_value(),
        "object": object,
        "oldObject": old,
        "dryRun": context.options.is_dry_run,
        "options": options(context, operation),
    });
    let map = json::as_map(&mut request);
    let name_in_request = if context.name.is_empty() { object_name } else { &context.name };
    for (key, value) in [("name", name_in_request), ("namespace", &context.namespace)] {
        if !value.is_empty() {
            map.insert(key.into(), value.into());
        }
    }
    if !context.subresource.is_empty() {
        map.insert("subResource".into(), context.subresource.as_str().into());
        map.insert("requestSubResource".into(), context.subresource.as_str().into());
    }
    let api_version = format!("admission.k8s.io/{version}");
    let review = json!({"kind": "AdmissionReview", "apiVersion": api_version, "request": request});
    let timeout =
        Duration::from_secs(hook.get("timeoutSeconds").and_then(Value::as_u64).unwrap_or(10).clamp(1, 30));
    let config = hook.get("clientConfig").cloned().unwrap_or_default();
    let answer = context.api.webhooks().call(&context.api, &config, &review, timeout).await;
    let answer = answer.and_then(|answer| check_answer(&answer, &uid, version, phase));
    match answer {
        Ok(response) => Ok(Some(response)),
        Err(why) if fails => Err(Failure::internal(format!("failed calling webhook {name:?}: {why}"))),
        Err(why) => {
            tracing::debug!("webhook {name} is ignored: {why}");
            Ok(None)
        }
    }
}

/// The response of a well-formed review.
fn check_answer(answer: &Value, uid: &str, version: &str, phase: Phase) -> Result<Value, String> {
    let bad = |why: String| format!("received invalid webhook response: {why}");
    let Some(response) = answer.get("response").filter(|response| response.is_object()) else {
        return Err("webhook response was absent".into());
    };
    if version == "v1" {
        let found = text(response, "/uid");
        if found != uid {
            return Err(bad(format!("expected response.uid={uid:?}, got {found:?}")));
        }
        let wanted = ("admission.k8s.io/v1", "AdmissionReview");
        if (text(answer, "/apiVersion"), text(answer, "/kind")) != wanted {
            return Err(bad(format!(
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {}, Kind={}",
                text(answer, "/apiVersion"),
                text(answer, "/kind")
            )));
        }
        let has_patch = !text(response, "/patch").is_empty();
        let patch_type = response.get("patchType").filter(|kind| !kind.is_null());
        match (phase, patch_type) {
            (Phase::Mutating, None) if has_patch => {
                return Err(bad("webhook returned response.patch but not response.patchType".into()));
            }
            (Phase::Mutating, Some(kind)) if has_patch && kind != "JSONPatch" => {
                return Err(bad(format!("webhook returned invalid response.patchType of {kind}")));
            }
            (Phase::Validating, _) if has_patch => {
                return Err(bad("validating webhook may not return response.patch".into()));
            }
            (Phase::Validating, Some(_)) => {
                return Err(bad("validating webhook may not return response.patchType".into()));
            }
            _ => {}
        }
    }
    Ok(response.clone())
}

/// Turns a denial into a failure.
fn check_allowed(context: &RequestContext, hook: &Value, response: &Value) -> Result<(), Failure> {
    for warning in texts(response, "/warnings") {
        context.warn(warning);
    }
    if response.get("allowed") == Some(&Value::Bool(true)) {
        return Ok(());
    }
    let status = response.get("status").cloned().unwrap_or_else(|| json!({}));
    let name = text(hook, "/name");
    let (message, reason) = (text(&status, "/message"), text(&status, "/reason"));
    let why = match (message, reason) {
        ("", "") => format!("admission webhook {name:?} denied the request without explanation"),
        ("", reason) => format!("admission webhook {name:?} denied the request: {reason}"),
        (message, _) => format!("admission webhook {name:?} denied the request: {message}"),
    };
    let code = status.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let code = code.filter(|code| (400..600).contains(code)).unwrap_or(400);
    Err(Failure::from_status(&status, code, why))
}

/// Lets mutating hooks change an object, one after the other.
pub(super) async fn mutate(
    context: &RequestContext,
    operation: Operation<'_>,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<(), Failure> {
    let hooks = context.api.webhooks().hooks(&context.api, MUTATING);
    // Objects as each hook left them, to know which have to be called again.
    let mut asked: Vec<(usize, Value)> = Vec::new();
    for (index, hook) in hooks.iter().enumerate() {
        if run_mutating(context, hook, operation, object, old).await? {
            asked.push((index, object.clone()));
        }
    }
    for (index, left) in asked {
        let Some(hook) = hooks.get(index) else { continue };
        if text(hook, "/reinvocationPolicy") == "IfNeeded" && *object != left {
            run_mutating(context, hook, operation, object, old).await?;
        }
    }
    Ok(())
}

async fn run_mutating(
    context: &RequestContext,
    hook: &Value,
    operation: Operation<'_>,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<bool, Failure> {
    let Some(seen) = matching_resource(context, hook, operation, Some(object), old) else { return Ok(false) };
    let shown =
        [in_version_of(context, &seen, Some(object)).await?, in_version_of(context, &seen, old).await?];
    if !super::conditions::hold(context, &seen, hook, operation, &shown)? {
        return Ok(false);
    }
    let asked = call_hook(context, (hook, Phase::Mutating), &seen, operation, &shown);
    let Some(response) = asked.await? else { return Ok(false) };
    check_allowed(context, hook, &response)?;
    let patch = text(&response, "/patch");
    if patch.is_empty() {
        return Ok(true);
    }
    let failed =
        |why: String| Failure::internal(format!("failed calling webhook {:?}: {why}", text(hook, "/name")));
    let patch = quintet_objects::byte_field::decode(patch).map_err(|error| failed(error.to_string()))?;
    let patch: Value = serde_json::from_slice(&patch).map_err(|error| failed(error.to_string()))?;
    let [mut patched, _] = shown;
    model::json_patch(&mut patched, &patch).map_err(|failure| failed(failure.message().to_owned()))?;
    *object = accept_changed(context, &seen, patched).await.map_err(failed)?;
    Ok(true)
}

/// Lets validating hooks refuse a request, all at once.
pub(super) async fn validate(
    context: &RequestContext,
    operation: Operation<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Failure> {
    let hooks = context.api.webhooks().hooks(&context.api, VALIDATING);
    if hooks.is_empty() {
        return Ok(());
    }
    let asks = hooks
        .iter()
        .filter_map(|hook| Some((hook, matching_resource(context, hook, operation, object, old)?)));
    let asks = asks.map(|(hook, seen)| async move {
        let shown = [in_version_of(context, &seen, object).await?, in_version_of(context, &seen, old).await?];
        if !super::conditions::hold(context, &seen, hook, operation, &shown)? {
            return Ok(());
        }
        match call_hook(context, (hook, Phase::Validating), &seen, operation, &shown).await? {
            Some(response) => check_allowed(context, hook, &response),
            None => Ok(()),
        }
    });
    let outcomes: Vec<Result<(), Failure>> = futures::future::join_all(asks).await;
    outcomes.into_iter().collect()
}

/// Lets mutating hooks refuse what they cannot change: deletions and connections.
pub(super) async fn ask_mutating(
    context: &RequestContext,
    operation: Operation<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Failure> {
    let hooks = context.api.webhooks().hooks(&context.api, MUTATING);
    for hook in hooks.iter() {
        let Some(seen) = matching_resource(context, hook, operation, object, old) else { continue };
        let shown = [in_version_of(context, &seen, object).await?, in_version_of(context, &seen, old).await?];
        if !super::conditions::hold(context, &seen, hook, operation, &shown)? {
            continue;
        }
        let asked = call_hook(context, (hook, Phase::Mutating), &seen, operation, &shown);
        let Some(response) = asked.await? else { continue };
        check_allowed(context, hook, &response)?;
        if !text(&response, "/patch").is_empty() {
            return Err(Failure::internal(format!(
                "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                text(hook, "/name")
            )));
        }
    }
    Ok(())
}
