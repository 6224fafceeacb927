use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
};

use serde::{
    Deserialize, Serialize,
    de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::ObjectKey;

/// The uid of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Uid(Box<str>);

impl Uid {
    /// The uid as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A resource version, ordered.
///
/// Kubernetes promises since 1.35 what every API server has always done: versions of one resource
/// type compare as numbers. A version that is not a number counts as the oldest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResourceVersion(pub u64);

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> Self {
        Self(text.parse().unwrap_or_default())
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How much of an object a watch asks the server for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Form {
    /// The whole object.
    Whole,
    /// Its metadata only (`PartialObjectMetadata`).
    Metadata,
}

/// The metadata that the caches need of any object, read without decoding the rest.
///
/// It is read separately, so that an object whose type cannot be decoded still has a name.
#[derive(Debug)]
pub struct Head<'a> {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: Uid,
    /// Version of this state.
    pub version: ResourceVersion,
    /// Whether deletion has begun.
    pub deleting: bool,
    /// Hash of everything but status and bookkeeping: equal hashes mean that what a controller
    /// applies was not changed.
    pub content: u64,
    labels: Option<&'a RawValue>,
    managed_fields: Option<&'a RawValue>,
    text: &'a str,
}

impl<'a> Head<'a> {
    /// Reads the head of a JSON object.
    pub fn read(text: &'a str, form: Form) -> Result<Self, serde_json::Error> {
        let mut meta = Meta::default();
        let mut hasher = DefaultHasher::new();
        let mut json = serde_json::Deserializer::from_str(text);
        Top { meta: &mut meta, hasher: &mut hasher, form }.deserialize(&mut json)?;
        let Text(name) = meta.name.ok_or_else(|| serde::de::Error::missing_field("metadata.name"))?;
        let version = meta.version.map(|text| ResourceVersion::from(&*text.0)).unwrap_or_default();
        if form == Form::Metadata {
            // Without the body it is unknown whether it changed.
            version.hash(&mut hasher);
        }
        Ok(Head {
            key: ObjectKey::new(&meta.namespace.map(|text| text.0).unwrap_or_default(), &name),
            uid: meta.uid.map(|text| Uid::from(&*text.0)).unwrap_or_default(),
            version,
            deleting: meta.deleting,
            content: hasher.finish(),
            labels: meta.labels,
            managed_fields: meta.managed_fields,
            text,
        })
    }

    /// The object's labels.
    pub fn labels(&self) -> Result<BTreeMap<String, String>, serde_json::Error> {
        let Some(raw) = self.labels else { return Ok(BTreeMap::new()) };
        // `null` means none.
        serde_json::from_str::<Option<_>>(raw.get()).map(Option::unwrap_or_default)
    }

    /// The object's text without `managedFields`, which are often a third of it.
    pub fn lean_text(&self) -> Cow<'a, str> {
        let Some(fields) = self.managed_fields.map(RawValue::get) else {
            return Cow::Borrowed(self.text);
        };
        // The raw value is a slice of the text, so its offset is the distance of the two.
        let start = fields.as_ptr() as usize - self.text.as_ptr() as usize;
        let (before, rest) = self.text.split_at(start);
        let after = &rest[fields.len()..];
        Cow::Owned([before, "[]", after].concat())
    }
}

/// Text that is borrowed from the input, unless it has escapes.
#[derive(Hash, Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Default)]
struct Meta<'a> {
    name: Option<Text<'a>>,
    namespace: Option<Text<'a>>,
    uid: Option<Text<'a>>,
    version: Option<Text<'a>>,
    deleting: bool,
    labels: Option<&'a RawValue>,
    managed_fields: Option<&'a RawValue>,
}

/// Walks the top level of an object.
struct Top<'m, 'a> {
    meta: &'m mut Meta<'a>,
    hasher: &'m mut DefaultHasher,
    form: Form,
}

impl<'de> DeserializeSeed<'de> for Top<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Top<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(field)) = map.next_key()? {
            match &*field {
                "metadata" => map.next_value_seed(MetaSeed { meta: self.meta, hasher: self.hasher })?,
                // `kind` and `apiVersion` differ between the items of a list and the response to a write.
                "status" | "kind" | "apiVersion" => {
                    map.next_value::<IgnoredAny>()?;
                }
                _ if self.form == Form::Metadata => {
                    map.next_value::<IgnoredAny>()?;
                }
                other => {
                    other.hash(self.hasher);
                    map.next_value::<&RawValue>()?.get().hash(self.hasher);
                }
            }
        }
        Ok(())
    }
}

/// Walks `metadata`.
struct MetaSeed<'m, 'a> {
    meta: &'m mut Meta<'a>,
    hasher: &'m mut DefaultHasher,
}

impl<'de> DeserializeSeed<'de> for MetaSeed<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MetaSeed<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("object metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(field)) = map.next_key()? {
            match &*field {
                "name" => self.meta.name = map.next_value()?,
                "namespace" => self.meta.namespace = map.next_value()?,
                "uid" => {
                    self.meta.uid = map.next_value()?;
                    self.meta.uid.hash(self.hasher);
                }
                "resourceVersion" => self.meta.version = map.next_value()?,
                "managedFields" => self.meta.managed_fields = Some(map.next_value()?),
                "generation" | "selfLink" => {
                    map.next_value::<IgnoredAny>()?;
                }
                other => {
                    let raw = map.next_value::<&RawValue>()?;
                    match other {
                        "labels" => self.meta.labels = Some(raw),
                        "deletionTimestamp" => self.meta.deleting = raw.get() != "null",
                        _ => {}
                    }
                    other.hash(self.hasher);
                    raw.get().hash(self.hasher);
                }
            }
        }
        Ok(())
    }
}
