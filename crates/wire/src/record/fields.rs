//! Fields of a record: little-endian words, one after the other, each written and read by its type.

use super::DecodeError;

/// A value that a record carries.
pub(super) trait Field: Sized {
    /// Appends the value.
    fn write(&self, out: &mut Vec<u8>);

    /// Appends values, one after the other.
    fn write_all(values: &[Self], out: &mut Vec<u8>) {
        values.iter().for_each(|value| value.write(out));
    }

    /// Takes a value off the front. A value that the type cannot have is refused here.
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// Most words that are appended in one piece.
const MOST_AT_ONCE: usize = 16;

/// Takes bytes off the front of a record.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    whole: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, whole: bytes.len() }
    }

    fn word<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.bytes.split_first_chunk::<N>().ok_or(DecodeError::Short { bytes: self.whole, needed: self.whole - self.bytes.len() + N })?;
        self.bytes = rest;
        Ok(*head)
    }

    pub(super) fn bytes(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.bytes.split_at_checked(length).ok_or(DecodeError::Field("parameter bytes"))?;
        self.bytes = rest;
        Ok(head)
    }
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Field for $type {
            #[inline]
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn write_all(values: &[Self], out: &mut Vec<u8>) {
                const BYTES: usize = size_of::<$type>();
                let mut bytes = [0; MOST_AT_ONCE * BYTES];
                for part in values.chunks(MOST_AT_ONCE) {
                    let (to, _) = bytes.as_chunks_mut::<BYTES>();
                    to.iter_mut().zip(part).for_each(|(to, value)| *to = value.to_le_bytes());
                    out.extend_from_slice(&bytes[..part.len() * BYTES]);
                }
            }

            #[inline]
            fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(Self::from_le_bytes(reader.word()?))
            }
        }
    )*};
}

integers!(u32, i32, u64);

/// A whole word, so that what follows stays aligned; anything but 0 is true.
impl Field for bool {
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        u32::from(*self).write(out);
    }

    #[inline]
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(u32::read(reader)? != 0)
    }
}

impl<T: Field + Copy + Default, const N: usize> Field for [T; N] {
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        T::write_all(self, out);
    }

    #[inline]
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut values = [T::default(); N];
        for value in &mut values {
            *value = T::read(reader)?;
        }
        Ok(values)
    }
}
