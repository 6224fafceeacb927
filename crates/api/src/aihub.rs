//! `aihub.opendatahub.io/v1alpha1`: the model catalog.

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::crd::{Column, Definition, Version};
use crate::resource::resource;
use crate::schema::rules;

resource! {
    /// The model catalog: a server listing models, MCP servers and agents to choose from. One per cluster,
    /// named `catalog`.
    Catalog in "aihub.opendatahub.io" "v1alpha1", namespaced "catalogs" {
        /// Sizes of the catalog server and its database; may be empty.
        #[serde(default)]
        spec: CatalogSpec,
    }
    maybe {
        /// Health of the catalog; written by the operator only.
        status: CatalogStatus,
    }
}

/// Settings of the catalog. What it lists comes from ConfigMaps in its namespace, such as
/// `model-catalog-sources` and those labelled `opendatahub.io/catalog-source: "true"`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CatalogSpec {
    /// The catalog's own PostgreSQL database.
    pub database: Option<CatalogDatabase>,
    /// Resources of the catalog's containers.
    pub resources: Option<CatalogResources>,
}

/// The catalog's own database, which is a cache and is rebuilt from the sources when lost.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CatalogDatabase {
    /// The database's disk space, on the node and gone with the pod.
    pub volume: Option<DatabaseVolume>,
}

/// Temporary disk space.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseVolume {
    /// Most it may hold before the database pod is evicted; above 0, 5Gi when absent.
    #[schemars(transform = rules(&[
            ("quantity(self).isGreaterThan(quantity('0'))", "sizeLimit must be greater than zero"),
        ]))]
    pub size_limit: Option<Quantity>,
}

/// Resources by container.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CatalogResources {
    /// The catalog server. Absent: 100m CPU requested, 256Mi memory requested and as limit.
    pub catalog: Option<ResourceRequirements>,
    /// The database. Absent: requests of 250m CPU and 256Mi, limits of 500m and 512Mi.
    pub postgres: Option<ResourceRequirements>,
}

/// What was observed of the catalog.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CatalogStatus {
    /// `Available`: whether the catalog server answers.
    pub conditions: Option<Vec<Condition>>,
    /// Generation of the spec this status was computed from.
    pub observed_generation: Option<i64>,
}

const CATALOG_COLUMNS: &[Column] = &[Column("Age", "date", ".metadata.creationTimestamp", 0)];

/// The CRDs of this group.
pub fn definitions() -> Vec<Definition> {
    vec![Definition::stored::<Catalog>(Version::plain().columns(CATALOG_COLUMNS).with_status())]
}
