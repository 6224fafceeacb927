//! Component descriptors: one value per operator says everything the process has to know of it.
//!
//! A [`Component`] is static: its name, settings, feature gates and CRDs. Configured for a cluster it becomes an
//! [`Operator`]: permissions, webhooks, services, and how to start its controllers. `operator`, `manifests`, `crds`,
//! `up`, `explain` and `components` read descriptors; none of them names an operator. A new operator is a crate with a
//! descriptor, and one line in the list of the binary.
//!
//! ```text
//!   Component ── configure(settings, gates, environment, platform) ──> Operator
//!     crds ─────> `crds`, `up`                      permissions ──> `manifests`: Roles
//!     config ───> configuration file                webhooks ─────> `manifests`: configurations; the webhook server
//!     convert ──> conversion webhook, `up`          services ─────> `manifests`: Services
//!                                                   apis ─────────> `manifests`: APIServices; a server for each
//!                                                   start ────────> `operator`, `explain`
//! ```

mod aggregated;
mod permissions;
mod platform;
mod webhook;

use quintet_api::config::{ComponentConfig, Configuration};
use quintet_api::conversion::ConversionError;
use quintet_api::crd::{Definition, Kind};
use quintet_controller::clock::Clock;
use quintet_controller::metrics::MetricsRegistry;
use quintet_controller::{Error, Runtime};
use serde_json::Value;

pub use aggregated::AggregatedApi;
pub use permissions::{Permissions, READ, rule};
pub use platform::Platform;
pub use webhook::{FailurePolicy, Handler, Webhook, WebhookKind, WebhookScope};

/// Everything the process has to know of one operator before it is configured.
#[derive(Clone, Copy)]
pub struct Component {
    /// Its name, and what it adds to the configuration file.
    pub config: ComponentConfig,
    /// The operator it replaces.
    pub replaces: &'static str,
    /// The value of `app.kubernetes.io/name` on the Deployment of the operator it replaces, if clients find that
    /// operator by it.
    pub deployment_label: Option<&'static str>,
    /// The CRDs it reconciles.
    pub crds: fn() -> Vec<Definition>,
    /// Converts objects between versions of its kinds, if they differ in shape.
    pub convert: Option<Convert>,
    /// Environment variables it reads; `manifests` hands on those that are set.
    pub environment: &'static [&'static str],
    /// Fields of its objects and requests whose values may be secret, wherever they stand; `explain` leaves them out.
    pub sensitive_fields: &'static [&'static str],
    /// Configures its controllers; `None` if Quintet has only its API so far.
    pub configure: Option<Configure>,
}

/// Converts an object to another version of its kind, such as `kueue.x-k8s.io/v1beta2`.
pub type Convert = fn(Value, &str) -> Result<Value, ConversionError>;

/// Configures a component. The error is for the user who wrote the configuration.
pub type Configure = fn(&Context<'_>) -> Result<Operator, String>;

impl Component {
    /// Its name in `--components`, metrics and logs.
    pub fn name(&self) -> &'static str {
        self.config.component
    }

    /// Its kinds in all served versions.
    pub fn kinds(&self) -> Vec<Kind> {
        (self.crds)().iter().flat_map(|definition| definition.kinds().copied().collect::<Vec<_>>()).collect()
    }

    /// Names of its CRDs whose versions are converted by webhook.
    pub fn converted_crds(&self) -> Vec<String> {
        let crds = (self.crds)();
        crds.iter().filter(|crd| crd.is_converted()).filter_map(Definition::name).collect()
    }
}

/// What a component is configured by.
pub struct Context<'a> {
    /// The configuration file with flags laid over it.
    pub configuration: &'a Configuration,
    /// Environment variables.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// What the cluster serves.
    pub platform: &'a Platform,
    /// Whether this process runs outside the cluster, and has to reach Services in it through the API server.
    pub is_outside: bool,
}

/// A configured component.
pub struct Operator {
    /// The least that it needs to be allowed.
    pub permissions: Permissions,
    /// Its admission webhooks.
    pub webhooks: Vec<Webhook>,
    /// Services by which others reach it, beyond those of webhooks and metrics.
    pub services: Vec<Service>,
    /// API groups that it serves itself.
    pub apis: Vec<AggregatedApi>,
    /// Adds its controllers to the runtime.
    pub start: Start,
}

/// Adds controllers and metrics. Called at most once.
pub type Start = Box<dyn FnOnce(&Process<'_>) -> Result<(), Error> + Send>;

/// What a starting operator gets from the process.
pub struct Process<'a> {
    /// Where controllers are added.
    pub runtime: &'a Runtime,
    /// The connection to the cluster, for requests that no cache or plan can make.
    pub client: &'a kube::Client,
    /// Wall-clock time.
    pub clock: &'a Clock,
    /// Where metrics are registered.
    pub metrics: &'a MetricsRegistry,
    /// Objects reconciled at the same time, per controller.
    pub concurrency: usize,
}

/// A port of the process that a Kubernetes Service exposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// Name of the Service.
    pub name: &'static str,
    /// Name of the container port.
    pub port_name: &'static str,
    /// Port of the Service.
    pub port: u16,
    /// Port the process listens on.
    pub target_port: u16,
}

/// Converts by the first of `components` that knows the kind.
pub fn convert(
    components: &[Component],
    object: &Value,
    api_version: &str,
) -> Result<Value, ConversionError> {
    let mut outcome = Err(ConversionError::Untyped);
    for convert in components.iter().filter_map(|component| component.convert) {
        outcome = convert(object.clone(), api_version);
        if !matches!(outcome, Err(ConversionError::Unknown { .. })) {
            break;
        }
    }
    outcome
}
