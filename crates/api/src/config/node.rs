//! The node of `quintet up`: what runs in place of container images.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Settings of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Node {
    /// What runs in place of images, before what is known by itself.
    pub images: Vec<ImageMapping>,
}

/// What runs in place of some images.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImageMapping {
    /// The images: a repository, or a repository and a tag. `*` stands for any characters. A repository without a
    /// registry also means mirrors of it: `rayproject/ray` matches `registry.example.com/mirror/rayproject/ray`.
    pub image: String,
    /// What runs.
    pub runtime: ImageRuntime,
    /// What runs without a command.
    #[serde(default)]
    pub entrypoint: Vec<String>,
    /// Arguments of that.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Variables.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// The user, where neither pod nor container says.
    #[serde(default)]
    pub user: Option<u32>,
    /// The home directory and where processes start.
    #[serde(default)]
    pub home: Option<String>,
}

/// What runs in place of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum ImageRuntime {
    /// The programs of this machine.
    Host {},
    /// This program; its arguments are those of the container.
    Quintet {},
    /// A Python environment with these packages, as `pip` writes them. `{version}` and `{tag}` are those of the image;
    /// a requirement that needs a version which the tag does not have stands without it.
    Python {
        /// Requirements.
        packages: Vec<String>,
    },
}
