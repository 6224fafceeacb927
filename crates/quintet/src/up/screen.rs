//! The start-up screen: what is being prepared, and what is ready.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use crate::output;

/// Columns of the names of parts.
const WIDTH: usize = 16;

/// Shows one part after the other. On a terminal a part is shown while it is being prepared, too.
pub(super) struct Screen {
    began: Instant,
    is_terminal: bool,
    part: &'static str,
}

impl Screen {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), is_terminal: std::io::stderr().is_terminal(), part: "" }
    }

    /// The time since the program began.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// A part is being prepared.
    pub(super) fn begin(&mut self, part: &'static str) {
        self.part = part;
        if self.is_terminal {
            output::complain(&format!("  \u{2026} {part}"));
        }
    }

    /// The part is ready.
    pub(super) fn done(&self, detail: &str) {
        let part = self.part;
        let line = if self.is_terminal {
            format!("\r\x1b[2K  \x1b[32m\u{2713}\x1b[0m {part:WIDTH$} {detail}\n")
        } else {
            format!("{part}: {detail}\n")
        };
        output::complain(&line);
    }

    /// Something to know about the part.
    pub(super) fn note(&self, text: &str) {
        let margin = if self.is_terminal { "    " } else { "" };
        output::complain(&format!("{margin}note: {text}\n"));
    }
}
