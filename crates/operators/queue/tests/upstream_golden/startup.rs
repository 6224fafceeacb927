//! Starts with a configuration: whether it is accepted, what it is then, and if it is not, which field is refused.

use std::collections::BTreeSet;

use quintet_api::config::kueue::QueueConfiguration;
use quintet_api::config::{Configuration, Schema, kueue};
use quintet_component::{Context, Platform};
use serde_json::Value;

/// How a start differs from the recorded one. Messages are Quintet's own, but name the field, as Kueue's do. The error
/// says what is not supported.
pub(crate) fn compare(startup: &Value) -> Result<Option<String>, String> {
    let mut document = startup["configuration"].clone();
    for argument in startup["arguments"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let gates = argument.strip_prefix("--feature-gates=");
        let gates = gates.ok_or_else(|| format!("the argument {argument}"))?;
        for (name, on) in gates.split(',').filter_map(|gate| gate.split_once('=')) {
            document["featureGates"][name] = (on == "true").into();
        }
    }
    Ok(match (startup["accepted"].as_bool(), start(&document)) {
        (Some(true), Ok(configuration)) => loaded(&configuration, &startup["loaded, with defaults"]),
        (Some(false), Err(error)) => unnamed(&error, &startup["error"]),
        (Some(true), Err(error)) => Some(format!("refused: {error}")),
        (_, Ok(_)) => Some(format!("accepted, want {}", startup["error"])),
        (None, Err(error)) => Some(format!("cannot be compared: {error}")),
    })
}

/// Which field the recorded error names and ours does not. Kueue names all that are wrong, Quintet the first.
fn unnamed(error: &str, recorded: &Value) -> Option<String> {
    let text = recorded["error"].as_str().unwrap_or_default().trim_start_matches('[');
    let field = match text.split_once("unknown field \"") {
        Some((_, rest)) => rest.split('"').next().unwrap_or_default(),
        None if recorded["message"] == "Unable to validate the configuration" => {
            text.split(':').next().unwrap_or_default()
        }
        // Errors of other parts of the program, which name no field.
        None => return None,
    };
    (!error.contains(field)).then(|| format!("refused: {error}, want {text}"))
}

/// What of the configuration is not as it was loaded by the recorded program.
fn loaded(configuration: &Configuration, recorded: &Value) -> Option<String> {
    let wanted = recorded.as_object()?;
    let own: QueueConfiguration = match configuration.section("queue") {
        Ok(own) => own,
        Err(error) => return Some(error.to_string()),
    };
    let namespace = configuration.process.namespace.as_deref().unwrap_or("kueue-system");
    let mut own_fields = serde_json::to_value(&own).unwrap_or_default();
    let selector = own.managed_namespaces(namespace);
    own_fields["managedJobsNamespaceSelector"] = serde_json::to_value(selector).unwrap_or_default();
    let waiting = own.wait_for_pods_ready.as_ref();
    if let Some(waiting) = waiting.filter(|waiting| waiting.recovery_timeout.is_none()) {
        own_fields["waitForPodsReady"]["recoveryTimeout"] = serde_json::json!(waiting.timeout);
    }
    // Of the process, of other parts, or in other words.
    let elsewhere: BTreeSet<&str> = [
        "apiVersion",
        "clientConnection",
        "controller",
        "featureGates",
        "health",
        "internalCertManagement",
        "kind",
        "leaderElection",
        "namespace",
        "pprofBindAddress",
        "tls",
        "webhook",
    ]
    .into();
    let compared = wanted.iter().filter(|(name, _)| !elsewhere.contains(name.as_str()));
    let mut found: Vec<String> =
        compared.flat_map(|(name, wanted)| missing(name, wanted, &own_fields[name])).collect();
    if !wanted.contains_key("waitForPodsReady") && waiting.is_some() {
        found.push("waitForPodsReady: is on".to_owned());
    }
    for name in ["fairSharing", "admissionFairSharing"] {
        if !wanted.contains_key(name) && !own_fields[name].is_null() {
            found.push(format!("{name}: is on"));
        }
    }
    (!found.is_empty()).then(|| found.join("; "))
}

/// What is recorded of a value, and different or missing.
fn missing(path: &str, wanted: &Value, own: &Value) -> Vec<String> {
    match (wanted, own) {
        (Value::Object(fields), Value::Object(_)) => {
            let fields = fields.iter();
            fields.flat_map(|(name, wanted)| missing(&format!("{path}.{name}"), wanted, &own[name])).collect()
        }
        (Value::Array(wanted), Value::Array(own)) if wanted.len() == own.len() => {
            let both = wanted.iter().zip(own).enumerate();
            both.flat_map(|(index, (wanted, own))| missing(&format!("{path}[{index}]"), wanted, own))
                .collect()
        }
        (wanted, own) if same(wanted, own) => Vec::new(),
        (wanted, own) => vec![format!("{path}: loaded as {own}, want {wanted}")],
    }
}

fn same(wanted: &Value, own: &Value) -> bool {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    let number = |value: &Value| match value {
        Value::String(text) => text.parse::<f64>().ok(),
        other => other.as_f64(),
    };
    wanted == own
        || (is_empty(wanted) && is_empty(own))
        || number(wanted).zip(number(own)).is_some_and(|(wanted, own)| wanted.total_cmp(&own).is_eq())
}

fn start(document: &Value) -> Result<Configuration, String> {
    let configuration =
        Schema(&[kueue::CONFIG]).read(&document.to_string()).map_err(|error| error.to_string())?;
    let (environment, platform) = (|_: &str| None, Platform::default());
    let configure = quintet_queue::component().configure.ok_or("no controllers")?;
    let context = Context {
        configuration: &configuration,
        environment: &environment,
        platform: &platform,
        is_outside: false,
    };
    configure(&context)?;
    Ok(configuration)
}
