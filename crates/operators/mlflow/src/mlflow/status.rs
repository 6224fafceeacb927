//! The status of an MLflow.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quintet_api::conditions::{self, Finding};
use quintet_api::mlflow::conditions::{AVAILABLE, MIGRATION, MLFLOW_OPERATOR_READY, PROGRESSING};
use quintet_api::mlflow::{Address, MLflowStatus, messages, reasons};
use quintet_controller::StatusPatch;

use super::observe::Observed;
use crate::settings::Settings;

/// The next status, as it is put together.
pub(super) struct Draft<'a> {
    observed: &'a Observed,
    status: MLflowStatus,
    now: Time,
}

impl<'a> Draft<'a> {
    /// The status as it is.
    pub(super) fn new(observed: &'a Observed) -> Self {
        Self { observed, status: observed.status(), now: Time(observed.now) }
    }

    /// The difference to the status as it is.
    pub(super) fn patch(self) -> Option<StatusPatch> {
        StatusPatch::between(&self.observed.mlflow, &self.observed.status(), &self.status)
    }

    /// The address inside the cluster.
    pub(super) fn set_address(&mut self, settings: &Settings) {
        let url = settings.tracking_uri();
        self.status.address = Some(Address { url: Some(url) });
    }

    /// The address outside of the cluster.
    pub(super) fn set_url(&mut self, url: Option<String>) {
        self.status.url = url;
    }

    pub(super) fn set(&mut self, type_: &str, holds: Option<bool>, reason: &str, message: &str) {
        // As upstream: the others say nothing about a generation.
        let is_of_generation = type_ == MIGRATION || type_ == MLFLOW_OPERATOR_READY;
        let observed_generation = is_of_generation.then(|| self.observed.generation());
        let finding = Finding { type_, holds, reason, message, observed_generation };
        conditions::set(self.status.conditions.get_or_insert_default(), &finding, &self.now);
    }

    /// Forgets a condition.
    pub(super) fn remove(&mut self, type_: &str) {
        if let Some(all) = &mut self.status.conditions {
            conditions::remove(all, type_);
        }
    }

    /// The server does not serve, and something goes on that may change that.
    pub(super) fn unavailable(&mut self, is_progressing: bool, reason: &str, message: &str) {
        self.set(AVAILABLE, Some(false), reason, message);
        self.set(PROGRESSING, Some(is_progressing), reason, message);
    }

    /// A migration goes on, is to be repeated, or cannot be brought about.
    pub(super) fn migrating(&mut self, is_progressing: bool, reason: &str, message: &str) {
        self.unavailable(is_progressing, reason, message);
        self.set(MIGRATION, None, reason, message);
    }

    /// A migration has failed for good.
    pub(super) fn migration_failed(&mut self, message: &str) {
        self.unavailable(false, reasons::MIGRATION_FAILED, message);
        self.set(MIGRATION, Some(false), reasons::MIGRATION_FAILED, message);
    }

    /// A migration has succeeded, and the server runs on its result.
    pub(super) fn migrated(&mut self, version: &str) {
        let message = messages::migration_succeeded(self.observed.generation());
        self.set(MIGRATION, Some(true), reasons::MIGRATION_SUCCEEDED, &message);
        self.status.version = Some(version.to_owned());
    }

    /// How many replicas are ready.
    pub(super) fn set_readiness(&mut self, ready: i32, desired: i32) {
        if desired > 0 && ready >= desired {
            self.set(AVAILABLE, Some(true), reasons::DEPLOYMENT_READY, messages::DEPLOYMENT_READY);
            self.set(PROGRESSING, Some(false), reasons::RECONCILE_COMPLETE, messages::RECONCILE_COMPLETE);
        } else {
            let message = messages::deployment_not_ready(ready, desired);
            self.set(AVAILABLE, Some(false), reasons::DEPLOYMENT_NOT_READY, &message);
            self.set(PROGRESSING, Some(true), reasons::DEPLOYMENT_PROGRESSING, &message);
        }
    }
}
