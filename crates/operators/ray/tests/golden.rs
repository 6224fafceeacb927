//! What comes out of the manifests in `examples/ray`, as files that can be read and compared.
//!
//! `QUINTET_BLESS=1 cargo test -p quintet-ray --test golden` writes them anew. `QUINTET_SAMPLES` names a directory of
//! other manifests that have to be planned without an error.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use quintet_api::ray::v1::{RayCluster, RayJob, RayService};
use quintet_ray::{
    raycluster, rayjob, rayservice,
    settings::{Gates, Settings},
};
use serde_json::Value;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A version that does not change with every release.
fn settings() -> Settings {
    Settings { version: "quintet-golden".to_owned(), ..Settings::default() }
}

fn yaml_files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

fn documents(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    let all: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    all.into_iter().filter(|document| !document.is_null()).collect()
}

/// What the API server fills in.
fn fill_in(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.contains_key("groupName") {
                for (field, default) in [("minReplicas", 0), ("maxReplicas", i32::MAX), ("numOfHosts", 1)] {
                    fields.entry(field).or_insert(default.into());
                }
            }
            fields.values_mut().for_each(fill_in);
        }
        Value::Array(items) => items.iter_mut().for_each(fill_in),
        _ => {}
    }
}

/// What comes of a manifest; `None` if it is of a kind that makes nothing at once.
fn made_of(mut document: Value) -> Option<Vec<Value>> {
    fill_in(&mut document);
    let made = match document["kind"].as_str()? {
        "RayCluster" => raycluster::preview(&serde_json::from_value(document).unwrap(), &settings()),
        "RayJob" => rayjob::preview(&serde_json::from_value(document).unwrap(), &settings()),
        "RayService" => rayservice::preview(&serde_json::from_value(document).unwrap(), &settings()),
        _ => return None,
    };
    Some(made.unwrap())
}

#[test]
fn examples_become_what_the_golden_files_say() {
    let bless = std::env::var_os("QUINTET_BLESS").is_some();
    let mut compared = 0;
    for file in yaml_files(&here("../../../examples/ray")) {
        for objects in documents(&file).into_iter().filter_map(made_of) {
            let texts: Vec<_> =
                objects.iter().map(|object| serde_saphyr::to_string(object).unwrap()).collect();
            let text = texts.join("---\n");
            let golden = here("tests/golden").join(file.file_name().unwrap());
            if bless {
                fs::write(&golden, &text).unwrap();
            }
            let expected = fs::read_to_string(&golden).unwrap_or_default();
            assert!(
                text == expected,
                "{} has changed; look at the difference and bless it with QUINTET_BLESS=1:\n{}",
                golden.display(),
                first_difference(&expected, &text),
            );
            compared += 1;
        }
    }
    assert_eq!(
        compared,
        fs::read_dir(here("tests/golden")).unwrap().count(),
        "a golden file is of no example"
    );
}

fn first_difference(expected: &str, found: &str) -> String {
    let lines = expected.lines().zip(found.lines()).enumerate();
    match lines.into_iter().find(|(_, (expected, found))| expected != found) {
        Some((number, (expected, found))) => format!("line {}\n- {expected}\n+ {found}", number + 1),
        None => format!("{} lines instead of {}", found.lines().count(), expected.lines().count()),
    }
}

/// The clusters in a manifest: its own, or those of jobs and services as they would be made.
fn clusters(document: &Value) -> Option<RayCluster> {
    let object = document.clone();
    let cluster = |metadata, spec| RayCluster { metadata, spec, ..RayCluster::default() };
    match (object["apiVersion"].as_str()?, object["kind"].as_str()?) {
        ("ray.io/v1", "RayCluster") => serde_json::from_value(object).ok(),
        ("ray.io/v1", "RayJob") => {
            let job: RayJob = serde_json::from_value(object).unwrap();
            Some(cluster(job.metadata, job.spec.ray_cluster_spec?))
        }
        ("ray.io/v1", "RayService") => {
            let service: RayService = serde_json::from_value(object).unwrap();
            Some(cluster(service.metadata, service.spec.ray_cluster_config))
        }
        _ => None,
    }
}

/// What the API server would have filled in.
fn defaulted(mut cluster: RayCluster) -> RayCluster {
    let metadata = &mut cluster.metadata;
    let generated = metadata.generate_name.take().map(|prefix| prefix + "x");
    metadata.name = metadata.name.take().or(generated);
    for group in cluster.spec.worker_group_specs.iter_mut().flatten() {
        group.min_replicas.get_or_insert(0);
        group.max_replicas.get_or_insert(i32::MAX);
        group.num_of_hosts.get_or_insert(1);
    }
    cluster
}

#[test]
fn foreign_manifests_are_planned_without_an_error() {
    let Some(directory) = std::env::var_os("QUINTET_SAMPLES") else {
        println!("samples: set QUINTET_SAMPLES to a directory of manifests to plan them");
        return;
    };
    let gates: BTreeMap<_, _> = Gates::NAMES.iter().map(|name| ((*name).to_owned(), true)).collect();
    let settings = Settings { gates: Gates::switched(&gates), ..settings() };
    let (mut planned, mut problems) = (0, Vec::new());
    for file in yaml_files(Path::new(&directory)) {
        for planned_cluster in documents(&file).iter().filter_map(clusters).map(defaulted) {
            match raycluster::preview(&planned_cluster, &settings) {
                Ok(objects) => planned += objects.len(),
                Err(error) => problems.push(format!("{}: {error}", file.display())),
            }
        }
    }
    println!("samples: {planned} objects planned, {} problems", problems.len());
    assert!(problems.is_empty() && planned > 0, "{problems:#?}");
}
