//! Authentication and authorization of requests, delegated to the API server.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, Method, header, request::Parts};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{
        NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
    },
    core::v1::ConfigMap,
};
use parking_lot::RwLock;
use rustls_pki_types::{CertificateDer, UnixTime};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{authentication::FrontProxy, status::StatusError};
use crate::{
    api::Api,
    error::Error,
    object::{ApiKind, ObjectKey},
    tasks::Tasks,
    webhook::UserInfo,
};

/// How often the authorities of the front proxy are read: they are rotated rarely, and long before they expire.
const REFRESH: Duration = Duration::from_mins(1);
/// The same while they cannot be read.
const RETRY: Duration = Duration::from_secs(5);
/// Requests to the API server at a time: strangers must not use up what controllers need.
const REVIEWS: usize = 16;
/// Its members may do everything, as kube-apiserver's own authorizer has it.
const MASTERS: &str = "system:masters";
/// Probes carry no credentials.
const PROBES: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// Decides who a request is from and whether it is allowed. Clones share their state.
#[derive(Clone)]
pub struct Access {
    api: Api,
    proxy: Arc<RwLock<Option<FrontProxy>>>,
    reviews: Arc<Semaphore>,
}

impl Access {
    /// Follows what the API server publishes about its front proxy.
    pub fn start(api: Api, tasks: &Tasks) -> Self {
        let access = Self { api, proxy: Arc::default(), reviews: Arc::new(Semaphore::new(REVIEWS)) };
        let (follower, stopping) = (access.clone(), tasks.clone());
        tasks.spawn("front proxy", async move {
            tokio::select! {
                () = stopping.stopping() => {}
                () = follower.follow() => {}
            }
        });
        access
    }

    async fn follow(self) {
        let mut known = None;
        loop {
            let outcome = self.refresh().await;
            let wait = if outcome.is_ok() { REFRESH } else { RETRY };
            let error = outcome.err();
            if let Some(error) = error.as_ref().filter(|_| known != error) {
                tracing::warn!("aggregated APIs cannot know who requests are from: {error}");
            }
            known = error;
            tokio::time::sleep(wait).await;
        }
    }

    /// Reads the authorities. What was known stays if it fails.
    async fn refresh(&self) -> Result<(), String> {
        let key = ObjectKey::new("kube-system", "extension-apiserver-authentication");
        let text =
            self.api.get(&ApiKind::of::<ConfigMap>(), &key).await.map_err(|error| error.to_string())?;
        let text = text.ok_or_else(|| format!("ConfigMap {key} does not exist"))?;
        let published = serde_json::from_str(&text).map_err(|error| format!("ConfigMap {key}: {error}"))?;
        let proxy = FrontProxy::read(&published).map_err(|error| format!("ConfigMap {key}: {error}"))?;
        *self.proxy.write() = Some(proxy);
        Ok(())
    }

    /// Allows a request of a client with these certificates, or says why not.
    pub async fn allow(
        &self,
        certificates: &[CertificateDer<'static>],
        parts: &Parts,
    ) -> Result<(), StatusError> {
        if PROBES.contains(&parts.uri.path()) {
            return Ok(());
        }
        let user = self.authenticate(certificates, &parts.headers).await?;
        if user.groups.iter().any(|group| group == MASTERS) {
            return Ok(());
        }
        let attributes = Attributes::of(&parts.method, parts.uri.path());
        let review = self.review::<SubjectAccessReview>(&attributes.review(&user)).await?;
        if review["status"]["allowed"] == true {
            return Ok(());
        }
        let reason = review["status"]["reason"].as_str().unwrap_or_default();
        Err(attributes.forbidden(&user, reason))
    }

    async fn authenticate(
        &self,
        certificates: &[CertificateDer<'static>],
        headers: &HeaderMap,
    ) -> Result<UserInfo, StatusError> {
        let unauthorized = || StatusError::new(401, "Unauthorized", "Unauthorized");
        let is_proxy = {
            let proxy = self.proxy.read();
            let proxy = proxy.as_ref().filter(|proxy| proxy.is_presented_by(certificates, UnixTime::now()));
            if let Some(user) = proxy.and_then(|proxy| proxy.user(headers)) {
                return Ok(user);
            }
            proxy.is_some()
        };
        if let Some(token) = bearer(headers) {
            let review = TokenReview {
                spec: TokenReviewSpec { token: token.to_owned(), audiences: None },
                ..TokenReview::default()
            };
            let review = self.review::<TokenReview>(&json!(review)).await?;
            if review["status"]["authenticated"] != true {
                return Err(unauthorized());
            }
            return serde_json::from_value(review["status"]["user"].clone()).map_err(|_| unauthorized());
        }
        if !certificates.is_empty() && !is_proxy {
            return Err(unauthorized());
        }
        Ok(UserInfo {
            username: "system:anonymous".into(),
            groups: vec!["system:unauthenticated".into()],
            ..UserInfo::default()
        })
    }

    async fn review<K>(&self, review: &Value) -> Result<Value, StatusError>
    where
        K: kube::Resource<DynamicType = ()>,
        K::Scope: crate::object::Scoped,
    {
        let failed = |error: &Error| {
            tracing::warn!("a request to an aggregated API was not reviewed: {error}");
            StatusError::new(500, "InternalError", format!("the API server did not review it: {error}"))
        };
        let Ok(_slot) = self.reviews.acquire().await else {
            return Err(StatusError::new(503, "ServiceUnavailable", "the server is stopping"));
        };
        let answer = self.api.create(&ApiKind::of::<K>(), &ObjectKey::cluster(""), review).await;
        let answer = answer.map_err(|error| failed(&error))?;
        Ok(serde_json::from_str(&answer).unwrap_or_default())
    }
}

/// The bearer token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

/// What a request does, as authorizers see it.
#[derive(Debug, PartialEq, Eq)]
struct Attributes<'a> {
    verb: &'static str,
    path: &'a str,
    resource: Option<Resource<'a>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Resource<'a> {
    group: &'a str,
    version: &'a str,
    namespace: &'a str,
    plural: &'a str,
    name: &'a str,
    subresource: &'a str,
}

impl<'a> Attributes<'a> {
    /// As `RequestInfoFactory` of Kubernetes reads a path below `/apis`.
    fn of(method: &Method, path: &'a str) -> Self {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let resource = match parts.as_slice() {
            ["apis", group, version, "namespaces", namespace, plural, rest @ ..] => {
                Some((*group, *version, *namespace, *plural, rest))
            }
            ["apis", group, version, plural, rest @ ..] => Some((*group, *version, "", *plural, rest)),
            _ => None,
        };
        let resource = resource.map(|(group, version, namespace, plural, rest)| Resource {
            group,
            version,
            namespace,
            plural,
            name: rest.first().copied().unwrap_or_default(),
            subresource: rest.get(1).copied().unwrap_or_default(),
        });
        let is_list = resource.as_ref().is_some_and(|resource| resource.name.is_empty());
        let verb = match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ if is_list => "list",
            _ => "get",
        };
        Self { verb, path, resource }
    }

    fn review(&self, user: &UserInfo) -> Value {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let mut spec = SubjectAccessReviewSpec {
            user: text(&user.username),
            uid: text(&user.uid),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()),
            ..SubjectAccessReviewSpec::default()
        };
        if let Some(of) = &self.resource {
            spec.resource_attributes = Some(ResourceAttributes {
                namespace: text(of.namespace),
                verb: text(self.verb),
                group: text(of.group),
                version: text(of.version),
                resource: text(of.plural),
                subresource: text(of.subresource),
                name: text(of.name),
                ..ResourceAttributes::default()
            });
        } else {
            let attributes = NonResourceAttributes { path: text(self.path), verb: text(self.verb) };
            spec.non_resource_attributes = Some(attributes);
        }
        json!(SubjectAccessReview { spec, ..SubjectAccessReview::default() })
    }

    /// The refusal, in the words of Kubernetes.
    fn forbidden(&self, user: &UserInfo, reason: &str) -> StatusError {
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let Some(of) = &self.resource else {
            let user = &user.username;
            let message =
                format!("forbidden: User {user:?} cannot {} path {:?}{reason}", self.verb, self.path);
            return StatusError { details: json!({}), ..StatusError::new(403, "Forbidden", message) };
        };
        let subresource =
            if of.subresource.is_empty() { String::new() } else { format!("/{}", of.subresource) };
        let scope = match of.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        let name = if of.name.is_empty() { String::new() } else { format!(" {:?}", of.name) };
        let message = format!(
            "{}.{}{name} is forbidden: User {:?} cannot {} resource \"{}{subresource}\" in API group {:?} {scope}{reason}",
            of.plural, of.group, user.username, self.verb, of.plural, of.group
        );
        let details = json!({ "name": of.name, "group": of.group, "kind": of.plural });
        StatusError { details, ..StatusError::new(403, "Forbidden", message) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_kubernetes_does() {
        let path = "/apis/g/v1/namespaces/ns/localqueues/lq/pendingworkloads";
        let attributes = Attributes::of(&Method::GET, path);
        let resource = Resource {
            group: "g",
            version: "v1",
            namespace: "ns",
            plural: "localqueues",
            name: "lq",
            subresource: "pendingworkloads",
        };
        assert_eq!(attributes, Attributes { verb: "get", path, resource: Some(resource) });
        let spec = attributes.review(&UserInfo { username: "ann".into(), ..UserInfo::default() });
        assert_eq!(spec["spec"]["resourceAttributes"]["namespace"], "ns");

        let of = |method: Method, path| Attributes::of(&method, path).verb;
        assert_eq!(of(Method::GET, "/apis/g/v1/clusterqueues"), "list");
        assert_eq!(of(Method::DELETE, "/apis/g/v1/clusterqueues/cq"), "delete");
        let discovery = Attributes::of(&Method::GET, "/apis/g/v1");
        assert_eq!((discovery.verb, &discovery.resource), ("get", &None));
        let review = discovery.review(&UserInfo::default());
        assert_eq!(review["spec"]["nonResourceAttributes"], json!({ "path": "/apis/g/v1", "verb": "get" }));
    }

    #[test]
    fn refusals_say_who_may_not_do_what() {
        let user = UserInfo { username: "ann".into(), ..UserInfo::default() };
        let refused = Attributes::of(&Method::GET, "/apis/g/v1/clusterqueues/cq/pendingworkloads");
        assert_eq!(
            refused.forbidden(&user, "").message,
            "clusterqueues.g \"cq\" is forbidden: User \"ann\" cannot get resource \"clusterqueues/pendingworkloads\" in \
             API group \"g\" at the cluster scope"
        );
        let refused = Attributes::of(&Method::GET, "/version").forbidden(&user, "because");
        assert_eq!(refused.message, "forbidden: User \"ann\" cannot get path \"/version\": because");
    }
}
