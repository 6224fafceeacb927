//! The life of one pod: what its specification and the state of its processes mean. Pure: no clock, no I/O.

pub mod environment;
pub mod lifecycle;
pub mod names;
pub mod observe;
pub mod probe;
pub mod resources;
pub mod security;
pub mod stage;
pub mod status;
