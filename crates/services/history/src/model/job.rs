//! Driver jobs.

use super::decode::{Reader, loose_array, loose_moment, loose_object, members, moment, set, transition};
use super::strings::Symbol;
use super::time::{UNKNOWN, known};
use super::{Transition, merge};
use crate::json::{Fault, Scanner};

/// A driver job.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) id: Symbol,
    pub(crate) definition: Definition,
    pub(crate) state: Symbol,
    pub(crate) transitions: Vec<Transition>,
    pub(crate) started: Option<i64>,
    pub(crate) ended: Option<i64>,
}

/// What a definition event says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Definition {
    pub(crate) submission: Symbol,
    pub(crate) kind: Symbol,
    pub(crate) status: Symbol,
    pub(crate) entrypoint: Symbol,
    pub(crate) message: Symbol,
    pub(crate) error_type: Symbol,
    /// JSON of an object.
    pub(crate) metadata: Option<Symbol>,
    /// The submission that the metadata name.
    pub(crate) metadata_submission: Symbol,
    /// JSON of an object.
    pub(crate) runtime_env: Option<Symbol>,
    pub(crate) agent_address: Symbol,
    pub(crate) node: Symbol,
    pub(crate) node_ip: Symbol,
    pub(crate) exit_code: i64,
    pub(crate) pid: Symbol,
    /// The last of its status transitions; empty without any.
    pub(crate) last_status: Symbol,
    state: Symbol,
    started: Option<i64>,
    ended: Option<i64>,
}

/// States that matter, interned once for a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct States {
    pub(crate) created: Symbol,
    pub(crate) finished: Symbol,
}

impl Default for Definition {
    fn default() -> Self {
        let none = Symbol::EMPTY;
        Self {
            submission: none,
            kind: none,
            status: none,
            entrypoint: none,
            message: none,
            error_type: none,
            metadata: None,
            metadata_submission: none,
            runtime_env: None,
            agent_address: none,
            node: none,
            node_ip: none,
            exit_code: 0,
            pid: none,
            last_status: none,
            state: none,
            started: None,
            ended: None,
        }
    }
}

impl Job {
    pub(crate) fn new(id: Symbol) -> Self {
        Self {
            id,
            definition: Definition::default(),
            state: Symbol::EMPTY,
            transitions: Vec::new(),
            started: None,
            ended: None,
        }
    }

    /// The submission id: that of the event, or that of the metadata.
    pub(crate) fn submission(&self) -> Symbol {
        let definition = &self.definition;
        if definition.submission.is_empty() { definition.metadata_submission } else { definition.submission }
    }

    pub(super) fn define(&mut self, definition: Definition, transitions: Vec<Transition>) {
        self.definition = definition;
        // What lifecycle events said stays.
        if self.transitions.is_empty() {
            self.state = definition.state;
            self.transitions = transitions;
            self.started = definition.started;
            self.ended = definition.ended;
        }
    }

    pub(super) fn advance(&mut self, added: Vec<Transition>, states: States) {
        merge(&mut self.transitions, added, |it| *it);
        self.state = self.transitions.last().map_or(Symbol::EMPTY, |last| last.state);
        if let Some(created) = self.transitions.iter().find(|it| it.state == states.created) {
            self.started = self.started.or_else(|| known(created.time));
        }
        if let Some(last) = self.transitions.last().filter(|last| last.state == states.finished) {
            self.ended = known(last.time);
        }
    }
}

/// Reads the payload of a definition event.
pub(super) fn read_definition(
    reader: &mut Reader<'_>,
    scanner: &mut Scanner<'_>,
) -> Result<(Symbol, Definition, Vec<Transition>), Fault> {
    let mut id = Symbol::EMPTY;
    let mut it = Definition::default();
    let mut transitions = Vec::new();
    members!(scanner, {
        "jobid" => |scanner: &mut _| reader.id(scanner, &mut id),
        "submissionid" => |scanner: &mut _| reader.text(scanner, &mut it.submission),
        "type" => |scanner: &mut _| reader.text(scanner, &mut it.kind),
        "status" => |scanner: &mut _| reader.text(scanner, &mut it.status),
        "entrypoint" => |scanner: &mut _| reader.text(scanner, &mut it.entrypoint),
        "message" => |scanner: &mut _| reader.text(scanner, &mut it.message),
        "errortype" => |scanner: &mut _| reader.text(scanner, &mut it.error_type),
        "config" => |scanner: &mut Scanner<'_>| members!(scanner, {
            "metadata" => |scanner: &mut Scanner<'_>| reader.texts(scanner, &mut it.metadata),
            "serializedruntimeenv" => |scanner: &mut Scanner<'_>| scanner.text().map(drop),
        }),
        "runtimeenv" => |scanner: &mut _| reader.texts(scanner, &mut it.runtime_env),
        "statustransitions" => |scanner: &mut Scanner<'_>| {
            it.last_status = Symbol::EMPTY;
            scanner.array_or_null(|scanner| {
                it.last_status = Symbol::EMPTY;
                members!(scanner, {
                    "status" => |scanner: &mut _| reader.text(scanner, &mut it.last_status),
                    "timestamp" => |scanner: &mut _| moment(scanner).map(drop),
                })
            })
        },
        "statetransitions" => |scanner: &mut Scanner<'_>| {
            transitions.clear();
            scanner.array_or_null(|scanner| {
                transitions.push(transition(reader, scanner)?);
                Ok(())
            })
        },
        "state" => |scanner: &mut _| reader.text(scanner, &mut it.state),
        "starttime" => |scanner: &mut _| moment(scanner).map(|time| it.started = time.and_then(known)),
        "endtime" => |scanner: &mut _| moment(scanner).map(|time| it.ended = time.and_then(known)),
        "driveragenthttpaddress" => |scanner: &mut _| reader.text(scanner, &mut it.agent_address),
        "drivernodeid" => |scanner: &mut _| reader.id(scanner, &mut it.node),
        "drivernodeipaddress" => |scanner: &mut _| reader.text(scanner, &mut it.node_ip),
        "driverexitcode" => |scanner: &mut Scanner<'_>| scanner.integer().map(|code| set(&mut it.exit_code, code)),
        "driverpid" => |scanner: &mut _| reader.text(scanner, &mut it.pid),
    })?;
    if let Some(metadata) = it.metadata {
        let submission = super::task::extra_text(reader.strings.get(metadata), "job_submission_id");
        it.metadata_submission = reader.strings.intern(&submission.unwrap_or_default());
    }
    Ok((id, it, transitions))
}

/// Reads the payload of a lifecycle event. Names count in their exact case, and values of wrong types as absent.
pub(super) fn read_lifecycle(
    reader: &mut Reader<'_>,
    scanner: &mut Scanner<'_>,
) -> Result<(Symbol, Vec<Transition>), Fault> {
    let mut id = Symbol::EMPTY;
    let mut transitions = Vec::new();
    loose_object(scanner, |scanner, name| match name {
        "jobId" => reader.loose_id(scanner, &mut id),
        "stateTransitions" => {
            transitions.clear();
            loose_array(scanner, |scanner| {
                let mut it = Transition { time: UNKNOWN, state: Symbol::EMPTY };
                let is_object = loose_object(scanner, |scanner, name| {
                    match name {
                        "state" => reader.loose_text(scanner, &mut it.state)?,
                        "timestamp" => it.time = loose_moment(scanner)?,
                        _ => drop(scanner.skip()?),
                    }
                    Ok(())
                })?;
                transitions.extend(is_object.then_some(it));
                Ok(())
            })
        }
        _ => scanner.skip().map(drop),
    })?;
    if id.is_empty() || transitions.is_empty() {
        return Err(Fault::Type);
    }
    Ok((id, transitions))
}
