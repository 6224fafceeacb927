//! The ProvisioningRequestConfig that an AdmissionCheck refers to. As `ConfigFromRef` of Kueue's `pkg/util/admissioncheck`.

use quintet_api::kueue::metadata::PROVISIONING_REQUEST_CONTROLLER;
use quintet_api::kueue::v1beta2::AdmissionCheck;

const GROUP: &str = "kueue.x-k8s.io";
const KIND: &str = "ProvisioningRequestConfig";

/// Whether this controller decides the check.
pub(super) fn is_ours(check: &AdmissionCheck) -> bool {
    check.spec.controller_name == PROVISIONING_REQUEST_CONTROLLER
}

/// The name of the configuration. The error is for users.
pub(super) fn config_name(check: &AdmissionCheck) -> Result<&str, String> {
    let Some(reference) = &check.spec.parameters else {
        return Err("missing parameters reference".to_owned());
    };
    let wrong = |what: &str| Err(format!("{what}: bad parameters reference"));
    if reference.name.is_empty() {
        return wrong("empty name");
    }
    if reference.api_group != GROUP {
        return wrong(&format!("wrong group {:?}, expecting {GROUP:?}", reference.api_group));
    }
    if reference.kind != KIND {
        return wrong(&format!("wrong kind {:?}, expecting {KIND:?}", reference.kind));
    }
    Ok(&reference.name)
}

/// What is said about a configuration that does not exist.
pub(super) fn not_found(name: &str) -> String {
    format!("{KIND}.{GROUP} {name:?} not found")
}
