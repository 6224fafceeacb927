//! An MLflow with the databases, stores and clients around it.

use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::programs;
use crate::support::{Platform, eventually, resource};

/// The version that the operator supports.
pub(super) const SUPPORTED: &str = "3.14.0";
/// A version with another schema.
pub(super) const OLDER: &str = "3.10.1";
/// The ConfigMap with the certificate of the server.
pub(super) const CA: &str = "mlflow-ca";
/// The namespace of the server.
pub(crate) const NAMESPACE: &str = "opendatahub";
/// The image of S3, which the configuration of the platform maps to a Python environment.
const S3_IMAGE: &str = "moto";
/// The user that runs PostgreSQL, which refuses users without a name.
const NAMED_USER: u32 = 65534;

pub(super) fn image(version: &str) -> String {
    format!("mlflow/mlflow:v{version}")
}

pub(super) fn condition<'a>(mlflow: &'a Value, kind: &str) -> &'a Value {
    let conditions = mlflow["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

pub(super) struct Server<'p> {
    platform: &'p Platform,
}

impl<'p> Server<'p> {
    /// The namespace of a server with its certificate, and an account for clients in the namespace of the case.
    pub(super) async fn new(platform: &'p Platform) -> Self {
        let server = Self { platform };
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        platform.apply_to_cluster(&namespace).await;
        let hosts = ["mlflow", "mlflow.opendatahub.svc", "mlflow.opendatahub.svc.cluster.local"];
        let certificate = rcgen::generate_simple_self_signed(hosts.map(str::to_owned)).unwrap();
        let (certificate, key) = (certificate.cert.pem(), certificate.signing_key.serialize_pem());
        server
            .create(json!({ "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
                "metadata": { "name": "mlflow-tls" }, "stringData": { "tls.crt": certificate, "tls.key": key } }))
            .await;
        let bundle = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": CA },
            "data": { "ca.crt": certificate } });
        server.create(bundle.clone()).await;
        platform.apply(&bundle).await;
        server.allow_clients_in(&platform.namespace()).await;
        server
    }

    /// Installs what a case needs besides the supported version, so that it does not have to wait for that.
    pub(super) async fn install(&self, image: &str) {
        assert_eq!(self.platform.image_obstacle(image).await, None);
    }

    /// Lets pods of the case's namespace use the server in a workspace.
    pub(super) async fn allow_clients_in(&self, workspace: &str) {
        let rbac = "rbac.authorization.k8s.io/v1";
        let metadata = json!({ "name": "mlflow-user" });
        let rules = json!([{ "apiGroups": ["mlflow.kubeflow.org"], "resources": ["experiments", "registeredmodels"],
            "verbs": ["get", "list", "create", "update", "delete"] }]);
        let role = json!({ "apiVersion": rbac, "kind": "Role", "metadata": metadata, "rules": rules });
        let binding = json!({ "apiVersion": rbac, "kind": "RoleBinding", "metadata": metadata,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "mlflow-user" },
            "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": self.platform.namespace() }] });
        self.create_in(workspace, role).await;
        self.create_in(workspace, binding).await;
    }

    async fn create(&self, object: Value) {
        self.create_in(NAMESPACE, object).await;
    }

    async fn create_in(&self, namespace: &str, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let parameters = PatchParams::apply("test").force();
        let objects = self.objects_in(namespace, &object).await;
        objects.patch(&name, &parameters, &Patch::Apply(object)).await.unwrap();
    }

    async fn objects(&self, object: &Value) -> Api<DynamicObject> {
        self.objects_in(NAMESPACE, object).await
    }

    async fn objects_in(&self, namespace: &str, object: &Value) -> Api<DynamicObject> {
        let (api_version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        Api::namespaced_with(self.platform.client().await, namespace, &resource(api_version, kind))
    }

    async fn mlflows(&self) -> Api<DynamicObject> {
        Api::all_with(self.platform.client().await, &resource("mlflow.opendatahub.io/v1", "MLflow"))
    }

    /// Applies an MLflow that is small enough for any machine.
    pub(super) async fn apply(&self, mut spec: Value) {
        spec["resources"] = json!({ "requests": { "cpu": "100m", "memory": "512Mi" } });
        let mlflow = json!({ "apiVersion": "mlflow.opendatahub.io/v1", "kind": "MLflow",
            "metadata": { "name": "mlflow" }, "spec": spec });
        self.platform.apply_to_cluster(&mlflow).await;
    }

    pub(super) async fn patch(&self, patch: Value) {
        self.mlflows().await.patch("mlflow", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits until a condition has a status and a reason.
    pub(super) async fn has_condition(&self, kind: &str, status: &str, reason: &str) -> Value {
        let has = |mlflow: &Value| {
            let condition = condition(mlflow, kind);
            condition["status"] == status && condition["reason"] == reason
        };
        self.platform.wait_for(&self.mlflows().await, "mlflow", reason, has).await
    }

    pub(super) async fn is_available(&self) -> Value {
        let has = |mlflow: &Value| {
            let is_true = |kind: &str| condition(mlflow, kind)["status"] == "True";
            is_true("Available") && is_true("Migration")
        };
        self.platform.wait_for(&self.mlflows().await, "mlflow", "available", has).await
    }

    /// Deletes the pod of the server, and waits for the next one.
    pub(super) async fn restart(&self) {
        let pods = self.objects(&json!({ "apiVersion": "v1", "kind": "Pod" })).await;
        let selector = ListParams::default().labels("app=mlflow");
        let before = pods.list(&selector).await.unwrap().items.remove(0).metadata;
        pods.delete(before.name.as_deref().unwrap(), &kube::api::DeleteParams::default()).await.unwrap();
        eventually("another pod that is ready", async || {
            let found = pods.list(&selector).await.unwrap().items;
            let is_ready = |pod: &DynamicObject| {
                pod.data["status"]["containerStatuses"][0]["ready"] == true && pod.metadata.uid != before.uid
            };
            (found.len() == 1 && is_ready(&found[0])).then_some(())
        })
        .await;
    }

    /// Runs a program with the supported MLflow in the namespace of the case, as a client of the server.
    pub(super) async fn client(&self, name: &str, program: &str) -> String {
        self.program_of(name, SUPPORTED, program).await
    }

    /// The same with another version.
    pub(super) async fn program_of(&self, name: &str, version: &str, program: &str) -> String {
        let environment = json!([
            { "name": "MLFLOW_TRACKING_URI", "value": "https://mlflow.opendatahub.svc:8443/mlflow" },
            { "name": "MLFLOW_TRACKING_AUTH", "value": "kubernetes-namespaced" },
            { "name": "MLFLOW_TRACKING_SERVER_CERT_PATH", "value": "/ca/ca.crt" },
            { "name": "DATABASE", "value": "postgresql://mlflow@database.opendatahub.svc:5432/mlflow" },
        ]);
        let container = json!({ "name": "main", "image": image(version), "command": ["python", "-c", program],
            "env": environment, "volumeMounts": [{ "name": "ca", "mountPath": "/ca" }] });
        let spec = json!({ "restartPolicy": "Never", "containers": [container],
            "volumes": [{ "name": "ca", "configMap": { "name": CA } }] });
        let pod = ("v1", "Pod", name);
        self.platform
            .apply(&json!({ "apiVersion": pod.0, "kind": pod.1, "metadata": { "name": name }, "spec": spec }))
            .await;
        let is_over = |pod: &Value| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let over = self.platform.wait(pod, "over", is_over).await;
        let log = self.platform.log(name, None).await;
        assert_eq!(over["status"]["phase"], "Succeeded", "{log}");
        log
    }

    /// Runs something that others find by its name, and waits until it accepts connections.
    async fn serve(&self, name: &str, port: u16, mut container: Value, user: u32) {
        container["name"] = json!("main");
        container["readinessProbe"] = json!({ "tcpSocket": { "port": port }, "periodSeconds": 1 });
        container["volumeMounts"] = json!([{ "name": "data", "mountPath": "/data" }]);
        let spec = json!({ "securityContext": { "runAsUser": user, "fsGroup": user }, "containers": [container],
            "volumes": [{ "name": "data", "emptyDir": {} }] });
        let metadata = json!({ "name": name, "labels": { "app": name } });
        self.create(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec })).await;
        self.create(json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
            "spec": { "selector": { "app": name }, "ports": [{ "port": port }] } }))
            .await;
        let is_ready = |pod: &Value| pod["status"]["containerStatuses"][0]["ready"] == true;
        let pods = self.objects(&json!({ "apiVersion": "v1", "kind": "Pod" })).await;
        self.platform.wait_for(&pods, name, "ready", is_ready).await;
    }

    /// Runs PostgreSQL of this machine; `setup` is SQL that makes the database.
    pub(super) async fn run_postgresql(&self, setup: &str) {
        self.create(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "database" },
            "stringData": { "uri": "postgresql://mlflow@database.opendatahub.svc:5432/mlflow" } }))
            .await;
        let program = programs::POSTGRESQL.replace("SETUP", setup);
        let container = json!({ "image": "debian", "command": ["bash", "-c", program] });
        self.serve("database", 5432, container, NAMED_USER).await;
    }

    pub(super) async fn run_s3(&self) {
        self.install(S3_IMAGE).await;
        let credentials = json!({ "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1" });
        self.create(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s3" },
            "stringData": credentials }))
            .await;
        let container = json!({ "image": S3_IMAGE, "command": ["python", "-c", programs::S3],
            "envFrom": [{ "secretRef": { "name": "s3" } }] });
        self.serve("s3", 9000, container, 1000).await;
    }

    /// The names of all objects in S3.
    pub(super) async fn s3_objects(&self) -> String {
        self.exec("s3", "main", &["python", "-c", programs::S3_OBJECTS]).await
    }

    /// Runs SQL as the administrator.
    pub(super) async fn psql(&self, sql: &str) -> String {
        self.exec("database", "main", &["psql", "-h", "/data", "-U", "admin", "-tA", "mlflow", "-c", sql])
            .await
    }

    /// The revision of the database's schema.
    pub(super) async fn schema(&self) -> String {
        self.psql(programs::SCHEMA).await
    }

    /// The paths of all files on the volume of the server.
    pub(super) async fn files(&self) -> String {
        self.exec("deployment/mlflow", "mlflow", &["find", "/mlflow", "-type", "f"]).await
    }

    async fn exec(&self, pod: &str, container: &str, command: &[&str]) -> String {
        let exec = self.platform.kubectl(&["exec", "-n", NAMESPACE, pod, "-c", container, "--"]);
        let output = tokio::process::Command::from(exec).args(command).output().await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}
