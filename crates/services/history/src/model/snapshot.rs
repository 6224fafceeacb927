//! All that is known of one session.

use std::collections::{BTreeMap, HashMap};

use super::actor::{self, Actor};
use super::job::{self, Job};
use super::log_event::LogEvents;
use super::node::Node;
use super::strings::{Strings, Symbol};
use super::task::{self, Task};

/// The model of a session. It is filled with events, then [finished](Self::finish), then only read.
pub(crate) struct Snapshot {
    pub(crate) strings: Strings,
    /// Sorted by task id and attempt when finished.
    pub(crate) tasks: Vec<Task>,
    /// By id; sorted when finished, as are jobs and nodes.
    pub(crate) actors: Vec<Actor>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) nodes: Vec<Node>,
    /// The first node that was defined with an address.
    pub(super) node_by_ip: HashMap<Symbol, Symbol>,
    pub(crate) log_events: LogEvents,
    pub(crate) task_states: task::States,
    pub(crate) actor_states: actor::States,
    pub(crate) job_states: job::States,
    task_index: HashMap<(Symbol, i64), u32>,
    actor_index: HashMap<Symbol, u32>,
    job_index: HashMap<Symbol, u32>,
    node_index: HashMap<Symbol, u32>,
}

impl Default for Snapshot {
    fn default() -> Self {
        let mut strings = Strings::default();
        let mut state = |name: &str| strings.intern(name);
        let task_states = task::States {
            pending_args: state("PENDING_ARGS_AVAIL"),
            running: state("RUNNING"),
            finished: state("FINISHED"),
            failed: state("FAILED"),
        };
        let actor_states =
            actor::States { alive: state("ALIVE"), restarting: state("RESTARTING"), dead: state("DEAD") };
        let job_states = job::States { created: state("CREATED"), finished: state("FINISHED") };
        Self {
            strings,
            tasks: Vec::new(),
            actors: Vec::new(),
            jobs: Vec::new(),
            nodes: Vec::new(),
            node_by_ip: HashMap::new(),
            log_events: LogEvents::default(),
            task_states,
            actor_states,
            job_states,
            task_index: HashMap::new(),
            actor_index: HashMap::new(),
            job_index: HashMap::new(),
            node_index: HashMap::new(),
        }
    }
}

/// The element of a key, made if it is new.
fn entry<'a, K: std::hash::Hash + Eq, T>(
    elements: &'a mut Vec<T>,
    index: &mut HashMap<K, u32>,
    key: K,
    make: impl FnOnce() -> T,
) -> Option<&'a mut T> {
    let next = u32::try_from(elements.len()).ok()?;
    let position = *index.entry(key).or_insert(next);
    if position == next {
        elements.push(make());
    }
    elements.get_mut(position as usize)
}

impl Snapshot {
    /// The record of an attempt. Tasks without an id are not kept, and neither are nodes.
    pub(super) fn task_entry(&mut self, id: Symbol, attempt: i64) -> Option<&mut Task> {
        if id.is_empty() {
            return None;
        }
        entry(&mut self.tasks, &mut self.task_index, (id, attempt), || Task::new(id, attempt))
    }

    pub(super) fn actor_entry(&mut self, id: Symbol) -> Option<&mut Actor> {
        entry(&mut self.actors, &mut self.actor_index, id, || Actor::new(id))
    }

    pub(super) fn job_entry(&mut self, id: Symbol) -> Option<&mut Job> {
        entry(&mut self.jobs, &mut self.job_index, id, || Job::new(id))
    }

    pub(super) fn node_entry(&mut self, id: Symbol) -> Option<&mut Node> {
        if id.is_empty() {
            return None;
        }
        entry(&mut self.nodes, &mut self.node_index, id, || Node::new(id))
    }

    /// Sorts everything and releases memory that only filling needed.
    pub(crate) fn finish(&mut self) {
        let strings = &self.strings;
        self.tasks.sort_by(|left, right| {
            strings.get(left.id).cmp(strings.get(right.id)).then(left.attempt.cmp(&right.attempt))
        });
        self.actors.sort_by(|left, right| strings.get(left.id).cmp(strings.get(right.id)));
        self.jobs.sort_by(|left, right| strings.get(left.id).cmp(strings.get(right.id)));
        self.nodes.sort_by(|left, right| strings.get(left.id).cmp(strings.get(right.id)));
        for task in &mut self.tasks {
            task.lifecycle.transitions.shrink_to_fit();
        }
        self.tasks.shrink_to_fit();
        self.task_index = HashMap::new();
        self.actor_index = positions(self.actors.iter().map(|it| it.id));
        self.job_index = positions(self.jobs.iter().map(|it| it.id));
        self.node_index = positions(self.nodes.iter().map(|it| it.id));
        self.log_events.finish();
        self.strings.shrink();
    }

    pub(crate) fn text(&self, symbol: Symbol) -> &str {
        self.strings.get(symbol)
    }

    /// The attempts of a task, in order.
    pub(crate) fn attempts(&self, id: &str) -> &[Task] {
        let start = self.tasks.partition_point(|task| self.text(task.id) < id);
        let count = self.tasks[start..].partition_point(|task| self.text(task.id) == id);
        &self.tasks[start..start + count]
    }

    pub(crate) fn actor(&self, id: &str) -> Option<&Actor> {
        let position = self.actor_index.get(&self.strings.find(id)?)?;
        self.actors.get(*position as usize)
    }

    pub(crate) fn job(&self, id: &str) -> Option<&Job> {
        let position = self.job_index.get(&self.strings.find(id)?)?;
        self.jobs.get(*position as usize)
    }

    pub(crate) fn node(&self, id: &str) -> Option<&Node> {
        let position = self.node_index.get(&self.strings.find(id)?)?;
        self.nodes.get(*position as usize)
    }

    /// The id of the first node that was defined with an address.
    pub(crate) fn node_at(&self, ip: &str) -> Option<&str> {
        let node = self.node_by_ip.get(&self.strings.find(ip)?)?;
        Some(self.text(*node))
    }

    /// An estimate of the memory in use.
    pub(crate) fn bytes(&self) -> usize {
        let transitions: usize = self.tasks.iter().map(|task| task.lifecycle.transitions.capacity()).sum();
        let profiles: usize = self
            .tasks
            .iter()
            .filter_map(|task| task.profile.as_ref())
            .map(|it| 64 + it.events.len() * 32)
            .sum();
        self.strings.bytes()
            + self.tasks.capacity() * size_of::<Task>()
            + transitions * size_of::<super::Transition>()
            + profiles
            + self.actors.capacity() * 2 * size_of::<Actor>()
            + self.log_events.bytes()
    }

    /// The members of a JSON object of numbers that is kept as text.
    pub(crate) fn numbers(&self, json: Option<Symbol>) -> BTreeMap<String, f64> {
        json.and_then(|json| serde_json::from_str(self.text(json)).ok()).unwrap_or_default()
    }

    /// The members of a JSON object of strings that is kept as text.
    pub(crate) fn texts(&self, json: Option<Symbol>) -> BTreeMap<String, String> {
        json.and_then(|json| serde_json::from_str(self.text(json)).ok()).unwrap_or_default()
    }
}

fn positions(ids: impl Iterator<Item = Symbol>) -> HashMap<Symbol, u32> {
    ids.zip(0..).collect()
}
