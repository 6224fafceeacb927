//! Sets of completion indexes, in the form that the status of a Job has: `1,3-5,7`.

use std::collections::BTreeSet;

/// A set of completion indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(pub(super) BTreeSet<i32>);

impl Indexes {
    /// Reads a status field; indexes from `completions` on are left out, as after a scale-down. Text that is no list
    /// of ranges counts as empty.
    pub(super) fn parse(text: Option<&str>, completions: i32) -> Self {
        let mut indexes = BTreeSet::new();
        for part in text.unwrap_or_default().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.trim().parse::<i32>(), last.trim().parse::<i32>()) {
                indexes.extend(first.max(0)..=last.min(completions - 1));
            }
        }
        Self(indexes)
    }

    /// The status field; `None` if the set is empty. Two neighbours are listed, three or more are a range.
    pub(super) fn text(&self) -> Option<String> {
        let mut ranges: Vec<(i32, i32)> = Vec::new();
        for &index in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == index => *last = index,
                _ => ranges.push((index, index)),
            }
        }
        let parts: Vec<_> = ranges
            .iter()
            .map(|&(first, last)| match last - first {
                0 => first.to_string(),
                1 => format!("{first},{last}"),
                _ => format!("{first}-{last}"),
            })
            .collect();
        (!parts.is_empty()).then(|| parts.join(","))
    }

    pub(super) fn len(&self) -> i32 {
        i32::try_from(self.0.len()).unwrap_or(i32::MAX)
    }

    pub(super) fn contains(&self, index: i32) -> bool {
        self.0.contains(&index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_compressed_and_read_back() {
        let cases: [(&[i32], Option<&str>); 5] = [
            (&[], None),
            (&[4], Some("4")),
            (&[3, 4], Some("3,4")),
            (&[1, 3, 4, 5, 7], Some("1,3-5,7")),
            (&[0, 1, 2, 9], Some("0-2,9")),
        ];
        for (set, text) in cases {
            let indexes = Indexes(set.iter().copied().collect());
            assert_eq!(indexes.text().as_deref(), text);
            assert_eq!(Indexes::parse(text, 10), indexes);
        }
        assert_eq!(Indexes::parse(Some("0-9"), 3).text().as_deref(), Some("0-2"), "after a scale-down");
        assert_eq!(Indexes::parse(Some("x,1"), 3).text().as_deref(), Some("1"));
    }
}
