//! The dominant resource share of a node: how much it borrows of what it could borrow, for the
//! resource where that is most.

use std::cmp::Ordering;

use crate::amount::Amount;
use crate::model::{Fr, Usage, usage_of};
use crate::names::{Names, ResourceId};
use crate::quota::{NodeId, QuotaTree};

/// A node's share.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// The node's weight.
    pub weight: f64,
    /// Borrowed per thousand of what can be borrowed, before weighting.
    pub ratio: f64,
    /// The resource the ratio is of.
    pub dominant: Option<ResourceId>,
    /// What is borrowed, even where nothing can be borrowed.
    pub borrowed: Vec<Fr>,
}

impl Share {
    /// Below every share a node can have.
    pub const fn lowest() -> Self {
        Self { weight: 1.0, ratio: -1.0, dominant: None, borrowed: Vec::new() }
    }

    /// Whether the node borrows at all.
    pub fn is_borrowing(&self) -> bool {
        !self.borrowed.is_empty()
    }

    /// Whether it borrows any of what is requested here.
    pub fn is_borrowing_on(&self, requested: &Usage) -> bool {
        self.borrowed.iter().any(|fr| usage_of(requested, *fr) > 0)
    }

    /// The ratio divided by the weight; infinite for a borrower without weight.
    pub fn weighted(&self) -> f64 {
        if self.ratio == 0.0 {
            0.0
        } else if self.weight == 0.0 {
            f64::INFINITY
        } else {
            self.ratio / self.weight
        }
    }

    /// The weighted share as clients see it: rounded up, the largest integer if infinite.
    #[expect(clippy::cast_possible_truncation, reason = "float to integer casts saturate")]
    pub fn rounded(&self) -> i64 {
        if self.is_weightless_borrower() { i64::MAX } else { self.weighted().ceil() as i64 }
    }

    fn is_weightless_borrower(&self) -> bool {
        self.weight == 0.0 && self.ratio != 0.0
    }

    /// Smaller shares first; borrowers without weight come after all others, ordered by their ratio.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Ordering {
        match (self.is_weightless_borrower(), other.is_weightless_borrower()) {
            (true, true) => self.ratio.total_cmp(&other.ratio),
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.weighted().partial_cmp(&other.weighted()).unwrap_or(Ordering::Equal),
        }
    }
}

impl QuotaTree {
    /// The share of a node if it used `extra` on top of what it uses.
    #[expect(clippy::cast_precision_loss, reason = "shares are floats by definition")]
    pub fn share_with(&self, id: NodeId, extra: &Usage, names: &Names) -> Share {
        let mut share = Share { weight: self.weight(id), ratio: 0.0, dominant: None, borrowed: Vec::new() };
        let Some(parent) = self.parent(id) else {
            return share;
        };
        let mut borrowed: Vec<(ResourceId, Amount)> = Vec::new();
        for (fr, subtree, usage) in self.quoted(id) {
            let over = usage_of(extra, fr) + usage - subtree;
            if over > 0 {
                share.borrowed.push(fr);
                match borrowed.iter_mut().find(|(resource, _)| *resource == fr.resource) {
                    Some((_, sum)) => *sum += over,
                    None => borrowed.push((fr.resource, over)),
                }
            }
        }
        for (resource, over) in borrowed {
            let lendable = self.lendable(parent).iter().find(|(id, _)| *id == resource);
            let Some((_, lendable)) = lendable.filter(|(_, amount)| *amount > 0) else {
                continue;
            };
            let ratio = over.get() as f64 * 1000.0 / lendable.get() as f64;
            let tie = share.dominant.is_some_and(|dominant| {
                #[expect(clippy::float_cmp, reason = "equal ratios come from equal operands")]
                let equal = ratio == share.ratio;
                equal && names.resource_name(resource) < names.resource_name(dominant)
            });
            if ratio > share.ratio || tie {
                (share.ratio, share.dominant) = (ratio, Some(resource));
            }
        }
        share
    }

    /// The share of a node.
    pub fn share(&self, id: NodeId, names: &Names) -> Share {
        self.share_with(id, &Usage::new(), names)
    }
}
