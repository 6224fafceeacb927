//! Scripts of calls.

use quintet_queue_engine::afs;
use quintet_queue_engine::intake;
use quintet_queue_engine::names::Names;
use serde_json::{Value, json};

use crate::case::{Case, Verdict};
use crate::compare::differences;
use crate::util::{consumed, consumed_json};

pub fn run(case: &Case<'_>) -> Verdict {
    let steps: Vec<&Value> = case.calls()["steps"].as_array().into_iter().flatten().collect();
    let is = |prefix: &str| {
        steps
            .iter()
            .all(|step| step["op"].as_str().is_some_and(|op| op.starts_with(prefix)))
    };
    if is("Calculate") {
        return calculations(&steps);
    }
    Verdict::Unsupported
}

fn calculations(steps: &[&Value]) -> Verdict {
    let mut names = Names::default();
    let mut found = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let args = &step["args"];
        let got = if step["op"] == "CalculateDecayedConsumed" {
            let (old, new) = (
                consumed(&args["oldUsage"], &mut names),
                consumed(&args["newUsage"], &mut names),
            );
            let number = |key: &str| args[key].as_f64().unwrap_or(0.0);
            afs::decayed(&old, &new, number("elapsed"), number("halfLifeTime"))
        } else {
            let config = json!({ "admissionFairSharing": args["admissionFairSharing"] });
            let settings = intake::settings(&config, &mut names).expect("settings");
            let requests = consumed(&args["totalRequests"], &mut names);
            afs::entry_penalty(&requests, &settings.admission_fair_sharing.expect("afs"))
        };
        found.extend(differences(
            &format!("step {index}"),
            &consumed_json(&got, &names),
            &step["ret"],
        ));
    }
    Verdict::from_differences(found)
}

pub fn entry_penalties(_: &Case<'_>) -> Verdict {
    Verdict::Unsupported
}
