//! Moves objects between the versions of their kind.
//!
//! Conversions work on the JSON of an object: they rename and move what differs and leave alone what does
//! not, so that a field unknown to this program passes through untouched. What an older version has no field
//! for is kept in an annotation on the way down and put back on the way up: a client of the old version
//! that reads, changes and writes an object takes nothing away from it.

mod kueue;
mod modelregistry;
mod object;
mod stash;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use object::text;

/// Why an object cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    /// The object does not say what it is.
    #[error("cannot convert an object without apiVersion and kind")]
    Untyped,
    /// No conversion between these versions.
    #[error("cannot convert {kind} from {from} to {to}: no such conversion")]
    Unknown {
        /// The kind of the object.
        kind: String,
        /// Its version.
        from: String,
        /// The version that was asked for.
        to: String,
    },
    /// A part of the object is not what its schema says.
    #[error("cannot convert {kind}: {path} is malformed: {reason}")]
    Malformed {
        /// The kind of the object.
        kind: String,
        /// Where in the object.
        path: &'static str,
        /// What is wrong.
        reason: String,
    },
}

type Convert = fn(&mut Map<String, Value>) -> Result<(), ConversionError>;

/// Kinds whose versions differ in shape: group, kind, old version, new version, up, down.
const CONVERSIONS: &[(&str, &str, &str, &str, Convert, Convert)] = &[
    ("kueue.x-k8s.io", "Workload", "v1beta1", "v1beta2", kueue::workload_up, kueue::workload_down),
    (
        "kueue.x-k8s.io",
        "ClusterQueue",
        "v1beta1",
        "v1beta2",
        kueue::cluster_queue_up,
        kueue::cluster_queue_down,
    ),
    ("kueue.x-k8s.io", "LocalQueue", "v1beta1", "v1beta2", kueue::local_queue_up, kueue::local_queue_down),
    ("kueue.x-k8s.io", "Cohort", "v1beta1", "v1beta2", kueue::cohort_up, kueue::cohort_down),
    (
        "kueue.x-k8s.io",
        "MultiKueueCluster",
        "v1beta1",
        "v1beta2",
        kueue::multikueue_cluster_up,
        kueue::multikueue_cluster_down,
    ),
    (
        "modelregistry.opendatahub.io",
        "ModelRegistry",
        "v1alpha1",
        "v1beta1",
        modelregistry::up,
        modelregistry::down,
    ),
];

/// Converts an object to `api_version`, such as `kueue.x-k8s.io/v1beta2`.
pub fn convert(object: Value, api_version: &str) -> Result<Value, ConversionError> {
    let Value::Object(mut object) = object else { return Err(ConversionError::Untyped) };
    let (Some(from), Some(kind)) = (text(&object, "apiVersion"), text(&object, "kind")) else {
        return Err(ConversionError::Untyped);
    };
    if from == api_version {
        return Ok(Value::Object(object));
    }
    let convert = conversion(kind, from, api_version).ok_or_else(|| ConversionError::Unknown {
        kind: kind.into(),
        from: from.into(),
        to: api_version.into(),
    })?;
    convert(&mut object)?;
    object.insert("apiVersion".into(), api_version.into());
    Ok(Value::Object(object))
}

fn conversion(kind: &str, from: &str, to: &str) -> Option<Convert> {
    let (group, from) = from.split_once('/')?;
    let (to_group, to) = to.split_once('/')?;
    CONVERSIONS.iter().filter(|(g, k, ..)| *g == group && *g == to_group && *k == kind).find_map(
        |(_, _, old, new, up, down)| match (from, to) {
            versions if versions == (*old, *new) => Some(*up),
            versions if versions == (*new, *old) => Some(*down),
            _ => None,
        },
    )
}
