//! The model registry, a REST server over SQLite, PostgreSQL or MySQL, and the model catalog.
//!
//! It speaks the API of the Kubeflow Model Registry (`/api/model_registry/v1alpha3` and `v1`) on
//! that server's database schema, so that clients and databases can move between the two.
//!
//! ```text
//! server   the registry server           http_server  connections and bodies, for both
//! catalog  the catalog server, which has no database
//! api      routes, query strings, responses
//! body     bodies decoded against the fields of a kind
//! service  operations: names, parents, upserts, history
//! filter   the language of filterQuery, to SQL
//! store    dialects, drivers, schema, pages
//! model    kinds, fields, properties
//! ```
//!
//! Everything below `service` is pure but for `store`. Nothing here knows Kubernetes.

mod api;
mod body;
mod catalog;
mod error;
mod filter;
mod http_server;
mod json;
mod model;
mod server;
mod service;
mod store;
mod text;

pub use catalog::CatalogServer;
pub use server::{DatabaseError, Server};
pub use store::{Location, MySqlSettings};
