//! The API of Quintet: typed resources of every API group, their CRDs, conversions and quantities. No I/O.
//!
//! One module per API group, one type per kind and version; everything a client may send is a field, and
//! everything a field promises (bounds, defaults, CEL rules, merge keys) is written at the field. [`crd`]
//! turns the types into CustomResourceDefinitions, [`conversion`] moves objects between versions.

// `resource!` names this crate by its name, here as everywhere else.
extern crate self as quintet_api;

#[cfg(test)]
mod arbitrary;
mod resource;

pub mod aihub;
pub mod appwrapper;
pub mod conditions;
pub mod config;
pub mod conversion;
pub mod crd;
pub mod duration;
pub mod job;
pub mod kueue;
pub mod mlflow;
pub mod modelregistry;
pub mod names;
pub mod owners;
pub mod platform;
pub mod quantity;
pub mod ray;
pub mod requests;
pub mod schedule;
pub mod schema;
pub mod selector;

pub use quantity::Quantity;
pub use resource::CustomResource;
