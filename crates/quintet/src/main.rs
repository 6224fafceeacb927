//! The `quintet` program with the operators of [`quintet::components`].

use std::process::ExitCode;

// Returns memory to the system: a start, or a busy hour, takes several times what is kept of it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    quintet::run(quintet::components(), start_allocator_thread)
}

/// Without its thread the allocator returns memory later; that is no reason not to start.
fn start_allocator_thread() {
    let _ = tikv_jemalloc_ctl::background_thread::write(true);
}
