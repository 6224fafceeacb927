//! Exported events: which payload an event carries, and where it goes.

use super::decode::Reader;
use super::snapshot::Snapshot;
use super::task::{DefinitionEvent, LifecycleEvent, ProfilePayload};
use super::{actor, job, node};
use crate::json::{Fault, Scanner};

/// Kinds of events that are read, and the member that holds the payload.
const PAYLOADS: [(&str, &str); 10] = [
    ("TASK_DEFINITION_EVENT", "taskDefinitionEvent"),
    ("ACTOR_TASK_DEFINITION_EVENT", "actorTaskDefinitionEvent"),
    ("TASK_LIFECYCLE_EVENT", "taskLifecycleEvent"),
    ("TASK_PROFILE_EVENT", "taskProfileEvents"),
    ("ACTOR_DEFINITION_EVENT", "actorDefinitionEvent"),
    ("ACTOR_LIFECYCLE_EVENT", "actorLifecycleEvent"),
    ("DRIVER_JOB_DEFINITION_EVENT", "driverJobDefinitionEvent"),
    ("DRIVER_JOB_LIFECYCLE_EVENT", "driverJobLifecycleEvent"),
    ("NODE_DEFINITION_EVENT", "nodeDefinitionEvent"),
    ("NODE_LIFECYCLE_EVENT", "nodeLifecycleEvent"),
];

/// Places in the list above.
const ACTOR_DEFINITION: usize = 4;
const JOB_DEFINITION: usize = 6;

impl Snapshot {
    /// Takes one event, a JSON object. Events that are malformed, of unknown kinds or of wrong types change nothing.
    pub(crate) fn ingest(&mut self, event: &[u8]) -> Result<(), Fault> {
        let mut scanner = Scanner::new(event);
        self.ingest_next(&mut scanner)?;
        scanner.end()
    }

    fn ingest_next(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        let mut kind = None;
        let mut payloads: [Option<&[u8]>; PAYLOADS.len()] = [None; PAYLOADS.len()];
        scanner.object(|scanner, name| {
            if name == "eventType" {
                kind = scanner.text()?;
                return Ok(());
            }
            let payload = scanner.skip()?;
            if let Some(index) = PAYLOADS.iter().position(|(_, member)| *member == name) {
                payloads[index] = Some(payload);
            }
            Ok(())
        })?;
        let Some(index) = PAYLOADS.iter().position(|(known, _)| Some(*known) == kind.as_deref()) else {
            return Ok(());
        };
        match payloads[index] {
            Some(payload) if payload.first() == Some(&b'{') => self.take(index, payload),
            // As upstream: nothing is a definition of which nothing is known.
            Some(b"null") if matches!(index, ACTOR_DEFINITION | JOB_DEFINITION) => self.take(index, b"{}"),
            _ => Err(Fault::Type),
        }
    }

    fn take(&mut self, index: usize, payload: &[u8]) -> Result<(), Fault> {
        let scanner = &mut Scanner::new(payload);
        let mut reader = Reader::new(&mut self.strings);
        match index {
            0 | 1 => {
                let event = DefinitionEvent::read(&mut reader, scanner, index == 1)?;
                if let Some(task) = self.task_entry(event.id, event.attempt) {
                    task.define(event);
                }
            }
            2 => {
                let event = LifecycleEvent::read(&mut reader, scanner)?;
                let states = self.task_states;
                if let Some(task) = self.task_entry(event.id, event.attempt) {
                    task.advance(event, states);
                }
            }
            3 => {
                let event = ProfilePayload::read(&mut reader, scanner)?;
                if let Some(task) = self.task_entry(event.id, event.attempt) {
                    task.add_profile(event);
                }
            }
            ACTOR_DEFINITION => {
                let (id, definition) = actor::read_definition(&mut reader, scanner)?;
                if let Some(actor) = self.actor_entry(id) {
                    actor.define(definition);
                }
            }
            5 => {
                let (id, transitions) = actor::read_lifecycle(&mut reader, scanner)?;
                let states = self.actor_states;
                if let Some(actor) = self.actor_entry(id) {
                    actor.advance(transitions, states);
                }
            }
            JOB_DEFINITION => {
                let (id, definition) = job::read_definition(&mut reader, scanner)?;
                if let Some(job) = self.job_entry(id) {
                    job.define(definition);
                }
            }
            7 => {
                let (id, transitions) = job::read_lifecycle(&mut reader, scanner)?;
                let states = self.job_states;
                if let Some(job) = self.job_entry(id) {
                    job.advance(transitions, states);
                }
            }
            8 => {
                let (id, definition) = node::read_definition(&mut reader, scanner)?;
                if let Some(node) = self.node_entry(id) {
                    node.define(definition);
                    self.node_by_ip.entry(definition.ip).or_insert(id);
                }
            }
            _ => {
                let (id, transitions) = node::read_lifecycle(&mut reader, scanner)?;
                if let Some(node) = self.node_entry(id) {
                    node.advance(transitions);
                }
            }
        }
        Ok(())
    }

    /// Takes a JSON array of events, as older collectors stored them. An array that is malformed, or that holds anything
    /// but objects, changes nothing.
    pub(crate) fn ingest_array(&mut self, array: &[u8]) -> Result<(), Fault> {
        let mut events = Vec::new();
        let mut scanner = Scanner::new(array);
        scanner.array(|scanner| {
            match scanner.peek()? {
                b'{' => events.push(scanner.skip()?),
                b'n' => drop(scanner.skip()?),
                _ => return scanner.wrong_type(),
            }
            Ok(())
        })?;
        scanner.end()?;
        for event in events {
            // One bad event does not spoil the others.
            let _ = self.ingest(event);
        }
        Ok(())
    }
}
