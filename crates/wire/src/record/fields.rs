//! Little-endian words of a record, one after the other.

use super::DecodeError;

/// Appends fields.
pub(super) struct Writer<'a>(pub(super) &'a mut Vec<u8>);

impl Writer<'_> {
    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
    pub(super) fn words32(&mut self, values: &[u32]) -> &mut Self {
        for value in values {
            self.u32(*value);
        }
        self
    }
    pub(super) fn words64(&mut self, values: &[u64]) -> &mut Self {
        for value in values {
            self.u64(*value);
        }
        self
    }
}

/// Takes fields off the front.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    whole: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, whole: bytes.len() }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) =
            self.bytes.split_first_chunk::<N>().ok_or(DecodeError::Length { claimed: self.whole, available: self.whole - self.bytes.len() + N })?;
        self.bytes = rest;
        Ok(*head)
    }
    pub(super) fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.take()?))
    }
    pub(super) fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.take()?))
    }
    pub(super) fn dims(&mut self) -> Result<[u32; 3], DecodeError> {
        Ok([self.u32()?, self.u32()?, self.u32()?])
    }
    pub(super) fn rest(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.bytes.split_at_checked(len).ok_or(DecodeError::Field("parameter bytes"))?;
        self.bytes = rest;
        Ok(head)
    }
}
