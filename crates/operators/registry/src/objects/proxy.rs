//! The kube-rbac-proxy beside a server, which lets in callers that may `get` the server's Service.

use serde_json::{Value, json};

use super::{Timing, probe, resources, server_requirements};
use crate::drift::absent;
use crate::names;

/// The name of the container.
pub(crate) const CONTAINER: &str = "kube-rbac-proxy";
const CONFIG_VOLUME: &str = "kube-rbac-proxy-config";
const CERT_VOLUME: &str = "kube-rbac-proxy-cert";
const KEY_VOLUME: &str = "kube-rbac-proxy-key";
const TLS_VOLUME: &str = "kube-rbac-proxy-tls";
/// The port of health checks.
const HEALTH_PORT: i32 = 8888;

/// A proxy.
#[derive(Clone, Debug)]
pub(crate) struct Proxy<'a> {
    /// The server, whose Service, ConfigMap and ServiceAccount have derived names.
    pub(crate) server: &'a str,
    pub(crate) image: &'a str,
    /// Where it listens.
    pub(crate) port: i32,
    /// Where the server listens.
    pub(crate) upstream: i32,
    pub(crate) certificate: Certificate<'a>,
}

/// Where the proxy's certificate and key are.
#[derive(Clone, Debug)]
pub(crate) enum Certificate<'a> {
    /// Secret and key of each.
    Apart { certificate: (&'a str, &'a str), key: (&'a str, &'a str) },
    /// One Secret of type TLS.
    Together(&'a str),
}

impl Proxy<'_> {
    /// The container.
    pub(crate) fn container(&self) -> Value {
        let (certificate, key) = match &self.certificate {
            Certificate::Apart { certificate, key } => (
                format!("/etc/tls/private-cert/{}", certificate.1),
                format!("/etc/tls/private-key/{}", key.1),
            ),
            Certificate::Together(_) => ("/etc/tls/tls.crt".to_owned(), "/etc/tls/tls.key".to_owned()),
        };
        let mounts = match &self.certificate {
            Certificate::Apart { .. } => json!([
                { "name": CERT_VOLUME, "mountPath": "/etc/tls/private-cert" },
                { "name": KEY_VOLUME, "mountPath": "/etc/tls/private-key" },
                { "name": CONFIG_VOLUME, "mountPath": "/etc/kube-rbac-proxy" },
            ]),
            Certificate::Together(_) => json!([
                { "name": TLS_VOLUME, "mountPath": "/etc/tls" },
                { "name": CONFIG_VOLUME, "mountPath": "/etc/kube-rbac-proxy" },
            ]),
        };
        let health = |delay| {
            let get = json!({ "path": "/healthz", "port": "proxy-healthz", "scheme": "HTTPS" });
            probe(json!({ "httpGet": get }), Timing { delay, period: 5, timeout: 1, failures: 3 })
        };
        json!({
            "name": CONTAINER,
            "image": self.image,
            "args": [
                format!("--secure-listen-address=0.0.0.0:{}", self.port),
                format!("--upstream=http://127.0.0.1:{}/", self.upstream),
                format!("--proxy-endpoints-port={HEALTH_PORT}"),
                "--logtostderr=true",
                "--v=0",
                "--config-file=/etc/kube-rbac-proxy/config-file.yaml",
                format!("--tls-cert-file={certificate}"),
                format!("--tls-private-key-file={key}"),
            ],
            "ports": [
                { "name": "https-proxy", "containerPort": self.port, "protocol": "TCP" },
                { "name": "proxy-healthz", "containerPort": HEALTH_PORT, "protocol": "TCP" },
            ],
            "livenessProbe": health(30),
            "readinessProbe": health(5),
            "resources": resources(&server_requirements()),
            "volumeMounts": mounts,
        })
    }

    /// Its volumes.
    pub(crate) fn volumes(&self) -> Vec<Value> {
        let secret = |volume: &str, secret: &str| json!({ "name": volume, "secret": { "secretName": secret, "defaultMode": 0o600 } });
        let mut volumes = match &self.certificate {
            Certificate::Apart { certificate, key } => {
                vec![secret(CERT_VOLUME, certificate.0), secret(KEY_VOLUME, key.0)]
            }
            Certificate::Together(name) => vec![secret(TLS_VOLUME, name)],
        };
        volumes.push(json!({
            "name": CONFIG_VOLUME, "configMap": { "name": names::proxy_config(self.server) },
        }));
        volumes
    }

    /// Its configuration: what a caller has to be allowed.
    pub(crate) fn config(server: &str, namespace: &str) -> Value {
        let text = format!(
            "authorization:\n  resourceAttributes:\n    apiVersion: v1\n    resource: services\n    verb: get\n    \
             namespace: {namespace}\n    name: {server}\n"
        );
        json!({ "config-file.yaml": text })
    }

    /// The container and the volumes of a registry's proxy, if there is to be none.
    pub(crate) fn absence() -> (Value, Vec<Value>) {
        let volumes = [CERT_VOLUME, KEY_VOLUME, CONFIG_VOLUME].map(|volume| absent("name", volume));
        (absent("name", CONTAINER), volumes.into())
    }
}
