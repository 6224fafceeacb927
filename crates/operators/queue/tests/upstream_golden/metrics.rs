//! Metrics: lines of the exposition that are about the queues of a case, and the families there are.

use std::collections::{BTreeMap, BTreeSet};

use quintet_golden::Api;
use serde_json::{Value, json};

use crate::bed::{Bed, id, job, pass};
use crate::canonical::Names;
use crate::lifecycle::setting;

/// A line of the exposition: the name, the labels, and the value.
type Line = (String, BTreeMap<String, String>, String);

/// Labels that name an object of a case.
const OF_OBJECTS: [&str; 6] =
    ["cluster_queue", "cohort", "name", "parent_cohort", "preempting_cluster_queue", "root_cohort"];

/// How the lines about the queues of a case differ from the recorded ones.
pub(crate) fn lines(recorded: &Value, exposition: &str, names: &Names) -> Vec<String> {
    let mut wanted = Vec::new();
    collect(recorded, &mut wanted);
    let wanted: Vec<Line> = wanted.iter().filter_map(|line| parse(line)).collect();
    if wanted.is_empty() {
        return Vec::new();
    }
    let named = |line: &Line| -> BTreeSet<String> {
        let labels = line.1.iter().filter(|(label, _)| OF_OBJECTS.contains(&label.as_str()));
        labels.map(|(label, value)| format!("{label}={value}")).collect()
    };
    let known: BTreeSet<String> = wanted.iter().flat_map(named).collect();
    let actual: BTreeMap<(String, BTreeMap<String, String>), String> = exposition
        .lines()
        .filter_map(|line| parse(&names.canonical_text(line)))
        .filter(|line| !line.0.ends_with("_bucket") && named(line).iter().any(|name| known.contains(name)))
        .map(|(name, labels, value)| ((name, labels), value))
        .collect();
    let mut found = Vec::new();
    let mut listed = BTreeSet::new();
    for (name, labels, value) in wanted {
        let key = (name, labels);
        match actual.get(&key) {
            None => found.push(format!("missing metric {key:?} {value}")),
            Some(own) if value.starts_with('<') || same(own, &value) => {}
            Some(own) => found.push(format!("metric {key:?}: recorded {value}, is {own}")),
        }
        listed.insert(key);
    }
    found.extend(
        actual
            .iter()
            .filter(|(key, _)| !listed.contains(*key))
            .map(|(key, value)| format!("unexpected metric {key:?} {value}")),
    );
    found
}

fn collect(recorded: &Value, lines: &mut Vec<String>) {
    match recorded {
        Value::String(line) => lines.push(line.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, lines)),
        Value::Object(fields) => fields.values().for_each(|item| collect(item, lines)),
        _ => {}
    }
}

fn parse(line: &str) -> Option<Line> {
    if line.starts_with('#') || !line.starts_with("kueue_") {
        return None;
    }
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = match series.split_once('{') {
        None => (series, BTreeMap::new()),
        Some((name, labels)) => {
            let labels = labels.strip_suffix('}')?.split("\",").filter(|label| !label.is_empty());
            let labels = labels.filter_map(|label| label.split_once("=\""));
            let plain = |(name, value): (&str, &str)| {
                (name.trim_start_matches(',').to_owned(), value.trim_end_matches('"').to_owned())
            };
            (name, labels.map(plain).collect())
        }
    };
    Some((name.to_owned(), labels, value.to_owned()))
}

/// Whether two values are the same number.
fn same(one: &str, other: &str) -> bool {
    let number = |text: &str| text.replace("+Inf", "inf").parse::<f64>().ok();
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one.total_cmp(&other).is_eq() || (one - other).abs() < 1e-9,
        _ => one == other,
    }
}

/// Compares names, types and buckets of all families. The error says what is not supported.
pub(crate) async fn families(case: &Value, template: &Api) -> Result<Vec<String>, String> {
    let text = exposition(case, template).await?;
    let mut found = Vec::new();
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    // OpenMetrics names a counter without its ending.
    let types: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(|line| match line.strip_suffix(" counter") {
            Some(name) => format!("{}_total counter", name.trim_end_matches("_total")),
            None => line.to_owned(),
        })
        .collect();
    for wanted in texts(&case["metrics"]["types"]) {
        if !types.contains(&wanted) {
            found.push(format!("missing family {wanted}"));
        }
    }
    for (family, bounds) in case["metrics"]["buckets"].as_object().into_iter().flatten() {
        let prefix = format!("{family}_bucket");
        let of_family = text.lines().filter_map(parse).filter(|(name, ..)| *name == prefix);
        let own: Vec<String> = of_family.filter_map(|(_, labels, _)| labels.get("le").cloned()).collect();
        let wanted = texts(bounds);
        let first: Vec<&String> = own.iter().take(wanted.len()).collect();
        let is_same =
            first.len() == wanted.len() && first.iter().zip(&wanted).all(|(own, want)| same(own, want));
        if !is_same {
            found.push(format!("{family}: recorded buckets {wanted:?}, are {first:?}"));
        }
    }
    Ok(found)
}

/// What is shown after Jobs have waited, run, ended and been evicted in a queue of a cohort.
async fn exposition(case: &Value, template: &Api) -> Result<String, String> {
    let bed = Bed::new(template, 1, setting(case)?).await;
    bed.add_queue(2, json!({ "cohortName": "cohort" })).await;
    for (name, run_for) in [("ends", "2s"), ("runs", ""), ("waits", "")] {
        bed.create(&job(name, 1, run_for, &[])).await;
        pass(1).await;
    }
    pass(20).await;
    let objects = bed.world.objects().await?;
    let name = objects.keys().find(|own| own.kind == "Workload" && own.name.contains("runs"));
    let name = name.ok_or("the Job has no Workload")?.name.clone();
    let stopped = json!({ "spec": { "active": false } });
    bed.world.patch(&id("Workload", &name), None, &stopped).await?;
    pass(5).await;
    bed.create(&job("large", 8, "", &[])).await;
    pass(5).await;
    let text = bed.world.exposition();
    bed.world.stop().await;
    Ok(text)
}
