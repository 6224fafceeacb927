//! Validation of Kueue's own kinds: what their schemas and CEL rules do not check. Pure, for the admission webhooks.
//!
//! Verdicts and messages are those of Kueue's `pkg/webhooks`. Maps are walked in the order of their keys, where Go takes
//! any order.

pub(crate) mod admission_gates;
mod field;
mod metadata;
mod quota;

pub mod cluster_queue;
pub mod cohort;
pub mod resource_flavor;
pub mod workload;

pub use field::Errors;

use std::collections::BTreeMap;

use quintet_queue_engine::settings;

/// Feature gates that change validation or defaulting.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Gates {
    /// Those that also change scheduling decisions.
    pub scheduling: settings::Gates,
    /// Labels and annotations of pod templates are checked.
    pub pod_set_metadata: bool,
    /// Requests and limits must not be negative.
    pub resources_not_negative: bool,
    /// Sizes of topology slices are checked.
    pub slice_size: bool,
    /// A ClusterQueue with unknown flavors in its checks cannot be changed until they are removed.
    pub reject_invalid_on_flavors: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            scheduling: settings::Gates::default(),
            pod_set_metadata: true,
            resources_not_negative: true,
            slice_size: true,
            reject_invalid_on_flavors: false,
        }
    }
}

impl Gates {
    /// The defaults with these gates switched, by their upstream names. Gates about other things are ignored.
    pub fn switched(gates: &BTreeMap<String, bool>) -> Self {
        let mut all = Self::default();
        for (name, on) in gates {
            match name.as_str() {
                "WorkloadValidationForPodSetMetadata" => all.pod_set_metadata = *on,
                "WorkloadValidateResourcesAreNonNegative" => all.resources_not_negative = *on,
                "TASValidateWorkloadSliceSize" => all.slice_size = *on,
                "RejectUpdatesToCQWithInvalidOnFlavors" => all.reject_invalid_on_flavors = *on,
                name => {
                    all.scheduling.set(name, *on);
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests;
