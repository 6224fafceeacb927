//! Why a flavor does not fit: structured, with the text of upstream's messages.

use quintet_api::kueue::reasons::QuotaReservedReason;

use crate::amount::Amount;
use crate::labels::Taint;
use crate::model::Fr;
use crate::names::{FlavorId, Names, ResourceId};

/// Why a flavor does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No resource group covers the resource.
    Undeclared(ResourceId),
    /// The flavor object is missing.
    FlavorNotFound(FlavorId),
    /// Evaluated again for the flavor chosen before, and this is another.
    NotNominated(FlavorId, ResourceId),
    /// The variant may not use the flavor.
    NotAllowed(FlavorId),
    /// The flavor has no topology and the pods request one.
    NoTopology(FlavorId),
    /// The flavor's topology is not known yet.
    TopologyUnknown(FlavorId),
    /// The flavor's topology has no such level.
    NoLevel(FlavorId),
    /// The flavor has a topology and the pods request none.
    TopologyOnly(FlavorId),
    /// A taint the pods do not tolerate.
    Taint(Taint, FlavorId),
    /// The pods' node selector or affinity excludes the flavor.
    Affinity(FlavorId),
    /// The slice being replaced uses another flavor.
    OtherSliceFlavor(FlavorId, Option<FlavorId>),
    /// More than there will ever be.
    ExceedsMaximum {
        /// Of what.
        fr: Fr,
        /// Asked for by pod sets before.
        considered: Amount,
        /// Asked for by this one.
        request: i64,
        /// The most there can be.
        maximum: Amount,
    },
    /// More than there is now.
    Insufficient {
        /// Of what.
        fr: Fr,
        /// How much more is needed.
        missing: Amount,
    },
    /// The flavor was not evaluated for this resource.
    NotProvided(FlavorId, ResourceId),
    /// The pods cannot be placed.
    Topology(String),
}

impl Reason {
    /// The text clients see.
    pub fn text(&self, names: &Names) -> String {
        let flavor = |id: &FlavorId| names.flavor_name(*id).to_owned();
        let resource = |id: &ResourceId| names.resource_name(*id).to_owned();
        let amount = |fr: &Fr, amount: &Amount| {
            if amount.is_unlimited() { amount.to_string() } else { names.format(fr.resource, amount.get()) }
        };
        match self {
            Self::Undeclared(id) => format!("resource {} unavailable in ClusterQueue", resource(id)),
            Self::FlavorNotFound(id) => format!("flavor {} not found", flavor(id)),
            Self::NotNominated(id, for_resource) => format!(
                "skipping flavor {} as it is not found in the nomination mapping for resource {}",
                flavor(id),
                resource(for_resource)
            ),
            Self::NotAllowed(id) => {
                format!(
                    "skipping flavor {} due to WorkloadAllowedResourceFlavorAnnotation annotation",
                    flavor(id)
                )
            }
            Self::NoTopology(id) => {
                format!("Flavor \"{}\" does not support TopologyAwareScheduling", flavor(id))
            }
            Self::TopologyUnknown(id) => {
                format!("Flavor \"{}\" information missing in TAS cache", flavor(id))
            }
            Self::NoLevel(id) => format!("Flavor \"{}\" does not contain the requested level", flavor(id)),
            Self::TopologyOnly(id) => {
                format!("Flavor \"{}\" supports only TopologyAwareScheduling", flavor(id))
            }
            Self::Taint(taint, id) => format!(
                "untolerated taint {{{} {} {} <nil>}} in flavor {}",
                taint.key,
                taint.value,
                taint.effect.name(),
                flavor(id)
            ),
            Self::Affinity(id) => format!("flavor {} doesn't match node affinity", flavor(id)),
            Self::OtherSliceFlavor(id, original) => format!(
                "could not assign {} flavor since the original workload is assigned: {}",
                flavor(id),
                original.as_ref().map(flavor).unwrap_or_default()
            ),
            Self::ExceedsMaximum { fr, considered, request, maximum } => format!(
                "insufficient quota for {} in flavor {}, previously considered podsets requests ({}) + current podset request ({}) > maximum capacity ({})",
                resource(&fr.resource),
                flavor(&fr.flavor),
                amount(fr, considered),
                names.format(fr.resource, *request),
                amount(fr, maximum)
            ),
            Self::Insufficient { fr, missing } => format!(
                "insufficient unused quota for {} in flavor {}, {} more needed",
                resource(&fr.resource),
                flavor(&fr.flavor),
                amount(fr, missing)
            ),
            Self::NotProvided(id, for_resource) => {
                format!("flavor {} does not provide resource {}", flavor(id), resource(for_resource))
            }
            Self::Topology(text) => text.clone(),
        }
    }
}

/// The class of a [`Reason`], mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoFitReason {
    /// The pods cannot be placed.
    TopologyPlacementFailed,
    /// Not enough now.
    WaitingForQuota,
    /// Never enough.
    ExceedsMaxQuota,
    /// No flavor suits the pods.
    NoMatchingFlavor,
}

impl NoFitReason {
    /// The reason clients see.
    pub const fn quota_reserved_reason(self) -> QuotaReservedReason {
        match self {
            Self::TopologyPlacementFailed => QuotaReservedReason::TopologyPlacementFailed,
            Self::WaitingForQuota => QuotaReservedReason::WaitingForQuota,
            Self::ExceedsMaxQuota => QuotaReservedReason::ExceedsMaxQuota,
            Self::NoMatchingFlavor => QuotaReservedReason::NoMatchingFlavor,
        }
    }
}
