//! Fault injection for simulations. Off unless a program turns it on.

use std::{sync::Arc, time::Duration};

use parking_lot::RwLock;

use crate::status::{Failure, Named};

/// A request that is about to be served.
#[derive(Clone, Copy, Debug)]
pub struct Met<'a> {
    /// Verb, such as `update`.
    pub verb: &'a str,
    /// Plural of the resource.
    pub resource: &'a str,
    /// Name of the object, or empty.
    pub name: &'a str,
}

/// A fault of one request.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// It takes this long.
    Delay(Duration),
    /// It fails with this.
    Fail(Failure),
    /// Another writer was faster.
    Conflict,
    /// A read shows the state of this many changes ago, as far as that is still known.
    Stale(u64),
    /// It is carried out, but the client gets this failure instead of the outcome.
    Lost(Failure),
    /// A watch breaks off after this many events.
    Break(u64),
}

/// Effects of a fault while the request is served.
#[derive(Debug, Default)]
pub(crate) struct Injected {
    pub(crate) stale: Option<u64>,
    pub(crate) lost: Option<Failure>,
    pub(crate) breaks_after: Option<u64>,
}

type Decide = Arc<dyn Fn(Met<'_>) -> Option<Fault> + Send + Sync>;

/// The faults of one API.
#[derive(Default)]
pub struct Faults(RwLock<Option<Decide>>);

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Faults").field(&self.0.read().is_some()).finish()
    }
}

impl Faults {
    /// Asks `decide` about every request from now on. It decides alone, so a simulation with a seed repeats.
    pub fn decide(&self, decide: impl Fn(Met<'_>) -> Option<Fault> + Send + Sync + 'static) {
        *self.0.write() = Some(Arc::new(decide));
    }

    /// No more faults.
    pub fn clear(&self) {
        *self.0.write() = None;
    }

    /// Lets a request go wrong; what is left of that when it is served.
    pub(crate) async fn meet(&self, verb: &str, resource: &str, name: &str) -> Result<Injected, Failure> {
        let decide = self.0.read().clone();
        match decide.and_then(|decide| decide(Met { verb, resource, name })) {
            None => Ok(Injected::default()),
            Some(Fault::Delay(time)) => {
                tokio::time::sleep(time).await;
                Ok(Injected::default())
            }
            Some(Fault::Fail(failure)) => Err(failure),
            Some(Fault::Conflict) => Err(Failure::modified(Named { group: "", resource, name })),
            Some(Fault::Stale(changes)) => Ok(Injected { stale: Some(changes), ..Injected::default() }),
            Some(Fault::Lost(failure)) => Ok(Injected { lost: Some(failure), ..Injected::default() }),
            Some(Fault::Break(events)) => Ok(Injected { breaks_after: Some(events), ..Injected::default() }),
        }
    }
}
