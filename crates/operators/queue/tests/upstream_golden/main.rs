//! Compares decisions with recordings of Kueue: webhook decisions about its own kinds, and conversions.
//!
//! The directory comes from `QUINTET_GOLDEN`; every `*.yaml` in it is a case. Prints a line per difference, then the totals.
//! Cases of parts that do not exist yet are counted as unsupported.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "test code whose report is its product"
)]

mod admission;
mod compare;

use std::path::Path;

use quintet_api::conversion::convert;
use serde_json::Value;

/// Where Quintet decides otherwise on purpose.
const DELIBERATE: &[(&str, &str)] = &[
    ("conversion-cohort-up-parent", "an unknown field passes through; the API server has pruned it before"),
    (
        "conversion-multikueuecluster-down-empty",
        "locationType is the default of the schema, which refuses an empty one",
    ),
    (
        "conversion-multikueuecluster-down-profile",
        "locationType is the default of the schema, which refuses an empty one",
    ),
    ("webhook-localqueue-v1beta1", "the deprecation warning names the group of the version to use"),
    ("webhook-workload-v1beta1", "the deprecation warning names the group of the version to use"),
];

/// Where conversion keeps what an older version has no field for. Kueue drops it.
const NEWER_FIELDS: &str = "/metadata/annotations/api.quintet.dev~1newer-fields";

enum Outcome {
    Equal,
    Deliberate(&'static str),
    Differs(String),
    Unsupported,
}

impl Outcome {
    fn of(difference: Option<String>) -> Self {
        difference.map_or(Self::Equal, Self::Differs)
    }
}

#[tokio::test]
async fn decisions_and_conversions_equal_those_of_upstream() {
    let Some(directory) = std::env::var_os("QUINTET_GOLDEN") else {
        println!("golden: QUINTET_GOLDEN is not set, nothing to compare");
        return;
    };
    let mut files: Vec<_> = std::fs::read_dir(Path::new(&directory))
        .expect("the directory can be read")
        .map(|entry| entry.expect("the directory can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    let [mut equal, mut deliberate, mut differ, mut unsupported] = [0; 4];
    for file in files {
        // `n` is a text, as in YAML 1.2, which the recordings are written in.
        let text = std::fs::read_to_string(&file).expect("a case can be read");
        let case: Value =
            serde_saphyr::from_str_with_options(&text, serde_saphyr::options! { strict_booleans: true })
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let name = case["case"].as_str().expect("a case has a name").to_owned();
        let outcome = match run(&case).await {
            Outcome::Differs(how) => match DELIBERATE.iter().find(|(known, _)| *known == name) {
                Some((_, why)) => Outcome::Deliberate(why),
                None => Outcome::Differs(how),
            },
            other => other,
        };
        match outcome {
            Outcome::Equal => equal += 1,
            Outcome::Unsupported => unsupported += 1,
            Outcome::Deliberate(why) => {
                deliberate += 1;
                println!("{name}: deliberate: {why}");
            }
            Outcome::Differs(how) => {
                differ += 1;
                println!("{name}: {how}");
            }
        }
    }
    println!("golden: {equal} equal, {deliberate} deliberate, {differ} differ, {unsupported} unsupported");
    assert_eq!(differ, 0);
}

async fn run(case: &Value) -> Outcome {
    if case["conversion"].is_object() {
        return conversion(&case["conversion"]);
    }
    let input = &case["webhook"]["input"];
    let is_own_kind =
        input["apiVersion"].as_str().is_some_and(|version| version.starts_with("kueue.x-k8s.io/"));
    if !is_own_kind {
        return Outcome::Unsupported;
    }
    let gates = serde_json::from_value(case["environment"]["feature gates"].clone()).unwrap_or_default();
    Outcome::of(admission::compare(&case["webhook"], &gates).await)
}

fn conversion(conversion: &Value) -> Outcome {
    let to = conversion["to"].as_str().expect("a version to convert to");
    let output = match convert(conversion["input"].clone(), to) {
        Ok(output) => output,
        Err(error) => return Outcome::Differs(format!("cannot convert: {error}")),
    };
    let keeps_more = output.pointer(NEWER_FIELDS).is_some();
    let difference = compare::objects(&output, &conversion["output"]);
    match difference {
        None if keeps_more => {
            Outcome::Deliberate("fields that the older version lacks are kept in an annotation")
        }
        difference => Outcome::of(difference),
    }
}
