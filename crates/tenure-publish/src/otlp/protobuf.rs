//! The part of protobuf's wire format that OTLP needs: fields of a message, written and read.

/// Wire types.
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const BYTES: u64 = 2;
const FIXED_32: u64 = 5;

/// A message that is being written.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn bytes(&mut self, field: u64, value: &[u8]) {
        self.tag(field, BYTES);
        self.varint(length(value));
        self.0.extend_from_slice(value);
    }

    pub(super) fn text(&mut self, field: u64, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    /// Writes a message within this one.
    pub(super) fn message(&mut self, field: u64, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    pub(super) fn number(&mut self, field: u64, value: u64) {
        self.tag(field, VARINT);
        self.varint(value);
    }

    pub(super) fn fixed_64(&mut self, field: u64, value: u64) {
        self.tag(field, FIXED_64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn fixed_32(&mut self, field: u64, value: u32) {
        self.tag(field, FIXED_32);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }

    fn tag(&mut self, field: u64, wire_type: u64) {
        self.varint(field << 3 | wire_type);
    }

    fn varint(&mut self, mut value: u64) {
        loop {
            let [low, ..] = value.to_le_bytes();
            value >>= 7;
            if value == 0 {
                return self.0.push(low & 0x7f);
            }
            self.0.push(low | 0x80);
        }
    }
}

fn length(value: &[u8]) -> u64 {
    u64::try_from(value.len()).expect("a length fits in 64 bits")
}

/// A field of a message that is being read.
pub(super) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// A fixed number, which no message that is read here has.
    Fixed,
}

/// Reads the next field and its number; `None` at the end, or if the rest is not protobuf.
pub(super) fn next_field<'a>(rest: &mut &'a [u8]) -> Option<(u64, Field<'a>)> {
    let tag = read_varint(rest)?;
    let field = match tag & 7 {
        VARINT => Field::Number(read_varint(rest)?),
        BYTES => {
            let length = usize::try_from(read_varint(rest)?).ok()?;
            Field::Bytes(take(rest, length)?)
        }
        FIXED_64 => take(rest, 8).map(|_| Field::Fixed)?,
        FIXED_32 => take(rest, 4).map(|_| Field::Fixed)?,
        _ => return None,
    };
    Some((tag >> 3, field))
}

fn read_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *take(rest, 1)?.first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}
