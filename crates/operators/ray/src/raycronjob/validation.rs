//! What a RayCronJob must be like.

use std::collections::BTreeMap;

use quintet_api::ray::v1::RayCronJob;

use crate::{
    names::MAX_CRON_JOB_NAME,
    raycronjob::schedule::{Schedule, zone},
    rayjob::validation as rayjob,
    settings::Settings,
};

/// All rules; a valid one has a schedule.
pub fn validate(cron: &RayCronJob, settings: &Settings) -> Result<Schedule, String> {
    let name = cron.metadata.name.as_deref().unwrap_or_default();
    if name.len() > MAX_CRON_JOB_NAME {
        return Err(format!("RayCronJob name should be no more than {MAX_CRON_JOB_NAME} characters"));
    }
    let spec = &cron.spec;
    if spec.schedule.contains("TZ") {
        return Err("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned());
    }
    let schedule: Schedule =
        spec.schedule.parse().map_err(|error| format!("invalid cron schedule: {error}"))?;
    if spec.time_zone.as_deref() == Some("") {
        return Err(
            "timeZone must not be empty string, omit the field to use the local time zone of the KubeRay \
                    operator"
                .to_owned(),
        );
    }
    zone(spec.time_zone.as_deref())?;
    rayjob::validate_spec(&spec.job_template, &BTreeMap::new(), settings)
        .map_err(|error| format!("invalid RayJob template: {error}"))?;
    Ok(schedule)
}
