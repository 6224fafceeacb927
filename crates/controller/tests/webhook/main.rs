//! Webhooks: handlers, the HTTPS server, and the certificate manager.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod certificates;
mod handlers;
mod https;

use std::time::Duration;

use k8s_openapi::ByteString;
use quintet_controller::{
    ObjectKey,
    webhook::{CertificateManager, CertificateManagerSettings, Publication},
};
use serde_json::{Value, json};
use support::{process::Process, server::Server, store::Place};

/// The name that API servers use for the Service of the webhooks.
const NAME: &str = "quintet-webhooks.quintet.svc";
const ADMISSION: &str = "admissionregistration.k8s.io/v1";
const CRD: &str = "gardens.test.quintet.dev";
const CONVERSION_BUNDLE: &str = "/spec/conversion/webhook/clientConfig/caBundle";

fn service() -> ObjectKey {
    ObjectKey::new("quintet", "quintet-webhooks")
}

fn cluster_scoped(collection: &str, name: &str) -> Place {
    (collection.to_owned(), String::new(), name.to_owned())
}

fn validating() -> Place {
    cluster_scoped(&format!("{ADMISSION}/validatingwebhookconfigurations"), "quintet")
}

fn mutating() -> Place {
    cluster_scoped(&format!("{ADMISSION}/mutatingwebhookconfigurations"), "quintet")
}

fn crd(name: &str) -> Place {
    cluster_scoped("apiextensions.k8s.io/v1/customresourcedefinitions", name)
}

/// An API server without any webhooks yet.
fn api_server(seed: u64) -> Server {
    let server = Server::new(seed);
    server.serve(ADMISSION, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", false);
    server.serve(ADMISSION, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", false);
    server.serve("apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", false);
    server
}

/// A `clientConfig` that calls a Service.
fn calls(service: &ObjectKey) -> Value {
    json!({"service": {"name": service.name(), "namespace": service.namespace().unwrap(), "path": "/x"}})
}

fn create_webhooks(server: &Server, place: &Place, client_configs: &[Value]) {
    let webhooks: Vec<_> =
        client_configs.iter().map(|config| json!({"name": "w", "clientConfig": config})).collect();
    server.store(|store| store.create(place, json!({"metadata": {}, "webhooks": webhooks})).unwrap());
}

fn create_crd(server: &Server, name: &str, client_config: &Value) {
    let conversion = json!({"strategy": "Webhook", "webhook": {"clientConfig": client_config}});
    let object = json!({"metadata": {}, "spec": {"conversion": conversion}});
    server.store(|store| store.create(&crd(name), object).unwrap());
}

fn create_all(server: &Server) {
    let ours = calls(&service());
    create_webhooks(server, &validating(), &[ours.clone(), ours.clone()]);
    create_webhooks(server, &mutating(), std::slice::from_ref(&ours));
    create_crd(server, CRD, &ours);
}

fn settings() -> CertificateManagerSettings {
    let publications = vec![
        Publication::Validating("quintet".to_owned()),
        Publication::Mutating("quintet".to_owned()),
        Publication::Conversion(CRD.to_owned()),
    ];
    CertificateManagerSettings {
        period: Duration::from_hours(6),
        ..CertificateManagerSettings::own(ObjectKey::new("default", "certs"), service(), publications)
    }
}

fn start(process: &Process, settings: CertificateManagerSettings) -> CertificateManager {
    CertificateManager::start(process.api.clone(), process.clock.clone(), settings, &process.tasks)
}

fn object(server: &Server, place: &Place) -> Value {
    server.store(|store| store.objects[place].clone())
}

fn bundle(server: &Server, place: &Place, path: &str) -> String {
    let encoded = object(server, place).pointer(path).unwrap().clone();
    let bytes: ByteString = serde_json::from_value(encoded).unwrap();
    String::from_utf8(bytes.0).unwrap()
}

fn review(object: &Value) -> Value {
    json!({"kind": "AdmissionReview", "request": {"uid": "q", "operation": "CREATE", "name": "a", "object": object}})
}
