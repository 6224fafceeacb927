//! Creations go through the admission webhooks of the operator, as on a cluster.
//!
//! The embedded API calls webhooks over HTTPS, which simulated time does not allow. So a client of the world asks them
//! before it sends a creation. Changes are not asked about: cases of webhooks are about these.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use parking_lot::RwLock;
use quintet_component::WebhookKind;
use quintet_controller::webhook::Routes;
use serde_json::{Value, json};

use crate::world::Hook;

const LIMIT: Duration = Duration::from_secs(10);

/// The webhooks that clients ask; none while the operator does not run.
#[derive(Clone, Default)]
pub(crate) struct Admission(Arc<RwLock<Webhooks>>);

#[derive(Clone, Default)]
struct Webhooks {
    hooks: Vec<Hook>,
    routes: Routes,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Admission {
    /// From now on these are asked.
    pub(crate) fn set(&self, hooks: Vec<Hook>, routes: Routes) {
        *self.0.write() = Webhooks { hooks, routes };
    }

    /// A client whose creations are admitted.
    pub(crate) fn client(&self, inner: Client) -> Client {
        let admission = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (admission, inner) = (admission.clone(), inner.clone());
            async move { admission.send(&inner, request).await }
        });
        Client::new(service, "default")
    }

    async fn send(&self, inner: &Client, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let Webhooks { hooks, routes } = self.0.read().clone();
        let (parts, body) = request.into_parts();
        let target =
            Target::of(parts.uri.path()).filter(|_| parts.method == Method::POST && !hooks.is_empty());
        let Some(target) = target else {
            return Ok(inner.send(Request::from_parts(parts, body)).await?);
        };
        let bytes = body.collect().await?.to_bytes();
        let mut object: Value = serde_json::from_slice(&bytes)?;
        if target.resource == "pods" {
            // The API completes pods (priority, tolerations, volumes) before it asks anyone.
            let response = inner.send(dry_run(&parts, &object)?).await?;
            if !response.status().is_success() {
                return Ok(response);
            }
            let completed: Value = serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?;
            object["spec"] = completed["spec"].clone();
        }
        for kind in [WebhookKind::Mutating, WebhookKind::Validating] {
            let is_wanted = |hook: &&Hook| {
                hook.kind == kind && hook.wants("CREATE", target.group, target.version, target.resource)
            };
            let wanted: Vec<&Hook> = hooks.iter().filter(is_wanted).collect();
            // The API validates before it asks those that only decide.
            if kind == WebhookKind::Validating && !wanted.is_empty() {
                let response = inner.send(dry_run(&parts, &object)?).await?;
                if !response.status().is_success() {
                    return Ok(response);
                }
            }
            for hook in wanted {
                if let Some(denial) = ask(&routes, hook, &target, &mut object).await? {
                    return denied(hook, &denial);
                }
            }
        }
        Ok(inner.send(Request::from_parts(parts, Body::from(serde_json::to_vec(&object)?))).await?)
    }
}

/// The same creation, of which nothing is stored.
fn dry_run(parts: &http::request::Parts, object: &Value) -> Result<Request<Body>, BoxError> {
    let separator = if parts.uri.query().is_some() { '&' } else { '?' };
    let mut request = Request::builder()
        .method(parts.method.clone())
        .uri(format!("{}{separator}dryRun=All", parts.uri))
        .body(Body::from(serde_json::to_vec(object)?))?;
    *request.headers_mut() = parts.headers.clone();
    Ok(request)
}

/// What a path is about.
struct Target<'p> {
    group: &'p str,
    version: &'p str,
    namespace: &'p str,
    resource: &'p str,
}

impl<'p> Target<'p> {
    /// `None` for paths of subresources and of anything but collections.
    fn of(path: &'p str) -> Option<Self> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, rest) = match parts.as_slice() {
            ["api", rest @ ..] => ("", rest),
            ["apis", group, rest @ ..] => (*group, rest),
            _ => return None,
        };
        match rest {
            [version, "namespaces", namespace, resource] => {
                Some(Self { group, version, namespace, resource })
            }
            [version, resource] => Some(Self { group, version, namespace: "", resource }),
            _ => None,
        }
    }
}

/// Asks one webhook; returns why it denies.
async fn ask(
    routes: &Routes,
    hook: &Hook,
    target: &Target<'_>,
    object: &mut Value,
) -> Result<Option<String>, BoxError> {
    // The API server fills it in before it asks.
    if !target.namespace.is_empty() {
        object["metadata"]["namespace"] = target.namespace.into();
    }
    let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "00000000-0000-0000-0000-000000000000", "operation": "CREATE", "namespace": target.namespace,
        "name": object["metadata"]["name"].as_str().unwrap_or_default(), "object": object, "oldObject": null,
        "dryRun": false,
    } });
    let answer = routes.handle(hook.path, review, LIMIT).await?;
    let response = &answer["response"];
    if response["allowed"] != true {
        return Ok(Some(response["status"]["message"].as_str().unwrap_or_default().to_owned()));
    }
    if let Some(patch) = response["patch"].as_str() {
        let patch: json_patch::Patch = serde_json::from_slice(&STANDARD.decode(patch)?)?;
        json_patch::patch(object, &patch)?;
    }
    Ok(None)
}

fn denied(hook: &Hook, why: &str) -> Result<Response<Body>, BoxError> {
    let message = format!("admission webhook {:?} denied the request: {why}", hook.name);
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "Forbidden", "code": 403 });
    let response = Response::builder().status(403).header("content-type", "application/json");
    Ok(response.body(Body::from(serde_json::to_vec(&status)?))?)
}
