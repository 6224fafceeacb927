//! The promises, area by area.

mod access;
mod apply;
mod custom;
mod deletion;
mod discovery;
mod kinds;
mod limits;
mod list;
mod objects;
mod patch;
mod representation;
mod watch;
mod webhooks;
mod workloads;

use crate::Case;

pub(crate) fn all() -> Vec<Case> {
    [
        discovery::CASES,
        objects::CASES,
        list::CASES,
        watch::CASES,
        patch::CASES,
        apply::CASES,
        deletion::CASES,
        representation::CASES,
        kinds::CASES,
        limits::CASES,
        custom::CASES,
        access::CASES,
        webhooks::CASES,
        workloads::deployments::CASES,
        workloads::replicasets::CASES,
        workloads::statefulsets::CASES,
        workloads::daemonsets::CASES,
        workloads::jobs::CASES,
        workloads::cronjobs::CASES,
        workloads::services::CASES,
        workloads::disruption::CASES,
        workloads::scheduling::CASES,
    ]
    .concat()
}

/// Declares the cases of an area: a promise and the function that checks it.
macro_rules! cases {
    ($area:literal: $( $promise:literal => $check:ident, )*) => {
        pub(in crate::cases) const CASES: &[$crate::Case] = &[
            $( $crate::Case { area: $area, promise: $promise, check: |world| Box::pin($check(world)) }, )*
        ];
    };
}
use cases;
