//! In module mode, nothing is reconciled before the platform's MLflowOperator is ready.

use quintet_api::mlflow::conditions::{AVAILABLE, MLFLOW_OPERATOR_READY, PROGRESSING, READY};
use quintet_api::mlflow::{messages, reasons};
use quintet_api::platform::ConditionStatus;
use quintet_controller::Plan;

use crate::mlflow::observe::Observed;
use crate::mlflow::status::Draft;

/// Why the module is not ready.
pub(super) struct Wait {
    reason: String,
    message: String,
    /// The module is kept from being deleted by this MLflow, which goes on serving.
    keeps_state: bool,
}

/// Whether the module is ready.
pub(super) fn gate(observed: &Observed) -> Result<(), Wait> {
    let wait =
        |reason: &str, message: String| Wait { reason: reason.to_owned(), message, keeps_state: false };
    let Some(module) = &observed.module else {
        return Err(wait(reasons::MLFLOW_OPERATOR_MISSING, messages::MODULE_MISSING.to_owned()));
    };
    let status = module.object.status.clone().unwrap_or_default();
    let generation = module.object.metadata.generation.unwrap_or_default();
    let known = status.observed_generation.unwrap_or_default();
    if known > 0 && known < generation {
        return Err(wait(reasons::MLFLOW_OPERATOR_STATUS_STALE, messages::module_stale(generation)));
    }
    let Some(ready) = status.conditions.iter().flatten().find(|condition| condition.type_ == READY) else {
        return Err(wait(reasons::MLFLOW_OPERATOR_NOT_READY, messages::MODULE_UNREPORTED.to_owned()));
    };
    if ready.status == ConditionStatus::True {
        return Ok(());
    }
    let reason = ready.reason.as_deref().filter(|reason| !reason.is_empty());
    let reason = reason.unwrap_or(reasons::MLFLOW_OPERATOR_NOT_READY);
    let keeps_state = module.deleting && reason == reasons::MLFLOW_INSTANCES_PRESENT;
    let message = messages::module_not_ready(ready.message.as_deref().unwrap_or_default());
    Err(Wait { reason: reason.to_owned(), message, keeps_state })
}

/// The plan until the module is ready.
pub(super) fn waiting(wait: &Wait, mut draft: Draft<'_>) -> Plan {
    let Wait { reason, message, keeps_state } = wait;
    draft.set(MLFLOW_OPERATOR_READY, Some(false), reason, message);
    if !keeps_state {
        draft.set(AVAILABLE, Some(false), reason, message);
        draft.set(PROGRESSING, Some(true), reason, message);
    }
    Plan { awaits: vec![message.clone()], status: draft.patch(), ..Plan::default() }
}
