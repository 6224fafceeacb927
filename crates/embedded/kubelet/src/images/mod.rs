//! Images without a registry: a table says what runs in place of an image.
//!
//! A reference like `rayproject/ray:2.52.0` is looked up in a table. What it finds is a runtime of this machine: its own
//! programs, some of them with files of ours, this program, or a Python environment that is made on first use and kept. An image that is not in the table
//! is never replaced by something else: the pod waits with `ErrImagePull` and says how to map the image.

mod files;
mod mlflow;
mod python;
mod reference;
mod store;
mod table;

use files::Bundle;
pub use quintet_api::config::node::{ImageMapping as Mapping, ImageRuntime as Runtime};

pub use python::{Environment, EnvironmentError, Environments};
pub use reference::Reference;
pub use store::{ImageError, Images};
pub use table::{Table, UnmappedImage};

use std::path::PathBuf;

use sha1::{Digest as _, Sha1};

/// What a container gets from its image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Identifies what the image stands for, as `imageID` in the status of a container.
    pub id: String,
    /// Its variables.
    pub environment: Vec<(String, String)>,
    /// What runs if the container has no `command`.
    pub entrypoint: Vec<String>,
    /// Its arguments if the container has neither `command` nor `args`.
    pub arguments: Vec<String>,
    /// Where processes start if the container does not say.
    pub working_directory: PathBuf,
    /// The user, where neither pod nor container says.
    pub user: Option<u32>,
    /// What it needs of the machine beside the system's directories, and where containers see it. Read-only.
    pub mounts: Vec<(PathBuf, PathBuf)>,
    /// Its size on disk, of which the system's directories are no part.
    pub bytes: u64,
}

/// What an image of ours has beside its runtime, which users cannot ask for: the programs and files that upstream's
/// manifests expect in it.
#[derive(Clone, Copy, Debug)]
enum Addition {
    /// This program at a path.
    Program(&'static str),
    /// Files.
    Files(&'static Bundle),
}

/// Identifies a text.
fn digest(text: &str) -> String {
    let mut digits = String::with_capacity(40);
    for byte in Sha1::digest(text) {
        digits.extend([byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0')));
    }
    digits
}

/// What a container runs: `command` replaces the entry point and its arguments, `args` the arguments alone.
pub fn command_line(image: &Image, command: Option<&[String]>, args: Option<&[String]>) -> Vec<String> {
    let given = |list: Option<&[String]>| list.filter(|list| !list.is_empty()).map(<[String]>::to_vec);
    match (given(command), given(args)) {
        (Some(command), args) => command.into_iter().chain(args.into_iter().flatten()).collect(),
        (None, Some(args)) => image.entrypoint.iter().cloned().chain(args).collect(),
        (None, None) => image.entrypoint.iter().chain(&image.arguments).cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_arguments_replace_those_of_the_image() {
        let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let image = Image { entrypoint: list(&["entry"]), arguments: list(&["default"]), ..Image::default() };
        let line = |command: &[&str], args: &[&str]| {
            command_line(&image, Some(&list(command)), Some(&list(args))).join(" ")
        };
        assert_eq!(line(&[], &[]), "entry default");
        assert_eq!(line(&[], &["a"]), "entry a");
        assert_eq!(line(&["c"], &[]), "c");
        assert_eq!(line(&["c"], &["a"]), "c a");
    }
}
