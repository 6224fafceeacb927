//! The limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files as far as the process may, as Go's runtime does, and returns it. Shells start
/// programs with 1,024, for programs that use `select`.
pub fn raise_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::warn!("cannot raise the limit of open files: {error}");
            current
        }
    };
    limit.unwrap_or(u64::MAX)
}
