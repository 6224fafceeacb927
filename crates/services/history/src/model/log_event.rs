//! Log events: what Ray's components write to `logs/events/event_*.log`.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

use super::decode::{members, set};
use crate::json::{Fault, Scanner, trimmed};

/// Longer lines are skipped.
pub(crate) const LONGEST_LINE: usize = 2 * 1024 * 1024;

/// Above this many events of a job, only the newest are kept.
const MANY: usize = 11_000;
const KEPT: usize = 10_000;

/// The group of events that belong to no job.
const GLOBAL: &str = "global";

/// A line of such a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogEvent {
    pub(crate) event_id: String,
    source_type: String,
    source_hostname: String,
    source_pid: i64,
    severity: String,
    label: String,
    message: String,
    timestamp: String,
    custom_fields: Option<Map<String, Value>>,
}

/// A whole number without a point or exponent.
fn plain_integer(scanner: &mut Scanner<'_>) -> Result<Option<i64>, Fault> {
    match scanner.skip()? {
        b"null" => Ok(None),
        raw => std::str::from_utf8(raw).ok().and_then(|raw| raw.parse().ok()).map(Some).ok_or(Fault::Type),
    }
}

/// Any value. What is not UTF-8 or half of a surrogate pair becomes U+FFFD.
fn value(scanner: &mut Scanner<'_>) -> Result<Value, Fault> {
    Ok(match scanner.peek()? {
        b'{' => {
            let mut members = Map::new();
            scanner.object(|scanner, name| {
                members.insert(name.to_owned(), value(scanner)?);
                Ok(())
            })?;
            Value::Object(members)
        }
        b'[' => {
            let mut elements = Vec::new();
            scanner.array(|scanner| {
                elements.push(value(scanner)?);
                Ok(())
            })?;
            Value::Array(elements)
        }
        b'"' => Value::String(scanner.text()?.unwrap_or_default().into_owned()),
        _ => serde_json::from_slice(scanner.skip()?).map_err(|_| Fault::Type)?,
    })
}

impl LogEvent {
    /// Reads a line: one object with members of any case.
    fn read(line: &[u8]) -> Result<Self, Fault> {
        let mut it = Self::default();
        let mut scanner = Scanner::new(line);
        let text = |scanner: &mut Scanner<'_>, target: &mut String| -> Result<(), Fault> {
            set(target, scanner.text()?.map(Into::into));
            Ok(())
        };
        members!(&mut scanner, {
            "event_id" => |scanner: &mut _| text(scanner, &mut it.event_id),
            "source_type" => |scanner: &mut _| text(scanner, &mut it.source_type),
            "source_hostname" => |scanner: &mut _| text(scanner, &mut it.source_hostname),
            "source_pid" => |scanner: &mut Scanner<'_>| -> Result<(), Fault> {
                set(&mut it.source_pid, plain_integer(scanner)?);
                Ok(())
            },
            "severity" => |scanner: &mut _| text(scanner, &mut it.severity),
            "label" => |scanner: &mut _| text(scanner, &mut it.label),
            "message" => |scanner: &mut _| text(scanner, &mut it.message),
            "timestamp" => |scanner: &mut _| text(scanner, &mut it.timestamp),
            "custom_fields" => |scanner: &mut Scanner<'_>| -> Result<(), Fault> {
                it.custom_fields = match value(scanner)? {
                    Value::Object(fields) => Some(fields),
                    Value::Null => None,
                    _ => return Err(Fault::Type),
                };
                Ok(())
            },
        })?;
        scanner.end()?;
        Ok(it)
    }

    /// The time as Go reads it: what is no number is 0, and what is out of range the limit.
    fn seconds(&self) -> i64 {
        use std::num::IntErrorKind::{NegOverflow, PosOverflow};
        self.timestamp.parse::<i64>().unwrap_or_else(|error| match error.kind() {
            PosOverflow => i64::MAX,
            NegOverflow => i64::MIN,
            _ => 0,
        })
    }

    /// The event as it is answered.
    pub(crate) fn encoded(&self) -> Value {
        let mut event = Map::new();
        let texts = [
            ("eventId", &self.event_id),
            ("sourceType", &self.source_type),
            ("sourceHostname", &self.source_hostname),
            ("severity", &self.severity),
            ("label", &self.label),
            ("message", &self.message),
            ("timestamp", &self.timestamp),
        ];
        for (name, text) in texts {
            event.insert(name.to_owned(), Value::String(text.clone()));
        }
        event.insert("sourcePid".to_owned(), self.source_pid.into());
        if let Some(fields) = &self.custom_fields {
            event.insert("customFields".to_owned(), camel_keys(&Value::Object(fields.clone())));
        }
        Value::Object(event)
    }
}

/// Log events by job.
#[derive(Default)]
pub(crate) struct LogEvents {
    jobs: BTreeMap<String, Vec<LogEvent>>,
    positions: HashMap<(String, String), usize>,
    bytes: usize,
}

impl LogEvents {
    /// Takes a line. Lines that are no events change nothing.
    pub(crate) fn ingest(&mut self, line: &[u8]) {
        // With its line feed.
        if line.len() >= LONGEST_LINE {
            return;
        }
        let Ok(mut event) = LogEvent::read(trimmed(line)) else { return };
        if event.event_id.is_empty() {
            return;
        }
        event.message = event.message.replace("\\n", "\n").replace("\\r", "\n");
        let job =
            event.custom_fields.as_ref().and_then(|fields| fields.get("job_id")).and_then(Value::as_str);
        let job = job.filter(|job| !job.is_empty()).unwrap_or(GLOBAL).to_owned();
        let events = self.jobs.entry(job.clone()).or_default();
        let key = (job, event.event_id.clone());
        if let Some(known) = self.positions.get(&key).and_then(|position| events.get_mut(*position)) {
            *known = event;
            return;
        }
        self.bytes += line.len() * 2;
        self.positions.insert(key, events.len());
        events.push(event);
        if events.len() > MANY {
            events.sort_by_key(LogEvent::seconds);
            events.drain(..MANY + 1 - KEPT);
            self.index();
        }
    }

    fn index(&mut self) {
        self.positions.clear();
        for (job, events) in &self.jobs {
            for (position, event) in events.iter().enumerate() {
                self.positions.insert((job.clone(), event.event_id.clone()), position);
            }
        }
    }

    /// Sorts the events by time, and by id where times are equal.
    pub(super) fn finish(&mut self) {
        self.positions = HashMap::new();
        for events in self.jobs.values_mut() {
            events.sort_by(|left, right| {
                left.seconds().cmp(&right.seconds()).then_with(|| left.event_id.cmp(&right.event_id))
            });
        }
    }

    pub(crate) fn jobs(&self) -> &BTreeMap<String, Vec<LogEvent>> {
        &self.jobs
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Turns the names of all members from snake case into camel case.
fn camel_keys(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            members.iter().map(|(name, value)| (camel(name), camel_keys(value))).collect::<Map<_, _>>().into()
        }
        // As upstream: lists in lists stay as they are.
        Value::Array(elements) => {
            let each = |it: &Value| if it.is_object() { camel_keys(it) } else { it.clone() };
            elements.iter().map(each).collect()
        }
        other => other.clone(),
    }
}

fn camel(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    for (index, word) in name.split('_').enumerate() {
        let mut characters = word.chars();
        match characters.next() {
            Some(first) if index > 0 => {
                camel.extend(first.to_uppercase());
                camel.push_str(characters.as_str());
            }
            _ => camel.push_str(word),
        }
    }
    camel
}

#[cfg(test)]
mod tests {
    use super::{LogEvents, camel};

    #[test]
    fn names_become_camel_case() {
        let cases = [
            ("job_id", "jobId"),
            ("__x", "X"),
            ("trailing_", "trailing"),
            ("Already_Camel", "AlreadyCamel"),
            ("a_b_c", "aBC"),
        ];
        for (snake, expected) in cases {
            assert_eq!(camel(snake), expected);
        }
    }

    #[test]
    fn events_of_a_job_are_bounded_and_unique() {
        let mut events = LogEvents::default();
        for number in 0..12_000 {
            let line = format!(r#"{{"event_id":"e{number}","timestamp":"{number}"}}"#);
            events.ingest(line.as_bytes());
        }
        events.ingest(br#"{"event_id":"e11999","timestamp":"11999","message":"replaced"}"#);
        events.finish();
        let kept = &events.jobs()["global"];
        assert!(kept.len() <= 11_000, "{}", kept.len());
        assert_eq!(kept.last().map(|event| event.message.as_str()), Some("replaced"));
        assert_eq!(kept.last().map(super::LogEvent::seconds), Some(11_999));
    }
}
