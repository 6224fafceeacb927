//! Whether the database has to be migrated, and what to do about it.
//!
//! One Job per generation of the spec runs while there are no server pods. Its result is recorded when the server is
//! ready again; until then the condition `Migration` is `Unknown`.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::batch::v1::Job;
use quintet_api::conditions;
use quintet_api::job::JobEnd;
use quintet_api::mlflow::conditions::MIGRATION;
use quintet_api::mlflow::metadata::{FORCE_MIGRATE, MIGRATION_INSTANCE};
use quintet_api::mlflow::{MLflow, MigrationMode, messages, reasons};
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Next};

use super::failure::{self, Failure};
use crate::mlflow::observe::Observed;
use crate::names;
use crate::settings::Settings;
use crate::watches::JobView;

/// How long after a failure that may pass the Job is repeated, as upstream.
const RETRY: SignedDuration = SignedDuration::from_mins(2);

/// Why the server stays stopped, and what to do meanwhile.
pub(super) struct Report {
    /// Whether the condition `Migration` is about it, too.
    pub is_requested: bool,
    /// Whether everything is applied, with no replicas of the server.
    pub scales_down: bool,
    /// The deletion of an earlier Job.
    pub deletes: Option<Action>,
    /// The name of the Job to create.
    pub creates: Option<String>,
    /// The reason of the conditions.
    pub reason: &'static str,
    /// Their message.
    pub message: String,
    /// When to reconcile again.
    pub next: Next,
}

impl Report {
    /// Everything is applied without replicas of the server; nothing else is done.
    fn new(reason: &'static str, message: String) -> Self {
        let next = Next::AwaitChange;
        Self { is_requested: true, scales_down: true, deletes: None, creates: None, reason, message, next }
    }
}

/// Why a migration is requested.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trigger {
    Force,
    Always,
    Bootstrap,
    Version,
}

impl Trigger {
    fn text(self, observed: &Observed, settings: &Settings) -> String {
        match self {
            Self::Force => format!("the {FORCE_MIGRATE} annotation is present"),
            Self::Always => format!(
                "spec.migration.mode=Always and desired generation {} has not completed migration yet",
                observed.generation()
            ),
            Self::Bootstrap => "status.version is empty during bootstrap".to_owned(),
            Self::Version => format!(
                "status.version={:?} does not match supported version {}",
                observed.status().version.unwrap_or_default(),
                settings.version
            ),
        }
    }
}

/// Whether the annotation asks for a migration.
pub(super) fn is_forced(mlflow: &MLflow) -> bool {
    mlflow.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(FORCE_MIGRATE))
}

/// Whether the Job of this generation has succeeded.
pub(super) fn has_succeeded(observed: &Observed, settings: &Settings) -> bool {
    current_job(observed, settings).is_some_and(|job| job.object.succeeded && !job.deleting)
}

fn job_name(observed: &Observed, settings: &Settings) -> String {
    names::migration_job(&settings.version, observed.generation())
}

fn current_job<'a>(observed: &'a Observed, settings: &Settings) -> Option<&'a Arc<Entry<JobView>>> {
    let name = job_name(observed, settings);
    observed.jobs.iter().find(|job| job.key.name() == name)
}

/// Why a migration is requested, if it is.
fn requested(observed: &Observed, settings: &Settings) -> Option<Trigger> {
    let mlflow = &observed.mlflow.object;
    let status = observed.status();
    let version = status.version.as_deref().unwrap_or_default();
    let always =
        mlflow.spec.migration.as_ref().and_then(|options| options.mode) == Some(MigrationMode::Always);
    let condition = conditions::find(status.conditions.as_deref().unwrap_or_default(), MIGRATION);
    let of_generation =
        condition.filter(|condition| condition.observed_generation == Some(observed.generation()));
    let is_requested = is_forced(mlflow)
        || version != settings.version
        || of_generation.map_or(always, |condition| condition.status != "True");
    let trigger = if is_forced(mlflow) {
        Trigger::Force
    } else if always {
        Trigger::Always
    } else if version.is_empty() {
        Trigger::Bootstrap
    } else {
        Trigger::Version
    };
    is_requested.then_some(trigger)
}

/// Decides on a migration. `None` means that the server runs: nothing is to be migrated, or it is done. The order of the
/// cases is upstream's.
pub(super) fn decide(observed: &Observed, settings: &Settings) -> Option<Report> {
    let Some(trigger) = requested(observed, settings) else { return unrequested(observed) };
    let migrating = Migrating { observed, settings, trigger };
    let job = current_job(observed, settings);
    let has_succeeded = job.is_some_and(|job| job.object.succeeded);
    if let Some(message) = migrating.sticky_failure().filter(|_| !has_succeeded) {
        return Some(failed_for_good(message));
    }
    let Some(job) = job else { return Some(migrating.run(None)) };
    match &job.object.failure {
        _ if job.deleting => Some(migrating.await_deletion(job)),
        Some(_) if trigger == Trigger::Force => Some(migrating.restart(job)),
        Some(failed) => Some(migrating.after_failure(job, failed)),
        // A Job that succeeded before it was requested again does not count.
        None if has_succeeded && migrating.is_of_earlier_request() => Some(migrating.restart(job)),
        None if has_succeeded => migrating.await_other(),
        None => Some(migrating.end_later(job).unwrap_or_else(|| migrating.run(Some(job)))),
    }
}

/// A Job that is no longer wanted (the spec was changed from mode `Always`) still writes to the database.
fn unrequested(observed: &Observed) -> Option<Report> {
    let job = unfinished_job(observed)?;
    let name = job.key.name();
    let message = format!("Waiting for migration Job {name} to finish, though it is no longer requested");
    Some(Report { is_requested: false, ..Report::new(reasons::MIGRATION_RUNNING, message) })
}

/// A Job that has not ended: two must not migrate the same database, and no server may use it meanwhile.
fn unfinished_job(observed: &Observed) -> Option<&Arc<Entry<JobView>>> {
    unfinished_jobs(observed).next()
}

fn unfinished_jobs(observed: &Observed) -> impl Iterator<Item = &Arc<Entry<JobView>>> {
    let instance = observed.mlflow.key.name();
    let is_ours =
        move |job: &JobView| job.labels.get(MIGRATION_INSTANCE).is_some_and(|name| name == instance);
    let is_unfinished = |job: &JobView| !job.finished && !job.succeeded;
    observed.jobs.iter().filter(move |job| is_ours(&job.object) && is_unfinished(&job.object))
}

struct Migrating<'a> {
    observed: &'a Observed,
    settings: &'a Settings,
    trigger: Trigger,
}

impl Migrating<'_> {
    fn is_forced(&self) -> bool {
        self.trigger == Trigger::Force
    }

    fn because(&self) -> String {
        self.trigger.text(self.observed, self.settings)
    }

    /// A Job that is requested again is deleted first.
    fn restart(&self, job: &Entry<JobView>) -> Report {
        let result = if job.object.succeeded { "completed" } else { "failed" };
        let message = format!(
            "Deleted {result} migration Job {} so the force-migrate annotation can create a fresh Job with the same \
             generated name because {}",
            job.key.name(),
            self.because()
        );
        let report = Report::new(reasons::FORCE_MIGRATION_RESTART_REQUESTED, message);
        Report { scales_down: false, deletes: Some(delete(job)), ..report }
    }

    /// The name of a Job is free when it is gone.
    fn await_deletion(&self, job: &Entry<JobView>) -> Report {
        let reason = if self.is_forced() {
            reasons::FORCE_MIGRATION_RESTART_REQUESTED
        } else {
            reasons::MIGRATION_RETRYING
        };
        let name = job.key.name();
        Report::new(
            reason,
            format!("Waiting for migration Job {name} to be deleted because {}", self.because()),
        )
    }

    fn after_failure(&self, job: &Entry<JobView>, failed: &JobEnd) -> Report {
        let cause = match failure::classify(job, failed, &self.observed.pods, &self.settings.version) {
            Failure::Terminal(cause) => return failed_for_good(messages::migration_failed(&cause)),
            Failure::Retryable(cause) => cause,
        };
        let at = failed.at.unwrap_or(self.observed.now) + RETRY;
        let left = at.duration_since(self.observed.now);
        let report =
            Report::new(reasons::MIGRATION_RETRYING, messages::migration_retrying(&cause, &rfc3339(at)));
        if left.is_positive() {
            Report { next: Duration::try_from(left).map_or(Next::AwaitChange, Next::After), ..report }
        } else {
            Report { deletes: Some(delete(job)), ..report }
        }
    }

    /// Whether the Job that succeeded is older than the request.
    fn is_of_earlier_request(&self) -> bool {
        let status = self.observed.status();
        let reason = conditions::find(status.conditions.as_deref().unwrap_or_default(), MIGRATION)
            .map(|condition| condition.reason.clone());
        let is_of_request = [reasons::FORCE_MIGRATION_RUNNING, reasons::FORCE_MIGRATION_SCALING_DOWN]
            .map(Some)
            .contains(&reason.as_deref());
        self.is_forced() && !is_of_request
    }

    /// The Job has succeeded, but the server waits for another one: a request of an operator that died may be carried out
    /// late, after its successor has made the Job of a newer generation.
    fn await_other(&self) -> Option<Report> {
        let other = unfinished_job(self.observed)?;
        Some(Report::new(self.running(), self.waiting_for_previous(other)))
    }

    /// Of two Jobs that have not ended, the one that came later is deleted before it does much.
    fn end_later(&self, job: &Arc<Entry<JobView>>) -> Option<Report> {
        let other = unfinished_jobs(self.observed).find(|other| other.key != job.key)?;
        let (first, later) =
            if other.object.created < job.object.created { (other, job) } else { (job, other) };
        let (first, name) = (first.key.name(), later.key.name());
        let message = format!(
            "Deleting migration Job {name}: migration Job {first} came before it and has not finished"
        );
        let deletes = (!later.deleting).then(|| delete(later));
        Some(Report { deletes, ..Report::new(self.running(), message) })
    }

    fn running(&self) -> &'static str {
        if self.is_forced() { reasons::FORCE_MIGRATION_RUNNING } else { reasons::MIGRATION_RUNNING }
    }

    fn waiting_for(&self, name: &str) -> String {
        format!("Waiting for migration Job {name} to finish because {}", self.because())
    }

    fn waiting_for_previous(&self, other: &Entry<JobView>) -> String {
        self.waiting_for(&format!("{} from a previous desired generation", other.key.name()))
    }

    /// Server pods end, then other Jobs, then the Job runs.
    fn run(&self, job: Option<&Arc<Entry<JobView>>>) -> Report {
        let remaining = self.observed.deployment.as_ref().map_or(0, |deployment| deployment.replicas);
        if remaining > 0 {
            let message = format!(
                "Waiting for MLflow pods to quiesce before migration: {remaining} replicas remain because {}",
                self.because()
            );
            let scaling_down = if self.is_forced() {
                reasons::FORCE_MIGRATION_SCALING_DOWN
            } else {
                reasons::MIGRATION_SCALING_DOWN
            };
            return Report::new(scaling_down, message);
        }
        let name = job_name(self.observed, self.settings);
        if let Some(other) = unfinished_job(self.observed).filter(|_| job.is_none()) {
            return Report::new(self.running(), self.waiting_for_previous(other));
        }
        let report = Report::new(self.running(), self.waiting_for(&name));
        Report { creates: job.is_none().then_some(name), ..report }
    }

    /// A failure that needs the user stays until the user asks for another migration.
    fn sticky_failure(&self) -> Option<String> {
        let status = self.observed.status();
        let condition = conditions::find(status.conditions.as_deref()?, MIGRATION)?;
        let is_sticky = condition.status == "False" && condition.reason == reasons::MIGRATION_FAILED;
        (is_sticky && !self.is_forced()).then(|| condition.message.clone())
    }
}

fn failed_for_good(message: String) -> Report {
    Report::new(reasons::MIGRATION_FAILED, message)
}

fn delete(job: &Entry<JobView>) -> Action {
    Action::delete(ApiKind::of::<Job>(), job)
}

/// A time to the second.
fn rfc3339(at: jiff::Timestamp) -> String {
    format!("{at:.0}")
}
