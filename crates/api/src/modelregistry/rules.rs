//! CEL rules of model registries. The API server enforces them; messages are what users see.

use crate::schema::Rules;

pub(super) const ONE_PROXY: Rules =
    &[("!has(self.oauthProxy) || !has(self.kubeRBACProxy)", "Cannot use both oauthProxy and kubeRBACProxy")];

pub(super) const ISTIO_OR_PROXY: Rules =
    &[("!has(self.istio) || !has(self.oauthProxy)", "Cannot use both istio and oauthProxy")];

pub(super) const CERTIFICATE_WITH_KEY: Rules = &[(
    "has(self.tlsCertificateSecret) == has(self.tlsKeySecret)",
    "tlsCertificateSecret and tlsKeySecret MUST be set together",
)];

/// Whether a text field says anything, as a CEL expression.
macro_rules! says {
    ($field:literal) => {
        concat!("(has(self.", $field, ") && size(self.", $field, ") > 0)")
    };
}

/// Whether Quintet is to run the database itself, as a CEL expression.
macro_rules! generated {
    () => {
        "(has(self.generateDeployment) && self.generateDeployment)"
    };
}

pub(super) const POSTGRES: Rules = &[
    (
        concat!(generated!(), " || ", says!("host"), " || ", says!("hostAddress")),
        "GenerateDeployment must be set to true if host/hostAddress are not provided",
    ),
    (
        concat!("!", says!("database"), " || ", says!("username")),
        "Username must be set if database is specified",
    ),
    (
        concat!("!", generated!(), " || !(", says!("host"), " || ", says!("hostAddress"), ")"),
        "host and hostAddress must not be set when generateDeployment is true",
    ),
];
