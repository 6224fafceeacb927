//! The Service of the server.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use quintet_api::mlflow::metadata::SERVING_CERT;
use quintet_controller::Action;

use super::{Inputs, apply, metadata};
use crate::names::{MLFLOW, PORT, PORT_NAME, TLS_SECRET};

/// The Service. On OpenShift, its annotation makes the Secret with the certificate; elsewhere the administrator does.
pub(super) fn service(inputs: &Inputs<'_>) -> Action {
    let mut metadata = metadata(inputs, MLFLOW, MLFLOW);
    metadata.annotations = Some([(SERVING_CERT.to_owned(), TLS_SECRET.to_owned())].into());
    apply(&Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            selector: Some([("app".to_owned(), MLFLOW.to_owned())].into()),
            ports: Some(vec![ServicePort {
                name: Some(PORT_NAME.to_owned()),
                port: PORT,
                target_port: Some(IntOrString::String(PORT_NAME.to_owned())),
                protocol: Some("TCP".to_owned()),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    })
}
