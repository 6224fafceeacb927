//! RayCronJob: RayJobs on a schedule.

mod observe;
mod plan;
#[cfg(test)]
mod tests;
pub mod validation;

use std::sync::Arc;

use quintet_api::ray::v1::RayCronJob;
use quintet_controller::{
    Controller, Error, NoCall, ObjectKey, Plan, Runtime,
    cache::{Cache, WatchSpec},
    clock::Clock,
};

pub use observe::{Observed, Zone};
pub use quintet_api::schedule;

use crate::{Context, settings::Settings};

/// The controller of RayCronJobs.
struct CronController {
    crons: Cache<RayCronJob>,
    settings: Arc<Settings>,
    clock: Clock,
}

/// Adds the controller of RayCronJobs, if its gate is open.
pub fn add(runtime: &Runtime, context: &Context) -> Result<(), Error> {
    if !context.settings.gates.cron_job {
        return Ok(());
    }
    let crons = runtime.caches().watch(WatchSpec::typed())?;
    let (settings, clock) = (Arc::clone(&context.settings), context.clock.clone());
    let controller = CronController { crons: crons.clone(), settings, clock };
    runtime.add(controller, &crons, context.concurrency).done();
    Ok(())
}

impl Controller for CronController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "raycronjob-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        Ok(self.crons.get(key).map(|cron| Observed {
            zone: schedule::zone(cron.object.spec.time_zone.as_deref())
                .map_or_else(Zone::Unknown, Zone::Known),
            settings: Arc::clone(&self.settings),
            now: self.clock.now(),
            cron,
        }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }
}
