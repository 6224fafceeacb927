//! Lists as responses.
//!
//! A long list is encoded while it is read: a reader holds pointers to stored objects, which all readers of a version
//! share, and one piece of the response. What waits for slow readers is bounded, for each of them and for all.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::Response;
use quintet_objects::{protobuf, table::partial_metadata};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::response::{self, PLAIN, Representation, with_body};
use crate::{
    api::Api,
    model,
    request::{
        body::ResponseBody,
        content_type::ContentType,
        negotiate::{Format, View},
    },
    resources::Resource,
    status::Failure,
    store::Entry,
    verbs::list::Page,
};

/// Shorter lists are encoded at once.
const STREAMED_FROM: usize = 256 << 10;
/// How much of a list is encoded at a time, about: at least one object.
const PIECE: usize = 64 << 10;
/// How much of a list is converted at a time, about: at least one object. A webhook is called for each such part.
const CONVERTED_TOGETHER: usize = 256 << 10;
/// Long lists that are being read at a time.
static STREAMS: Semaphore = Semaphore::const_new(1024);
/// Kilobytes of long protobuf lists that are kept encoded, for which they need not be encoded twice.
static BUFFERED: Semaphore = Semaphore::const_new(64 << 10);
/// When a client that found no room tries again.
const RETRY_SECONDS: u32 = 1;

/// Pieces of a response, made one by one.
type Chunks = Box<dyn Iterator<Item = Bytes> + Send>;
type Entries = std::vec::IntoIter<(Arc<str>, Arc<Entry>)>;

/// A page of a list as a response. Privileged callers read as many long lists as they want.
pub(crate) async fn list(
    api: &Api,
    resource: &Arc<Resource>,
    page: Page,
    wanted: Representation,
    is_privileged: bool,
) -> Result<Response<ResponseBody>, Failure> {
    if wanted.accepted.view == (View::Metadata { is_list: false }) {
        return Err(Failure::new(
            406,
            "NotAcceptable",
            format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({})",
                resource.list_kind
            ),
        ));
    }
    let entries = || page.entries.iter().map(|(_, entry)| entry);
    let is_stored = wanted.accepted == PLAIN
        && !wanted.is_pretty
        && entries().all(|entry| Api::reads_raw(resource, entry));
    let size: usize = entries().map(|entry| entry.body.len()).sum();
    let needs_conversion = entries().any(|entry| Api::needs_conversion(resource, entry));
    // Protobuf begins with the length of the list; of custom resources it has only the metadata.
    let is_protobuf = wanted.accepted.format == Format::Protobuf;
    if size < STREAMED_FROM || (needs_conversion && is_protobuf) {
        if !is_stored {
            return whole(api, resource, page, wanted).await;
        }
        let mut out = Vec::with_capacity(size + 128 * page.entries.len() + 256);
        Pieces::new(resource, page, Items::Stored, None)?.write(&mut out, usize::MAX);
        return Ok(with_body(200, ContentType::Json, out));
    }
    let permit = match STREAMS.try_acquire() {
        Ok(permit) => Some(permit),
        Err(_) if is_privileged => None,
        Err(_) => {
            let why = "too many long lists are being read; read this one in pages, with limit and continue";
            return Err(Failure::new(429, "TooManyRequests", why).retry_after(RETRY_SECONDS));
        }
    };
    let encoded = Encoded { resource: Arc::clone(resource), wanted, now: api.now() };
    let body = if needs_conversion {
        converted(api, encoded, page, permit).await?
    } else {
        ResponseBody::Chunked(match wanted.accepted.format {
            Format::Protobuf => protobuf_chunks(encoded, page, size, permit).await?,
            Format::Json if is_stored => Box::new(Pieces::new(resource, page, Items::Stored, permit)?),
            Format::Json | Format::Yaml => {
                Box::new(Pieces::new(resource, page, Items::Encoded(encoded), permit)?)
            }
        })
    };
    let mut response = with_body(200, wanted.accepted.format.content_type(false), "");
    *response.body_mut() = body;
    Ok(response)
}

/// A long list in JSON or YAML whose objects are converted as they are sent. The first are converted before the response
/// begins, so that a webhook that cannot be reached is a failure that the client can read.
async fn converted(
    api: &Api,
    encoded: Encoded,
    page: Page,
    permit: Option<SemaphorePermit<'static>>,
) -> Result<ResponseBody, Failure> {
    let resource = Arc::clone(&encoded.resource);
    let mut pieces = Pieces::new(&resource, page, Items::Encoded(encoded), permit)?;
    let first = pieces.next_converted(api).await?;
    let rest = stream::try_unfold((pieces, api.clone()), async |(mut pieces, api)| {
        let piece = pieces.next_converted(&api).await?;
        Ok(piece.map(|piece| (piece, (pieces, api))))
    });
    Ok(ResponseBody::Stream(stream::iter(first.map(Ok)).chain(rest).boxed()))
}

/// A list that is encoded at once.
async fn whole(
    api: &Api,
    resource: &Arc<Resource>,
    page: Page,
    wanted: Representation,
) -> Result<Response<ResponseBody>, Failure> {
    let encoded = Encoded { resource: Arc::clone(resource), wanted, now: api.now() };
    let mut list = encoded.envelope(&page);
    let entries: Vec<_> = page.entries.iter().map(|(_, entry)| Arc::clone(entry)).collect();
    let objects = api.load_all(resource, &entries).await?;
    let members: Vec<Value> = objects.into_iter().map(|object| encoded.member(object)).collect();
    // Kubernetes has `null` for no metadata at all, and clients have to live with it.
    let is_null = members.is_empty() && matches!(wanted.accepted.view, View::Metadata { .. });
    list[encoded.field()] = if is_null { Value::Null } else { members.into() };
    response::value(200, &list, wanted)
}

/// What all objects of a list have in common.
fn list_metadata(page: &Page) -> Value {
    let mut metadata = json!({"resourceVersion": page.rv.to_string()});
    if let Some(token) = &page.continue_token {
        metadata["continue"] = token.as_str().into();
    }
    if let Some(remaining) = page.remaining {
        metadata["remainingItemCount"] = remaining.into();
    }
    metadata
}

/// How objects become items of a list, or rows of a table.
struct Encoded {
    resource: Arc<Resource>,
    wanted: Representation,
    now: jiff::Timestamp,
}

impl Encoded {
    /// The list without its items.
    fn envelope(&self, page: &Page) -> Value {
        let metadata = list_metadata(page);
        match self.wanted.accepted.view {
            View::Whole => {
                let Resource { list_kind, api_version, .. } = &*self.resource;
                json!({"kind": &**list_kind, "apiVersion": &**api_version, "metadata": metadata})
            }
            View::Metadata { .. } => {
                json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            View::Table => {
                let mut table =
                    model::table(&self.resource, &[], &metadata, self.wanted.include, true, self.now);
                crate::json::as_map(&mut table).remove("rows");
                table
            }
        }
    }

    /// The field of the items.
    fn field(&self) -> &'static str {
        if self.wanted.accepted.view == View::Table { "rows" } else { "items" }
    }

    /// An object as an item.
    fn member(&self, mut object: Value) -> Value {
        match self.wanted.accepted.view {
            View::Whole => {
                if self.resource.as_custom().is_none() {
                    let object = crate::json::as_map(&mut object);
                    object.remove("kind");
                    object.remove("apiVersion");
                }
                object
            }
            View::Metadata { .. } => partial_metadata(&object),
            View::Table => {
                let Representation { include, .. } = self.wanted;
                let objects = std::slice::from_ref(&object);
                let mut table = model::table(&self.resource, objects, &Value::Null, include, false, self.now);
                table["rows"][0].take()
            }
        }
    }

    /// A stored object as an item of a protobuf list.
    fn protobuf(&self, entry: &Entry) -> Result<Vec<u8>, Failure> {
        let object = Api::load_unconverted(&self.resource, entry).unwrap_or_else(|stored| stored);
        let item = match self.wanted.accepted.view {
            View::Metadata { .. } => partial_metadata(&object),
            View::Whole | View::Table => object,
        };
        protobuf::encode_list_item(&item).map_err(Failure::internal)
    }

    fn layout(&self) -> Layout {
        match self.wanted.accepted.format {
            Format::Yaml => Layout::Yaml,
            _ if self.wanted.is_pretty => Layout::Pretty,
            _ => Layout::Compact,
        }
    }
}

/// How a list and its items are put together.
#[derive(Clone, Copy)]
enum Layout {
    Compact,
    Pretty,
    Yaml,
}

impl Layout {
    fn separator(self) -> &'static [u8] {
        match self {
            Self::Compact => b",",
            Self::Pretty => b",\n",
            Self::Yaml => b"",
        }
    }

    fn tail(self) -> &'static [u8] {
        match self {
            Self::Compact => b"]}\n",
            Self::Pretty => b"\n  ]\n}\n",
            Self::Yaml => b"",
        }
    }

    /// Everything before the first item.
    fn head(self, envelope: &Value, field: &str) -> Result<Vec<u8>, Failure> {
        let text = match self {
            Self::Compact => {
                let text = envelope.to_string();
                format!("{},\"{field}\":[", text.strip_suffix('}').unwrap_or(&text))
            }
            Self::Pretty => {
                let text = serde_json::to_string_pretty(envelope).map_err(Failure::internal)?;
                format!("{},\n  \"{field}\": [\n", text.strip_suffix("\n}").unwrap_or(&text))
            }
            Self::Yaml => {
                let text = serde_saphyr::to_string(envelope).map_err(Failure::internal)?;
                format!("{text}{field}:\n")
            }
        };
        Ok(text.into_bytes())
    }

    fn write(self, item: &Value, out: &mut Vec<u8>) {
        match self {
            // Writing JSON of a value into memory cannot fail.
            Self::Compact => drop(serde_json::to_writer(out, item)),
            Self::Pretty => {
                indent(
                    &serde_json::to_string_pretty(item).unwrap_or_else(|_| item.to_string()),
                    ["    "; 2],
                    out,
                );
            }
            // JSON is YAML, too.
            Self::Yaml => {
                indent(
                    &serde_saphyr::to_string(item).unwrap_or_else(|_| format!("{item}\n")),
                    ["- ", "  "],
                    out,
                );
            }
        }
    }
}

/// Writes lines with something before the first and before each of the others.
fn indent(text: &str, [first, others]: [&str; 2], out: &mut Vec<u8>) {
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if line != "\n" {
            out.extend_from_slice(if number == 0 { first } else { others }.as_bytes());
        }
        out.extend_from_slice(line.as_bytes());
    }
}

/// Where items come from.
enum Items {
    /// Plain JSON, straight from the stored bytes.
    Stored,
    Encoded(Encoded),
}

/// A list in JSON or YAML, piece by piece.
struct Pieces {
    resource: Arc<Resource>,
    items: Items,
    layout: Layout,
    head: Vec<u8>,
    entries: Entries,
    is_first: bool,
    is_over: bool,
    _permit: Option<SemaphorePermit<'static>>,
}

impl Pieces {
    fn new(
        resource: &Arc<Resource>,
        page: Page,
        items: Items,
        permit: Option<SemaphorePermit<'static>>,
    ) -> Result<Self, Failure> {
        let (layout, head) = match &items {
            Items::Stored => (Layout::Compact, stored_head(resource, &page)),
            Items::Encoded(encoded) => {
                let layout = encoded.layout();
                (layout, layout.head(&encoded.envelope(&page), encoded.field())?)
            }
        };
        Ok(Self {
            resource: Arc::clone(resource),
            items,
            layout,
            head,
            entries: page.entries.into_iter(),
            is_first: true,
            is_over: false,
            _permit: permit,
        })
    }

    /// Writes until there is enough, or to the end.
    fn write(&mut self, out: &mut Vec<u8>, enough: usize) {
        out.append(&mut self.head);
        while out.len() < enough {
            let Some((_, entry)) = self.entries.next() else {
                out.extend_from_slice(self.layout.tail());
                self.is_over = true;
                return;
            };
            self.separate(out);
            match &self.items {
                Items::Stored => {
                    let Resource { api_version, kind, .. } = &*self.resource;
                    let is_custom = self.resource.as_custom().is_some();
                    entry.write_json(out, is_custom.then_some((api_version, kind)));
                }
                Items::Encoded(encoded) => {
                    let object =
                        Api::load_unconverted(&self.resource, &entry).unwrap_or_else(|stored| stored);
                    self.layout.write(&encoded.member(object), out);
                }
            }
        }
    }

    fn separate(&mut self, out: &mut Vec<u8>) {
        if !std::mem::take(&mut self.is_first) {
            out.extend_from_slice(self.layout.separator());
        }
    }

    /// The next objects, converted together.
    async fn next_converted(&mut self, api: &Api) -> Result<Option<Bytes>, Failure> {
        let Items::Encoded(encoded) = &self.items else { return Ok(self.next()) };
        if self.is_over {
            return Ok(None);
        }
        let (mut batch, mut size) = (Vec::new(), 0);
        while size < CONVERTED_TOGETHER
            && let Some((_, entry)) = self.entries.next()
        {
            size += entry.body.len();
            batch.push(entry);
        }
        let objects = api.load_all(&self.resource, &batch).await?;
        let members: Vec<Value> = objects.into_iter().map(|object| encoded.member(object)).collect();
        let mut out = std::mem::take(&mut self.head);
        for member in members {
            self.separate(&mut out);
            self.layout.write(&member, &mut out);
        }
        if self.entries.as_slice().is_empty() {
            out.extend_from_slice(self.layout.tail());
            self.is_over = true;
        }
        Ok(Some(out.into()))
    }
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        let mut out = Vec::with_capacity(PIECE + PIECE / 4);
        self.write(&mut out, PIECE);
        Some(out.into())
    }
}

/// The beginning of a list of stored JSON.
fn stored_head(resource: &Resource, page: &Page) -> Vec<u8> {
    let mut metadata = format!(r#"{{"resourceVersion":"{}""#, page.rv);
    if let Some(token) = &page.continue_token {
        let part = format!(r#","continue":"{token}""#);
        metadata += &part;
    } else if resource.as_custom().is_some() {
        metadata.push_str(r#","continue":"""#);
    }
    if let Some(remaining) = page.remaining {
        let part = format!(r#","remainingItemCount":{remaining}"#);
        metadata += &part;
    }
    let Resource { list_kind, api_version, .. } = resource;
    format!(r#"{{"kind":"{list_kind}","apiVersion":"{api_version}","metadata":{metadata}}},"items":["#)
        .into_bytes()
}

/// A long list in protobuf. Its length comes before its items: they are encoded twice unless there is room to keep
/// them.
async fn protobuf_chunks(
    encoded: Encoded,
    page: Page,
    size: usize,
    permit: Option<SemaphorePermit<'static>>,
) -> Result<Chunks, Failure> {
    let kilobytes = u32::try_from(size >> 10).unwrap_or(u32::MAX);
    let room = BUFFERED.try_acquire_many(kilobytes).ok();
    let (mut kept, mut length, mut pause) = (Vec::new(), 0, PIECE);
    for (_, entry) in &page.entries {
        let item = encoded.protobuf(entry)?;
        length += item.len();
        if length > pause {
            // Encoding megabytes takes its time, in which others wait.
            tokio::task::yield_now().await;
            pause = length + PIECE;
        }
        if room.is_some() {
            kept.extend_from_slice(&item);
        }
    }
    let head = protobuf::encode_list_head(&encoded.envelope(&page), length).map_err(Failure::internal)?;
    let tail = protobuf::LIST_TAIL.to_vec();
    if let Some(room) = room {
        let body = Bytes::from([head, kept, tail].concat());
        let offsets = (0..body.len()).step_by(PIECE);
        return Ok(Box::new(offsets.map(move |from| {
            let _held = (&room, &permit);
            body.slice(from..body.len().min(from + PIECE))
        })));
    }
    let mut entries = page.entries.into_iter();
    let items = std::iter::from_fn(move || {
        let _held = &permit;
        let mut out = Vec::new();
        while out.len() < PIECE
            && let Some((_, entry)) = entries.next()
        {
            // Every one of them was encoded before.
            out.append(&mut encoded.protobuf(&entry).unwrap_or_default());
        }
        (!out.is_empty()).then_some(out)
    });
    Ok(Box::new(std::iter::once(head).chain(items).chain([tail]).map(Bytes::from)))
}
