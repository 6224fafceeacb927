//! A stored object: its encoded body and the metadata that selectors and garbage collection read.

use std::{
    borrow::Cow,
    io,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use serde::{Deserialize, Serialize as _};
use serde_json::{
    Serializer, Value,
    ser::{CompactFormatter, Formatter},
};
use tokio::time::Instant;

/// How every stored body begins; what readers need is spliced in after it.
const OPENING: &[u8] = br#"{"metadata":{"#;

/// An object in the version it was written in.
///
/// The body is compact JSON without `apiVersion`, `kind` and `metadata.resourceVersion`, and begins
/// with its metadata: a reader gets the missing fields spliced in and the rest copied as it is.
#[derive(Debug)]
pub struct Entry {
    /// The resource version of the write.
    pub rv: u64,
    /// API version (without the group) of the body.
    pub version: Arc<str>,
    /// The body, see above.
    pub body: Bytes,
    /// Labels and owners.
    pub head: Head,
    /// Which definition of its kind the body was last checked against; 0 if unknown.
    pub epoch: u64,
}

/// The fields that selectors and the collector read of every object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Labels, in the order of their keys.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// The uid of the object.
    pub uid: Box<str>,
    /// The uids of its owners.
    pub owners: Box<[Box<str>]>,
    /// Whether it is being deleted.
    pub is_terminating: bool,
}

impl Head {
    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(name, _)| name.as_ref().cmp(key)).ok()?;
        self.labels.get(at).map(|(_, value)| value.as_ref())
    }

    fn of_metadata(metadata: &Value) -> Self {
        let mut labels: Vec<(Box<str>, Box<str>)> = metadata
            .get("labels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into())))
            .collect();
        labels.sort();
        let owners = metadata.get("ownerReferences").and_then(Value::as_array).into_iter().flatten();
        Self {
            labels: labels.into(),
            uid: metadata.get("uid").and_then(Value::as_str).unwrap_or_default().into(),
            owners: owners.filter_map(|owner| Some(owner.get("uid")?.as_str()?.into())).collect(),
            is_terminating: metadata.get("deletionTimestamp").is_some(),
        }
    }

    /// Reads the head out of a stored body, without looking at the rest.
    pub(super) fn of_body(body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Outer {
            #[serde(default)]
            metadata: Value,
        }
        match serde_json::from_slice::<Outer>(body) {
            Ok(outer) => Self::of_metadata(&outer.metadata),
            Err(error) => {
                tracing::error!("a stored object has no readable metadata: {error}");
                Self::default()
            }
        }
    }
}

/// An object on its way into the store.
#[derive(Clone, Debug)]
pub struct Put {
    pub(crate) version: Arc<str>,
    pub(crate) body: Bytes,
    pub(crate) head: Head,
    pub(crate) epoch: u64,
}

impl Put {
    /// Encodes an object. Its `apiVersion`, `kind` and resource version are left out.
    pub fn new(version: Arc<str>, object: &Value, epoch: u64) -> Self {
        let empty = Value::Object(serde_json::Map::new());
        let metadata = object.get("metadata").unwrap_or(&empty);
        let mut body = Vec::with_capacity(1024);
        body.extend_from_slice(OPENING);
        let mut is_first = true;
        for (key, value) in metadata.as_object().into_iter().flatten() {
            if key != "resourceVersion" {
                member(&mut body, &mut is_first, key, value);
            }
        }
        body.push(b'}');
        is_first = false;
        for (key, value) in object.as_object().into_iter().flatten() {
            if !matches!(key.as_str(), "metadata" | "apiVersion" | "kind") {
                member(&mut body, &mut is_first, key, value);
            }
        }
        body.push(b'}');
        // It is kept for long: without the room that it grew into.
        body.shrink_to_fit();
        Self { version, body: body.into(), head: Head::of_metadata(metadata), epoch }
    }
}

fn member(out: &mut Vec<u8>, is_first: &mut bool, key: &str, value: &Value) {
    if !std::mem::take(is_first) {
        out.push(b',');
    }
    // Writing JSON of a value into memory cannot fail.
    let _ = serde_json::to_writer(&mut *out, key);
    out.push(b':');
    let _ = value.serialize(&mut Serializer::with_formatter(out, WholeNumbers));
}

/// Writes floats as Go does: whole ones without a fraction. Go's clients do not distinguish them from integers, so that both
/// have to be the same here, too.
struct WholeNumbers;

impl Formatter for WholeNumbers {
    fn write_f64<W: io::Write + ?Sized>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        if value.fract() == 0.0 && value.abs() < 1e21 {
            write!(writer, "{value}")
        } else {
            CompactFormatter.write_f64(writer, value)
        }
    }
}

impl Entry {
    /// The whole object as JSON, with the given type; without type fields if `None`, as in lists of
    /// built-in kinds.
    pub fn write_json(&self, out: &mut Vec<u8>, type_meta: Option<(&str, &str)>) {
        out.push(b'{');
        if let Some((api_version, kind)) = type_meta {
            out.extend_from_slice(br#""kind":""#);
            out.extend_from_slice(kind.as_bytes());
            out.extend_from_slice(br#"","apiVersion":""#);
            out.extend_from_slice(api_version.as_bytes());
            out.extend_from_slice(br#"","#);
        }
        let rest = self.body.strip_prefix(OPENING).unwrap_or(&self.body);
        out.extend_from_slice(br#""metadata":{"resourceVersion":""#);
        out.extend_from_slice(self.rv.to_string().as_bytes());
        out.push(b'"');
        if rest.first() != Some(&b'}') {
            out.push(b',');
        }
        out.extend_from_slice(rest);
    }

    /// The stored body as a value: the object without its type and resource version.
    pub(crate) fn parse(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            // Bodies are encoded by this program and checksummed on disk.
            tracing::error!("the stored object of version {} is no JSON: {error}", self.rv);
            Value::Null
        })
    }

    /// The object as a value, with its type and resource version.
    pub fn to_value(&self, api_version: &str, kind: &str) -> Value {
        let mut value = self.parse();
        if let Some(object) = value.as_object_mut() {
            object.insert("apiVersion".into(), api_version.into());
            object.insert("kind".into(), kind.into());
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.insert("resourceVersion".into(), self.rv.to_string().into());
            }
        }
        value
    }
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeType {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// It is gone.
    Deleted,
}

/// One change, as watchers see it.
#[derive(Debug)]
pub struct Event {
    /// Resource version of the change.
    pub rv: u64,
    /// What happened.
    pub change: ChangeType,
    /// `namespace/name`, or the name of a cluster-wide object.
    pub key: Arc<str>,
    /// The object after the change; for a deletion the last state, under the version of the deletion.
    pub entry: Arc<Entry>,
    /// The object before.
    pub previous: Option<Arc<Entry>>,
    /// When it was published.
    pub at: Instant,
    /// The event as plain watchers read it, encoded by the first of them.
    pub frame: OnceLock<Bytes>,
}

/// Splits a key into namespace (empty if there is none) and name.
pub fn split_key(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

/// The key of an object.
pub fn key_of(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// Text that is shared when it is one of the few common words.
pub(super) fn shared(text: &str) -> Arc<str> {
    static V1: std::sync::LazyLock<Arc<str>> = std::sync::LazyLock::new(|| "v1".into());
    if text == "v1" { Arc::clone(&V1) } else { Cow::Borrowed(text).into() }
}
