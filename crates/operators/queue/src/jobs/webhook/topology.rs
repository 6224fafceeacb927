//! Topology annotations of pod templates. As `jobframework/tas_validation.go` of Kueue.

use std::borrow::Cow;

use quintet_api::names::problems;
use quintet_queue_engine::settings::Gates;
use serde::Deserialize;
use serde_json::Value;

use super::{Template, go};
use crate::validation::Errors;

const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
const UNCONSTRAINED: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
const SLICE_TOPOLOGY: &str = "kueue.x-k8s.io/podset-slice-required-topology";
const SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
const SLICE_CONSTRAINTS: &str = "kueue.x-k8s.io/podset-slice-required-topology-constraints";
const GROUP: &str = "kueue.x-k8s.io/podset-group-name";
const MAX_CONSTRAINTS: usize = 3;
const LAYER_COUNT: &str = "topology constraints must contain between 1 and 3 entries";
/// Pod sets of a group.
const GROUP_SIZE: usize = 2;

impl<'j> Template<'j> {
    /// A template at a path.
    pub(super) fn at(path: &str, template: &'j Value, count: i64) -> Self {
        let annotations = Cow::Borrowed(&template["metadata"]["annotations"]);
        Self { path: format!("{path}.metadata.annotations"), annotations, count }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.annotations[name].as_str()
    }

    fn path_of(&self, name: &str) -> String {
        format!("{}[{name}]", self.path)
    }
}

/// Checks the annotations of one template. As `ValidateTASPodSetRequest`.
pub(super) fn check(template: &Template<'_>, gates: &Gates, errors: &mut Errors) {
    check_mode(template, errors);
    check_group(template, errors);
    check_unconstrained(template, errors);
    check_slices(template, errors);
    check_constraints(template, gates, errors);
}

/// Why the request of a template cannot be read. As `podSetTopologyRequestBuilder`: without its requests, a job has no pod
/// sets, and some webhooks refuse it for that alone.
pub(super) fn unreadable(template: &Template<'_>, gates: &Gates) -> Option<String> {
    let is_constrained = template.get(REQUIRED).or_else(|| template.get(PREFERRED)).is_some();
    if let Some(Err(why)) = template.get(UNCONSTRAINED).filter(|_| !is_constrained).map(go::parse_bool) {
        return Some(why);
    }
    if let Some(text) = template.get(SLICE_CONSTRAINTS).filter(|_| gates.tas_multi_layer) {
        return unreadable_layers(text);
    }
    let size = template.get(SLICE_SIZE).filter(|_| template.get(SLICE_TOPOLOGY).is_some())?;
    size.parse::<i32>().is_err().then(|| go::number_problem("ParseInt", size))
}

fn unreadable_layers(text: &str) -> Option<String> {
    match layers(text) {
        Err(why) => Some(format!("failed to parse multi-layer topology constraints annotation: {why}")),
        Ok(layers) if !is_layer_count(layers.len()) => Some(format!("{LAYER_COUNT}: got {}", layers.len())),
        Ok(_) => None,
    }
}

/// At most one of the three, and each a label.
fn check_mode(template: &Template<'_>, errors: &mut Errors) {
    let modes = [REQUIRED, PREFERRED, UNCONSTRAINED];
    if modes.iter().filter(|name| template.get(name).is_some()).count() > 1 {
        let list = modes.map(|name| format!("{name:?}")).join(", ");
        let why = format!("must not contain more than one topology annotation: [{list}]");
        errors.invalid_field(&template.path, why);
    }
    for name in [REQUIRED, PREFERRED, SLICE_TOPOLOGY] {
        if let Some(level) = template.get(name) {
            errors.each(&template.path_of(name), level, problems::qualified_name(level));
        }
    }
}

fn check_group(template: &Template<'_>, errors: &mut Errors) {
    let Some(group) = template.get(GROUP) else { return };
    let path = template.path_of(GROUP);
    if !group.starts_with('+') && group.parse::<u64>().is_ok() {
        errors.invalid(&path, group, "must not be a number");
    }
    for other in [SLICE_SIZE, SLICE_TOPOLOGY] {
        if template.get(other).is_some() {
            errors.forbidden(&path, format!("may not be set when '{other}' is specified"));
        }
    }
    if template.get(REQUIRED).is_none() && template.get(PREFERRED).is_none() {
        let why = format!("may not be set when neither '{PREFERRED}' nor '{REQUIRED}' is specified");
        errors.forbidden(path, why);
    }
}

fn check_unconstrained(template: &Template<'_>, errors: &mut Errors) {
    if let Some(text) = template.get(UNCONSTRAINED).filter(|text| go::parse_bool(text).is_err()) {
        errors.invalid(template.path_of(UNCONSTRAINED), text, "must be a boolean value");
    }
}

/// The topology and the size of slices go together.
fn check_slices(template: &Template<'_>, errors: &mut Errors) {
    let path = template.path_of(SLICE_SIZE);
    if let Some(text) = template.get(SLICE_SIZE) {
        match text.parse::<i32>() {
            Err(_) => errors.invalid(&path, text, "must be a numeric value"),
            Ok(size) if size < 1 => errors.invalid(&path, text, "must be greater than or equal to 1"),
            Ok(_) => {}
        }
    }
    match (template.get(SLICE_TOPOLOGY), template.get(SLICE_SIZE)) {
        (Some(_), None) => {
            errors.required(path, &format!("must be set when '{SLICE_TOPOLOGY}' is specified"));
        }
        (None, Some(_)) => {
            errors.forbidden(path, format!("may not be set when '{SLICE_TOPOLOGY}' is not specified"));
        }
        _ => {}
    }
}

/// A layer of slices.
#[derive(Deserialize)]
struct Layer {
    #[serde(default)]
    topology: String,
    #[serde(default)]
    size: i32,
}

/// Slices in several layers, each of which divides the one before it.
fn check_constraints(template: &Template<'_>, gates: &Gates, errors: &mut Errors) {
    let Some(text) = template.get(SLICE_CONSTRAINTS) else { return };
    let path = template.path_of(SLICE_CONSTRAINTS);
    if !gates.tas_multi_layer {
        let why = "the TASMultiLayerTopology feature gate must be enabled to use this annotation";
        return errors.forbidden(path, why);
    }
    for other in [SLICE_TOPOLOGY, SLICE_SIZE] {
        if template.get(other).is_some() {
            errors.forbidden(&path, format!("may not be set when '{other}' is specified"));
        }
    }
    if template.get(GROUP).is_some() {
        let why = format!("may not be set when '{SLICE_CONSTRAINTS}' is specified");
        errors.forbidden(template.path_of(GROUP), why);
    }
    let layers = match layers(text) {
        Ok(layers) => layers,
        Err(why) => return errors.invalid(path, text, format!("must be a valid JSON array: {why}")),
    };
    if !is_layer_count(layers.len()) {
        return errors.invalid(path, text, LAYER_COUNT);
    }
    for (index, layer) in layers.iter().enumerate() {
        let topology = problems::qualified_name(&layer.topology);
        errors.each(&format!("{path}[{index}].topology"), &layer.topology, topology);
        if layer.size < 1 {
            errors.invalid(format!("{path}[{index}].size"), layer.size, "must be greater than or equal to 1");
        }
    }
    for (index, layer) in layers.iter().enumerate() {
        let earlier = layers.iter().take(index).position(|other| other.topology == layer.topology);
        if let Some(earlier) = earlier {
            let value = format!("{} (also at index {earlier})", layer.topology);
            errors.duplicate(format!("{path}[{index}].topology"), value);
        }
    }
    for (index, pair) in layers.windows(2).enumerate() {
        if let [outer, inner] = pair
            && inner.size > 0
            && outer.size % inner.size != 0
        {
            let why = format!("must evenly divide the parent layer size {}", outer.size);
            errors.invalid(format!("{path}[{}].size", index + 1), inner.size, why);
        }
    }
}

/// The layers of an annotation; nothing is no layer.
fn layers(text: &str) -> Result<Vec<Layer>, String> {
    let layers = serde_json::from_str::<Option<Vec<Layer>>>(text);
    layers.map(Option::unwrap_or_default).map_err(|error| in_words_of_go(text, &error))
}

fn is_layer_count(count: usize) -> bool {
    (1..=MAX_CONSTRAINTS).contains(&count)
}

/// What Go's JSON package says of a text that is not a list of layers.
fn in_words_of_go(text: &str, error: &serde_json::Error) -> String {
    let layer = "v1beta2.PodsetSliceRequiredTopologyConstraint";
    let (value, wanted) = match serde_json::from_str::<Value>(text) {
        Err(error) if error.is_eof() => return "unexpected end of JSON input".to_owned(),
        Err(error) => return no_json(text).unwrap_or_else(|| error.to_string()),
        Ok(Value::Array(items)) => match items.into_iter().find(|item| !item.is_object()) {
            Some(item) => (item, layer.to_owned()),
            None => return error.to_string(),
        },
        Ok(value) => (value, format!("[]{layer}")),
    };
    let kind = match value {
        Value::Object(_) => "object",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        Value::Array(_) => "array",
        Value::Null => "null",
    };
    format!("json: cannot unmarshal {kind} into Go value of type {wanted}")
}

/// What is said of a text that does not even begin like JSON.
fn no_json(text: &str) -> Option<String> {
    let first = text.trim_start().chars().next().filter(|first| !"{[\"-tfn0123456789".contains(*first))?;
    Some(format!("invalid character '{first}' looking for beginning of value"))
}

/// No slice is larger than the pod set. As `ValidateSliceSizeAnnotationUpperBound`.
pub(super) fn check_sizes(template: &Template<'_>, errors: &mut Errors) {
    let count = template.count;
    let why = format!("must not be greater than pod set count {count}");
    if let Some(text) = template.get(SLICE_SIZE)
        && text.parse::<i32>().is_ok_and(|size| i64::from(size) > count)
    {
        errors.invalid(template.path_of(SLICE_SIZE), text, &why);
    }
    if let Some(Ok(layers)) = template.get(SLICE_CONSTRAINTS).map(layers)
        && let Some(first) = layers.first()
        && i64::from(first.size) > count
    {
        errors.invalid(template.path_of(SLICE_CONSTRAINTS), first.size, why);
    }
}

/// Two pod sets that are placed together: one of them a single pod, both with the same request.
pub(super) fn check_groups(templates: &[Template<'_>], errors: &mut Errors) {
    let has_mode =
        |template: &Template<'_>| template.get(REQUIRED).is_some() || template.get(PREFERRED).is_some();
    let grouped: Vec<&Template<'_>> =
        templates.iter().filter(|template| template.get(GROUP).is_some() && has_mode(template)).collect();
    let mut names: Vec<&str> = Vec::new();
    for name in grouped.iter().filter_map(|template| template.get(GROUP)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    for name in names {
        let members: Vec<&&Template<'_>> =
            grouped.iter().filter(|template| template.get(GROUP) == Some(name)).collect();
        let [one, other] = members.as_slice() else {
            let size = members.len();
            let why =
                format!("can only define groups of exactly {GROUP_SIZE} pod sets, got: {size} pod set(s)");
            for member in members {
                errors.invalid(member.path_of(GROUP), name, &why);
            }
            continue;
        };
        if one.count != 1 && other.count != 1 {
            let why = format!(
                "can only define groups where at least one pod set has only 1 replica, got: {} replica(s) and {} replica(s) in the group",
                one.count, other.count
            );
            for member in [one, other] {
                errors.invalid(member.path_of(GROUP), name, &why);
            }
        }
        let request = |template: &Template<'_>| {
            let required = template.get(REQUIRED).map(str::to_owned);
            // A template that asks for both is refused for that; the required one counts.
            let preferred = template.get(PREFERRED).filter(|_| required.is_none()).map(str::to_owned);
            (required, preferred)
        };
        if request(one) != request(other) {
            for (member, peer) in [(one, other), (other, one)] {
                let why = format!(
                    "must specify '{REQUIRED}' or '{PREFERRED}' topology consistent with '{}' in group '{name}'",
                    peer.path
                );
                errors.invalid_field(&member.path, why);
            }
        }
    }
}
