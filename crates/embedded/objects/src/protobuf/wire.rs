//! The wire format: tags, varints and lengths.

use super::ProtobufError;

/// Reads fields one after the other.
pub(super) struct Reader<'b> {
    bytes: &'b [u8],
}

/// The value of a field, as the wire has it.
#[derive(Clone, Copy)]
pub(super) enum Wire<'b> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'b [u8]),
}

impl<'b> Reader<'b> {
    pub(super) const fn new(bytes: &'b [u8]) -> Self {
        Self { bytes }
    }

    /// The next field, or nothing at the end.
    pub(super) fn field(&mut self) -> Result<Option<(u32, Wire<'b>)>, ProtobufError> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| ProtobufError::Malformed("field number"))?;
        if number == 0 {
            return Err(ProtobufError::Malformed("field number"));
        }
        let value = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => {
                let bytes = self.take(8)?;
                Wire::Fixed64(u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
            }
            2 => {
                let length =
                    usize::try_from(self.varint()?).map_err(|_| ProtobufError::Malformed("length"))?;
                Wire::Bytes(self.take(length)?)
            }
            5 => {
                let bytes = self.take(4)?;
                Wire::Fixed32(u32::from_le_bytes(bytes.try_into().unwrap_or_default()))
            }
            _ => return Err(ProtobufError::Malformed("wire type")),
        };
        Ok(Some((number, value)))
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8], ProtobufError> {
        let (taken, rest) =
            self.bytes.split_at_checked(length).ok_or(ProtobufError::Malformed("unexpected end"))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut number = 0_u64;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self.bytes.split_first().ok_or(ProtobufError::Malformed("unexpected end"))?;
            self.bytes = rest;
            if shift < 64 {
                number |= u64::from(byte & 0x7f) << shift;
            }
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(ProtobufError::Malformed("number"))
    }
}

impl<'b> Wire<'b> {
    pub(super) fn bytes(self) -> Result<&'b [u8], ProtobufError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(ProtobufError::Malformed("expected bytes")),
        }
    }

    pub(super) fn text(self) -> Result<String, ProtobufError> {
        match std::str::from_utf8(self.bytes()?) {
            Ok(text) => Ok(text.into()),
            Err(_) => Err(ProtobufError::Malformed("text is not UTF-8")),
        }
    }

    /// A signed integer: negative ones are written with ten bytes.
    #[expect(clippy::cast_possible_wrap, reason = "that is how the wire writes negative numbers")]
    pub(super) fn integer(self) -> Result<i64, ProtobufError> {
        match self {
            Self::Varint(number) => Ok(number as i64),
            _ => Err(ProtobufError::Malformed("expected a number")),
        }
    }

    pub(super) fn double(self) -> Result<f64, ProtobufError> {
        match self {
            Self::Fixed64(bits) => Ok(f64::from_bits(bits)),
            Self::Fixed32(bits) => Ok(f64::from(f32::from_bits(bits))),
            _ => Err(ProtobufError::Malformed("expected a number")),
        }
    }
}

/// Writes fields one after the other.
#[derive(Default)]
pub(super) struct Writer {
    out: Vec<u8>,
}

impl Writer {
    pub(super) fn finish(self) -> Vec<u8> {
        self.out
    }

    fn raw_varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.out.push(u8::try_from(number & 0x7f).unwrap_or(0) | 0x80);
            number >>= 7;
        }
        self.out.push(u8::try_from(number).unwrap_or(0));
    }

    #[expect(clippy::cast_sign_loss, reason = "that is how the wire writes negative numbers")]
    pub(super) fn integer(&mut self, number: u32, value: i64) {
        self.raw_varint(u64::from(number) << 3);
        self.raw_varint(value as u64);
    }

    pub(super) fn double(&mut self, number: u32, value: f64) {
        self.raw_varint(u64::from(number) << 3 | 1);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.length(number, bytes.len());
        self.out.extend_from_slice(bytes);
    }

    /// The beginning of a field with so many bytes, which follow.
    pub(super) fn length(&mut self, number: u32, length: usize) {
        self.raw_varint(u64::from(number) << 3 | 2);
        self.raw_varint(length as u64);
    }
}
