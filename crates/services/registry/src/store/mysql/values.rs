//! Numbers, texts and rows as the protocol encodes them.

use crate::store::StoreError;
use crate::store::sql::{NullType, Row, Value};

const TINY: u8 = 1;
const SHORT: u8 = 2;
const LONG: u8 = 3;
const FLOAT: u8 = 4;
const DOUBLE: u8 = 5;
const NULL: u8 = 6;
const LONGLONG: u8 = 8;
const INT24: u8 = 9;
const YEAR: u8 = 13;
const BLOB: u8 = 252;
const VAR_STRING: u8 = 253;
/// The character set of bytes that are no text.
const BINARY: u16 = 63;

/// Reads a packet from its beginning.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn bytes(&mut self, length: usize) -> Result<&'a [u8], StoreError> {
        let (read, rest) = self
            .0
            .split_at_checked(length)
            .ok_or_else(|| StoreError::Unavailable("MySQL sent a packet that is too short".to_owned()))?;
        self.0 = rest;
        Ok(read)
    }

    /// A number of up to eight bytes, the least significant first.
    pub(super) fn number(&mut self, length: usize) -> Result<u64, StoreError> {
        Ok(self.bytes(length)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub(super) fn byte(&mut self) -> Result<u8, StoreError> {
        Ok(u8::try_from(self.number(1)?).unwrap_or_default())
    }

    pub(super) fn short(&mut self) -> Result<u16, StoreError> {
        Ok(u16::try_from(self.number(2)?).unwrap_or_default())
    }

    pub(super) fn long(&mut self) -> Result<u32, StoreError> {
        Ok(u32::try_from(self.number(4)?).unwrap_or_default())
    }

    /// A number whose first byte says how long it is.
    pub(super) fn length(&mut self) -> Result<u64, StoreError> {
        match self.byte()? {
            0xfc => self.number(2),
            0xfd => self.number(3),
            0xfe => self.number(8),
            small => Ok(u64::from(small)),
        }
    }

    /// Bytes behind their length.
    pub(super) fn counted(&mut self) -> Result<&'a [u8], StoreError> {
        let length = self.length()?;
        self.bytes(usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// Bytes up to a NUL, or to the end.
    pub(super) fn terminated(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|byte| *byte == 0);
        let text = end.and_then(|end| self.0.get(..end)).unwrap_or(self.0);
        self.0 = end.and_then(|end| self.0.get(end + 1..)).unwrap_or_default();
        text
    }
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    let bytes = u64::try_from(length).unwrap_or(u64::MAX).to_le_bytes();
    match length {
        0..=0xfa => out.extend(&bytes[..1]),
        0xfb..=0xffff => {
            out.push(0xfc);
            out.extend(&bytes[..2]);
        }
        0x1_0000..=0xff_ffff => {
            out.push(0xfd);
            out.extend(&bytes[..3]);
        }
        _ => {
            out.push(0xfe);
            out.extend(bytes);
        }
    }
}

/// Appends the parameters of a statement: which are NULL, their types, their values.
pub(super) fn put_parameters(out: &mut Vec<u8>, parameters: &[Value]) {
    if parameters.is_empty() {
        return;
    }
    let is_null = |value: &Value| matches!(value, Value::Null(_));
    for eight in parameters.chunks(8) {
        let bits = eight.iter().enumerate().filter(|(_, value)| is_null(value));
        out.push(bits.fold(0, |bits, (index, _)| bits | 1 << index));
    }
    out.push(1);
    for value in parameters {
        let ty = match value {
            Value::Null(_) => NULL,
            Value::Int(_) => LONGLONG,
            Value::Double(_) => DOUBLE,
            Value::Text(_) => VAR_STRING,
            Value::Bool(_) => TINY,
            Value::Bytes(_) => BLOB,
        };
        out.extend([ty, 0]);
    }
    for value in parameters {
        match value {
            Value::Null(_) => {}
            Value::Int(number) => out.extend(number.to_le_bytes()),
            Value::Double(number) => out.extend(number.to_le_bytes()),
            Value::Bool(flag) => out.push(u8::from(*flag)),
            Value::Text(text) => {
                put_length(out, text.len());
                out.extend(text.as_bytes());
            }
            Value::Bytes(bytes) => {
                put_length(out, bytes.len());
                out.extend(bytes);
            }
        }
    }
}

/// A column of a result.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    ty: u8,
    charset: u16,
}

impl Column {
    pub(super) fn read(packet: &[u8]) -> Result<Self, StoreError> {
        let mut reader = Reader(packet);
        for _ in 0..6 {
            reader.counted()?;
        }
        reader.byte()?;
        let charset = reader.short()?;
        reader.long()?;
        Ok(Self { ty: reader.byte()?, charset })
    }
}

/// Reads a row, whose first byte is its header.
pub(super) fn read_row(packet: &[u8], columns: &[Column]) -> Result<Row, StoreError> {
    let mut reader = Reader(packet);
    reader.byte()?;
    // The first two bits are not used.
    let nulls = reader.bytes((columns.len() + 9) / 8)?;
    let is_null = |index: usize| {
        let bit = index + 2;
        nulls.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
    };
    let values = columns.iter().enumerate().map(|(index, column)| {
        if is_null(index) { Ok(Value::Null(NullType::Text)) } else { read_value(&mut reader, *column) }
    });
    values.collect::<Result<_, _>>().map(Row)
}

fn read_value(reader: &mut Reader<'_>, column: Column) -> Result<Value, StoreError> {
    let signed = |number: u64, bits: u32| {
        // Shifting up and down again spreads the sign.
        let shift = 64 - bits;
        Value::Int(number.cast_signed() << shift >> shift)
    };
    Ok(match column.ty {
        TINY => signed(reader.number(1)?, 8),
        SHORT | YEAR => signed(reader.number(2)?, 16),
        LONG | INT24 => signed(reader.number(4)?, 32),
        LONGLONG => signed(reader.number(8)?, 64),
        FLOAT => Value::Double(f64::from(f32::from_bits(reader.long()?))),
        DOUBLE => Value::Double(f64::from_bits(reader.number(8)?)),
        _ => {
            let bytes = reader.counted()?;
            if column.charset == BINARY {
                Value::Bytes(bytes.to_vec())
            } else {
                Value::Text(String::from_utf8_lossy(bytes).into_owned())
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{Column, Reader, put_length, put_parameters, read_row};
    use crate::store::sql::{NullType, Value};

    #[test]
    fn lengths_read_back() {
        for length in [0, 250, 251, 65_535, 65_536, 0xff_ffff, 0x100_0000] {
            let mut out = Vec::new();
            put_length(&mut out, length);
            assert_eq!(Reader(&out).length().expect("a length"), u64::try_from(length).expect("fits"));
        }
    }

    #[test]
    fn parameters_are_a_bitmap_types_and_values() {
        let mut out = Vec::new();
        let parameters = [Value::Int(-2), Value::Null(NullType::Text), Value::text("ab"), Value::Bool(true)];
        put_parameters(&mut out, &parameters);
        let mut expected = vec![0b0010, 1, 8, 0, 6, 0, 253, 0, 1, 0];
        expected.extend((-2_i64).to_le_bytes());
        expected.extend([2, b'a', b'b', 1]);
        assert_eq!(out, expected);
    }

    #[test]
    fn rows_are_read_by_the_types_of_their_columns() {
        let columns =
            [(3, 63), (253, 45), (1, 63), (252, 63), (5, 63)].map(|(ty, charset)| Column { ty, charset });
        // The second column is NULL: bit 3.
        let mut packet = vec![0, 0b1000, 0xff, 0xff, 0xff, 0xff, 1, 2, 7, 8];
        packet.extend(1.5_f64.to_le_bytes());
        let row = read_row(&packet, &columns).expect("a row");
        assert_eq!(row.int(0), Some(-1));
        assert_eq!(row.text(1), None);
        assert_eq!(row.bool(2), Some(true));
        assert_eq!(row.bytes(3), Some(&[7, 8][..]));
        assert_eq!(row.double(4), Some(1.5));
        assert!(read_row(&packet[..5], &columns).is_err());
    }
}
