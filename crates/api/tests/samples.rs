//! Reads manifests into the types and writes them back: nothing may get lost.
//!
//! Own manifests live in `examples/`. Point `QUINTET_SAMPLES` at any directory of YAML files to check others;
//! objects of API groups that are not Quintet's are passed over.

#![expect(clippy::expect_used, reason = "a check stops at the first file it cannot read")]

use std::fs;
use std::path::{Path, PathBuf};

use quintet_api::crd::{self, Kind};
use serde_json::Value;

#[test]
fn manifests_lose_nothing_when_read_and_written() {
    let Some(directory) = std::env::var_os("QUINTET_SAMPLES") else {
        println!("samples: set QUINTET_SAMPLES to a directory of manifests to check them");
        return;
    };
    let kinds = crd::kinds();
    let (mut objects, mut problems) = (0, Vec::new());
    for file in yaml_files(Path::new(&directory)) {
        for object in documents(&file, &mut problems) {
            let Some(kind) = kinds.iter().find(|kind| is_of(&object, kind)) else { continue };
            objects += 1;
            problems.extend(lost(kind, &object).map(|what| format!("{}: {what}", file.display())));
        }
    }
    println!("samples: {objects} objects read and written, {} problems", problems.len());
    assert!(objects > 0, "no object of ours in {}", Path::new(&directory).display());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

fn yaml_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).expect("QUINTET_SAMPLES is a directory") {
        let path = entry.expect("a directory entry").path();
        if path.is_dir() {
            files.extend(yaml_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn documents(file: &Path, problems: &mut Vec<String>) -> Vec<Value> {
    let text = fs::read_to_string(file).expect("a readable file");
    match serde_saphyr::from_multiple::<Value>(&text) {
        Ok(documents) => documents.into_iter().filter(|document| !document.is_null()).collect(),
        Err(error) => {
            problems.push(format!("{}: {error}", file.display()));
            Vec::new()
        }
    }
}

fn is_of(object: &Value, kind: &Kind) -> bool {
    object["apiVersion"] == kind.api_version && object["kind"] == kind.name
}

/// The first field that did not survive.
fn lost(kind: &Kind, object: &Value) -> Option<String> {
    match (kind.reread)(object.clone()) {
        Ok(written) => difference(object, &written, kind.name),
        Err(error) => Some(format!("{}: {error}", kind.name)),
    }
}

fn difference(before: &Value, after: &Value, path: &str) -> Option<String> {
    match (before, after) {
        (Value::Null, _) => None,
        (Value::Object(before), Value::Object(after)) => before.iter().find_map(|(key, value)| {
            difference(value, after.get(key).unwrap_or(&Value::Null), &format!("{path}.{key}"))
        }),
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            let mut items = before.iter().zip(after).enumerate();
            items.find_map(|(index, (before, after))| difference(before, after, &format!("{path}[{index}]")))
        }
        // Kubernetes writes quantities as text, whether they were read as text or as numbers.
        (Value::Number(number), Value::String(text)) if number.to_string() == *text => None,
        (before, after) if before == after => None,
        (before, after) => Some(format!("{path} was {before} and is {after}")),
    }
}
