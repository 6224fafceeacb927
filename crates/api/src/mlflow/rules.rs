//! CEL rules of the MLflow kinds. The API server enforces them; messages are what users see.

use crate::schema::Rules;

pub(super) const MLFLOW: Rules = &[
    ("self.metadata.name == 'mlflow'", "MLflow resource name must be 'mlflow'"),
    (
        "size(self.metadata.name) <= 40",
        "MLflow resource name must be at most 40 characters to ensure generated resource names stay within Kubernetes 63-character limit",
    ),
];

pub(super) const MLFLOW_CONFIG: Rules =
    &[("self.metadata.name == 'mlflow'", "MLflowConfig resource name must be 'mlflow'")];

pub(super) const ARTIFACT_ROOT_PATH: Rules = &[
    ("!self.startsWith('/')", "artifactRootPath must be relative"),
    (r"!self.matches('(^|/)[.][.](/|$)')", "artifactRootPath must not contain '..' path segments"),
];

pub(super) const ARTIFACT_ROOT_SECRET: Rules =
    &[("self == 'mlflow-artifact-connection'", "artifactRootSecret must be 'mlflow-artifact-connection'")];

pub(super) const LABEL_VALUES: Rules =
    &[("self.all(key, size(self[key]) <= 63)", "label values must be 63 characters or less")];

/// Whether the server hands out artifacts itself, as a CEL expression.
macro_rules! serves_artifacts {
    () => {
        "(has(self.serveArtifacts) && self.serveArtifacts)"
    };
}

/// Whether a URI lies on the server's own disk, as a CEL expression.
macro_rules! on_disk {
    ($field:literal, $scheme:literal) => {
        concat!("(has(self.", $field, ") && self.", $field, ".startsWith('", $scheme, "'))")
    };
}

/// A URI is given as text or by reference to a Secret, not both.
macro_rules! text_or_reference {
    ($field:literal, $reference:literal) => {
        (
            concat!("!has(self.", $field, ") || !has(self.", $reference, ")"),
            concat!($field, " and ", $reference, " are mutually exclusive"),
        )
    };
}

/// A reference to a Secret names the Secret and the key.
macro_rules! full_reference {
    ($reference:literal) => {
        (
            concat!(
                "!has(self.",
                $reference,
                ") || (size(self.",
                $reference,
                ".name) > 0 && size(self.",
                $reference,
                ".key) > 0)"
            ),
            concat!(
                $reference,
                ".name and ",
                $reference,
                ".key must be non-empty when ",
                $reference,
                " is set"
            ),
        )
    };
}

/// Metadata lives in SQLite, PostgreSQL or MySQL, with any driver.
macro_rules! sql_store {
    ($field:literal) => {
        (
            concat!(
                "!has(self.",
                $field,
                ") || self.",
                $field,
                ".matches('^(sqlite|postgresql|mysql)(://|[+])')"
            ),
            concat!($field, " must use a supported SQL metadata store URI scheme"),
        )
    };
}

/// Each rule of egress opens something in particular.
macro_rules! egress {
    ($field:literal) => {
        (
            concat!(
                "!has(self.",
                $field,
                ") || self.",
                $field,
                ".all(rule, (has(rule.to) && size(rule.to) > 0)",
                " || (has(rule.ports) && size(rule.ports) > 0))"
            ),
            concat!("each ", $field, " entry must specify at least one port or one destination"),
        )
    };
}

/// What archival cannot do without once it is on.
macro_rules! archival_needs {
    ($field:literal) => {
        (
            concat!(
                "!(has(self.traceArchival) && has(self.traceArchival.enabled) && self.traceArchival.enabled)",
                " || (has(self.traceArchival.",
                $field,
                ") && size(self.traceArchival.",
                $field,
                ") > 0)"
            ),
            concat!("traceArchival.", $field, " is required when traceArchival.enabled is true"),
        )
    };
}

pub(super) const MLFLOW_SPEC: Rules = &[
    (
        concat!("has(self.defaultArtifactRoot) || ", serves_artifacts!()),
        "defaultArtifactRoot must be set when serveArtifacts is not true",
    ),
    (
        concat!("!", on_disk!("defaultArtifactRoot", "file://"), " || ", serves_artifacts!()),
        "serveArtifacts must be enabled when defaultArtifactRoot uses file-based storage (file:// prefix)",
    ),
    (
        "(has(self.backendStoreUri) && size(self.backendStoreUri) > 0) || (has(self.backendStoreUriFrom) && size(self.backendStoreUriFrom.name) > 0 && size(self.backendStoreUriFrom.key) > 0)",
        "backendStoreUri or backendStoreUriFrom must be set",
    ),
    text_or_reference!("backendStoreUri", "backendStoreUriFrom"),
    text_or_reference!("readReplicaBackendStoreUri", "readReplicaBackendStoreUriFrom"),
    full_reference!("readReplicaBackendStoreUriFrom"),
    text_or_reference!("registryStoreUri", "registryStoreUriFrom"),
    full_reference!("registryStoreUriFrom"),
    sql_store!("backendStoreUri"),
    sql_store!("readReplicaBackendStoreUri"),
    sql_store!("registryStoreUri"),
    (
        concat!(
            "has(self.storage) || !(",
            on_disk!("backendStoreUri", "sqlite://"),
            " || ",
            on_disk!("backendStoreUri", "file://"),
            ")"
        ),
        "storage must be configured when using file-based backend store (sqlite:// or file:// prefix)",
    ),
    (
        concat!("has(self.storage) || !", on_disk!("readReplicaBackendStoreUri", "sqlite://")),
        "storage must be configured when using a file-based read-replica backend store (sqlite:// prefix)",
    ),
    (
        concat!(
            "has(self.storage) || !(",
            on_disk!("registryStoreUri", "sqlite://"),
            " || ",
            on_disk!("registryStoreUri", "file://"),
            ")"
        ),
        "storage must be configured when using file-based registry store (sqlite:// or file:// prefix)",
    ),
    (
        concat!("has(self.storage) || !", on_disk!("artifactsDestination", "file://")),
        "storage must be configured when artifactsDestination uses file-based storage (file:// prefix)",
    ),
    (
        concat!("!", on_disk!("artifactsDestination", "file://"), " || ", serves_artifacts!()),
        "serveArtifacts must be enabled when artifactsDestination uses file-based storage (file:// prefix)",
    ),
    (
        "!has(self.env) || !self.env.exists(e, e.name == 'MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE')",
        "setting the MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE environment variable is not allowed",
    ),
    (
        "!has(self.env) || !self.env.exists(e, e.name == 'MLFLOW_SERVER_ENABLE_JOB_EXECUTION')",
        "setting the MLFLOW_SERVER_ENABLE_JOB_EXECUTION environment variable is not allowed; the operator manages job execution lifecycle",
    ),
    egress!("networkPolicyEgressRules"),
    egress!("networkPolicyAdditionalEgressRules"),
    (
        "!has(self.resourceClaims) || self.resourceClaims.all(claim, (has(claim.resourceClaimName) && size(claim.resourceClaimName) > 0) != (has(claim.resourceClaimTemplateName) && size(claim.resourceClaimTemplateName) > 0))",
        "each resourceClaims entry must set exactly one non-empty value: resourceClaimName or resourceClaimTemplateName",
    ),
    (
        "has(self.storage) || !(has(self.traceArchival) && has(self.traceArchival.location) && self.traceArchival.location.startsWith('file://'))",
        "storage must be configured when traceArchival.location uses file-based storage (file:// prefix)",
    ),
    archival_needs!("schedule"),
    archival_needs!("location"),
    archival_needs!("retention"),
];
