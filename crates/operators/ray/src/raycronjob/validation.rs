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
        return Err(format!(
            "The RayCronJob metadata is invalid: name should be no more than {MAX_CRON_JOB_NAME} characters, \
             since 11 more are appended for the RayJobs it makes"
        ));
    }
    let wrong = |text: String| format!("The RayCronJob spec is invalid: {text}");
    let spec = &cron.spec;
    if spec.schedule.contains("TZ") {
        return Err(wrong("schedule must not contain TZ or CRON_TZ; set timeZone instead".to_owned()));
    }
    let schedule: Schedule = spec.schedule.parse().map_err(|error| wrong(format!("schedule: {error}")))?;
    zone(spec.time_zone.as_deref()).map_err(|error| wrong(format!("timeZone: {error}")))?;
    rayjob::validate_spec(&spec.job_template, &BTreeMap::new(), settings)
        .map_err(|error| wrong(format!("invalid RayJob template: {error}")))?;
    Ok(schedule)
}
