//! Hashes of parts of API objects: equal means unchanged, or of the same shape.

use std::io;

use serde::Serialize;

/// 128-bit FNV-1a over the JSON of values. Fields have a fixed order and maps are sorted, so that equal
/// values hash alike. An empty list hashes other than none, which costs a reevaluation at worst.
pub(super) struct Fingerprint(u128);

impl Fingerprint {
    pub(super) const fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    /// Adds a value.
    pub(super) fn add(&mut self, value: &impl Serialize) {
        // Writing into a hash does not fail, and API objects have no maps without string keys.
        let _ = serde_json::to_writer(&mut *self, value);
        self.bytes(b"\n");
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }

    pub(super) const fn finish(self) -> u128 {
        self.0
    }
}

impl io::Write for Fingerprint {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The fingerprint of one value.
#[expect(clippy::cast_possible_truncation, reason = "half of the hash is enough to notice changes")]
pub(super) fn fingerprint(value: &impl Serialize) -> u64 {
    let mut hash = Fingerprint::new();
    hash.add(value);
    let hash = hash.finish();
    (hash >> 64) as u64 ^ hash as u64
}
