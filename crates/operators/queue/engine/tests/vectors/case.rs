//! One case of a table.

use serde_json::{Value, json};

/// How a case went.
pub enum Verdict {
    Same,
    Differs(String),
    Unsupported,
}

impl Verdict {
    pub fn from_differences(differences: impl AsRef<[String]>) -> Self {
        let differences = differences.as_ref();
        if differences.is_empty() { Self::Same } else { Self::Differs(differences.join("\n    ")) }
    }

    pub fn equal(what: &str, got: &Value, want: &Value) -> Self {
        Self::from_differences(crate::compare::differences(what, got, want))
    }
}

pub struct Case<'v> {
    pub id: &'v str,
    pub table: &'v Value,
    pub raw: &'v Value,
    pub config: Value,
}

impl<'v> Case<'v> {
    pub fn new(table: &'v Value, raw: &'v Value) -> Self {
        let mut config = table["common"]["config"].clone();
        if config.is_null() {
            config = json!({});
        }
        for (key, value) in raw["config"].as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        Self { id: raw["id"].as_str().unwrap_or(""), table, raw, config }
    }

    pub fn op(&self) -> &'v str {
        self.raw["calls"]["op"].as_str().unwrap_or("")
    }

    pub fn calls(&self) -> &'v Value {
        &self.raw["calls"]
    }

    pub fn args(&self) -> &'v Value {
        &self.raw["calls"]["args"]
    }

    pub fn want(&self) -> &'v Value {
        &self.raw["want"]
    }

    pub fn table_name(&self) -> &'v str {
        self.table["table"].as_str().unwrap_or("")
    }

    /// All objects of a kind: those of the table, then those of the case.
    pub fn objects(&self, kind: &str) -> Vec<&'v Value> {
        let of = |root: &'v Value| root["objects"][kind].as_array().into_iter().flatten();
        of(&self.table["common"]).chain(of(self.raw)).collect()
    }
}
