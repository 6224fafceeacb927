//! What the embedded API costs and how much it carries, seen from outside the real program.
//!
//! `cargo bench -p quintet-apiserver` measures all, `cargo bench -p quintet-apiserver -- start memory` these parts;
//! the parts are `start`, `memory`, `rates` and `watch`. Clients share the machine with the server, so that a rate is
//! best read beside the one of a bare server in the same row: it answers as many bytes through the same TLS, and does
//! nothing else. With `KUBECONFIG_UNDER_TEST` the rates are also those of that cluster.
#![expect(clippy::disallowed_methods, reason = "tasks of a benchmark end with it")]
#![expect(clippy::cast_precision_loss, reason = "numbers for people")]
#![expect(clippy::print_stdout, reason = "this is what the program is for")]

mod bare;
mod connection;
mod memory;
mod program;
mod rates;
mod requests;
mod start;
mod watch;

use std::path::PathBuf;

use program::{Program, Storage};

type Error = Box<dyn std::error::Error + Send + Sync>;

const PARTS: [&str; 4] = ["start", "memory", "rates", "watch"];

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Cargo adds flags of its own.
    let mut chosen: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    if let Some(unknown) = chosen.iter().find(|word| !PARTS.contains(&word.as_str())) {
        return Err(format!("there is no part {unknown:?}; the parts are {}", PARTS.join(", ")).into());
    }
    if chosen.is_empty() {
        chosen = PARTS.map(str::to_owned).to_vec();
    }
    let program = program::build()?;
    for part in chosen {
        println!("\n{part} (load {})", load());
        match part.as_str() {
            "start" => start::measure(&program)?,
            "memory" => memory::measure(&program).await?,
            "rates" => rates::measure(&program).await?,
            _ => watch::measure(&program).await?,
        }
    }
    Ok(())
}

/// How busy the machine is: the averages of one, five and fifteen minutes.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// A directory that goes with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Result<Self, Error> {
        let path = std::env::temp_dir().join(format!("quintet-bench-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
