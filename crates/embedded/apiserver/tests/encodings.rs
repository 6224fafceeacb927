//! Every stored object encodes in every format, and a watch never mixes formats.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use quintet_apiserver::{
    Api, Rng,
    request::body::ResponseBody,
    store::{Expect, Put, Write},
};
use quintet_objects::{
    builtin::{self, Kind},
    protobuf,
    types::{self, Shape, Type},
};
use serde_json::{Map, Value, json};
use support::{Reply, admin, api, send, send_as};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

async fn get(api: &Api, path: &str, accept: &str) -> Reply {
    let request = Request::get(path).header("accept", accept).body(Bytes::new()).unwrap();
    send_as(api, admin(), request).await
}

/// The frames of a protobuf watch: the type of each event.
struct Frames(ResponseBody, Vec<u8>);

impl Frames {
    async fn open(api: &Api, path: &str) -> Self {
        let request = Request::get(path).header("accept", PROTOBUF).body(Bytes::new()).unwrap();
        let response = api.handle(request, admin()).await;
        assert_eq!(response.headers()["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
        Self(response.into_body(), Vec::new())
    }

    /// The next event and its object; `None` at the end of the watch.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((length, rest)) = self.1.split_first_chunk::<4>() {
                let length = usize::try_from(u32::from_be_bytes(*length)).unwrap();
                assert!(length < 8 << 20, "JSON in a stream of protobuf: {}", self.1.escape_ascii());
                if let Some(frame) = rest.get(..length) {
                    let event = event(frame);
                    self.1.drain(..length + 4);
                    return Some(event);
                }
            }
            let frame = tokio::time::timeout(Duration::from_secs(10), self.0.frame());
            let Some(frame) = frame.await.expect("an event in time") else {
                assert!(self.1.is_empty(), "half a frame: {}", self.1.escape_ascii());
                return None;
            };
            self.1.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
    }
}

/// The type and the object of a WatchEvent: `{1: type, 2: {1: enveloped object}}`.
fn event(frame: &[u8]) -> (String, Value) {
    let [0x0a, length, rest @ ..] = frame else { panic!("no event: {}", frame.escape_ascii()) };
    let (kind, rest) = rest.split_at(usize::from(*length));
    let envelope = rest.windows(4).position(|bytes| bytes == protobuf::MAGIC).unwrap();
    (String::from_utf8(kind.to_vec()).unwrap(), protobuf::decode(&rest[envelope..], None).unwrap())
}

async fn store(api: &Api, bucket: &str, key: &str, version: &str, object: &Value) {
    let write = Write {
        bucket: bucket.into(),
        key: key.into(),
        expect: Expect::Absent,
        put: Some(Put::new(version.into(), object, 0)),
        parents: Vec::new(),
    };
    api.store().write(write).await.unwrap();
}

#[tokio::test]
async fn byte_fields_are_stored_as_go_writes_them() {
    let api = api().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let mut events = Frames::open(&api, secrets_watch()).await;
    let secret =
        |name: &str, data: &str| json!({"metadata": {"name": name}, "data": {"key": data, "other": ""}});
    let stored = send(&api, "POST", secrets, secret("lines", "YWJj\nZGVm\r\n")).await.expect(201);
    assert_eq!(stored["data"], json!({"key": "YWJjZGVm", "other": ""}));
    let (kind, object) = events.next().await.unwrap();
    assert_eq!((kind.as_str(), &object["data"]["key"]), ("ADDED", &json!("YWJjZGVm")));
    let patch = json!({"data": {"key": "YW\nJj"}});
    let path = format!("{secrets}/lines");
    let patched = support::send_typed(&api, "PATCH", &path, "application/merge-patch+json", patch).await;
    assert_eq!(patched.expect(200)["data"]["key"], "YWJj");
    assert_eq!(events.next().await.unwrap().1["data"]["key"], "YWJj");
    let refused = send(&api, "POST", secrets, secret("corrupt", "YWJj\nZ!Vm")).await;
    assert_eq!(refused.code, 400, "{}", refused.message());
    assert_eq!(
        refused.message(),
        "Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data at input byte 6"
    );
}

fn secrets_watch() -> &'static str {
    "/api/v1/namespaces/default/secrets?watch=1&resourceVersion=1&fieldSelector=metadata.name%3Dlines"
}

/// Stores can hold what was written before byte fields were normalized, and what nothing can encode.
#[tokio::test]
async fn a_watch_ends_in_its_own_format_when_an_object_cannot_be_encoded() {
    let api = api().await;
    let metadata = |name: &str| json!({"name": name, "namespace": "default", "uid": name});
    let old = json!({"metadata": metadata("old"), "data": {"key": "YWJj\nZGVm\n"}});
    let path = "/api/v1/namespaces/default/secrets?watch=1&resourceVersion=1";
    let (mut frames, mut lines) = (Frames::open(&api, path).await, support::Events::open(&api, path).await);
    store(&api, "core/secrets", "default/old", "v1", &old).await;
    let (kind, object) = frames.next().await.unwrap();
    assert_eq!((kind.as_str(), &object["data"]["key"]), ("ADDED", &json!("YWJjZGVm")));
    lines.next().await.unwrap();
    let broken = json!({"metadata": metadata("broken"), "data": {"key": "not base64"}});
    store(&api, "core/secrets", "default/broken", "v1", &broken).await;
    let (kind, status) = frames.next().await.unwrap();
    assert_eq!((kind.as_str(), &status["kind"], &status["code"]), ("ERROR", &json!("Status"), &json!(500)));
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("unable to encode watch object Secret \"default/broken\""), "{message}");
    assert!(frames.next().await.is_none(), "the watch is over");
    assert_eq!(lines.brief().await, ("ADDED".into(), "broken".into()), "JSON has a form for it");
    let listed = get(&api, "/api/v1/namespaces/default/secrets", PROTOBUF).await;
    assert_eq!(listed.code, 500, "a list is refused for the same reason");
}

const TEXTS: [&str; 64] = [
    "",
    " ",
    "a",
    "a b",
    " leading",
    "trailing ",
    "yes",
    "No",
    "on",
    "OFF",
    "true",
    "False",
    "null",
    "Null",
    "~",
    "1",
    "-1",
    "+1",
    "1.0",
    "1e3",
    "0x1f",
    "0o17",
    "017",
    "1_000",
    "12:30:45",
    "2024-01-01",
    "2024-01-01T00:00:00Z",
    ".nan",
    "-.inf",
    ".5",
    "a: b",
    "a:",
    ": a",
    "- a",
    "-",
    "? a",
    "# c",
    "a #c",
    "'",
    "\"",
    "it's",
    "[",
    "]",
    "{}",
    "<<",
    "=",
    "!tag",
    "&a",
    "*a",
    "|",
    ">",
    "%d",
    "@a",
    "`a`",
    "---",
    "...",
    "two\nlines",
    "\n",
    "end\n\n",
    "\ttab",
    "\r\n",
    "\u{0}\u{7f}\u{85}\u{2028}\u{feff}",
    "\u{1f980} é",
    "\\x",
];

fn one_of<T: Clone>(rng: &Rng, values: &[T]) -> T {
    let at = rng.below(u64::try_from(values.len()).unwrap());
    values[usize::try_from(at).unwrap()].clone()
}

/// An object of a type: every field that decoding accepts, with values that clients send and with stranger ones.
fn structure(kind: &'static Type, rng: &Rng, depth: usize) -> Value {
    let mut fields = Map::new();
    for field in kind.json_fields() {
        if !rng.happens(if depth < 3 { 500 } else { 200 }) {
            continue;
        }
        let mut alone = json!({});
        alone[field.name] = value(&field.shape, rng, depth);
        if types::decode(kind, &mut alone.clone()).is_ok() {
            fields.insert(field.name.into(), alone[field.name].take());
        }
    }
    fields.into()
}

fn value(shape: &Shape, rng: &Rng, depth: usize) -> Value {
    let text = || one_of(rng, &TEXTS);
    match shape {
        _ if rng.happens(30) => Value::Null,
        Shape::Struct(_) if depth > 8 => json!({}),
        Shape::Struct(id) => structure(id.get(), rng, depth + 1),
        Shape::List(element) | Shape::Items(element) => {
            (0..rng.below(3)).map(|_| value(element, rng, depth + 1)).collect()
        }
        Shape::Map(element) => Value::Object(
            (0..rng.below(3)).map(|_| (text().into(), value(element, rng, depth + 1))).collect(),
        ),
        Shape::String | Shape::Duration => text().into(),
        Shape::Bool => rng.happens(500).into(),
        Shape::Int32 | Shape::Int64 | Shape::Uint32 => one_of(
            rng,
            &[json!(0), json!(-1), json!(7.0), json!(i32::MAX), json!(u32::MAX), json!(i64::MIN), json!(1e3)],
        ),
        Shape::Double => one_of(rng, &[json!(0.1), json!(-0.0), json!(1e308), json!(u64::MAX), json!(3)]),
        Shape::Bytes => one_of(rng, &["", "YQ==", "YR==", "Y\nQ=\r=", "YWJj\n", "YQ", "!"].map(Value::from)),
        Shape::Time | Shape::MicroTime => one_of(
            rng,
            &[
                "2026-01-02T03:04:05Z",
                "2026-01-02T03:04:05.123456789+14:00",
                "2026-01-02 03:04:05Z",
                "2026-01-02T03:04Z",
                "0000-01-01T00:00:00+05:00",
                "0001-01-01T00:00:00Z",
                "-000044-03-15T00:00:00Z",
                "9999-12-30T00:00:00Z",
                "",
            ]
            .map(Value::from),
        ),
        Shape::Quantity => one_of(
            rng,
            &[
                json!(0),
                json!(0.5),
                json!("1e3"),
                json!("100m"),
                json!("-1.5Gi"),
                json!("1n"),
                json!("9223372036854775807"),
                json!("0.1E"),
                json!(""),
            ],
        ),
        Shape::IntOrString => one_of(rng, &[json!(5), json!(-1), json!("50%"), json!(text()), json!(1.0)]),
        Shape::Raw | Shape::Json | Shape::Fields => {
            one_of(rng, &[json!({}), json!({"a": [1, {"b": text()}]}), json!(text()), json!(3), json!([])])
        }
        Shape::SchemaOrArray | Shape::SchemaOrBool | Shape::SchemaOrStrings => match rng.below(8) {
            0 => json!(true),
            1 => json!([text()]),
            2 => json!([{}, null]),
            3 => json!(text()),
            4 => json!([3]),
            5 if depth <= 8 => json!([{"not": {"type": text()}}]),
            _ => json!({"type": "string", "default": text()}),
        },
    }
}

fn path_of(kind: &Kind) -> String {
    let root = if kind.group.is_empty() { "/api" } else { "/apis/" };
    format!("{root}{}/{}/{}", kind.group, kind.version, kind.plural)
}

/// Reads all objects of a kind in every format.
async fn read_all(api: &Api, kind: &Kind) {
    let path = path_of(kind);
    let json = get(api, &path, "application/json").await.expect(200);
    let count = json["items"].as_array().unwrap().len();
    assert!(count > 0, "{path}");
    let yaml = get(api, &path, "application/yaml").await;
    assert_eq!((yaml.code, &yaml.headers["content-type"]), (200, &"application/yaml".parse().unwrap()));
    let text = std::str::from_utf8(&yaml.bytes).unwrap();
    let read: Value = serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{path}: {error}\n{text}"));
    for (yaml, json) in read["items"].as_array().unwrap().iter().zip(json["items"].as_array().unwrap()) {
        assert_eq!(yaml, json, "{path} in YAML");
    }
    for accept in [PROTOBUF, METADATA] {
        let reply = get(api, &path, accept).await;
        assert_eq!((reply.code, &reply.headers["content-type"]), (200, &PROTOBUF.parse().unwrap()), "{path}");
        let list = protobuf::decode(&reply.bytes, None).unwrap();
        assert_eq!(list["items"].as_array().unwrap().len(), count, "{path} as {accept}");
    }
    let table = get(api, &path, TABLE).await.expect(200);
    let columns = table["columnDefinitions"].as_array().unwrap().len();
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(rows.len(), count, "{path} as a table");
    for row in rows {
        assert_eq!(row["cells"].as_array().unwrap().len(), columns, "{path}: {row}");
    }
    let mut frames = Frames::open(api, &format!("{path}?watch=1")).await;
    for _ in 0..count {
        let (event, object) = frames.next().await.unwrap();
        assert_eq!(event, "ADDED", "{path}: {object}");
    }
}

/// The kinds with objects in the store, in every version in which they are served.
fn served_kinds() -> impl Iterator<Item = &'static Kind> {
    builtin::all().iter().filter(|kind| kind.verbs.contains(&"watch"))
}

/// The kinds that are stored, in the version in which they are.
fn stored_kinds() -> impl Iterator<Item = &'static Kind> {
    served_kinds().filter(|kind| kind.storage == (kind.group, kind.version))
}

async fn every_kind_encodes(seed: u64) {
    let api = api().await;
    let rng = Rng::seeded(seed);
    let mut buckets = BTreeSet::new();
    for kind in stored_kinds() {
        let schema = kind.schema().unwrap();
        let group = if kind.group.is_empty() { "core" } else { kind.group };
        let bucket = format!("{group}/{}", kind.plural);
        for number in 0..4 {
            let mut object = structure(schema, &rng, 0);
            types::decode(schema, &mut object).unwrap();
            let name = format!("random-{number}");
            let metadata = &mut object["metadata"];
            // The garbage collector would delete it before it is read.
            for field in ["ownerReferences", "deletionTimestamp"] {
                metadata.as_object_mut().map(|metadata| metadata.remove(field));
            }
            metadata["name"] = json!(name);
            metadata["uid"] = json!(format!("{bucket}/{name}"));
            let key = if kind.is_namespaced { format!("default/{name}") } else { name };
            store(&api, &bucket, &key, kind.version, &object).await;
        }
        assert!(buckets.insert(bucket));
    }
    assert!(buckets.len() > 50, "{} kinds", buckets.len());
    for kind in served_kinds() {
        read_all(&api, kind).await;
    }
    api.stop().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_stored_object_of_every_kind_encodes_in_every_format(seed in any::<u64>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(every_kind_encodes(seed));
    }
}
