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
use stash::Stash;

use crate::kueue::{v1beta1, v1beta2};
use crate::modelregistry as registry;
pub use modelregistry::proxy_of_istio;

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

type Object = Map<String, Value>;
type Convert = fn(&mut Object) -> Result<(), ConversionError>;

/// A kind whose versions differ in shape.
struct Conversion {
    kind: &'static str,
    old: &'static str,
    new: &'static str,
    up: Convert,
    down: Convert,
    /// Whether an object can be read as the new version.
    is_readable: fn(&Object) -> bool,
}

macro_rules! conversion {
    ($old:ty => $new:ty, $up:path, $down:path) => {
        Conversion {
            kind: <$new as k8s_openapi::Resource>::KIND,
            old: <$old as k8s_openapi::Resource>::API_VERSION,
            new: <$new as k8s_openapi::Resource>::API_VERSION,
            up: $up,
            down: $down,
            is_readable: |object| <$new as serde::Deserialize>::deserialize(object).is_ok(),
        }
    };
}

const CONVERSIONS: &[Conversion] = &[
    conversion!(v1beta1::Workload => v1beta2::Workload, kueue::workload_up, kueue::workload_down),
    conversion!(v1beta1::ClusterQueue => v1beta2::ClusterQueue, kueue::cluster_queue_up, kueue::cluster_queue_down),
    conversion!(v1beta1::LocalQueue => v1beta2::LocalQueue, kueue::local_queue_up, kueue::local_queue_down),
    conversion!(v1beta1::Cohort => v1beta2::Cohort, kueue::cohort_up, kueue::cohort_down),
    conversion!(v1beta1::MultiKueueCluster => v1beta2::MultiKueueCluster, kueue::multikueue_cluster_up, kueue::multikueue_cluster_down),
    conversion!(registry::v1alpha1::ModelRegistry => registry::v1beta1::ModelRegistry, modelregistry::up, modelregistry::down),
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
    let unknown =
        || ConversionError::Unknown { kind: kind.into(), from: from.into(), to: api_version.into() };
    let versions = (from, api_version);
    let mut conversions = CONVERSIONS.iter().filter(|conversion| conversion.kind == kind);
    let conversion = conversions
        .find(|known| versions == (known.old, known.new) || versions == (known.new, known.old))
        .ok_or_else(unknown)?;
    if api_version == conversion.old {
        (conversion.down)(&mut object)?;
    } else {
        object = up(conversion, object)?;
    }
    object.insert("apiVersion".into(), api_version.into());
    Ok(Value::Object(object))
}

/// Every client of the older version can write the annotation, and its content is not validated: if the result is not a
/// valid object of the newer version, the annotation is ignored.
fn up(conversion: &Conversion, mut object: Object) -> Result<Object, ConversionError> {
    let without_stash = Stash::is_in(&object).then(|| {
        let mut object = object.clone();
        Stash::from_annotation(&mut object);
        object
    });
    (conversion.up)(&mut object)?;
    let Some(mut plain) = without_stash else { return Ok(object) };
    if (conversion.is_readable)(&object) {
        return Ok(object);
    }
    (conversion.up)(&mut plain)?;
    Ok(plain)
}
