//! Names of pods to create.
//!
//! A name has to look random, and every attempt has to choose it again until the pod was observed: a creation whose
//! response is lost is then repeated under the same name. So a name follows from the owner, a seed drawn once per
//! process, and how many pods of that owner were observed to disappear.

use std::collections::{HashMap, hash_map::RandomState};
use std::hash::{BuildHasher as _, Hash, Hasher as _};
use std::sync::Arc;

use parking_lot::Mutex;
use quintet_api::names::{head, suffix};
use quintet_controller::cache::Cache;
use quintet_controller::object::Uid;
use serde::{Deserialize, Serialize};

use crate::claim::Claimable as _;
use crate::pod::PodView;

/// Kubernetes cuts the prefix of a generated name here, so that the name has at most 63 characters.
const MAX_PREFIX: usize = 58;

/// What this process has seen of pods that disappeared, by the uid of their controller.
#[derive(Clone)]
pub(crate) struct PodNames {
    seed: u64,
    disappeared: Arc<Mutex<HashMap<Uid, u64>>>,
}

impl PodNames {
    /// Follows the pods of a cache. A `seed` makes names repeatable, for simulations.
    pub(crate) fn follow(pods: &Cache<PodView>, seed: Option<u64>) -> Self {
        let seed = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let names = Self { seed, disappeared: Arc::default() };
        let followed = names.clone();
        pods.subscribe(move |change| {
            if let (Some(pod), None) = (&change.old, &change.new)
                && let Some(owner) = pod.object.controller()
                && let Some(count) = followed.disappeared.lock().get_mut(&Uid::from(owner.uid.as_str()))
            {
                *count += 1;
            }
        });
        names
    }

    /// Forgets owners that disappear. Their pods go after them: what is forgotten stays forgotten.
    pub(crate) fn forget_owners<R: Send + Sync + 'static>(&self, roots: &Cache<R>) {
        let names = self.clone();
        roots.subscribe(move |change| {
            let is_same = |uid: &Uid| change.new.as_ref().is_some_and(|new| new.uid == *uid);
            if let Some(old) = change.old.as_ref().filter(|old| !is_same(&old.uid)) {
                names.disappeared.lock().remove(&old.uid);
            }
        });
    }

    /// The entropy for names of the next pods of an owner.
    pub(crate) fn entropy(&self, owner: &Uid) -> Entropy {
        let round = *self.disappeared.lock().entry(owner.clone()).or_default();
        Entropy { seed: self.seed, owner: owner.clone(), round }
    }
}

/// Where the names of an owner's next pods come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entropy {
    seed: u64,
    owner: Uid,
    round: u64,
}

impl Entropy {
    /// Names that begin with `prefix`, again and again others, and always in the same order for the same `slot`.
    pub(crate) fn names<S: Hash>(&self, prefix: &str, slot: S) -> impl Iterator<Item = String> + use<S> {
        let prefix = head(prefix, MAX_PREFIX).to_owned();
        let Self { seed, owner, round } = self.clone();
        (0_u32..).map(move |attempt| format!("{prefix}{}", suffix((seed, &owner, round, &slot, attempt))))
    }
}

/// What the names of the pods of `owner` begin with.
pub(crate) fn prefix(owner: &str) -> String {
    format!("{owner}-")
}
