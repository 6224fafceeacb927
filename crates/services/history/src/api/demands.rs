//! Resources that tasks and actors still wait for.

use std::collections::BTreeMap;

use crate::model::snapshot::Snapshot;
use crate::model::strings::Symbol;

/// States of tasks that wait.
pub(super) const PENDING: [&str; 4] =
    ["PENDING_ARGS_AVAIL", "PENDING_NODE_ASSIGNMENT", "PENDING_OBJ_STORE_MEM_AVAIL", "PENDING_ARGS_FETCH"];

/// States of actors that wait.
const PENDING_ACTORS: [&str; 2] = ["PENDING_CREATION", "DEPENDENCIES_UNREADY"];

/// How many tasks and actors wait for which resources; the resources are written as Python writes a dictionary.
pub(super) fn pending(snapshot: &Snapshot) -> BTreeMap<String, usize> {
    let states =
        |names: &[&str]| names.iter().filter_map(|name| snapshot.strings.find(name)).collect::<Vec<_>>();
    let (tasks, actors) = (states(&PENDING), states(&PENDING_ACTORS));
    let waiting_tasks = snapshot.tasks.iter().filter(|task| tasks.contains(&task.state()));
    let waiting_actors = snapshot.actors.iter().filter(|actor| actors.contains(&actor.state()));
    let demands = waiting_tasks
        .map(|task| task.definition.resources)
        .chain(waiting_actors.map(|actor| actor.definition.resources));
    let mut counts: BTreeMap<Option<Symbol>, usize> = BTreeMap::new();
    for resources in demands {
        *counts.entry(resources).or_default() += 1;
    }
    let mut written = BTreeMap::new();
    for (resources, count) in counts {
        let resources = snapshot.numbers(resources);
        if resources.is_empty() {
            continue;
        }
        let members = resources.iter().map(|(name, amount)| format!("'{name}': {}", python_float(*amount)));
        let text = format!("{{{}}}", members.collect::<Vec<_>>().join(", "));
        *written.entry(text).or_default() += count;
    }
    written
}

/// A number as Python writes floats.
pub(super) fn python_float(number: f64) -> String {
    let size = number.abs();
    if size != 0.0 && !(1e-4..1e16).contains(&size) {
        let text = format!("{number:e}");
        return match text.split_once("e-") {
            Some((digits, exponent)) => format!("{digits}e-{exponent:0>2}"),
            None => text.replace('e', "e+"),
        };
    }
    format!("{number:?}")
}
