//! `AdmissionCheck`: a gate that an outside controller opens before a workload may start.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::resource::resource;
use crate::schema::{dns_label, dns_subdomain, immutable, map_by};

resource! {
    /// A condition besides quota, decided by its own controller, that must hold before a workload is
    /// admitted.
    AdmissionCheck in "kueue.x-k8s.io" "v1beta1", cluster "admissionchecks" {
        /// Which controller decides this check, and with which parameters.
        #[serde(default)]
        spec: AdmissionCheckSpec,
    }
    maybe {
        /// Whether the check is fit to be used.
        status: AdmissionCheckStatus,
    }
}

/// Who decides a check and how it is configured.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckSpec {
    /// Controller that decides the check, such as `kueue.x-k8s.io/multikueue` or
    /// `kueue.x-k8s.io/provisioning-request`. Cannot be changed once set.
    #[schemars(transform = immutable)]
    pub controller_name: String,
    /// Cluster-scoped object that configures the controller for this check. Absent means the controller needs
    /// none.
    pub parameters: Option<AdmissionCheckParametersReference>,
    /// Without effect; the check's controller decides when to try again.
    #[schemars(extend("default" = 15))]
    pub retry_delay_minutes: Option<i64>,
}

/// Points at the object that holds a check's parameters.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckParametersReference {
    /// API group of the parameters object, without the version.
    #[schemars(transform = dns_subdomain)]
    pub api_group: String,
    /// Kind of the parameters object, such as `ProvisioningRequestConfig` or `MultiKueueConfig`.
    #[schemars(length(max = 63), regex(pattern = "^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub kind: String,
    /// Name of the parameters object.
    #[schemars(transform = dns_label)]
    pub name: String,
}

/// What the controller of a check says about it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckStatus {
    /// `Active` is True when the check's controller is ready. ClusterQueues that use a check which is not
    /// Active admit nothing.
    #[schemars(transform = map_by(&["type"]))]
    pub conditions: Option<Vec<Condition>>,
}
