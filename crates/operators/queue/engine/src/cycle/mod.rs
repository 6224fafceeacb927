//! The scheduling cycle: the head of every queue is nominated, then they are decided about one by one, each
//! after those before it took their quota. As `schedule` in Kueue's `pkg/scheduler/scheduler.go`.

mod decision;
mod entry;
mod nominate;
mod order;
mod process;
mod run;

pub use decision::{Admitted, CycleReport, Decision, Outcome, Unadmitted};
pub use entry::{Entry, EntryStatus, Head, reserved_without_targets};
pub(crate) use entry::{preempting, preemption_outcome};
pub use nominate::{evaluate, replaced_slice};
pub(crate) use order::Order;
pub use order::{compare_classical, compare_fair};
pub use process::{Fits, Victims, fits};
pub(crate) use process::{Processed, Processing};
pub use run::required_checks;
