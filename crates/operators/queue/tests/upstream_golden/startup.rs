//! Starts with a configuration: whether it is accepted, and if not, which field is refused.

use quintet_api::config::{Schema, kueue};
use quintet_component::{Context, Platform};
use serde_json::Value;

/// How a start differs from the recorded one. Messages are Quintet's own, but name the field first, as Kueue's do. The
/// error says what is not supported.
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
        (Some(true), Ok(())) | (Some(false), Err(_)) => None,
        (Some(true), Err(error)) => Some(format!("refused: {error}")),
        (_, Ok(())) => Some(format!("accepted, want {}", startup["error"])),
        (None, Err(error)) => Some(format!("cannot be compared: {error}")),
    })
}

fn start(document: &Value) -> Result<(), String> {
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
    configure(&context).map(drop)
}
