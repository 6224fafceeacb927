//! Mappings of DeviceClasses to resources.

use std::collections::{BTreeMap, BTreeSet};

use quintet_api::names::problems;
use quintet_queue_engine::ingest::Selector;
use serde_json::Value;

use super::unique;

const PATH: &str = "resources.deviceClassMappings";
const MAX_MAPPINGS: usize = 16;
const MAX_CLASSES: usize = 8;
/// As long as the name of a resource may be.
const MAX_NAME: usize = 253;

/// By which counters a class counts, and as which resource it was mapped first.
struct Mapped {
    resource: String,
    counters: BTreeSet<String>,
}

pub(super) fn check(mappings: &[Value], gates: &BTreeMap<String, bool>) -> Result<(), String> {
    if mappings.len() > MAX_MAPPINGS {
        return Err(format!("{PATH}: there are {}, and may be {MAX_MAPPINGS}", mappings.len()));
    }
    let mut names = BTreeSet::new();
    let mut classes: BTreeMap<String, Mapped> = BTreeMap::new();
    for (index, mapping) in mappings.iter().enumerate() {
        let path = format!("{PATH}[{index}]");
        let name = mapping["name"].as_str().unwrap_or_default();
        check_name(&format!("{path}.name"), name)?;
        if !names.insert(name) {
            return Err(format!("{path}.name: {name:?} is there already"));
        }
        check_classes(&path, name, mapping, &mut classes)?;
        check_sources(&path, mapping, gates)?;
    }
    Ok(())
}

fn check_name(path: &str, name: &str) -> Result<(), String> {
    match problems::qualified_name(name).first() {
        Some(problem) => Err(format!("{path}: {name:?}: {problem}")),
        None if name.len() > MAX_NAME => Err(format!("{path}: it is longer than {MAX_NAME} characters")),
        None => Ok(()),
    }
}

fn check_classes(
    path: &str,
    resource: &str,
    mapping: &Value,
    known: &mut BTreeMap<String, Mapped>,
) -> Result<(), String> {
    let path = format!("{path}.deviceClassNames");
    let listed = mapping["deviceClassNames"].as_array().into_iter().flatten();
    let listed: Vec<&str> = listed.map(|class| class.as_str().unwrap_or_default()).collect();
    if listed.is_empty() {
        return Err(format!("{path}: name at least one device class"));
    }
    if listed.len() > MAX_CLASSES {
        return Err(format!("{path}: there are {}, and may be {MAX_CLASSES}", listed.len()));
    }
    unique(&path, &listed)?;
    let mut sources = mapping["sources"].as_array().into_iter().flatten();
    let counter = sources.find_map(|source| source["counter"]["name"].as_str());
    for (index, class) in listed.iter().enumerate() {
        let path = format!("{path}[{index}]");
        check_name(&path, class)?;
        if let Some(mapped) = known.get_mut(*class) {
            // A class may count by several counters, each as another resource.
            let is_new =
                counter.is_some_and(|own| !mapped.counters.is_empty() && mapped.counters.insert(own.into()));
            if !is_new {
                return Err(format!("{path}: {class:?} is mapped to {:?} already", mapped.resource));
            }
            continue;
        }
        let counters = counter.into_iter().map(str::to_owned).collect();
        known.insert((*class).to_owned(), Mapped { resource: resource.to_owned(), counters });
    }
    Ok(())
}

fn check_sources(path: &str, mapping: &Value, gates: &BTreeMap<String, bool>) -> Result<(), String> {
    let path = format!("{path}.sources");
    let sources = || mapping["sources"].as_array().into_iter().flatten();
    for (index, source) in sources().enumerate() {
        let path = format!("{path}[{index}]");
        let (kind, gate, is_on) = match (&source["counter"], &source["capacity"]) {
            (Value::Null, Value::Null) | (Value::Object(_), Value::Object(_)) => {
                return Err(format!("{path}: set either counter or capacity"));
            }
            (_, Value::Null) => ("counter", "KueueDRAIntegrationPartitionableDevices", true),
            _ => ("capacity", "KueueDRAIntegrationConsumableCapacity", false),
        };
        if !gates.get(gate).copied().unwrap_or(is_on) {
            return Err(format!("{path}.{kind}: it needs the feature gate {gate}"));
        }
        check_source(&format!("{path}.{kind}"), &source[kind], kind == "counter")?;
        check_selector(&format!("{path}.{kind}.deviceSelector.cel.expression"), &source[kind])?;
    }
    let has = |kind: &str| sources().any(|source| !source[kind].is_null());
    if has("counter") && has("capacity") {
        return Err(format!("{path}: counters and capacities cannot be mixed"));
    }
    Ok(())
}

fn check_selector(path: &str, source: &Value) -> Result<(), String> {
    let expression = source["deviceSelector"]["cel"]["expression"].as_str().unwrap_or_default();
    let selector = Selector::new(expression);
    selector.error().map_or(Ok(()), |error| Err(format!("{path}: {expression:?}: {error}")))
}

fn check_source(path: &str, source: &Value, is_counter: bool) -> Result<(), String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (name, driver) = (text(&source["name"]), text(&source["driver"]));
    let selector = text(&source["deviceSelector"]["cel"]["expression"]);
    for (field, value) in [("name", &name), ("driver", &driver), ("deviceSelector", &selector)] {
        if value.is_empty() {
            return Err(format!("{path}.{field}: it is missing"));
        }
    }
    let problems_of_name =
        if is_counter { problems::dns_label(&name) } else { problems::qualified_name(&name) };
    for (field, value, found) in
        [("name", &name, problems_of_name), ("driver", &driver, problems::dns_subdomain(&driver))]
    {
        if let Some(problem) = found.first() {
            return Err(format!("{path}.{field}: {value:?}: {problem}"));
        }
    }
    Ok(())
}
