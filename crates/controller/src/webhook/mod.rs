//! Admission and conversion webhooks: one HTTPS server for all of them, and its certificates.
//!
//! ```text
//!   Routes ──────────────┐
//!                        ├─> server ──── HTTPS ────> API server
//!   certificates ────────┘                               │
//!     own: Secret, rotated, CA injected ── published CA ─┘
//!     or a directory that cert-manager fills
//! ```

mod admission;
mod certificate;
mod conversion;
mod keeper;
mod routes;
mod server;

pub use admission::{Admission, AdmissionRequest, Operation, RequestKind, UserInfo, Verdict};
pub use certificate::{CertificateError, Certificates};
pub use keeper::{CertificateSource, Keeper, KeeperSettings, Publication};
pub use routes::Routes;
pub use server::{ServeError, WebhookServer, WebhookSettings};
