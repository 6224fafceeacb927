//! The fields of each kind.

use super::Kind;

/// A field beyond those that every entity has.
#[derive(Debug, PartialEq)]
pub(crate) struct Field {
    /// Its name in the API.
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    pub(crate) ty: Type,
    /// The value that bodies of the plain routes start from.
    pub(crate) default: Option<&'static str>,
    /// Whether PATCH takes it.
    pub(crate) is_mutable: bool,
    pub(crate) is_required: bool,
}

/// Where a field is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Property(&'static str),
    Uri,
    /// The integer column `state` or `last_known_state`.
    State,
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Text,
    /// A decimal id, stored as an integer.
    Id,
    List,
    Double,
    /// A JSON integer of 64 bits, of which 32 are stored.
    Int,
    Enum(&'static Enumeration),
}

/// The values of an enumerated field; for columns, the index is what is stored.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Enumeration {
    pub(crate) name: &'static str,
    pub(crate) values: &'static [&'static str],
}

const LIVE_OR_ARCHIVED: &[&str] = &["LIVE", "ARCHIVED"];

static REGISTERED_MODEL_STATE: Enumeration =
    Enumeration { name: "RegisteredModelState", values: LIVE_OR_ARCHIVED };
static MODEL_VERSION_STATE: Enumeration = Enumeration { name: "ModelVersionState", values: LIVE_OR_ARCHIVED };
static EXPERIMENT_STATE: Enumeration = Enumeration { name: "ExperimentState", values: LIVE_OR_ARCHIVED };
static EXPERIMENT_RUN_STATE: Enumeration =
    Enumeration { name: "ExperimentRunState", values: LIVE_OR_ARCHIVED };
static EXPERIMENT_RUN_STATUS: Enumeration = Enumeration {
    name: "ExperimentRunStatus",
    values: &["RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"],
};
static INFERENCE_SERVICE_STATE: Enumeration =
    Enumeration { name: "InferenceServiceState", values: &["DEPLOYED", "UNDEPLOYED"] };
static PARAMETER_TYPE: Enumeration =
    Enumeration { name: "ParameterType", values: &["string", "number", "boolean", "object"] };

/// States of an artifact.
pub(crate) static ARTIFACT_STATE: Enumeration = Enumeration {
    name: "ArtifactState",
    values: &["UNKNOWN", "PENDING", "LIVE", "MARKED_FOR_DELETION", "DELETED", "ABANDONED", "REFERENCE"],
};
/// States of an execution.
pub(crate) static EXECUTION_STATE: Enumeration = Enumeration {
    name: "ExecutionState",
    values: &["UNKNOWN", "NEW", "RUNNING", "COMPLETE", "FAILED", "CACHED", "CANCELED"],
};

impl Enumeration {
    pub(crate) fn index(&self, value: &str) -> Option<i32> {
        let index = self.values.iter().position(|it| *it == value)?;
        i32::try_from(index).ok()
    }

    pub(crate) fn value(&self, index: i32) -> Option<&'static str> {
        self.values.get(usize::try_from(index).ok()?).copied()
    }
}

const fn property(name: &'static str, stored: &'static str, ty: Type) -> Field {
    Field { name, place: Place::Property(stored), ty, default: None, is_mutable: true, is_required: false }
}

const fn text(name: &'static str, stored: &'static str) -> Field {
    property(name, stored, Type::Text)
}

const fn state(name: &'static str, values: &'static Enumeration, default: &'static str) -> Field {
    Field { default: Some(default), ..property(name, name, Type::Enum(values)) }
}

const fn parent(name: &'static str, stored: &'static str) -> Field {
    Field { is_mutable: false, is_required: true, ..property(name, stored, Type::Id) }
}

const fn column(name: &'static str, place: Place, ty: Type) -> Field {
    Field { name, place, ty, default: None, is_mutable: true, is_required: false }
}

const URI: Field = column("uri", Place::Uri, Type::Text);
const ARTIFACT_STATE_FIELD: Field = column("state", Place::State, Type::Enum(&ARTIFACT_STATE));
/// `/model_artifacts` starts from UNKNOWN, the generic routes from nothing.
const MODEL_ARTIFACT_STATE: Field = Field { default: Some("UNKNOWN"), ..ARTIFACT_STATE_FIELD };

static REGISTERED_MODEL: &[Field] = &[
    text("readme", "readme"),
    text("maturity", "maturity"),
    property("language", "language", Type::List),
    property("tasks", "tasks", Type::List),
    text("provider", "provider"),
    text("logo", "logo"),
    text("license", "license"),
    text("licenseLink", "license_link"),
    text("libraryName", "library_name"),
    text("owner", "owner"),
    state("state", &REGISTERED_MODEL_STATE, "LIVE"),
];

static MODEL_VERSION: &[Field] = &[
    state("state", &MODEL_VERSION_STATE, "LIVE"),
    text("author", "author"),
    parent("registeredModelId", "registered_model_id"),
];

static INFERENCE_SERVICE: &[Field] = &[
    property("modelVersionId", "model_version_id", Type::Id),
    text("runtime", "runtime"),
    Field {
        default: Some("DEPLOYED"),
        ..property("desiredState", "desired_state", Type::Enum(&INFERENCE_SERVICE_STATE))
    },
    parent("registeredModelId", "registered_model_id"),
    parent("servingEnvironmentId", "serving_environment_id"),
];

static EXPERIMENT: &[Field] = &[text("owner", "owner"), state("state", &EXPERIMENT_STATE, "LIVE")];

static EXPERIMENT_RUN: &[Field] = &[
    text("endTimeSinceEpoch", "end_time_since_epoch"),
    state("status", &EXPERIMENT_RUN_STATUS, "RUNNING"),
    state("state", &EXPERIMENT_RUN_STATE, "LIVE"),
    text("owner", "owner"),
    parent("experimentId", "experiment_id"),
    Field { is_mutable: false, ..text("startTimeSinceEpoch", "start_time_since_epoch") },
];

static MODEL_ARTIFACT: &[Field] = &[
    text("modelFormatName", "model_format_name"),
    text("storageKey", "storage_key"),
    text("storagePath", "storage_path"),
    text("modelFormatVersion", "model_format_version"),
    text("serviceAccountName", "service_account_name"),
    text("modelSourceKind", "model_source_kind"),
    text("modelSourceClass", "model_source_class"),
    text("modelSourceGroup", "model_source_group"),
    text("modelSourceId", "model_source_id"),
    text("modelSourceName", "model_source_name"),
    URI,
    MODEL_ARTIFACT_STATE,
];

static DOC_ARTIFACT: &[Field] = &[URI, ARTIFACT_STATE_FIELD];

static DATA_SET: &[Field] = &[
    text("digest", "digest"),
    text("sourceType", "source_type"),
    text("source", "source"),
    text("schema", "schema"),
    text("profile", "profile"),
    URI,
    ARTIFACT_STATE_FIELD,
];

static METRIC: &[Field] = &[
    property("value", "value", Type::Double),
    text("timestamp", "timestamp"),
    property("step", "step", Type::Int),
    ARTIFACT_STATE_FIELD,
];

static PARAMETER: &[Field] = &[
    text("value", "value"),
    property("parameterType", "parameter_type", Type::Enum(&PARAMETER_TYPE)),
    ARTIFACT_STATE_FIELD,
];

static SERVE_MODEL: &[Field] = &[
    Field {
        default: Some("UNKNOWN"),
        ..column("lastKnownState", Place::State, Type::Enum(&EXECUTION_STATE))
    },
    parent("modelVersionId", "model_version_id"),
];

impl Kind {
    /// Its fields beyond the common ones.
    pub(crate) fn fields(self) -> &'static [Field] {
        match self {
            Self::RegisteredModel => REGISTERED_MODEL,
            Self::ModelVersion => MODEL_VERSION,
            Self::ServingEnvironment => &[],
            Self::InferenceService => INFERENCE_SERVICE,
            Self::Experiment => EXPERIMENT,
            Self::ExperimentRun => EXPERIMENT_RUN,
            Self::ModelArtifact => MODEL_ARTIFACT,
            Self::DocArtifact => DOC_ARTIFACT,
            Self::DataSet => DATA_SET,
            Self::Metric | Self::MetricHistory => METRIC,
            Self::Parameter => PARAMETER,
            Self::ServeModel => SERVE_MODEL,
        }
    }

    /// Whether a body must name the entity.
    pub(crate) fn requires_name(self) -> bool {
        matches!(
            self,
            Self::RegisteredModel | Self::ModelVersion | Self::ServingEnvironment | Self::Experiment
        )
    }
}
