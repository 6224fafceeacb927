//! CronJob: Jobs on a schedule.

mod plan;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::{Timestamp, tz::TimeZone};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use quintet_api::schedule;
use quintet_controller::cache::{Cache, Entry, WatchSpec};
use quintet_controller::{ApiKind, Controller, Error, NoCall, ObjectKey, Plan, Runtime};
use serde::{Deserialize, Serialize};

use crate::claim::{self, BY_CONTROLLER};
use crate::{Context, job};

/// Everything that a decision about a CronJob needs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    cron: Arc<Entry<CronJob>>,
    /// The Jobs that it controls.
    jobs: Vec<Arc<Entry<Job>>>,
    /// Jobs that its status names as active and that do not exist, by an uncached read.
    missing: Vec<String>,
    zone: Zone,
    now: Timestamp,
}

/// The time zone of a schedule.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Zone {
    /// It is in the time zone database.
    Known(#[serde(with = "jiff::fmt::serde::tz::required")] TimeZone),
    /// It is not; why, in words for the user.
    Unknown(String),
}

/// The controller of CronJobs.
struct CronJobController {
    crons: Cache<CronJob>,
    jobs: Cache<Job>,
    context: Context,
}

/// Adds the controller of CronJobs.
pub(crate) fn add(runtime: &Runtime, context: &Context) -> Result<(), Error> {
    let spec = WatchSpec::<CronJob>::typed().index(claim::BY_NAMESPACE, claim::index_by_namespace);
    let crons = runtime.caches().watch(spec)?;
    let jobs = runtime.caches().watch(job::watch())?;
    let controller = CronJobController { crons: crons.clone(), jobs: jobs.clone(), context: context.clone() };
    let kind = ApiKind::of::<CronJob>();
    let roots = crons.clone();
    runtime
        .add(controller, &crons, context.concurrency)
        .watches(&jobs, move |job| claim::roots_of(job, &kind, &roots, |_| None))
        .done();
    Ok(())
}

impl Controller for CronJobController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "cronjob-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(cron) = self.crons.get(key) else { return Ok(None) };
        let jobs = self.jobs.by_index(BY_CONTROLLER, cron.uid.as_str());
        let mut missing = Vec::new();
        for name in status::active_names(&cron.object) {
            let job = ObjectKey::new(key.namespace().unwrap_or_default(), &name);
            let is_known = self.jobs.get(&job).is_some();
            if !is_known && self.context.api.get(&ApiKind::of::<Job>(), &job).await?.is_none() {
                missing.push(name);
            }
        }
        let zone = cron.object.spec.time_zone.as_deref();
        let zone = schedule::zone(zone).map_or_else(Zone::Unknown, Zone::Known);
        Ok(Some(Observed { cron, jobs, missing, zone, now: self.context.clock.now() }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }
}
