//! Feature gates: their stages, what they need, and which are refused.

use std::collections::BTreeMap;

use quintet_api::config::gates::{ALL_ALPHA, ALL_BETA, QUEUE};

const PATH: &str = "featureGates";

/// Gates that cannot be switched off.
const LOCKED: [&str; 2] = ["ManagedJobsNamespaceSelectorAlwaysRespected", "TLSOptions"];
/// Gates that are off by default and not yet stable.
const ALPHA: [&str; 17] = [
    "ConcurrentAdmission",
    "CustomMetricLabels",
    "DisableWaitForPodsReady",
    "ElasticJobsViaWorkloadSlicesWithTAS",
    "FailureRecoveryPolicy",
    "FastQuotaReleaseInPodIntegration",
    "KueueDRAIntegrationConsumableCapacity",
    "MultiKueueClusterProfile",
    "MultiKueueManagerQuotaAutomation",
    "MultiKueueOrchestratedPreemption",
    "PrioritizePreemptorWorkloads",
    "PriorityBoost",
    "RejectUpdatesToCQWithInvalidOnFlavors",
    "SchedulerLibraryIntegration",
    "ShortWorkloadNames",
    "SparkApplicationIntegration",
    "WorkloadRequestUseMergePatch",
];
/// More of them, about topologies.
const ALPHA_OF_TOPOLOGIES: [&str; 2] = ["TASBalancedPlacement", "TASRespectNodeAffinityPreferred"];
const DEPRECATED: [&str; 1] = ["TASReplaceNodeDueToNotReadyOverFixedTime"];
/// In beta, and off by default all the same.
const OFF_IN_BETA: [&str; 1] = ["UnadmittedWorkloadsExplicitStatus"];

const TOPOLOGY: &str = "TopologyAwareScheduling";
const REPLACEMENT: &str = "TASFailedNodeReplacement";
const DEVICES: &str = "KueueDRAIntegration";
/// Gates that mean nothing without others.
const NEEDS: [(&str, &[&str]); 17] = [
    ("ElasticJobsViaWorkloadSlicesWithTAS", &["ElasticJobsViaWorkloadSlices", TOPOLOGY]),
    ("FlavorFungibilityPreserveScanProgress", &["FlavorFungibility"]),
    ("KueueDRAIntegrationConsumableCapacity", &[DEVICES]),
    ("KueueDRAIntegrationExtendedResource", &[DEVICES]),
    ("KueueDRAIntegrationPartitionableDevices", &[DEVICES]),
    ("TASBalancedPlacement", &[TOPOLOGY]),
    (REPLACEMENT, &[TOPOLOGY]),
    ("TASFailedNodeReplacementFailFast", &[TOPOLOGY, REPLACEMENT]),
    ("TASHandleOverlappingFlavors", &[TOPOLOGY]),
    ("TASMultiLayerTopology", &[TOPOLOGY]),
    ("TASProfileMixed", &[TOPOLOGY]),
    ("TASRecomputeAssignmentWithinSchedulingCycle", &[TOPOLOGY]),
    ("TASReplaceNodeDueToNotReadyOverFixedTime", &[TOPOLOGY, REPLACEMENT]),
    ("TASReplaceNodeOnNodeTaints", &[TOPOLOGY]),
    ("TASReplaceNodeOnPodTermination", &[TOPOLOGY, REPLACEMENT]),
    ("TASRespectNodeAffinityPreferred", &[TOPOLOGY]),
    ("UnadmittedWorkloadsExplicitStatus", &["UnadmittedWorkloadsObservability"]),
];

fn is_alpha(name: &str) -> bool {
    ALPHA.contains(&name) || ALPHA_OF_TOPOLOGIES.contains(&name)
}

fn is_beta(name: &str) -> bool {
    !is_alpha(name) && !LOCKED.contains(&name) && !DEPRECATED.contains(&name)
}

/// Whether a gate is on unless it is switched.
fn default(name: &str) -> bool {
    !is_alpha(name) && !DEPRECATED.contains(&name) && !OFF_IN_BETA.contains(&name)
}

/// The switches of single gates, with those of whole stages carried out.
pub(crate) fn resolved(switches: &BTreeMap<String, bool>) -> BTreeMap<String, bool> {
    let mut all = switches.clone();
    for (stage, is_in_stage) in
        [(ALL_ALPHA, is_alpha as fn(&str) -> bool), (ALL_BETA, is_beta as fn(&str) -> bool)]
    {
        let Some(on) = all.remove(stage) else { continue };
        for name in QUEUE.iter().filter(|name| is_in_stage(name)) {
            all.entry((*name).to_owned()).or_insert(on);
        }
    }
    all
}

/// What cannot be honoured of resolved switches.
pub(super) fn check(gates: &BTreeMap<String, bool>) -> Result<(), String> {
    let is_on = |name: &str| gates.get(name).copied().unwrap_or_else(|| default(name));
    if let Some(name) = LOCKED.iter().find(|name| !is_on(name)) {
        return Err(format!("{PATH}.{name}: it cannot be switched off"));
    }
    for (name, needed) in NEEDS.iter().filter(|(name, _)| is_on(name)) {
        if let Some(missing) = needed.iter().find(|own| !is_on(own)) {
            return Err(format!("{PATH}.{name}: it needs {missing}; switch both off, or both on"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switched(switches: &[(&str, bool)]) -> BTreeMap<String, bool> {
        resolved(&switches.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect())
    }

    /// Switches, and how the error about them begins.
    type Row<'t> = (&'t [(&'t str, bool)], Option<&'t str>);

    #[test]
    fn gates_are_refused_by_name() {
        let table: &[Row<'_>] = &[
            (&[], None),
            (&[("TLSOptions", true)], None),
            (&[("TLSOptions", false)], Some("featureGates.TLSOptions: it cannot")),
            (&[("MultiKueueManagerQuotaAutomation", true)], None),
            (
                &[("TopologyAwareScheduling", false)],
                Some("featureGates.TASFailedNodeReplacement: it needs Topology"),
            ),
            (
                &[("TASFailedNodeReplacement", false)],
                Some("featureGates.TASFailedNodeReplacementFailFast: it needs TAS"),
            ),
            (
                &[("KueueDRAIntegration", false)],
                Some("featureGates.KueueDRAIntegrationExtendedResource: it needs"),
            ),
            (
                &[("UnadmittedWorkloadsObservability", false), ("UnadmittedWorkloadsExplicitStatus", true)],
                Some("featureGates.UnadmittedWorkloadsExplicitStatus: it needs"),
            ),
            (&[("UnadmittedWorkloadsObservability", false)], None),
            (
                &[("FlavorFungibility", false)],
                Some("featureGates.FlavorFungibilityPreserveScanProgress: it needs FlavorFungibility"),
            ),
            (&[("FlavorFungibility", false), ("FlavorFungibilityPreserveScanProgress", false)], None),
            (&[("AllBeta", false)], None),
            (&[("AllAlpha", true)], None),
        ];
        for (switches, expected) in table {
            let found = check(&switched(switches));
            match expected {
                None => assert_eq!(found, Ok(()), "{switches:?}"),
                Some(start) => assert!(found.as_ref().is_err_and(|own| own.starts_with(start)), "{found:?}"),
            }
        }
    }

    #[test]
    fn stages_switch_the_gates_that_are_not_named() {
        let gates = switched(&[("AllAlpha", true), ("PriorityBoost", false), ("AllBeta", false)]);
        assert_eq!(gates.get("PriorityBoost"), Some(&false));
        assert_eq!(gates.get("ConcurrentAdmission"), Some(&true));
        assert_eq!(gates.get("PartialAdmission"), Some(&false));
        assert_eq!(gates.get("TLSOptions"), None);
        assert_eq!(gates.get("AllAlpha"), None);
    }

    #[test]
    fn every_gate_in_the_tables_exists() {
        let tables = [&LOCKED[..], &ALPHA, &ALPHA_OF_TOPOLOGIES, &DEPRECATED, &OFF_IN_BETA];
        let mut names = tables.concat();
        for (name, needed) in NEEDS {
            names.push(name);
            names.extend(needed);
        }
        for name in names {
            assert!(QUEUE.contains(&name), "{name}");
        }
    }
}
