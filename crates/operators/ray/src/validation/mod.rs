//! What users can get wrong, and what they are told. Each rule is checked in the controller before anything is made;
//! webhooks check names and uniqueness only, as KubeRay's `pkg/webhooks/v1` does.

pub mod metadata;
pub mod webhook;
#[cfg(test)]
mod workload_tests;

/// Nothing, or what to fix.
pub type Verdict = Result<(), String>;

/// Says what is wrong unless it is right.
pub(crate) fn ensure(is_right: bool, wrong: impl FnOnce() -> String) -> Verdict {
    if is_right { Ok(()) } else { Err(wrong()) }
}
