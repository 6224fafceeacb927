//! Everything the API makes up: uids, ends of names, addresses.

use std::sync::Arc;

use parking_lot::Mutex;

/// Where the API takes what is different every time. Clones go on with the same sequence.
#[derive(Clone, Debug)]
pub struct Chance(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Seeded(Arc<Mutex<u64>>),
}

impl Chance {
    /// The randomness of the operating system.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// The same sequence for the same seed. For simulations: others can guess it.
    pub fn seeded(seed: u64) -> Self {
        Self(Source::Seeded(Arc::new(Mutex::new(seed))))
    }

    pub(crate) fn fill(&self, bytes: &mut [u8]) {
        match &self.0 {
            Source::System => {
                if aws_lc_rs::rand::fill(bytes).is_err() {
                    // The operating system has no randomness to give: names will collide and be refused, not reused.
                    tracing::error!("no randomness available");
                }
            }
            Source::Seeded(state) => {
                let mut state = state.lock();
                for piece in bytes.chunks_mut(8) {
                    let next = split_mix(&mut state).to_le_bytes();
                    piece.iter_mut().zip(next).for_each(|(byte, next)| *byte = next);
                }
            }
        }
    }

    /// A random UUID (version 4).
    pub(crate) fn uuid(&self) -> String {
        let mut bytes = [0_u8; 16];
        self.fill(&mut bytes);
        let number = u128::from_be_bytes(bytes) & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{number:032x}");
        let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
        format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
    }

    /// The end of a generated name.
    pub(crate) fn suffix(&self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut bytes = [0_u8; 5];
        self.fill(&mut bytes);
        bytes
            .iter()
            .filter_map(|byte| LETTERS.get(usize::from(*byte) % LETTERS.len()))
            .map(|b| char::from(*b))
            .collect()
    }
}

/// SplitMix64: small, and every seed is a good one.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_of_version_four() {
        let chance = Chance::system();
        let uuid = chance.uuid();
        assert_eq!(uuid.len(), 36);
        assert_eq!(uuid.as_bytes()[14], b'4');
        assert!(matches!(uuid.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{uuid}");
        assert_ne!(uuid, chance.uuid());
    }

    #[test]
    fn a_seed_repeats() {
        let [one, two, other] = [7, 7, 8].map(Chance::seeded);
        assert_eq!((one.uuid(), one.suffix()), (two.uuid(), two.suffix()));
        assert_ne!(one.uuid(), other.uuid());
    }
}
