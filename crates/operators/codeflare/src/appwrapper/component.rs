//! What the status says of a component.

use quintet_api::appwrapper::conditions::RESOURCES_DEPLOYED;
use quintet_api::appwrapper::{AppWrapperComponentStatus, reasons};
use quintet_api::conditions;

/// Status and reason of the condition that says whether it is deployed.
fn condition(status: &AppWrapperComponentStatus) -> Option<(&str, &str)> {
    let condition = conditions::find(status.conditions.as_deref().unwrap_or_default(), RESOURCES_DEPLOYED)?;
    Some((&condition.status, &condition.reason))
}

/// Whether a component was created.
pub(super) fn is_deployed(status: &AppWrapperComponentStatus) -> bool {
    matches!(condition(status), Some(("True", _)))
}

/// Whether the status says that a component is about to be created. One that was deleted before is not.
pub(super) fn is_recorded(status: Option<&AppWrapperComponentStatus>) -> bool {
    let recorded = status.and_then(condition);
    matches!(recorded, Some(("Unknown", _) | ("False", reasons::COMPONENT_CREATION_ERRORED)))
}

/// Whether there may be an object of a component, according to the status.
pub(super) fn may_exist(status: &AppWrapperComponentStatus) -> bool {
    !status.name.is_empty()
        && !matches!(condition(status), None | Some(("False", reasons::COMPONENT_DELETED)))
}

/// Whether a component certainly was not created, or is not known to have been.
pub(super) fn is_errored(status: &AppWrapperComponentStatus) -> bool {
    matches!(condition(status), Some(("False", _)))
}

/// Whether the last attempt to create a component has failed.
pub(super) fn is_failed(status: &AppWrapperComponentStatus) -> bool {
    matches!(condition(status), Some(("False", reasons::COMPONENT_CREATION_ERRORED)))
}
