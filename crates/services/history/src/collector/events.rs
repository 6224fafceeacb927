//! Batches of events: checked as a whole before any of them is written.

use std::borrow::Cow;

use crate::json::{Fault, Scanner};
use crate::model::{ids, time};

/// Payloads that name the job of an event, in the order they are looked at.
const PAYLOADS: [&str; 7] = [
    "driverJobDefinitionEvent",
    "driverJobLifecycleEvent",
    "taskDefinitionEvent",
    "taskLifecycleEvent",
    "taskProfileEvents",
    "actorTaskDefinitionEvent",
    "actorDefinitionEvent",
];

/// Events of nodes, whatever their payloads name.
const NODE_EVENTS: [&str; 2] = ["NODE_LIFECYCLE_EVENT", "NODE_DEFINITION_EVENT"];

/// Longer identifiers make names that file systems refuse.
const LONGEST_ID: usize = 200;

/// An event of a batch.
#[derive(Debug)]
pub(super) struct Event<'a> {
    pub(super) session: Cow<'a, str>,
    /// Where it is stored: `node_events` or `job_events/JOB`.
    pub(super) category: Cow<'static, str>,
    raw: &'a [u8],
}

impl Event<'_> {
    /// Appends the event as one line.
    pub(super) fn write(&self, lines: &mut Vec<u8>) {
        if self.raw.contains(&b'\n') {
            compact(self.raw, lines);
        } else if std::str::from_utf8(self.raw).is_ok() {
            lines.extend_from_slice(self.raw);
        } else {
            lines.extend_from_slice(String::from_utf8_lossy(self.raw).as_bytes());
        }
        lines.push(b'\n');
    }
}

/// Leaves out white space between values.
fn compact(raw: &[u8], lines: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(raw);
    let (mut in_string, mut is_escaped) = (false, false);
    for byte in text.bytes() {
        if in_string {
            lines.push(byte);
            in_string = is_escaped || byte != b'"';
            is_escaped = !is_escaped && byte == b'\\';
        } else if !byte.is_ascii_whitespace() {
            lines.push(byte);
            in_string = byte == b'"';
        }
    }
}

struct Read<'a> {
    raw: &'a [u8],
    timestamp: Option<Cow<'a, str>>,
    session: Option<Cow<'a, str>>,
    kind: Option<Cow<'a, str>>,
    jobs: [Option<&'a [u8]>; PAYLOADS.len()],
}

/// Reads a batch. The error is what to tell the sender.
pub(super) fn parse(body: &[u8]) -> Result<Vec<Event<'_>>, String> {
    let mut scanner = Scanner::new(body);
    let mut type_error = None;
    let mut read: Vec<Read<'_>> = Vec::new();
    let scanned = match scanner.peek() {
        Ok(b'[') => scanner.array(|scanner| {
            let first = scanner.peek()?;
            if first == b'{' {
                read.push(read_event(scanner)?);
                if type_error.is_none() {
                    type_error = scanner.take_too_large();
                }
                return Ok(());
            }
            let raw = scanner.skip()?;
            // Only numbers of events are read.
            scanner.take_too_large();
            if first == b'n' {
                read.push(Read {
                    raw,
                    timestamp: None,
                    session: None,
                    kind: None,
                    jobs: [None; PAYLOADS.len()],
                });
            } else {
                type_error.get_or_insert_with(|| wrong_type(first, "map[string]interface {}"));
            }
            Ok(())
        }),
        Ok(first) => scanner.skip().map(|_| {
            if first != b'n' {
                type_error = Some(wrong_type(first, "[]map[string]interface {}"));
            }
        }),
        Err(fault) => Err(fault),
    };
    match scanned.and_then(|()| scanner.end()) {
        Err(Fault::Syntax(message)) => return Err(message),
        Err(Fault::Type | Fault::Repeated) => return Err("an event has a member of a wrong type".to_owned()),
        Ok(()) => {}
    }
    if let Some(message) = type_error {
        return Err(message);
    }
    read.into_iter().map(check).collect()
}

fn read_event<'a>(scanner: &mut Scanner<'a>) -> Result<Read<'a>, Fault> {
    let start = scanner.rest();
    let (mut timestamp, mut session, mut kind) = (None, None, None);
    let mut jobs = [None; PAYLOADS.len()];
    let text = |scanner: &mut Scanner<'a>| -> Result<Option<Cow<'a, str>>, Fault> {
        if scanner.peek()? == b'"' {
            return scanner.text();
        }
        scanner.skip().map(|_| None)
    };
    scanner.object(|scanner, name| {
        match name {
            "timestamp" => timestamp = text(scanner)?,
            "sessionName" => session = text(scanner)?,
            "eventType" => kind = text(scanner)?,
            other => match PAYLOADS.iter().position(|payload| *payload == other) {
                Some(index) if scanner.peek()? == b'{' => {
                    jobs[index] = None;
                    scanner.object(|scanner, name| {
                        let raw = scanner.skip()?;
                        if name == "jobId" {
                            jobs[index] = Some(raw);
                        }
                        Ok(())
                    })?;
                }
                _ => drop(scanner.skip()?),
            },
        }
        Ok(())
    })?;
    let raw = start[..start.len() - scanner.rest().len()].trim_ascii_end();
    Ok(Read { raw, timestamp, session, kind, jobs })
}

fn check(read: Read<'_>) -> Result<Event<'_>, String> {
    let timestamp = read.timestamp.ok_or("timestamp not found")?;
    let session = read.session.ok_or("sessionName not found")?;
    if !is_safe(&session) || session.len() > LONGEST_ID {
        return Err("invalid sessionName".to_owned());
    }
    time::parse(&timestamp)?;
    let is_of_node = read.kind.as_deref().is_some_and(|kind| NODE_EVENTS.contains(&kind));
    // The first payload that names one decides, also with a name that cannot be used.
    let job = read.jobs.into_iter().flatten().find(|raw| *raw != b"\"\"").map(job_id);
    let category = match job.filter(|job| !is_of_node && is_safe(job)) {
        Some(job) if job.len() > LONGEST_ID => return Err("invalid jobId: it is too long".to_owned()),
        Some(job) => Cow::Owned(format!("job_events/{job}")),
        None => Cow::Borrowed("node_events"),
    };
    Ok(Event { session, category, raw: read.raw })
}

/// The normal form of a job id, which may be of any type: upstream prints the value first. Empty if it is none.
fn job_id(raw: &[u8]) -> String {
    match raw.first() {
        Some(b'"') => {
            let id = Scanner::new(raw).text().ok().flatten().unwrap_or_default();
            ids::normalized(&id)
        }
        Some(b'-' | b'0'..=b'9') => {
            let number = Scanner::new(raw).float().ok().flatten().unwrap_or_default();
            if number == 0.0 || (1e-4..1e6).contains(&number.abs()) {
                return ids::normalized(&format!("{number}"));
            }
            // Go prints others with an exponent of at least two digits. Its plus sign makes no path.
            let text = format!("{number:e}");
            match text.split_once("e-") {
                Some((digits, exponent)) => ids::normalized(&format!("{digits}e-{exponent:0>2}")),
                None => String::new(),
            }
        }
        Some(b't' | b'f') => ids::normalized(&String::from_utf8_lossy(raw)),
        _ => String::new(),
    }
}

/// Whether a text can be an element of a path.
pub(super) fn is_safe(text: &str) -> bool {
    !matches!(text, "" | "." | "..")
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

fn wrong_type(first: u8, wanted: &str) -> String {
    let found = match first {
        b'{' => "object",
        b'[' => "array",
        b'"' => "string",
        b't' | b'f' => "bool",
        _ => "number",
    };
    format!("json: cannot unmarshal {found} into Go value of type {wanted}")
}

#[cfg(test)]
mod tests {

    use super::parse;

    fn category(payload: &str) -> String {
        let body = format!(r#"[{{"timestamp":"2026-01-01T00:00:00Z","sessionName":"s",{payload}}}]"#);
        let events = parse(body.as_bytes()).expect("a batch");
        events[0].category.clone().into_owned()
    }

    #[test]
    fn events_go_where_their_jobs_are() {
        let task = |job: &str| {
            format!(r#""eventType":"TASK_DEFINITION_EVENT","taskDefinitionEvent":{{"jobId":{job}}}"#)
        };
        let cases = [
            (task("\"AQAAAA==\""), "job_events/01000000"),
            (task("\"ABCDEF01\""), "job_events/abcdef01"),
            (task("5"), "job_events/5"),
            (task("\"../x\""), "node_events"),
            (task("\"..\""), "node_events"),
            (task("\"\""), "node_events"),
            (task("[\"x\"]"), "node_events"),
            (task("null"), "node_events"),
            (task("1234567"), "node_events"),
            (task("12.50"), "job_events/12.5"),
            (task("0.00001"), "job_events/1e-05"),
            (task("1e21"), "node_events"),
            (task("true"), "job_events/b6bb9e"),
            (
                r#""eventType":"NODE_DEFINITION_EVENT","taskDefinitionEvent":{"jobId":"AQAAAA=="}"#.to_owned(),
                "node_events",
            ),
            (
                r#""eventType":"NODE_X","taskDefinitionEvent":{"jobId":"AQAAAA=="}"#.to_owned(),
                "job_events/01000000",
            ),
            (
                r#""taskDefinitionEvent":{"jobId":"AQAAAA=="},"driverJobDefinitionEvent":{"jobId":"AgAAAA=="}"#
                    .to_owned(),
                "job_events/02000000",
            ),
            (
                r#""taskDefinitionEvent":{"jobId":""},"actorDefinitionEvent":{"jobId":"AgAAAA=="}"#.to_owned(),
                "job_events/02000000",
            ),
            (
                r#""taskDefinitionEvent":{"jobId":null},"actorDefinitionEvent":{"jobId":"AgAAAA=="}"#.to_owned(),
                "node_events",
            ),
            (r#""actorLifecycleEvent":{"jobId":"AQAAAA=="}"#.to_owned(), "node_events"),
            (r#""taskDefinitionEvent":"text""#.to_owned(), "node_events"),
        ];
        for (payload, expected) in cases {
            assert_eq!(category(&payload), expected, "{payload}");
        }
    }

    #[test]
    fn bad_batches_are_refused_as_a_whole() {
        let long = format!(
            r#"[{{"timestamp":"2026-01-01T00:00:00Z","sessionName":"s","taskDefinitionEvent":{{"jobId":"{}"}}}}]"#,
            "a".repeat(300)
        );
        let cases = [
            ("", "unexpected end of JSON input"),
            ("{}", "json: cannot unmarshal object into Go value of type []map[string]interface {}"),
            ("[1]", "json: cannot unmarshal number into Go value of type map[string]interface {}"),
            ("[1e400]", "json: cannot unmarshal number into Go value of type map[string]interface {}"),
            ("[{\"n\":1e400},1]", "json: cannot unmarshal number 1e400 into Go value of type float64"),
            ("[{\"n\":1e400}] x", "invalid character 'x' after top-level value"),
            ("[null]", "timestamp not found"),
            (r#"[{"timestamp":"2026-01-01T00:00:00Z"}]"#, "sessionName not found"),
            (r#"[{"timestamp":"2026-01-01T00:00:00Z","sessionName":"../x"}]"#, "invalid sessionName"),
            (r#"[{"timestamp":"x"}]"#, "sessionName not found"),
            ("[] x", "invalid character 'x' after top-level value"),
            (long.as_str(), "invalid jobId: it is too long"),
        ];
        for (body, expected) in cases {
            assert_eq!(parse(body.as_bytes()).expect_err(body), expected);
        }
        assert!(parse(b"null").is_ok_and(|events| events.is_empty()));
    }

    #[test]
    fn a_line_is_the_event_as_it_came() {
        let body = b"[ {\"timestamp\" : \"2026-01-01T00:00:00Z\",\n \"sessionName\":\"s\", \"x\":\"a \\\" b\", \"n\":9007199254740993} ]";
        let events = parse(body).expect("a batch");
        let mut lines = Vec::new();
        events[0].write(&mut lines);
        let expected = "{\"timestamp\":\"2026-01-01T00:00:00Z\",\"sessionName\":\"s\",\"x\":\"a \\\" b\",\"n\":9007199254740993}\n";
        assert_eq!(String::from_utf8_lossy(&lines), expected);
    }
}
