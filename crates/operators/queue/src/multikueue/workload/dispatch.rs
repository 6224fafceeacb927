//! Which clusters are asked to admit a Workload. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use quintet_api::kueue::metadata::{DISPATCHER_ALL_AT_ONCE, DISPATCHER_INCREMENTAL};

use super::observe::{Copies, Present};
use crate::workload::after;

/// How long the clusters of a round may take before more are asked. As `incremental.go` of Kueue.
const ROUND: Duration = Duration::from_mins(5);

/// The clusters to nominate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nomination {
    pub(super) clusters: Vec<String>,
    /// When more are to be nominated.
    pub(super) next_round: Option<Timestamp>,
}

/// The nomination that follows from the present one. Another dispatcher nominates by itself.
pub(super) fn nominate(present: &Present) -> Nomination {
    let status = present.workload.object.status.as_ref();
    let nominated = status.and_then(|status| status.nominated_cluster_names.clone()).unwrap_or_default();
    match present.settings.configuration.multi_kueue.dispatcher_name.as_str() {
        DISPATCHER_ALL_AT_ONCE => Nomination { clusters: all_at_once(present, &nominated), next_round: None },
        DISPATCHER_INCREMENTAL => incremental(present, nominated),
        _ => Nomination { clusters: nominated, next_round: None },
    }
}

fn is_connected(present: &Present, cluster: &str) -> bool {
    present.copies.iter().any(|own| own.cluster == cluster && own.is_connected())
}

/// All that are connected. One that is lost stays nominated: it may have admitted the Workload meanwhile.
fn all_at_once(present: &Present, nominated: &[String]) -> Vec<String> {
    let wanted = present
        .configured
        .iter()
        .filter(|cluster| nominated.contains(cluster) || is_connected(present, cluster));
    wanted.cloned().collect::<BTreeSet<String>>().into_iter().collect()
}

/// A few more each round, among those that are connected. A round begins when the Workload reaches a cluster; if it
/// reaches none, the next one begins at once.
fn incremental(present: &Present, nominated: Vec<String>) -> Nomination {
    let settings = &present.settings;
    let nominated: Vec<String> =
        nominated.into_iter().filter(|cluster| present.configured.contains(cluster)).collect();
    let mut order = present.configured.clone();
    if !settings.gates.multikueue_config_order {
        order.sort();
    }
    let rest: Vec<String> = order
        .into_iter()
        .filter(|cluster| !nominated.contains(cluster) && is_connected(present, cluster))
        .collect();
    let asked = |own: &&Copies| nominated.contains(&own.cluster);
    let begun = present.copies.iter().filter(asked).filter_map(|own| {
        let created = own.workload.as_ref()?.object.metadata.creation_timestamp.as_ref()?;
        Some(created.0)
    });
    let can_begin = present.copies.iter().filter(asked).any(Copies::is_connected);
    let ends = match begun.max() {
        Some(begun) => after(begun, ROUND),
        // The copies of this round are yet to be created.
        None if can_begin => after(present.now, ROUND),
        None => present.now,
    };
    if rest.is_empty() {
        return Nomination { clusters: nominated, next_round: None };
    }
    if ends > present.now {
        return Nomination { clusters: nominated, next_round: Some(ends) };
    }
    let own = settings.configuration.multi_kueue.incremental_dispatcher_config.as_ref();
    let own = own.filter(|_| settings.gates.multikueue_dispatcher_config);
    let step = own.cloned().unwrap_or_default().step_size;
    let step = usize::try_from(step).unwrap_or(1).max(1);
    let clusters = nominated.into_iter().chain(rest.into_iter().take(step)).collect();
    Nomination { clusters, next_round: Some(after(present.now, ROUND)) }
}
