//! Recorded cases.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

/// A recorded case.
#[derive(Debug, Deserialize)]
pub(crate) struct Case {
    #[serde(rename = "case")]
    pub(crate) name: String,
    pub(crate) server: Server,
    pub(crate) exchanges: Vec<Exchange>,
    /// ConfigMaps and Services that there are.
    #[serde(default)]
    pub(crate) configmaps: Vec<Value>,
    #[serde(default)]
    pub(crate) services: Vec<Value>,
}

/// How the proxy was started.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Server {
    #[serde(default)]
    pub(crate) flags: Vec<String>,
    pub(crate) token: Option<String>,
}

/// A request, its response, and what the Kubernetes API got.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exchange {
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) request: Request,
    pub(crate) response: Response,
    #[serde(default)]
    pub(crate) kubernetes_saw: Vec<Saw>,
    #[serde(default)]
    pub(crate) service_lookup: Vec<String>,
    pub(crate) seconds: Option<f64>,
    /// What is recorded beyond that.
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// What is recorded for readers.
const NOTES: [&str; 3] = ["note", "why", "upstream_sometimes_breaks"];

impl Exchange {
    /// What is recorded of the exchange or its request and not known here.
    pub(crate) fn unknown(&self) -> Vec<&str> {
        let names = self.other.keys().chain(self.request.other.keys()).map(String::as_str);
        names.filter(|name| !NOTES.contains(name)).collect()
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) query: String,
    #[serde(default)]
    pub(crate) headers: Map<String, Value>,
    pub(crate) json: Option<Value>,
    pub(crate) body: Option<String>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Response {
    pub(crate) status: u16,
    #[serde(default)]
    pub(crate) headers: Map<String, Value>,
    pub(crate) json: Option<Value>,
    pub(crate) text: Option<String>,
    #[serde(default)]
    pub(crate) empty: bool,
}

/// A request that the Kubernetes API got.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Saw {
    pub(crate) method: String,
    pub(crate) uri: String,
    #[serde(default)]
    pub(crate) headers: Map<String, Value>,
    #[serde(default)]
    pub(crate) host: String,
    pub(crate) json: Option<Value>,
    #[serde(alias = "text")]
    pub(crate) body: Option<String>,
    #[serde(default = "once")]
    pub(crate) times: usize,
}

fn once() -> usize {
    1
}

/// Plain `y` and `n` are text.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! { strict_booleans: true, budget: None }
}

impl Case {
    /// Reads all cases of a folder.
    pub(crate) fn read_all(directory: &Path) -> Vec<Self> {
        let entries = std::fs::read_dir(directory).expect("the folder can be read").flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|it| it == "yaml"));
        paths.sort();
        let read = |path: &std::path::PathBuf| {
            let text = std::fs::read_to_string(path).expect("the case can be read");
            serde_saphyr::from_str_with_options(&text, options())
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        let mut cases: Vec<Self> = paths.iter().map(read).collect();
        // All cases had the same ones, but not all name them.
        let config_maps = distinct(cases.iter().flat_map(|case| &case.configmaps));
        let services = distinct(cases.iter().flat_map(|case| &case.services));
        for case in &mut cases {
            if case.configmaps.is_empty() {
                case.configmaps.clone_from(&config_maps);
            }
            if case.services.is_empty() {
                case.services.clone_from(&services);
            }
        }
        cases
    }
}

fn distinct<'a>(values: impl Iterator<Item = &'a Value>) -> Vec<Value> {
    let mut distinct: Vec<Value> = Vec::new();
    for value in values {
        if !distinct.contains(value) {
            distinct.push(value.clone());
        }
    }
    distinct
}
