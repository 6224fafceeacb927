//! `ProvisioningRequestConfig`: how to ask the cluster autoscaler for capacity.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

use crate::kueue::v1beta2::{
    ProvisioningRequestConfigPodSetMergePolicy, ProvisioningRequestPodSetUpdatesNodeSelector,
    ProvisioningRequestRetryStrategy,
};
use crate::resource::resource;
use crate::schema::{at_most, dns_subdomain, each, set};

resource! {
    /// Parameters of an AdmissionCheck that asks the cluster autoscaler for nodes before a workload starts.
    ProvisioningRequestConfig in "kueue.x-k8s.io" "v1beta1", cluster "provisioningrequestconfigs" {
        /// What to ask for, and how often to retry.
        #[serde(default)]
        spec: ProvisioningRequestConfigSpec,
    }
}

/// How ProvisioningRequests for workloads are made.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestConfigSpec {
    /// Resources for which capacity is requested; workloads whose pods use none of them pass at once. Empty
    /// or absent means all workloads need a request.
    #[schemars(length(max = 100), transform = set)]
    pub managed_resources: Option<Vec<String>>,
    /// Passed to the provisioning class as they are. Annotations `provreq.kueue.x-k8s.io/...` of a workload
    /// add to them.
    #[schemars(extend("maxProperties" = 100), transform = each(at_most(255)))]
    pub parameters: Option<BTreeMap<String, String>>,
    /// When to ask for several pod sets as one, which some provisioning classes need. Absent means each pod
    /// set is listed separately.
    pub pod_set_merge_policy: Option<ProvisioningRequestConfigPodSetMergePolicy>,
    /// What to add to the pods once capacity is provisioned. Absent adds only the annotations that let pods
    /// use it.
    pub pod_set_updates: Option<ProvisioningRequestPodSetUpdates>,
    /// Provisioning class of the autoscaler, such as `check-capacity.autoscaling.x-k8s.io`.
    #[schemars(transform = dns_subdomain)]
    pub provisioning_class_name: String,
    /// How often to ask again, and after what delay, when provisioning fails or its booking expires. By
    /// default 3 times, starting at 60 seconds.
    #[schemars(extend("default" = {"backoffBaseSeconds": 60, "backoffLimitCount": 3, "backoffMaxSeconds": 1800}))]
    pub retry_strategy: Option<ProvisioningRequestRetryStrategy>,
}

/// Changes to the pods of a workload once its capacity is provisioned.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestPodSetUpdates {
    /// Node selectors to add, with values that the autoscaler reports for the request.
    #[schemars(length(max = 8))]
    pub node_selector: Option<Vec<ProvisioningRequestPodSetUpdatesNodeSelector>>,
}
