//! Exported events: which payload an event carries, and where it goes.

use super::decode::{Reader, loose_object, loose_text};
use super::ids;
use super::snapshot::Snapshot;
use super::task::{self, ProfilePayload};
use super::{actor, job, node};
use crate::json::{Fault, Scanner, Writer, sorted};

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
const NODE_DEFINITION: usize = 8;

impl Snapshot {
    /// Takes one event, a JSON object. Events that are malformed, of unknown kinds or of wrong types change nothing.
    pub(crate) fn ingest(&mut self, event: &[u8]) -> Result<(), Fault> {
        let mut scanner = Scanner::new(event);
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
        scanner.end()?;
        if scanner.take_too_large().is_some() {
            return Err(Fault::Type);
        }
        let Some(index) = PAYLOADS.iter().position(|(known, _)| Some(*known) == kind.as_deref()) else {
            return Ok(());
        };
        if let Some(payload) = payloads[index].filter(|_| index == NODE_DEFINITION) {
            self.note_address(payload)?;
        }
        match payloads[index] {
            Some(payload) if payload.first() == Some(&b'{') => self.take(index, payload),
            // As upstream: nothing is a definition of which nothing is known.
            Some(b"null") if matches!(index, ACTOR_DEFINITION | JOB_DEFINITION) => self.take(index, b"{}"),
            _ => Err(Fault::Type),
        }
    }

    fn take(&mut self, index: usize, payload: &[u8]) -> Result<(), Fault> {
        match self.take_from(index, &mut Scanner::strict(payload)) {
            Err(Fault::Repeated) => {
                // As upstream, which sorts the members before it reads them.
                let mut writer = Writer::new();
                sorted(&mut Scanner::new(payload), &mut writer)?;
                self.take_from(index, &mut Scanner::new(&writer.into_bytes()))
            }
            taken => taken,
        }
    }

    /// Notes which node has an address. As upstream, this needs no more than the two of a definition: the rest of it may be
    /// malformed.
    fn note_address(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let (mut ip, mut id) = (None, None);
        loose_object(&mut Scanner::new(payload), |scanner, name| {
            match name {
                "nodeIpAddress" => ip = loose_text(scanner)?,
                "nodeId" => id = loose_text(scanner)?,
                _ => drop(scanner.skip()?),
            }
            Ok(())
        })?;
        if let (Some(ip), Some(Ok(id))) = (ip, id.as_deref().map(ids::checked)) {
            let (ip, id) = (self.strings.intern(&ip), self.strings.intern(&id));
            self.node_by_ip.entry(ip).or_insert(id);
        }
        Ok(())
    }

    fn take_from(&mut self, index: usize, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        let mut reader = Reader::new(&mut self.strings);
        match index {
            0 | 1 => {
                let event = task::Payload::read(&mut reader, scanner, index == 1)?;
                if let Some(task) = self.task_entry(event.id, event.attempt) {
                    task.define(event);
                }
            }
            2 => {
                let event = task::Payload::read(&mut reader, scanner, false)?;
                if event.is_lifeless() {
                    return Err(Fault::Type);
                }
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
                let (id, definition, transitions) = job::read_definition(&mut reader, scanner)?;
                if let Some(job) = self.job_entry(id) {
                    job.define(definition, transitions);
                }
            }
            7 => {
                let (id, transitions) = job::read_lifecycle(&mut reader, scanner)?;
                let states = self.job_states;
                if let Some(job) = self.job_entry(id) {
                    job.advance(transitions, states);
                }
            }
            NODE_DEFINITION => {
                let (id, definition, transitions) = node::read(&mut reader, scanner)?;
                if let Some(node) = self.node_entry(id) {
                    node.define(definition, transitions);
                }
            }
            _ => {
                let (id, _, transitions) = node::read(&mut reader, scanner)?;
                if transitions.is_empty() {
                    return Err(Fault::Type);
                }
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
        if scanner.take_too_large().is_some() {
            return Err(Fault::Type);
        }
        for event in events {
            // One bad event does not spoil the others.
            let _ = self.ingest(event);
        }
        Ok(())
    }
}
