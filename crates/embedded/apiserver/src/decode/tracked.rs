//! A value whose fields are noted while it is read: those of JSON by their path, those of YAML by their line.

use std::{fmt, marker::PhantomData};

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

/// A key of an object, and its position, if the format has positions.
pub(super) trait Key: DeserializeOwned {
    fn into_parts(self) -> (String, u64);
}

impl Key for String {
    fn into_parts(self) -> (String, u64) {
        (self, 0)
    }
}

impl Key for Spanned<String> {
    fn into_parts(self) -> (String, u64) {
        (self.value, self.referenced.line())
    }
}

/// A field that was read.
pub(super) struct Noted<'a> {
    pub(super) path: &'a JsonPath<'a>,
    pub(super) key: &'a str,
    pub(super) line: u64,
    /// Whether its object has it already.
    pub(super) is_duplicate: bool,
}

/// Where in a document the reader is.
pub(super) struct JsonPath<'a> {
    /// Nothing at the top.
    outer: Option<&'a Self>,
    step: Step<'a>,
}

enum Step<'a> {
    Top,
    Member(&'a str),
    Item(usize),
}

impl fmt::Display for JsonPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(outer) = self.outer {
            outer.fmt(f)?;
        }
        match self.step {
            Step::Top => Ok(()),
            Step::Item(index) => write!(f, "[{index}]"),
            Step::Member(key) if self.outer.is_some_and(|outer| !matches!(outer.step, Step::Top)) => {
                write!(f, ".{key}")
            }
            Step::Member(key) => f.write_str(key),
        }
    }
}

/// A value whose fields are noted.
pub(super) struct Tracked<'a, K> {
    path: JsonPath<'a>,
    note: &'a mut dyn FnMut(Noted<'_>),
    key: PhantomData<K>,
}

impl<'a, K> Tracked<'a, K> {
    /// A whole document.
    pub(super) fn document(note: &'a mut dyn FnMut(Noted<'_>)) -> Self {
        Self { path: JsonPath { outer: None, step: Step::Top }, note, key: PhantomData }
    }

    fn inside<'b>(path: JsonPath<'b>, note: &'b mut dyn FnMut(Noted<'_>)) -> Tracked<'b, K> {
        Tracked { path, note, key: PhantomData }
    }
}

impl<'de, K: Key> DeserializeSeed<'de> for Tracked<'_, K> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, K: Key> Visitor<'de> for Tracked<'_, K> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = JsonPath { outer: Some(&self.path), step: Step::Item(list.len()) };
            match items.next_element_seed(Self::inside(path, &mut *self.note))? {
                Some(item) => list.push(item),
                None => return Ok(list.into()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = members.next_key::<K>()? {
            let (key, line) = key.into_parts();
            let path = JsonPath { outer: Some(&self.path), step: Step::Member(&key) };
            (self.note)(Noted { path: &path, key: &key, line, is_duplicate: map.contains_key(&key) });
            let value = members.next_value_seed(Self::inside(path, &mut *self.note))?;
            map.insert(key, value);
        }
        Ok(map.into())
    }
}
