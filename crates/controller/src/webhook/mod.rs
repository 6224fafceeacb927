//! Admission and conversion webhooks: handlers by path, one HTTPS server for all of them, and its certificate.
//!
//! ```text
//!   Routes ──────────────────┐
//!                            ├─> server ──── HTTPS ────> API server
//!   certificate manager ─────┘                               │
//!     own: Secret, rotated, CA published in caBundles <──────┘
//!     or a directory that cert-manager fills
//! ```

mod admission;
mod body;
mod certificate;
mod certificate_manager;
mod conversion;
mod patch;
mod routes;
mod server;

pub use admission::{Admission, AdmissionRequest, Mutation, Operation, RequestKind, UserInfo, Verdict};
pub use certificate::{CertificateError, Certificates};
pub use certificate_manager::{
    CertificateManager, CertificateManagerSettings, CertificateReport, CertificateSource, Publication,
    PublicationReport, PublicationState,
};
pub use routes::{HandlerError, Routes};
pub use server::{ServeError, WebhookServer, WebhookSettings};
