//! What is injected into the pods of a RayCluster.

use serde_json::{Value, json};

use crate::raycluster::names::Names;
use crate::settings::Hardening;

pub(in crate::raycluster) const OAUTH_PROXY: &str = "oauth-proxy";
pub(in crate::raycluster) const SERVING_CERTIFICATE: &str = "proxy-tls-secret";
pub(in crate::raycluster) const CREATE_CERT: &str = "create-cert";
const CA: &str = "ca-vol";
const SERVER_CERT: &str = "server-cert";
const CA_DIRECTORY: &str = "/home/ray/workspace/ca";
const TLS_DIRECTORY: &str = "/home/ray/workspace/tls";

/// The proxy that lets users in who may get pods in the namespace.
pub(in crate::raycluster) fn oauth_proxy(names: &Names<'_>, hardening: &Hardening) -> Value {
    let delegate =
        format!("{{\"/\":{{\"resource\":\"pods\",\"namespace\":\"{}\",\"verb\":\"get\"}}}}", names.namespace);
    let container = json!({
        "name": OAUTH_PROXY,
        "ports": [{"containerPort": 8443, "name": "oauth-proxy"}],
        "env": [{
            "name": "COOKIE_SECRET",
            "valueFrom": {"secretKeyRef": {"name": names.cookie_secret(), "key": "cookie_secret"}},
        }],
        "args": [
            "--https-address=:8443",
            "--provider=openshift",
            format!("--openshift-service-account={}", names.oauth_service_account()),
            "--upstream=http://localhost:8265",
            "--tls-cert=/etc/tls/private/tls.crt",
            "--tls-key=/etc/tls/private/tls.key",
            "--cookie-secret=$(COOKIE_SECRET)",
            format!("--openshift-delegate-urls={delegate}"),
        ],
        "volumeMounts": [{"name": SERVING_CERTIFICATE, "mountPath": "/etc/tls/private", "readOnly": true}],
    });
    with_image(container, &hardening.oauth_proxy_image)
}

/// A container with an image; an empty one is left out, and the API server says that it is missing.
fn with_image(mut container: Value, image: &str) -> Value {
    if !image.is_empty() {
        container["image"] = image.into();
    }
    container
}

/// The certificate of the proxy.
pub(in crate::raycluster) fn serving_certificate(names: &Names<'_>) -> Value {
    json!({"name": SERVING_CERTIFICATE, "secret": {"secretName": names.serving_certificate()}})
}

/// Variables by which Ray uses TLS.
pub(in crate::raycluster) fn tls_environment() -> Vec<Value> {
    let variable = |name: &str, value: String| json!({"name": name, "value": value});
    vec![
        json!({"name": "MY_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}),
        variable("RAY_USE_TLS", "1".to_owned()),
        variable("RAY_TLS_SERVER_CERT", format!("{TLS_DIRECTORY}/server.crt")),
        variable("RAY_TLS_SERVER_KEY", format!("{TLS_DIRECTORY}/server.key")),
        variable("RAY_TLS_CA_CERT", format!("{TLS_DIRECTORY}/ca.crt")),
    ]
}

pub(in crate::raycluster) fn tls_mounts() -> Vec<Value> {
    vec![
        json!({"name": CA, "mountPath": CA_DIRECTORY, "readOnly": true}),
        json!({"name": SERVER_CERT, "mountPath": TLS_DIRECTORY}),
    ]
}

pub(in crate::raycluster) fn tls_volumes(names: &Names<'_>) -> Vec<Value> {
    vec![
        json!({"name": CA, "secret": {"secretName": names.ca_secret()}}),
        json!({"name": SERVER_CERT, "emptyDir": {}}),
    ]
}

/// Makes the certificate of a pod. `domain` is given for the head, which clients reach from outside.
pub(in crate::raycluster) fn create_cert(
    names: &Names<'_>,
    hardening: &Hardening,
    domain: Option<&str>,
) -> Value {
    let container = json!({
        "name": CREATE_CERT,
        "command": ["sh", "-c", script(names, domain)],
        "volumeMounts": tls_mounts(),
    });
    with_image(container, &hardening.cert_generator_image)
}

/// A key and a certificate that the CA signs, good for all names of the pod.
fn script(names: &Names<'_>, domain: Option<&str>) -> String {
    let mut hosts = vec![
        "127.0.0.1".to_owned(),
        "localhost".to_owned(),
        "${FQ_RAY_IP}".to_owned(),
        // The last address in it is that of the pod.
        "$(awk 'END {print $1}' /etc/hosts)".to_owned(),
    ];
    if let Some(domain) = domain {
        hosts.push(names.host(&names.client(), domain));
        hosts.push(format!("{}.{}.svc", names.head_service(), names.namespace));
    }
    let hosts = hosts.iter().enumerate().map(|(number, host)| format!("DNS.{} = {host}", number + 1));
    let hosts = hosts.collect::<Vec<_>>().join("\n");
    format!(
        "set -e
cd {TLS_DIRECTORY}
openssl req -new -nodes -newkey rsa:2048 -keyout server.key -out server.csr -subj /CN=ray-head
cat > domain.ext <<EOF
authorityKeyIdentifier = keyid,issuer
basicConstraints = CA:FALSE
subjectAltName = @names
[names]
{hosts}
EOF
cp {CA_DIRECTORY}/* .
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -extfile domain.ext -out server.crt
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_head_has_names_outside_of_the_cluster() {
        let names = Names::new("r", "ns", true);
        let head = script(&names, Some("example.com"));
        assert!(head.contains("DNS.5 = rayclient-r-ns.example.com\nDNS.6 = r-head-svc.ns.svc\n"), "{head}");
        let worker = script(&names, None);
        assert!(worker.contains("DNS.4 = $(awk") && !worker.contains("DNS.5"), "{worker}");
    }
}
