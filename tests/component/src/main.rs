//! `quintet` with a sixth operator: a Greeting gets a ConfigMap with its text. Everything the program has to know of it
//! is in this file.

use std::process::ExitCode;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use prometheus_client::metrics::gauge::Gauge;
use quintet_api::config::ComponentConfig;
use quintet_api::crd::{Definition, Version};
use quintet_component::{Component, Context, Operator, Permissions, Process, READ, Service, Webhook, rule};
use quintet_controller::cache::{Cache, Entry, WatchSpec};
use quintet_controller::{Action, ApiKind, Controller, Error, NoCall, ObjectKey, Plan, webhook::Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

quintet_api::resource! {
    /// A text that is kept in a ConfigMap.
    Greeting in "sixth.quintet.dev" "v1", namespaced "greetings" {
        /// What is said.
        spec: GreetingSpec,
    }
}

/// What is said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GreetingSpec {
    /// The text; never empty.
    pub text: String,
}

struct Greeter(Cache<Greeting>);

impl Controller for Greeter {
    type Observed = Arc<Entry<Greeting>>;
    type Call = NoCall;
    const NAME: &'static str = "greeting";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Self::Observed>, Error> {
        Ok(self.0.get(key))
    }

    fn plan(greeting: &Self::Observed) -> Plan {
        let metadata = json!({ "name": greeting.key.name(), "namespace": greeting.key.namespace() });
        let object = json!({ "metadata": metadata, "data": { "text": greeting.object.spec.text } });
        Plan {
            steps: vec![Action::apply(ApiKind::of::<ConfigMap>(), "sixth", &object).into()],
            ..Plan::default()
        }
    }
}

fn start(process: &Process<'_>) -> Result<(), Error> {
    let greetings = process.runtime.caches().watch(WatchSpec::<Greeting>::typed())?;
    process.runtime.add(Greeter(greetings.clone()), &greetings, process.concurrency).done();
    process
        .metrics
        .register(|registry| registry.register("sixth_greeters", "Greeters.", Gauge::<i64>::default()));
    Ok(())
}

fn webhook() -> Webhook {
    let (configuration, path) = ("sixth-validating-webhook-configuration", "/validate-greeting");
    Webhook::validating(configuration, "vgreeting.sixth.quintet.dev", path, move |routes, _| {
        Ok(routes.validate::<Greeting, _>(path, |asked| match asked.object.spec.text.as_str() {
            "" => Verdict::deny("spec.text: say something"),
            _ => Verdict::allow(),
        }))
    })
    .on(&["CREATE", "UPDATE"], "sixth.quintet.dev", "v1", &["greetings"])
}

fn configure(context: &Context<'_>) -> Result<Operator, String> {
    if (context.environment)("SIXTH_MOOD").is_some_and(|mood| mood == "bad") {
        return Err("SIXTH_MOOD: nothing to say in a bad mood".into());
    }
    let greetings = rule("sixth.quintet.dev", &["greetings"], READ);
    let config_maps = rule("", &["configmaps"], &["get", "create", "patch"]);
    Ok(Operator {
        permissions: Permissions { namespaced: vec![greetings, config_maps], ..Permissions::default() },
        webhooks: vec![webhook()],
        services: vec![Service { name: "sixth", port_name: "sixth", port: 80, target_port: 8099 }],
        apis: Vec::new(),
        start: Box::new(start),
    })
}

fn main() -> ExitCode {
    let mut components = quintet::components();
    components.push(Component {
        config: ComponentConfig::without_settings("sixth"),
        replaces: "nothing",
        deployment_label: None,
        crds: || vec![Definition::stored::<Greeting>(Version::plain())],
        convert: None,
        environment: &["SIXTH_MOOD"],
        sensitive_fields: &[],
        configure: Some(configure),
    });
    quintet::run(components, || {})
}
