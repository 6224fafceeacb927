//! Recorded cases.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// A recorded case.
#[derive(Debug, Deserialize)]
pub(crate) struct Case {
    #[serde(rename = "case")]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) about: String,
    #[serde(default)]
    pub(crate) server: String,
    /// The files of the catalog that the case is about.
    #[serde(default)]
    pub(crate) setup: String,
    #[serde(default)]
    exchanges: Vec<Exchange>,
    #[serde(default)]
    steps: Vec<Step>,
    /// What else it says of how it was recorded, such as the flags of the server.
    #[serde(flatten)]
    others: serde_json::Map<String, Value>,
}

/// A call of the Python client, with the requests it made.
#[derive(Debug, Deserialize)]
struct Step {
    #[serde(default)]
    exchanges: Vec<Exchange>,
}

/// A request and its answers.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Exchange {
    #[serde(default)]
    pub(crate) note: String,
    pub(crate) method: String,
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) headers: serde_json::Map<String, Value>,
    pub(crate) body: Option<Value>,
    pub(crate) raw: Option<String>,
    pub(crate) raw_base64: Option<String>,
    pub(crate) parallel: Option<usize>,
    #[serde(default)]
    pub(crate) answer: Answer,
    /// How long was waited for an answer, if none came.
    #[serde(rename = "noAnswerWithin")]
    pub(crate) none_within: Option<Value>,
    pub(crate) answer_newer: Option<Answer>,
    /// Upstream's on MySQL.
    pub(crate) answer_mysql: Option<Answer>,
    #[serde(default)]
    pub(crate) also_seen: Vec<Answer>,
}

/// A recorded answer.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Answer {
    pub(crate) status: Option<u16>,
    #[serde(default)]
    pub(crate) headers: serde_json::Map<String, Value>,
    pub(crate) body: Option<Value>,
    pub(crate) text: Option<String>,
    pub(crate) raw: Option<String>,
    /// How long was waited for an answer, if none came.
    #[serde(rename = "noAnswerWithin")]
    pub(crate) none_within: Option<Value>,
    /// Of requests that were sent several times at once.
    #[serde(default)]
    pub(crate) answers: Vec<Counted>,
}

/// How often an answer came.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Counted {
    pub(crate) count: usize,
    #[serde(flatten)]
    pub(crate) answer: Answer,
}

/// Plain `y` and `n` are text; and some cases are large.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! { strict_booleans: true, budget: None }
}

impl Case {
    /// Whether the server had no database from the start: then the API is unavailable from the first request on.
    pub(crate) fn lacks_database(&self) -> bool {
        let mut of_api = self.exchanges.iter().filter(|it| it.path.starts_with("/api/"));
        of_api.next().is_some_and(|first| first.answer.status == Some(503))
    }

    /// The value of a flag that the server was started with, wherever the case says so.
    pub(crate) fn flag(&self, name: &str) -> Option<String> {
        let others = serde_json::to_string(&self.others).unwrap_or_default();
        let said = format!("{}\n{}\n{}\n{others}", self.server, self.about, self.setup);
        let (_, rest) = said.split_once(name)?;
        let rest = rest.trim_start_matches(['=', ' ', '"', '\'', ':', ',']);
        let end = rest.find([' ', '"', '\'', ';', ')', '\n', ']']).unwrap_or(rest.len());
        Some(rest[..end].trim_end_matches([',', '.']).to_owned())
    }

    /// Reads all cases of a folder.
    pub(crate) fn read_all(directory: &Path) -> Vec<Self> {
        let entries = std::fs::read_dir(directory).expect("the folder can be read").flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|it| it == "yaml"));
        paths.sort();
        let read = |path: &std::path::PathBuf| {
            let text = std::fs::read_to_string(path).expect("the case can be read");
            let is_setup = path.file_stem().is_some_and(|stem| stem == "catalog-setup");
            (!is_setup).then(|| {
                serde_saphyr::from_str_with_options(&text, options())
                    .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
            })
        };
        paths.iter().filter_map(read).collect()
    }

    /// The files that catalog cases are about: their contents by path, with those of the newer server.
    pub(crate) fn read_setup(directory: &Path) -> Option<serde_json::Map<String, Value>> {
        let text = std::fs::read_to_string(directory.join("catalog-setup.yaml")).ok()?;
        let setup: Value = serde_saphyr::from_str_with_options(&text, options()).expect("the setup");
        let mut files = setup["files"].as_object().expect("files").clone();
        for (name, content) in setup["newer"].as_object().into_iter().flatten() {
            if Path::new(name).extension().is_some() {
                files.insert(name.clone(), content.clone());
            } else {
                files["sources.yaml"][name] = content.clone();
            }
        }
        Some(files)
    }

    /// Its exchanges in order.
    pub(crate) fn exchanges(&self) -> Vec<&Exchange> {
        self.exchanges.iter().chain(self.steps.iter().flat_map(|step| &step.exchanges)).collect()
    }
}
