//! Random numbers, from the operating system or from a seed.

use std::sync::Arc;

use parking_lot::Mutex;

/// A random number generator. Clones share one sequence.
#[derive(Clone, Debug)]
pub struct Rng(Source);

#[derive(Clone, Debug)]
enum Source {
    Entropy,
    Seeded(Arc<Mutex<u64>>),
}

impl Rng {
    /// The operating system's generator. Its output cannot be predicted.
    pub fn from_entropy() -> Self {
        Self(Source::Entropy)
    }

    /// The same sequence for the same seed. For simulations and jitter only: the output can be predicted.
    pub fn seeded(seed: u64) -> Self {
        Self(Source::Seeded(Arc::new(Mutex::new(seed))))
    }

    /// Seeded if there is a seed, from entropy otherwise.
    pub fn seeded_or_entropy(seed: Option<u64>) -> Self {
        seed.map_or_else(Self::from_entropy, Self::seeded)
    }

    /// A generator with a sequence of its own. That of a seeded generator follows from its seed.
    #[must_use]
    pub fn fork(&self) -> Self {
        match &self.0 {
            Source::Entropy => self.clone(),
            Source::Seeded(_) => Self::seeded(self.next_u64()),
        }
    }

    /// Fills `bytes`.
    pub fn fill(&self, bytes: &mut [u8]) {
        match &self.0 {
            Source::Entropy => {
                if aws_lc_rs::rand::fill(bytes).is_err() {
                    // Names made of zeros collide and are rejected; nothing is overwritten.
                    tracing::error!("the operating system provides no entropy");
                }
            }
            Source::Seeded(state) => {
                let mut state = state.lock();
                for chunk in bytes.chunks_mut(8) {
                    let number = split_mix(&mut state).to_le_bytes();
                    chunk.iter_mut().zip(number).for_each(|(byte, number)| *byte = number);
                }
            }
        }
    }

    /// The next number.
    pub fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// A number below `bound`; zero if the bound is zero. Slightly biased towards small numbers.
    pub fn below(&self, bound: u64) -> u64 {
        self.next_u64().checked_rem(bound).unwrap_or(0)
    }

    /// True so many times in a thousand, for fault injection.
    pub fn happens(&self, per_thousand: u64) -> bool {
        self.below(1000) < per_thousand
    }

    /// A random UUID (version 4).
    pub fn uuid(&self) -> String {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        let number = u128::from_be_bytes(bytes) & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{number:032x}");
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }

    /// The random end of a generated object name: five letters and digits of Kubernetes' alphabet, which
    /// spells no words.
    pub fn name_suffix(&self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut bytes = [0_u8; 5];
        self.fill(&mut bytes);
        bytes.iter().map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])).collect()
    }
}

/// SplitMix64: small, and every seed is as good as any other.
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
    fn uuids_are_of_version_four() {
        let rng = Rng::from_entropy();
        let uuid = rng.uuid();
        assert_eq!(uuid.len(), 36);
        assert_eq!(uuid.as_bytes()[14], b'4');
        assert!(matches!(uuid.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{uuid}");
        assert_ne!(uuid, rng.uuid());
    }

    #[test]
    fn the_same_seed_gives_the_same_sequence() {
        let [one, two, other] = [7, 7, 8].map(Rng::seeded);
        assert_eq!((one.uuid(), one.name_suffix()), (two.uuid(), two.name_suffix()));
        assert_ne!(one.uuid(), other.uuid());
    }

    #[test]
    fn clones_share_a_sequence_and_forks_do_not() {
        let rng = Rng::seeded(7);
        let (clone, fork) = (rng.clone(), rng.fork());
        let reference = Rng::seeded(7);
        reference.next_u64();
        assert_eq!([rng.next_u64(), clone.next_u64()], [reference.next_u64(), reference.next_u64()]);
        assert_ne!(fork.next_u64(), clone.next_u64());
    }
}
