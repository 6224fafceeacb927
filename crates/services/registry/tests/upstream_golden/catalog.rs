//! Cases of the catalog, on the files they were recorded with.

use std::path::Path;
use std::time::Duration;

use quintet_registry_server::CatalogServer;
use serde_json::{Map, Value, json};

use crate::case::Case;
use crate::run::{self, Counts};
use crate::support::http::{self, Request};
use crate::support::server::Serving;

/// Runs the cases, each on a server of its own.
pub(crate) async fn run(cases: &[Case], directory: &Path) -> Counts {
    let mut counts = Counts::default();
    let Some(files) = Case::read_setup(directory) else {
        assert!(cases.is_empty(), "cases of the catalog need catalog-setup.yaml");
        return counts;
    };
    for case in cases {
        let place = tempfile::tempdir().expect("a temporary directory");
        write(place.path(), &files);
        let sources = place.path().join("sources.yaml");
        let server = CatalogServer::new(vec![sources.clone()], vec![place.path().join("perf")]);
        server.load().expect("the catalog loads");
        let serving = Serving::start(|listener, stop| server.serve(listener, stop)).await;
        if case.setup.contains("sources.yaml changed") {
            change(&sources);
            while !is_reloaded(&serving).await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        counts += run::compare(case, serving.address, "catalog", |_, _| ()).await;
    }
    counts
}

/// JSON is YAML, so structures need no other form.
fn write(directory: &Path, files: &Map<String, Value>) {
    for (name, content) in files {
        let path = directory.join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        let text = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
        std::fs::write(path, text).expect("a file");
    }
}

/// What the recording says: alpha disabled, beta without includedModels and with the label New.
fn change(sources: &Path) {
    let text = std::fs::read_to_string(sources).expect("the sources");
    let mut file: Value = serde_json::from_str(&text).expect("JSON");
    for source in file["model_catalogs"].as_array_mut().expect("sources") {
        match source["id"].as_str() {
            Some("alpha") => source["enabled"] = json!(false),
            Some("beta") => {
                source.as_object_mut().expect("a source").remove("includedModels");
                source["labels"] = json!(["New"]);
            }
            _ => {}
        }
    }
    std::fs::write(sources, file.to_string()).expect("a file");
}

async fn is_reloaded(serving: &Serving) -> bool {
    let path = "/api/model_catalog/v1alpha1/sources".to_owned();
    let request = Request { method: "GET".to_owned(), path, ..Request::default() };
    let response = http::send(serving.address, &request).await.expect("a response");
    response.text().contains("\"New\"")
}
