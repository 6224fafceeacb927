//! User and group ids that exist for this process: all of them for root, one or a range in the user namespace of an ordinary
//! user.

use std::fs;
use std::ops::Range;

use crate::shim::protocol::Identity;

/// The number of ids outside of user namespaces.
const ALL: u64 = 1 << 32;

/// The ids of a user namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    users: Vec<Range<u64>>,
    groups: Vec<Range<u64>>,
}

impl Ids {
    /// Those of this process.
    pub(crate) fn read() -> Self {
        let map = |file: &str| ranges(&fs::read_to_string(file).unwrap_or_default());
        Self { users: map("/proc/self/uid_map"), groups: map("/proc/self/gid_map") }
    }

    /// Whether this process is in a user namespace, where some things are forbidden to its root.
    pub(crate) fn are_limited(&self) -> bool {
        self.users.iter().map(|range| range.end - range.start).sum::<u64>() < ALL - 1
    }

    pub(crate) fn has_group(&self, id: u32) -> bool {
        has(&self.groups, id)
    }

    /// The identity with ids that exist. A user that does not is replaced by root, which here is the user who runs all of this; it
    /// has no more capabilities than before.
    pub(crate) fn fit(&self, identity: Identity) -> Identity {
        Identity {
            uid: if has(&self.users, identity.uid) { identity.uid } else { 0 },
            gid: if self.has_group(identity.gid) { identity.gid } else { 0 },
            groups: identity.groups.into_iter().filter(|group| self.has_group(*group)).collect(),
            ..identity
        }
    }
}

fn has(ranges: &[Range<u64>], id: u32) -> bool {
    ranges.iter().any(|range| range.contains(&id.into()))
}

/// Lines of a map: the first id inside, the one outside, and how many there are.
fn ranges(map: &str) -> Vec<Range<u64>> {
    let range = |line: &str| {
        let mut fields = line.split_whitespace().map(|field| field.parse::<u64>().ok());
        let (first, _, count) = (fields.next()??, fields.next()??, fields.next()??);
        Some(first..first + count)
    };
    map.lines().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(map: &str) -> Ids {
        Ids { users: ranges(map), groups: ranges(map) }
    }

    fn identity(uid: u32) -> Identity {
        Identity {
            uid,
            gid: uid,
            groups: vec![0, 7, 5000],
            capabilities: vec![3],
            may_gain_privileges: false,
        }
    }

    #[test]
    fn ids_that_do_not_exist_are_those_of_the_user() {
        let one = ids("         0       1000          1\n");
        assert_eq!(one.fit(identity(1234)), Identity { uid: 0, gid: 0, groups: vec![0], ..identity(0) });
        assert!(one.are_limited() && !one.has_group(7));
        let range = ids("0 1000 1\n1 100000 65536\n");
        assert_eq!(range.fit(identity(1234)), Identity { groups: vec![0, 7, 5000], ..identity(1234) });
        assert_eq!(range.fit(identity(200_000)).uid, 0);
    }

    #[test]
    fn root_has_all_ids() {
        let all = ids("         0          0 4294967295\n");
        assert!(!all.are_limited());
        assert_eq!(all.fit(identity(u32::MAX - 1)), identity(u32::MAX - 1));
    }
}
