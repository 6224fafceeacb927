//! Readers of values that several payloads share.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::strings::{Strings, Symbol};
use super::time;
use super::{Transition, ids};
use crate::json::{Fault, Scanner, Writer};

type Result<T> = std::result::Result<T, Fault>;

/// The longest name of a member that is read.
const LONGEST: usize = 32;

/// A name in lower case: payloads name their members in any case. Longer names are those of no member.
pub(super) fn lower<'b>(name: &str, buffer: &'b mut [u8; LONGEST]) -> &'b str {
    let Some(target) = buffer.get_mut(..name.len()) else { return "" };
    target.copy_from_slice(name.as_bytes());
    target.make_ascii_lowercase();
    std::str::from_utf8(target).unwrap_or_default()
}

/// Reads members by their names in lower case; others are skipped.
macro_rules! members {
    ($scanner:expr, { $($name:literal => $read:expr,)* }) => {{
        const NAMES: &[&str] = &[$($name),*];
        let mut seen = 0;
        $scanner.object_or_null(|scanner, name| {
            let mut buffer = [0; 32];
            match $crate::model::decode::lower(name, &mut buffer) {
                $($name => {
                    const PLACE: usize = $crate::model::decode::place(NAMES, $name);
                    scanner.see(&mut seen, PLACE)?;
                    ($read)(scanner)?;
                })*
                _ => { scanner.skip()?; }
            }
            Ok(())
        })
    }};
}
pub(super) use members;

/// Where a name is in a list that has it, known when the program is built.
pub(super) const fn place(names: &[&str], name: &str) -> usize {
    let mut at = 0;
    while !is_same(names[at].as_bytes(), name.as_bytes()) {
        at += 1;
    }
    at
}

const fn is_same(left: &[u8], right: &[u8]) -> bool {
    let mut at = 0;
    while at < left.len() && at < right.len() && left[at] == right[at] {
        at += 1;
    }
    at == left.len() && at == right.len()
}

/// Sets a target unless the value is `null`.
pub(super) fn set<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

/// Reads values with the strings they are interned in.
pub(super) struct Reader<'s> {
    pub(super) strings: &'s mut Strings,
    buffer: String,
}

impl<'s> Reader<'s> {
    pub(super) fn new(strings: &'s mut Strings) -> Self {
        Self { strings, buffer: String::new() }
    }

    /// A string.
    pub(super) fn text(&mut self, scanner: &mut Scanner<'_>, target: &mut Symbol) -> Result<()> {
        if let Some(text) = scanner.text()? {
            *target = self.strings.intern(&text);
        }
        Ok(())
    }

    /// A string, or nothing.
    pub(super) fn text_or_none(
        &mut self,
        scanner: &mut Scanner<'_>,
        target: &mut Option<Symbol>,
    ) -> Result<()> {
        *target = scanner.text()?.map(|text| self.strings.intern(&text));
        Ok(())
    }

    /// A string of a value that may have any type; others than strings are empty.
    pub(super) fn loose_text(&mut self, scanner: &mut Scanner<'_>, target: &mut Symbol) -> Result<()> {
        let text = loose_text(scanner)?.unwrap_or_default();
        *target = self.strings.intern(&text);
        Ok(())
    }

    /// An identifier of a value that may have any type.
    pub(super) fn loose_id(&mut self, scanner: &mut Scanner<'_>, target: &mut Symbol) -> Result<()> {
        let text = loose_text(scanner)?.unwrap_or_default();
        *target = self.strings.intern(ids::normalize(&text, &mut self.buffer));
        Ok(())
    }

    /// An identifier, in its normal form.
    pub(super) fn id(&mut self, scanner: &mut Scanner<'_>, target: &mut Symbol) -> Result<()> {
        if let Some(text) = scanner.text()? {
            *target = self.strings.intern(ids::normalize(&text, &mut self.buffer));
        }
        Ok(())
    }

    /// An object of numbers, kept as the JSON to answer with; `None` if it is empty.
    pub(super) fn numbers(&mut self, scanner: &mut Scanner<'_>, target: &mut Option<Symbol>) -> Result<()> {
        if scanner.peek()? == b'n' {
            scanner.skip()?;
            *target = None;
            return Ok(());
        }
        let mut numbers = BTreeMap::new();
        scanner.object_or_null(|scanner, name| {
            numbers.insert(name.to_owned(), scanner.float()?.unwrap_or(0.0));
            Ok(())
        })?;
        if numbers.is_empty() {
            *target = None;
            return Ok(());
        }
        let mut writer = Writer::new();
        writer.raw("{");
        for (name, number) in &numbers {
            writer.name(name);
            writer.float(*number);
        }
        writer.raw("}");
        *target = Some(self.encoded(writer));
        Ok(())
    }

    /// An object of strings, kept as the JSON to answer with.
    pub(super) fn texts(&mut self, scanner: &mut Scanner<'_>, target: &mut Option<Symbol>) -> Result<()> {
        if scanner.peek()? == b'n' {
            scanner.skip()?;
            *target = None;
            return Ok(());
        }
        let mut texts = BTreeMap::new();
        scanner.object_or_null(|scanner, name| {
            texts.insert(name.to_owned(), scanner.text()?.unwrap_or_default().into_owned());
            Ok(())
        })?;
        let mut writer = Writer::new();
        writer.raw("{");
        for (name, text) in &texts {
            writer.text_member(name, text);
        }
        writer.raw("}");
        *target = Some(self.encoded(writer));
        Ok(())
    }

    fn encoded(&mut self, writer: Writer) -> Symbol {
        self.strings.intern(&String::from_utf8_lossy(&writer.into_bytes()))
    }

    /// A selector: an object of strings; `None` if it is empty.
    pub(super) fn selector(&mut self, scanner: &mut Scanner<'_>, target: &mut Option<Symbol>) -> Result<()> {
        self.texts(scanner, target)?;
        if target.is_some_and(|selector| self.strings.get(selector) == "{}") {
            *target = None;
        }
        Ok(())
    }

    /// The function string of a descriptor in one of Ray's languages: `Class.function` or `function`.
    pub(super) fn function(&mut self, scanner: &mut Scanner<'_>, target: &mut Symbol) -> Result<()> {
        let mut found: [Option<(String, String)>; 3] = [None, None, None];
        let descriptor = |scanner: &mut Scanner<'_>| -> Result<Option<(String, String)>> {
            let is_null = scanner.peek()? == b'n';
            let (mut class, mut function) = (String::new(), String::new());
            members!(scanner, {
                "classname" => |scanner: &mut Scanner<'_>| -> Result<()> {
                    set(&mut class, scanner.text()?.map(Into::into));
                    Ok(())
                },
                "functionname" => |scanner: &mut Scanner<'_>| -> Result<()> {
                    set(&mut function, scanner.text()?.map(Into::into));
                    Ok(())
                },
                // What else the descriptors of the languages hold, as text as well.
                "modulename" => |scanner: &mut Scanner<'_>| scanner.text().map(drop),
                "functionhash" => |scanner: &mut Scanner<'_>| scanner.text().map(drop),
                "signature" => |scanner: &mut Scanner<'_>| scanner.text().map(drop),
                "caller" => |scanner: &mut Scanner<'_>| scanner.text().map(drop),
            })?;
            Ok((!is_null).then_some((class, function)))
        };
        let [python, cpp, java] = &mut found;
        members!(scanner, {
            "pythonfunctiondescriptor" => |scanner: &mut Scanner<'_>| -> Result<()> {
                *python = descriptor(scanner)?;
                Ok(())
            },
            "cppfunctiondescriptor" => |scanner: &mut Scanner<'_>| -> Result<()> {
                *cpp = descriptor(scanner)?;
                Ok(())
            },
            "javafunctiondescriptor" => |scanner: &mut Scanner<'_>| -> Result<()> {
                *java = descriptor(scanner)?;
                Ok(())
            },
        })?;
        // Of several descriptors, the one of C++ counts, then that of Python.
        let [python, cpp, java] = found;
        let Some((class, function)) = cpp.or(python).or(java) else {
            *target = Symbol::EMPTY;
            return Ok(());
        };
        *target = if class.is_empty() {
            self.strings.intern(&function)
        } else {
            self.strings.intern(&format!("{class}.{function}"))
        };
        Ok(())
    }
}

/// A string of a value that may have any type.
pub(super) fn loose_text<'a>(scanner: &mut Scanner<'a>) -> Result<Option<Cow<'a, str>>> {
    if scanner.peek()? == b'"' { scanner.text() } else { scanner.skip().map(|_| None) }
}

/// A time of a value that may have any type; one that cannot be read is unknown.
pub(super) fn loose_moment(scanner: &mut Scanner<'_>) -> Result<i64> {
    Ok(loose_text(scanner)?.and_then(|text| time::parse(&text).ok()).unwrap_or(time::UNKNOWN))
}

/// The members of a value, by their exact names; nothing if it is no object. `member` has to consume the value.
pub(super) fn loose_object<'a>(
    scanner: &mut Scanner<'a>,
    member: impl FnMut(&mut Scanner<'a>, &str) -> Result<()>,
) -> Result<bool> {
    if scanner.peek()? == b'{' {
        return scanner.object(member).map(|()| true);
    }
    scanner.skip().map(|_| false)
}

/// The elements of a value; nothing if it is no array. `element` has to consume the value.
pub(super) fn loose_array<'a>(
    scanner: &mut Scanner<'a>,
    element: impl FnMut(&mut Scanner<'a>) -> Result<()>,
) -> Result<()> {
    if scanner.peek()? == b'[' { scanner.array(element) } else { scanner.skip().map(drop) }
}

/// A time; one that cannot be read rejects the event.
pub(super) fn moment(scanner: &mut Scanner<'_>) -> Result<Option<i64>> {
    let Some(text) = scanner.text()? else { return Ok(None) };
    time::parse(&text).map(Some).map_err(|_| Fault::Type)
}

/// A change of state.
pub(super) fn transition(reader: &mut Reader<'_>, scanner: &mut Scanner<'_>) -> Result<Transition> {
    let mut transition = Transition { time: time::UNKNOWN, state: Symbol::EMPTY };
    members!(scanner, {
        "state" => |scanner: &mut _| reader.text(scanner, &mut transition.state),
        "timestamp" => |scanner: &mut _| moment(scanner).map(|value| set(&mut transition.time, value)),
    })?;
    Ok(transition)
}

/// A whole number in a string, which may also hold the word for none.
pub(super) fn quoted_integer(scanner: &mut Scanner<'_>) -> Result<Option<i64>> {
    match scanner.text()?.as_deref() {
        None | Some("null") => Ok(None),
        Some(text) if text.starts_with('+') => Err(Fault::Type),
        Some(text) => text.parse().map(Some).map_err(|_| Fault::Type),
    }
}
