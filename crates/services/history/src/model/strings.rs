//! Interned strings: a session repeats the same few names hundreds of thousands of times.

use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU32;

use hashbrown::HashTable;

/// An interned string. Its order is not that of the text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Symbol(NonZeroU32);

impl Symbol {
    /// The empty string.
    pub(crate) const EMPTY: Self = Self(NonZeroU32::MIN);

    pub(crate) fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// All strings of a session, each stored once.
pub(crate) struct Strings {
    text: String,
    /// Where each string ends; it begins where the one before ends.
    ends: Vec<usize>,
    table: HashTable<Symbol>,
    hasher: RandomState,
}

impl Default for Strings {
    fn default() -> Self {
        let mut strings = Self {
            text: String::new(),
            ends: Vec::new(),
            table: HashTable::new(),
            hasher: RandomState::new(),
        };
        strings.intern("");
        strings
    }
}

impl Strings {
    /// The symbol of a text. Beyond four billion strings, all are the empty one; memory ends long before.
    pub(crate) fn intern(&mut self, text: &str) -> Symbol {
        let hash = self.hasher.hash_one(text);
        let Self { text: all, ends, table, hasher } = self;
        if let Some(symbol) = table.find(hash, |symbol| slice(all, ends, *symbol) == text) {
            return *symbol;
        }
        let number = u32::try_from(ends.len() + 1).ok().and_then(NonZeroU32::new);
        let symbol = number.map_or(Symbol::EMPTY, Symbol);
        all.push_str(text);
        ends.push(all.len());
        table.insert_unique(hash, symbol, |symbol| hasher.hash_one(slice(all, ends, *symbol)));
        symbol
    }

    /// The symbol of a text that occurs.
    pub(crate) fn find(&self, text: &str) -> Option<Symbol> {
        let hash = self.hasher.hash_one(text);
        self.table.find(hash, |symbol| self.get(*symbol) == text).copied()
    }

    pub(crate) fn get(&self, symbol: Symbol) -> &str {
        slice(&self.text, &self.ends, symbol)
    }

    /// Memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<usize>() + self.table.capacity() * 5
    }

    /// Releases memory that only growing needed.
    pub(crate) fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}

fn slice<'a>(text: &'a str, ends: &[usize], symbol: Symbol) -> &'a str {
    let index = symbol.index();
    let start = index.checked_sub(1).map_or(0, |before| ends[before]);
    &text[start..ends[index]]
}

#[cfg(test)]
mod tests {
    use super::{Strings, Symbol};

    #[test]
    fn strings_are_stored_once() {
        let mut strings = Strings::default();
        let first = strings.intern("RUNNING");
        assert_eq!(strings.intern("RUNNING"), first);
        assert_eq!(strings.intern(""), Symbol::EMPTY);
        let many: Vec<_> = (0..1000).map(|it| strings.intern(&it.to_string())).collect();
        for (index, symbol) in many.iter().enumerate() {
            assert_eq!(strings.get(*symbol), index.to_string());
        }
        assert_eq!(strings.find("RUNNING"), Some(first));
        assert_eq!(strings.find("never"), None);
    }
}
