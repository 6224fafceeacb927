//! The `quintet` program with the operators of [`quintet::components`].

use std::process::ExitCode;

// Returns memory to the system: a start, or a busy hour, takes several times what is kept of it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    quintet::run(quintet::components())
}
