//! User and group ids in a user namespace.

use std::process::Command;

/// Ids of a user that only namespaces use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u32,
    count: u32,
}

/// The range of a user in `/etc/subuid` or `/etc/subgid`.
fn range_of(text: &str, name: Option<&str>, id: u32) -> Option<Range> {
    let range = |line: &str| {
        let mut fields = line.trim().split(':');
        let owner = fields.next()?;
        let is_own = Some(owner) == name || owner.parse() == Ok(id);
        let (start, count) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        (is_own && count > 0).then_some(Range { start, count })
    };
    text.lines().find_map(range)
}

/// What `newuidmap` is to do: root inside is the user, and the others are of the range.
fn arguments(pid: u32, id: u32, range: Range) -> [String; 7] {
    [pid, 0, id, 1, 1, range.start, range.count].map(|number| number.to_string())
}

/// Gives the user namespace of a process the ranges of this user. Returns whether that was possible.
pub(super) fn map_ranges(pid: u32) -> bool {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let user = nix::unistd::User::from_uid(uid.into()).ok().flatten();
    let name = user.as_ref().map(|user| user.name.as_str());
    let map = |program: &str, file: &str, id: u32| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let Some(range) = range_of(&text, name, uid) else { return false };
        Command::new(program).args(arguments(pid, id, range)).status().is_ok_and(|status| status.success())
    };
    // Groups first: when they fail, the process can still map its one user by itself.
    map("newgidmap", "/etc/subgid", gid) && map("newuidmap", "/etc/subuid", uid)
}

/// Maps the user of this process, which has made a user namespace, to root.
pub(super) fn map_one(uid: u32, gid: u32) -> std::io::Result<()> {
    // Already mapped if `newgidmap` was there and `newuidmap` was not.
    if mapped(&std::fs::read_to_string("/proc/self/gid_map")?) == 0 {
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    }
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))
}

/// How many ids a map has.
pub(super) fn mapped(map: &str) -> u64 {
    map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_by_name_or_by_id() {
        let text = "root:1:2\nana:100000:65536\n1001:300000:10\nbad\nempty:5:0\n";
        let range = |name, id| range_of(text, name, id).map(|range| (range.start, range.count));
        assert_eq!(range(Some("ana"), 1000), Some((100_000, 65_536)));
        assert_eq!(range(Some("bob"), 1001), Some((300_000, 10)));
        assert_eq!(range(Some("empty"), 7), None);
        assert_eq!(range(None, 9), None);
    }

    #[test]
    fn root_inside_is_the_user_and_others_are_of_the_range() {
        let range = Range { start: 100_000, count: 65_536 };
        assert_eq!(arguments(42, 1000, range), ["42", "0", "1000", "1", "1", "100000", "65536"]);
    }

    #[test]
    fn ids_of_a_map_are_counted() {
        assert_eq!(mapped("         0       1000          1\n"), 1);
        assert_eq!(mapped("0 1000 1\n1 100000 65536\n"), 65_537);
        assert_eq!(mapped(""), 0);
    }
}
