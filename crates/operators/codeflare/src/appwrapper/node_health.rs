//! Nodes whose resources Autopilot wants workloads to leave, by their labels.

use std::collections::BTreeSet;

use quintet_api::config::codeflare::AppWrapperConfiguration;
use quintet_controller::cache::ObjectMetadata;

/// Resources of a node with a label that counts as `NoExecute`.
pub(super) fn resources_to_leave(
    node: &ObjectMetadata,
    config: &AppWrapperConfiguration,
) -> BTreeSet<String> {
    let has = |key: &str, value: &str| node.labels.get(key).is_some_and(|live| **live == *value);
    let must_go = config.autopilot.resource_taints.iter().filter(|(_, taints)| {
        taints.iter().any(|taint| taint.effect == "NoExecute" && has(&taint.key, &taint.value))
    });
    must_go.map(|(resource, _)| resource.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_evicting_labels_make_a_node_one_to_leave() {
        let config = AppWrapperConfiguration::default();
        for (value, resources) in [("EVICT", vec!["nvidia.com/gpu"]), ("TESTING", vec![]), ("WARN", vec![])] {
            let node = json!({"labels": {"autopilot.ibm.com/gpuhealth": value}});
            let node: ObjectMetadata = serde_json::from_value(node).unwrap();
            let found = resources_to_leave(&node, &config);
            assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), resources, "{value}");
        }
    }
}
