use std::sync::Arc;

use parking_lot::Mutex;

/// A seeded rng. Clones go on with the same sequence.
#[derive(Clone, Debug)]
pub struct Rng(Arc<Mutex<u64>>);

impl Rng {
    /// The rng of a seed.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x51_7cc1_b727_220a)))
    }

    /// A number below `sides`.
    pub fn roll(&self, sides: u64) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides.max(1)
    }

    /// True so many times in a thousand.
    pub fn happens(&self, per_thousand: u64) -> bool {
        self.roll(1000) < per_thousand
    }
}
