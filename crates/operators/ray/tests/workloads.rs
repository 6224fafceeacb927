//! Manifests of jobs, services and cron jobs that have to be accepted: those in `examples/ray`, and those in the
//! directory that `QUINTET_SAMPLES` names.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use quintet_api::ray::v1::{RayCronJob, RayJob, RayService};
use quintet_ray::{raycronjob, rayjob, rayservice, settings::Settings};
use serde_json::Value;

fn yaml_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(yaml_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// What the API server fills in.
fn default_replicas(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.contains_key("groupName") {
                fields.entry("minReplicas").or_insert(0.into());
                fields.entry("maxReplicas").or_insert(i32::MAX.into());
            }
            fields.values_mut().for_each(default_replicas);
        }
        Value::Array(items) => items.iter_mut().for_each(default_replicas),
        _ => {}
    }
}

/// What is wrong with a manifest; `None` if it is of another kind.
fn verdict(document: &Value) -> Option<Result<(), String>> {
    let settings = Settings::default();
    let mut object = document.clone();
    default_replicas(&mut object);
    match (object["apiVersion"].as_str()?, object["kind"].as_str()?) {
        ("ray.io/v1", "RayJob") => {
            let mut object: RayJob = serde_json::from_value(object).unwrap();
            let generated = object.metadata.generate_name.take().map(|prefix| prefix + "x");
            object.metadata.name = object.metadata.name.or(generated);
            Some(rayjob::validation::validate(&object, &settings).map_err(|invalid| invalid.message))
        }
        ("ray.io/v1", "RayService") => {
            let object: RayService = serde_json::from_value(object).unwrap();
            Some(
                rayservice::validation::validate_metadata(&object)
                    .and_then(|()| rayservice::validation::validate_spec(&object, &settings)),
            )
        }
        ("ray.io/v1", "RayCronJob") => {
            let object: RayCronJob = serde_json::from_value(object).unwrap();
            Some(raycronjob::validation::validate(&object, &settings).map(|_| ()))
        }
        _ => None,
    }
}

fn check(directory: &Path) -> usize {
    let mut checked = 0;
    let mut refused = Vec::new();
    for file in yaml_files(directory) {
        let text = fs::read_to_string(&file).unwrap();
        let Ok(documents) = serde_saphyr::from_multiple::<Value>(&text) else { continue };
        for result in documents.iter().filter_map(verdict) {
            checked += 1;
            refused.extend(result.err().map(|error| format!("{}: {error}", file.display())));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    checked
}

#[test]
fn the_examples_are_valid() {
    assert!(check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/ray")) >= 3);
}

#[test]
fn other_samples_are_valid() {
    if let Some(directory) = std::env::var_os("QUINTET_SAMPLES") {
        assert!(check(Path::new(&directory)) > 0, "no workloads of Ray in there");
    }
}
