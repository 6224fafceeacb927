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
    let mut merged: BTreeMap<Vec<String>, (String, usize)> = BTreeMap::new();
    for (resources, count) in counts {
        let resources = snapshot.numbers(resources);
        if resources.is_empty() {
            continue;
        }
        let members = resources.iter().map(|(name, amount)| format!("'{name}': {}", python_float(*amount)));
        let text = format!("{{{}}}", members.collect::<Vec<_>>().join(", "));
        // Amounts are the same if four decimals are: Ray has no finer ones.
        let key = resources.iter().map(|(name, amount)| format!("{name}:{amount:.4}"));
        merged.entry(key.collect::<Vec<_>>()).or_insert((text, 0)).1 += count;
    }
    merged.into_values().collect()
}

/// A number as Python writes ordinary floats. As upstream, there are no exponents.
pub(super) fn python_float(number: f64) -> String {
    if number.fract() == 0.0 { format!("{number:.1}") } else { format!("{number}") }
}
