//! Driver jobs.

use super::decode::{Reader, members, moment, set};
use super::strings::Symbol;
use super::{Transition, merge};
use crate::json::{Fault, Scanner};

/// A driver job.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) id: Symbol,
    pub(crate) definition: Definition,
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
        }
    }
}

impl Job {
    pub(crate) fn new(id: Symbol) -> Self {
        Self { id, definition: Definition::default(), transitions: Vec::new(), started: None, ended: None }
    }

    /// The submission id: that of the event, or that of the metadata.
    pub(crate) fn submission(&self) -> Symbol {
        let definition = &self.definition;
        if definition.submission.is_empty() { definition.metadata_submission } else { definition.submission }
    }

    pub(super) fn define(&mut self, definition: Definition) {
        self.definition = definition;
    }

    pub(super) fn advance(&mut self, added: Vec<Transition>, states: States) {
        merge(&mut self.transitions, added, |it| *it);
        if let Some(created) = self.transitions.iter().find(|it| it.state == states.created) {
            self.started.get_or_insert(created.time);
        }
        if let Some(last) = self.transitions.last().filter(|last| last.state == states.finished) {
            self.ended = Some(last.time);
        }
    }
}

/// Reads the payload of a definition event.
pub(super) fn read_definition(
    reader: &mut Reader<'_>,
    scanner: &mut Scanner<'_>,
) -> Result<(Symbol, Definition), Fault> {
    let mut id = Symbol::EMPTY;
    let mut it = Definition::default();
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
        }),
        "runtimeenv" => |scanner: &mut Scanner<'_>| -> Result<(), Fault> {
            match scanner.peek()? {
                b'{' => {
                    let value: serde_json::Value =
                        serde_json::from_slice(scanner.skip()?).map_err(|_| Fault::Type)?;
                    it.runtime_env = Some(reader.strings.intern(&value.to_string()));
                    Ok(())
                }
                b'n' => scanner.skip().map(drop),
                _ => scanner.wrong_type(),
            }
        },
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
    Ok((id, it))
}

/// Reads the payload of a lifecycle event.
pub(super) fn read_lifecycle(
    reader: &mut Reader<'_>,
    scanner: &mut Scanner<'_>,
) -> Result<(Symbol, Vec<Transition>), Fault> {
    let mut id = Symbol::EMPTY;
    let mut transitions = Vec::new();
    members!(scanner, {
        "jobid" => |scanner: &mut _| reader.id(scanner, &mut id),
        "statetransitions" => |scanner: &mut Scanner<'_>| scanner.array_or_null(|scanner| {
            let mut it = Transition { time: i64::MIN, state: Symbol::EMPTY };
            members!(scanner, {
                "state" => |scanner: &mut _| reader.text(scanner, &mut it.state),
                "timestamp" => |scanner: &mut _| moment(scanner).map(|time| set(&mut it.time, time)),
            })?;
            transitions.push(it);
            Ok(())
        }),
    })?;
    if transitions.is_empty() {
        return Err(Fault::Type);
    }
    Ok((id, transitions))
}
