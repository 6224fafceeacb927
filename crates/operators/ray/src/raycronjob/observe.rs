//! Everything that a decision about one RayCronJob needs.

use std::sync::Arc;

use jiff::{Timestamp, tz::TimeZone};
use quintet_api::ray::v1::RayCronJob;
use quintet_controller::cache::Entry;
use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// Everything that a decision about a RayCronJob needs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    /// The RayCronJob.
    pub cron: Arc<Entry<RayCronJob>>,
    /// The zone in which its schedule is read.
    pub zone: Zone,
    /// What is the same for all.
    pub settings: Arc<Settings>,
    /// The time.
    pub now: Timestamp,
}

/// The time zone of a schedule.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Zone {
    /// It is in the time zone database.
    Known(#[serde(with = "jiff::fmt::serde::tz::required")] TimeZone),
    /// It is not; why, in words for the user.
    Unknown(String),
}
