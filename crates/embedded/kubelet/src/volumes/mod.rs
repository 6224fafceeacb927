//! Volumes: what they hold, where they are on the machine, and how containers see them.

mod atomic;
mod content;
mod mounts;

pub use atomic::write_files;
pub use content::{Content, FileContent, Sources, TokenRequest, VolumeError, content, token_requests};
pub use mounts::{VolumePaths, container_mounts};
