//! The proxy in front of a Kubernetes API: the embedded one, or that of `KUBECONFIG_UNDER_TEST`.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

#[allow(dead_code, unreachable_pub, clippy::disallowed_methods, reason = "shared with other tests")]
mod support;

use std::time::Duration;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use quintet_api::crd;
use quintet_apiserver::Cluster;
use quintet_proxy::Settings;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use support::Proxy;
use support::http::{Request, Response, open, send};
use tokio::io::AsyncReadExt as _;

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// A cluster with the Ray kinds, and a proxy that acts as its administrator.
struct Bed {
    client: Client,
    proxy: Proxy,
    namespace: String,
    _embedded: Option<Cluster>,
}

impl Bed {
    async fn start(name: &str) -> Self {
        support::use_tls();
        let under_test = std::env::var_os("KUBECONFIG_UNDER_TEST").filter(|path| !path.is_empty());
        let (kubeconfig, embedded) = if let Some(path) = under_test {
            (Kubeconfig::read_from(path).expect("a kubeconfig"), None)
        } else {
            let cluster = Cluster::start(quintet_apiserver::Settings::default()).await.expect("an API");
            let kubeconfig = cluster.kubeconfig().expect("a kubeconfig");
            (Kubeconfig::from_yaml(&kubeconfig).expect("a kubeconfig"), Some(cluster))
        };
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a configuration");
        let client = Client::try_from(config.clone()).expect("a client");
        install(&client).await;
        let proxy = Proxy::start(&config, Settings::default()).await;
        let namespace = format!("proxy-{name}-{}", std::process::id());
        let object = typed(json!({"metadata": {"name": namespace}}));
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.create(&PostParams::default(), &object).await.expect("a namespace");
        Self { client, proxy, namespace, _embedded: embedded }
    }

    async fn create<K>(&self, object: Value)
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + serde::Serialize,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.namespace);
        api.create(&PostParams::default(), &typed(object)).await.expect("it is created");
    }

    /// The token of a new service account that may do nothing.
    async fn token(&self, name: &str) -> String {
        self.create::<ServiceAccount>(json!({"metadata": {"name": name}})).await;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.namespace);
        let request: TokenRequest = typed(json!({"metadata": {}, "spec": {"audiences": []}}));
        let made = accounts.create_token_request(name, &PostParams::default(), &request).await;
        made.expect("a token").status.expect("a status").token.expect("a token")
    }

    fn path(&self, rest: &str) -> String {
        format!("/apis/ray.io/v1/namespaces/{}/{rest}", self.namespace)
    }

    async fn send(&self, request: Request, token: Option<&str>) -> Response {
        let request = match token {
            Some(token) => request.header("Authorization", &format!("Bearer {token}")),
            None => request,
        };
        send(self.proxy.address, &request).await.expect("a response")
    }
}

fn typed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

/// Teaches the cluster the Ray kinds.
async fn install(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let service = crd::WebhookService { namespace: "quintet-system".into(), name: "quintet".into() };
    for definition in crd::all(&service).into_iter().filter(|crd| crd.spec.group == "ray.io") {
        let name = definition.metadata.name.clone().expect("a name");
        let apply = PatchParams::apply("quintet").force();
        definitions.patch(&name, &apply, &Patch::Apply(&definition)).await.expect("it is applied");
    }
    let is_served = async || {
        let lists = ["rayclusters", "rayjobs", "rayservices"];
        let found = definitions.list(&ListParams::default()).await.expect("a list").items;
        let is_established = |plural: &str| {
            found.iter().filter(|crd| crd.spec.names.plural == plural).any(|crd| {
                let conditions = crd.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
                conditions.filter(|one| one.type_ == "Established").any(|one| one.status == "True")
            })
        };
        lists.into_iter().all(is_established)
    };
    let established = async {
        while !is_served().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, established).await.expect("the kinds are served");
}

fn cluster(name: &str, template: Option<&str>) -> Value {
    let mut head = json!({
        "rayStartParams": {}, "template": {"spec": {"containers": [{"name": "ray-head", "image": "rayproject/ray"}]}},
    });
    if let Some(template) = template {
        head["computeTemplate"] = json!(template);
    }
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name}, "spec": {"headGroupSpec": head},
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_are_made_from_compute_templates_and_watched() {
    let bed = Bed::start("templates").await;
    let data = json!({"cpu": "2", "memory": "4", "memory_unit": "Gi", "gpu": "1"});
    bed.create::<ConfigMap>(json!({"metadata": {"name": "small"}, "data": data})).await;
    let watch = Request::new("GET", &bed.path("rayclusters?watch=true"));
    let mut watching = open(bed.proxy.address, &watch).await.expect("a stream");
    let created = Request::new("POST", &bed.path("rayclusters")).json(&cluster("a", Some("small")));
    let created = bed.send(created, None).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let template = &created.json()["spec"]["headGroupSpec"]["template"];
    assert_eq!(template["metadata"]["annotations"]["ray.io/compute-template"], "small");
    let limits = &template["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(*limits, json!({"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": 1}));

    let mut received = String::new();
    let event = async {
        while !received.contains("\"ADDED\"") {
            let mut buffer = [0; 4096];
            let read = watching.read(&mut buffer).await.expect("the watch goes on");
            assert_ne!(read, 0, "the watch goes on");
            received.push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    };
    tokio::time::timeout(PATIENCE, event).await.expect("the event arrives while the watch is open");

    let missing = Request::new("POST", &bed.path("rayclusters")).json(&cluster("b", Some("none")));
    let missing = bed.send(missing, None).await;
    let expected = format!(
        "Cannot get compute template for name 'none' in namespace '{}', error: NotFoundError: \
         Compute template none not found: configmaps \"none\" not found\n",
        bed.namespace
    );
    assert_eq!((missing.status, missing.text()), (422, expected));
    let deleted = bed.send(Request::new("DELETE", &bed.path("rayclusters/a")), None).await;
    assert_eq!(deleted.status, 200);
    let events = format!("/apis/events.k8s.io/v1/namespaces/{}/events", bed.namespace);
    assert_eq!(bed.send(Request::new("GET", &events), None).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_with_a_token_has_its_own_rights_only() {
    let bed = Bed::start("rights").await;
    bed.create::<ConfigMap>(json!({"metadata": {"name": "small"}, "data": {"cpu": "2"}})).await;
    let ports = json!([{"port": 80}]);
    let labels = json!({"app.kubernetes.io/name": "kuberay"});
    bed.create::<Service>(json!({"metadata": {"name": "head", "labels": labels}, "spec": {"ports": ports}}))
        .await;
    bed.create::<Service>(json!({"metadata": {"name": "plain"}, "spec": {"ports": ports}})).await;
    let list = || Request::new("GET", &bed.path("rayclusters"));
    let service = |name: &str| {
        Request::new("GET", &format!("/api/v1/namespaces/{}/services/{name}/proxy/", bed.namespace))
    };
    // The proxy is an administrator, by a client certificate on the embedded API.
    assert_eq!(bed.send(list(), None).await.status, 200);
    let plain = bed.send(service("plain"), None).await;
    assert_eq!((plain.status, plain.text().as_str()), (404, "kuberay service not found\n"));

    assert_eq!(bed.send(list(), Some("nonsense")).await.status, 401);
    let token = bed.token("ann").await;
    let refused = bed.send(list(), Some(&token)).await;
    assert_eq!(
        (refused.status, refused.json()["reason"].as_str()),
        (403, Some("Forbidden")),
        "{}",
        refused.text()
    );
    // Impersonation does not help, with or without a token.
    let as_root = || list().header("Impersonate-User", "root").header("Impersonate-Group", "system:masters");
    assert_eq!(bed.send(as_root(), Some(&token)).await.status, 403);
    assert_eq!(
        bed.send(as_root(), None).await.status,
        200,
        "the header is dropped, the proxy acts as itself"
    );
    // Nor can the Service or the template of others be found out.
    let hidden = bed.send(service("head"), Some(&token)).await;
    assert_eq!((hidden.status, hidden.text().as_str()), (500, "failed to list kuberay services\n"));
    let create = || Request::new("POST", &bed.path("rayclusters")).json(&cluster("a", Some("small")));
    let hidden = bed.send(create(), Some(&token)).await;
    assert_eq!(hidden.status, 422);
    assert!(hidden.text().contains("is forbidden"), "{}", hidden.text());

    let rule = |group: &str, resource: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    let rules = [rule("ray.io", "rayclusters", &["create", "list"]), rule("", "configmaps", &["get"])];
    bed.create::<Role>(json!({"metadata": {"name": "ann"}, "rules": rules})).await;
    let subject = json!({"kind": "ServiceAccount", "name": "ann", "namespace": bed.namespace});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "ann"});
    bed.create::<RoleBinding>(json!({"metadata": {"name": "ann"}, "roleRef": role, "subjects": [subject]}))
        .await;
    let granted = async {
        while bed.send(list(), Some(&token)).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, granted).await.expect("the role is regarded");
    let created = bed.send(create(), Some(&token)).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let deleted = bed.send(Request::new("DELETE", &bed.path("rayclusters/a")), Some(&token)).await;
    assert_eq!(deleted.status, 403);
}
