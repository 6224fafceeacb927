//! The ConsoleLink, which puts MLflow into the application menu of OpenShift's console.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quintet_api::mlflow::MLflow;
use quintet_controller::Action;
use serde_json::json;

use super::owners;
use crate::names::{MANAGER, MLFLOW};
use crate::settings::Settings;
use crate::watches::console_link_kind;

const ICON: &[u8] = include_bytes!("icon.svg");

/// The ConsoleLink. It leads to the external address even if that is the placeholder, as upstream's.
pub(in crate::mlflow) fn console_link(mlflow: &MLflow, settings: &Settings) -> Action {
    let link = json!({
        "metadata": { "name": MLFLOW, "labels": { "app": MLFLOW }, "ownerReferences": owners(mlflow) },
        "spec": {
            "text": "MLflow",
            "href": format!("{}/mlflow", settings.url),
            "location": "ApplicationMenu",
            "applicationMenu": {
                "section": settings.section_title,
                "imageURL": format!("data:image/svg+xml;base64,{}", STANDARD.encode(ICON)),
            },
        },
    });
    Action::apply(console_link_kind(), MANAGER, &link)
}
