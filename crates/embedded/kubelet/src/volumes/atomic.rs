//! Files that change all at once, as the kubelet's atomic writer lays them out.
//!
//! The files are in a directory of their own, `..data` is a link to it, and every name that users see is a link through
//! `..data`. A change makes a new directory and replaces the one link, so a reader sees all files of the old version or
//! all of the new one, and programs that watch for the replacement of `..data` work.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use jiff::Timestamp;

use super::FileContent;

/// The link that is replaced.
const DATA: &str = "..data";
/// The new link before it takes its place.
const NEW_DATA: &str = "..data_tmp";

/// Makes the files in `directory` those of `files`; returns whether anything changed.
pub fn write_files(
    directory: &Path,
    files: &BTreeMap<PathBuf, FileContent>,
    now: Timestamp,
) -> io::Result<bool> {
    if let Some(outside) = files.keys().find(|path| !is_inside(path)) {
        let message = format!("{} leads out of the volume", outside.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let old = fs::read_link(directory.join(DATA)).ok();
    if old.is_some() && is_same(&directory.join(DATA), files)? {
        return Ok(false);
    }
    let version = PathBuf::from(format!("..{}", now.strftime("%Y_%m_%d_%H_%M_%S.%9f")));
    fs::create_dir_all(directory.join(&version))?;
    for (path, file) in files {
        let path = directory.join(&version).join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, &file.bytes)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(file.mode))?;
    }
    let new = directory.join(NEW_DATA);
    if new.symlink_metadata().is_ok() {
        fs::remove_file(&new)?;
    }
    symlink(&version, &new)?;
    fs::rename(&new, directory.join(DATA))?;
    link_names(directory, files)?;
    if let Some(old) = old.filter(|old| *old != version) {
        fs::remove_dir_all(directory.join(old))?;
    }
    Ok(true)
}

/// Paths come from users: they must be relative and stay in the volume, and names with `..` in front are ours.
fn is_inside(path: &Path) -> bool {
    let mut parts = path.components();
    let is_own = path.to_str().is_some_and(|path| path.starts_with(".."));
    !is_own && path.components().next().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}

fn is_same(data: &Path, files: &BTreeMap<PathBuf, FileContent>) -> io::Result<bool> {
    let mut found = BTreeSet::new();
    collect(data, Path::new(""), &mut found)?;
    if !found.iter().eq(files.keys()) {
        return Ok(false);
    }
    for (path, file) in files {
        let path = data.join(path);
        let mode = fs::metadata(&path)?.permissions().mode() & 0o7777;
        if mode != file.mode || fs::read(&path)? != file.bytes {
            return Ok(false);
        }
    }
    Ok(true)
}

fn collect(directory: &Path, below: &Path, found: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            collect(directory, &path, found)?;
        } else {
            found.insert(path);
        }
    }
    Ok(())
}

/// One link for each first part of a path; those of files that are gone go.
fn link_names(directory: &Path, files: &BTreeMap<PathBuf, FileContent>) -> io::Result<()> {
    let wanted: BTreeSet<&Path> = files.keys().filter_map(|path| path.iter().next()).map(Path::new).collect();
    for name in &wanted {
        let link = directory.join(name);
        if link.symlink_metadata().is_err() {
            symlink(Path::new(DATA).join(name), link)?;
        }
    }
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let is_ours = name.to_str().is_some_and(|name| name.starts_with(".."));
        if !is_ours && !wanted.contains(Path::new(&name)) {
            fs::remove_file(directory.join(name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn files<const N: usize>(entries: [(&str, &str); N]) -> BTreeMap<PathBuf, FileContent> {
        entries.map(|(path, text)| (path.into(), FileContent { bytes: text.into(), mode: 0o644 })).into()
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.starts_with("..19"))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_reached_through_one_link() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert!(write_files(path, &files([("a", "1"), ("deep/b", "2")]), at(1)).unwrap());
        assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "1");
        assert_eq!(fs::read_to_string(path.join("deep/b")).unwrap(), "2");
        assert_eq!(fs::read_link(path.join("a")).unwrap(), Path::new("..data/a"));
        assert_eq!(names(path), ["..data", "a", "deep"]);
    }

    #[test]
    fn an_open_directory_never_sees_two_versions_mixed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        write_files(path, &files([("a", "1"), ("b", "1")]), at(1)).unwrap();
        let before = fs::read_link(path.join("..data")).unwrap();
        write_files(path, &files([("a", "2"), ("c", "2")]), at(2)).unwrap();
        assert_ne!(fs::read_link(path.join("..data")).unwrap(), before);
        assert!(!path.join(before).exists());
        assert_eq!(names(path), ["..data", "a", "c"]);
        assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "2");
    }

    #[test]
    fn the_same_files_are_not_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let same = files([("a", "1"), ("deep/b", "2")]);
        assert!(write_files(directory.path(), &same, at(1)).unwrap());
        assert!(!write_files(directory.path(), &same, at(2)).unwrap());
        let mut stricter = same;
        stricter.get_mut(Path::new("a")).unwrap().mode = 0o600;
        assert!(write_files(directory.path(), &stricter, at(3)).unwrap());
    }

    #[test]
    fn paths_that_lead_out_of_the_volume_are_rejected() {
        let directory = tempfile::tempdir().unwrap();
        for path in ["../a", "/etc/passwd", "a/../../b", "..data", ""] {
            assert!(write_files(directory.path(), &files([(path, "x")]), at(1)).is_err(), "{path}");
        }
        assert_eq!(names(directory.path()), Vec::<String>::new());
    }
}
