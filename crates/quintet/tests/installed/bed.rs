//! A cluster on which the operators are installed as `quintet manifests` says, with simulated nodes.
//!
//! The cluster is that of `KUBECONFIG_UNDER_TEST`, or the embedded API with its controllers. The operators are a process
//! that has the token of their ServiceAccount and nothing else.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use quintet_controller::clock::Clock;
use quintet_controllers::Controllers;
use quintet_node::{NodeShape, Simulation};
use serde_json::{Value, json};

/// Far more than anything takes.
const PATIENCE: Duration = Duration::from_mins(2);
const PERIOD: Duration = Duration::from_millis(100);
/// Where the operators are installed.
const SYSTEM: &str = "quintet-system";
/// The namespace of MLflow.
pub(crate) const MLFLOW: &str = "opendatahub";
/// The namespace of a team.
pub(crate) const TEAM: &str = "installed-team";

/// The operators work in two namespaces, and have rights in no other.
const CONFIGURATION: &str = "apiVersion: config.quintet.dev/v1alpha1
kind: Configuration
components: [ray, codeflare, mlflow, registry]
watchNamespaces: [opendatahub, installed-team]
mlflow: {namespace: opendatahub}
codeflare:
  appwrapper: {enabled: true}
  kuberay: {rayDashboardOAuthEnabled: false, ingressDomain: example.com}
";

/// Group, version, kind, plural and scope.
type Definition = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// Kinds of others that exist from the beginning.
const KINDS: [Definition; 3] = [
    ("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", "Namespaced"),
    ("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", "Namespaced"),
    ("services.platform.opendatahub.io", "v1alpha1", "Auth", "auths", "Cluster"),
];
pub(crate) const HTTP_ROUTE: Definition =
    ("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes", "Namespaced");
pub(crate) const SERVICE_MONITOR: Definition =
    ("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors", "Namespaced");

pub(crate) const CONSOLE_LINK: Definition =
    ("console.openshift.io", "v1", "ConsoleLink", "consolelinks", "Cluster");

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct Bed {
    pub(crate) client: kube::Client,
    config: kube::Config,
    directory: PathBuf,
    operator: Running,
    simulation: Simulation,
    embedded: Option<(quintet_apiserver::Cluster, Controllers)>,
}

impl Bed {
    pub(crate) async fn new() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let directory = std::env::temp_dir().join(format!("quintet-installed-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let under_test = std::env::var_os("KUBECONFIG_UNDER_TEST").filter(|path| !path.is_empty());
        let (kubeconfig, cluster) = if let Some(path) = under_test {
            (Kubeconfig::read_from(path).unwrap(), None)
        } else {
            let cluster = quintet_apiserver::Cluster::start(quintet_apiserver::Settings::default()).await;
            let cluster = cluster.unwrap();
            (Kubeconfig::from_yaml(&cluster.kubeconfig().unwrap()).unwrap(), Some(cluster))
        };
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await.unwrap();
        let client = kube::Client::try_from(config.clone()).unwrap();
        let embedded = match cluster {
            Some(cluster) => {
                let settings = quintet_controllers::Settings::default();
                let started = quintet_controllers::start(client.clone(), &Clock::system(), &settings).await;
                Some((cluster, started.unwrap()))
            }
            None => None,
        };
        let simulation = add_nodes(&client).await;
        for kind in KINDS {
            serve(&client, kind).await;
        }
        let operator = install(&client, &kubeconfig, &directory).await;
        Self { client, config, directory, operator, simulation, embedded }
    }

    /// Objects of a kind in a namespace, or of the whole cluster.
    pub(crate) fn objects(&self, api_version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
        objects(&self.client, api_version, kind, namespace)
    }

    /// The same as another user.
    pub(crate) fn objects_as(&self, user: &str, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let mut config = self.config.clone();
        config.auth_info.impersonate = Some(user.to_owned());
        objects(&kube::Client::try_from(config).unwrap(), api_version, kind, TEAM)
    }

    pub(crate) async fn create(&self, namespace: &str, object: &Value) -> kube::Result<DynamicObject> {
        create(&self.client, namespace, object).await
    }

    /// Defines a kind of others.
    pub(crate) async fn serve(&self, kind: Definition) {
        serve(&self.client, kind).await;
    }

    /// Waits until an object is as it should be.
    pub(crate) async fn until(
        &self,
        (api_version, kind, namespace, name): (&str, &str, &str, &str),
        holds: impl Fn(&Value) -> bool,
    ) -> Value {
        let api = self.objects(api_version, kind, namespace);
        let mut last = Value::Null;
        let found = eventually(async || {
            last = json!(get(&api, name).await);
            (!last.is_null() && holds(&last)).then(|| last.clone())
        })
        .await;
        found.unwrap_or_else(|| panic!("{kind} {name} is not as it should be: {last:#}"))
    }

    /// Waits until an object is no more.
    pub(crate) async fn gone(&self, (api_version, kind, namespace, name): (&str, &str, &str, &str)) {
        let api = self.objects(api_version, kind, namespace);
        let gone = eventually(async || get(&api, name).await.is_none().then_some(())).await;
        assert!(gone.is_some(), "{kind} {name} is still there");
    }

    /// Lets the pods with these labels end, as `outcome` annotates them.
    pub(crate) async fn end_pods(&self, namespace: &str, labels: &str, outcome: &Value) {
        let pods = self.objects("v1", "Pod", namespace);
        let patch = json!({ "metadata": { "annotations": outcome } });
        let found = eventually(async || {
            let found = pods.list(&ListParams::default().labels(labels)).await.unwrap().items;
            (!found.is_empty()).then_some(found)
        });
        for pod in found.await.unwrap_or_else(|| panic!("no pod with {labels}")) {
            let name = pod.metadata.name.unwrap();
            pods.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        }
    }

    /// Removes everything again.
    pub(crate) async fn end(self) {
        let namespaces = self.objects("v1", "Namespace", "");
        drop(self.operator);
        for name in [SYSTEM, MLFLOW, TEAM] {
            let _ = namespaces.delete(name, &DeleteParams::default()).await;
        }
        self.simulation.stop().await.unwrap();
        if let Some((cluster, controllers)) = self.embedded {
            controllers.stop().await;
            cluster.stop().await;
        }
        std::fs::remove_dir_all(&self.directory).unwrap();
    }
}

/// Looks until it finds something; `None` if that takes too long.
pub(crate) async fn eventually<T: Debug>(mut look: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(PERIOD).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.ok()
}

/// An object, unless it or its kind does not exist (yet).
async fn get(api: &Api<DynamicObject>, name: &str) -> Option<DynamicObject> {
    match api.get(name).await {
        Err(kube::Error::Api(status)) if status.code == 404 => None,
        found => Some(found.unwrap()),
    }
}

fn objects(client: &kube::Client, api_version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let mut resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match kind {
        "NetworkPolicy" => "networkpolicies".clone_into(&mut resource.plural),
        "Ingress" => "ingresses".clone_into(&mut resource.plural),
        _ => {}
    }
    match namespace {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

async fn create(client: &kube::Client, namespace: &str, object: &Value) -> kube::Result<DynamicObject> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let api = objects(client, &text(&object["apiVersion"]), &text(&object["kind"]), namespace);
    let typed: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    api.create(&PostParams::default(), &typed).await
}

/// Defines a kind without a schema: objects stay as operators write them.
async fn serve(client: &kube::Client, (group, version, kind, plural, scope): Definition) {
    let name = format!("{plural}.{group}");
    // Groups of Kubernetes itself need approval, or a word that there is none.
    let annotations = json!({ "api-approved.kubernetes.io": "unapproved, for tests" });
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": name, "annotations": annotations },
        "spec": { "group": group, "scope": scope, "names": { "kind": kind, "plural": plural },
            "versions": [{ "name": version, "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }] },
    });
    let definitions = objects(client, "apiextensions.k8s.io/v1", "CustomResourceDefinition", "");
    definitions.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(&definition)).await.unwrap();
}

async fn add_nodes(client: &kube::Client) -> Simulation {
    let capacity = [("cpu", "64"), ("memory", "256Gi"), ("pods", "200")];
    let capacity = capacity.map(|(name, amount)| (name.to_owned(), amount.parse().unwrap()));
    let nodes = NodeShape {
        name: format!("installed-{}", std::process::id()),
        count: 2,
        capacity: BTreeMap::from(capacity),
        labels: BTreeMap::new(),
        levels: Vec::new(),
    };
    let settings = quintet_node::Settings { nodes, schedule: false };
    Simulation::start(client.clone(), settings).await.unwrap()
}

fn quintet() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quintet"));
    command.env("MLFLOW_IMAGE", "example.invalid/mlflow").env("ENABLE_NAMESPACE_RBAC", "true");
    command
}

/// Applies what `quintet manifests` prints, and starts the operators outside of the cluster with no more rights.
async fn install(client: &kube::Client, admin: &Kubeconfig, directory: &Path) -> Running {
    let configuration = directory.join("configuration.yaml");
    std::fs::write(&configuration, CONFIGURATION).unwrap();
    for name in [MLFLOW, TEAM] {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        create(client, "", &namespace).await.unwrap();
    }
    let webhooks = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let ready = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let certificate = certificate(directory);
    let printed = quintet().args(["manifests", "--config"]).arg(&configuration).output().unwrap();
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let manifests: Vec<Value> =
        serde_saphyr::from_multiple(&String::from_utf8(printed.stdout).unwrap()).unwrap();
    for mut object in manifests {
        // It runs here, and is called here.
        if object["kind"] == "Deployment" {
            continue;
        }
        for webhook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
            let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap().to_owned();
            let url = format!("https://127.0.0.1:{webhooks}{path}");
            webhook["clientConfig"] = json!({ "url": url, "caBundle": certificate });
        }
        apply(client, &object).await;
    }
    let kubeconfig = directory.join("kubeconfig");
    std::fs::write(&kubeconfig, restricted(client, admin).await.to_string()).unwrap();
    let log = std::fs::File::create(directory.join("operator.log")).unwrap();
    let mut command = quintet();
    command.arg("operator").arg("--config").arg(&configuration).arg("--kubeconfig").arg(&kubeconfig);
    command.args(["--webhook-host", "127.0.0.1", "--webhook-port", &webhooks.to_string()]);
    command.arg("--webhook-cert-dir").arg(directory).args(["--metrics-bind-address", "0"]);
    command.args([
        "--health-probe-bind-address",
        &ready.to_string(),
        "--log-format",
        "text",
        "--log-level",
        "debug",
    ]);
    let operator = Running(command.stderr(log).stdout(Stdio::null()).spawn().unwrap());
    let is_ready = eventually(async || {
        let url = format!("http://{ready}/readyz");
        let asked = Command::new("curl").args(["-sSf", "-m", "5", &url]).output().unwrap();
        asked.status.success().then_some(())
    });
    assert!(is_ready.await.is_some(), "{}", std::fs::read_to_string(directory.join("operator.log")).unwrap());
    operator
}

/// A certificate for the webhooks in a directory; returns what trusts it.
fn certificate(directory: &Path) -> String {
    let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(directory.join("tls.crt"), certificate.cert.pem()).unwrap();
    std::fs::write(directory.join("tls.key"), certificate.signing_key.serialize_pem()).unwrap();
    base64::engine::general_purpose::STANDARD.encode(certificate.cert.pem())
}

async fn apply(client: &kube::Client, object: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let api = objects(
        client,
        &text(&object["apiVersion"]),
        &text(&object["kind"]),
        &text(&object["metadata"]["namespace"]),
    );
    let name = text(&object["metadata"]["name"]);
    let applied =
        api.patch(&name, &PatchParams::apply("quintet-install").force(), &Patch::Apply(object)).await;
    applied.unwrap_or_else(|error| panic!("{} {name}: {error}", object["kind"]));
}

/// A kubeconfig with the rights of the ServiceAccount that the manifests make.
async fn restricted(client: &kube::Client, admin: &Kubeconfig) -> Value {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), SYSTEM);
    let request = TokenRequest::default();
    let token = accounts.create_token_request("quintet", &PostParams::default(), &request).await.unwrap();
    let user = json!({ "token": token.status.unwrap().token });
    let context = json!({ "cluster": admin.clusters[0].name, "user": "quintet" });
    json!({
        "apiVersion": "v1", "kind": "Config", "clusters": admin.clusters, "current-context": "quintet",
        "users": [{ "name": "quintet", "user": user }], "contexts": [{ "name": "quintet", "context": context }],
    })
}
