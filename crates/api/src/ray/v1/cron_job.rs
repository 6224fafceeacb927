//! RayCronJob: RayJobs on a schedule.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::RayJobSpec;
use crate::resource::resource;

resource! {
    /// Makes RayJobs on a schedule. Needs the feature gate `RayCronJob`.
    RayCronJob in "ray.io" "v1", namespaced "raycronjobs" {
        /// What to run and when.
        #[serde(default)]
        spec: RayCronJobSpec,
    }
    maybe {
        /// When it last ran; written by the operator only.
        status: RayCronJobStatus,
    }
}

/// A schedule and the RayJob it makes. Runs may overlap, of several runs missed only the last is made up for,
/// and finished RayJobs stay unless their `deletionStrategy` removes them.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayCronJobSpec {
    /// Spec of each RayJob, see `kubectl explain rayjob.spec`. Labels and annotations of the RayCronJob are
    /// not passed on.
    pub job_template: RayJobSpec,
    /// Five cron fields (minute, hour, day of month, month, day of week), or a word such as `@hourly` or
    /// `@every 2h`. Must not contain `TZ`: use `timeZone`.
    pub schedule: String,
    /// When true, no RayJobs are made; those running go on. The last run missed meanwhile is made up for
    /// afterwards. Default false.
    pub suspend: Option<bool>,
    /// IANA name of the zone in which `schedule` is read, e.g. `Europe/Berlin`. Absent: the operator's own
    /// zone, normally UTC.
    #[schemars(length(min = 1))]
    pub time_zone: Option<String>,
}

/// Progress along the schedule.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayCronJobStatus {
    /// The last time on the schedule for which a RayJob was made; absent before the first.
    pub last_schedule_time: Option<Time>,
}
