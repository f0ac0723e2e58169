//! Bundles: what a program gives to a linker, as one image, for a device whose driver links.
//!
//! ```text
//! "CUMULNK" 2 | bytes of all: u64 | inputs: u32 | inputs
//! an input: kind u32 | bytes of its name: u32 | bytes: u64 | name | data
//! ```
//!
//! A program that loads one passes its address alone: so the head says how long it is.
//! All numbers are little-endian. A bundle comes from a client: [`Bundle::read`] believes nothing.

use crate::{Error, Result};

/// Most inputs of a bundle.
const MOST_INPUTS: u32 = 4096;
/// The last of the kinds that a linker takes: `CU_JIT_INPUT_LIBRARY`.
const LAST_KIND: u32 = 4;
/// Bytes before the first input.
const HEAD: usize = Bundle::SIZED + 4;
/// Bytes before an input's name.
const INPUT_HEAD: usize = 16;

/// An input of a linker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkInput<'a> {
    /// `CUjitInputType`.
    pub kind: u32,
    /// What messages call it.
    pub name: &'a str,
    /// Text, a container, an object or a library.
    pub data: &'a [u8],
}

/// The inputs of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle<'a> {
    /// In the order in which they were given.
    pub inputs: Vec<LinkInput<'a>>,
}

impl<'a> Bundle<'a> {
    /// Its name, with which it begins. No text does: its last byte is none of a text's.
    pub const MAGIC: [u8; 8] = *b"CUMULNK\x02";
    /// The first bytes of a bundle, which say how long it is.
    pub const SIZED: usize = Bundle::MAGIC.len() + 8;

    /// The length that these first bytes of an image claim, if it is a bundle.
    #[must_use]
    pub fn length(begin: &[u8; Bundle::SIZED]) -> Option<u64> {
        begin.strip_prefix(&Bundle::MAGIC).and_then(<[u8]>::first_chunk).map(|length| u64::from_le_bytes(*length))
    }

    /// True for an image that begins as a bundle does.
    #[must_use]
    pub fn is_bundle(image: &[u8]) -> bool {
        image.starts_with(&Bundle::MAGIC)
    }

    /// The image of these inputs. With more than 4,096 it is one that nobody reads.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut image = Bundle::MAGIC.to_vec();
        image.extend([0; 8]);
        image.extend((self.inputs.len() as u32).to_le_bytes());
        for LinkInput { kind, name, data } in &self.inputs {
            image.extend(kind.to_le_bytes());
            image.extend((name.len() as u32).to_le_bytes());
            image.extend((data.len() as u64).to_le_bytes());
            image.extend(name.as_bytes());
            image.extend(*data);
        }
        let length = (image.len() as u64).to_le_bytes();
        image[Bundle::MAGIC.len()..Bundle::SIZED].copy_from_slice(&length);
        image
    }

    /// Reads an image.
    ///
    /// # Errors
    /// It is no bundle, or it is damaged.
    pub fn read(image: &'a [u8]) -> Result<Bundle<'a>> {
        // What a linker says of it has a NUL behind it, as text has.
        let claimed = image.first_chunk().and_then(Bundle::length).and_then(|length| usize::try_from(length).ok());
        let image = claimed.and_then(|length| image.get(..length)).unwrap_or(image);
        let truncated = |what, at: usize, needed: u64| Error::Truncated { what, at: at as u64, needed, have: image.len().saturating_sub(at) as u64 };
        let word = |at: usize| image.get(at..).and_then(<[u8]>::first_chunk).map(|word| u32::from_le_bytes(*word));
        let long = |at: usize| image.get(at..).and_then(<[u8]>::first_chunk).map(|long| u64::from_le_bytes(*long));
        let count = word(Bundle::SIZED).filter(|_| Bundle::is_bundle(image)).ok_or_else(|| truncated("head of a bundle", 0, HEAD as u64))?;
        if count > MOST_INPUTS {
            return Err(Error::Corrupt {
                what: "the number of a bundle's inputs",
                at: Bundle::SIZED as u64,
                found: u64::from(count),
                expected: "at most 4096",
            });
        }
        let (mut inputs, mut at) = (Vec::new(), HEAD);
        for _ in 0..count {
            let head = word(at).zip(word(at + 4)).zip(long(at + 8));
            let ((kind, name), data) = head.ok_or_else(|| truncated("head of a bundle's input", at, INPUT_HEAD as u64))?;
            if kind > LAST_KIND {
                return Err(Error::Corrupt { what: "the kind of a bundle's input", at: at as u64, found: u64::from(kind), expected: "at most 4 (a library)" });
            }
            at += INPUT_HEAD;
            let piece = |from: usize, bytes: u64| {
                let end = usize::try_from(bytes).ok().and_then(|bytes| from.checked_add(bytes));
                end.and_then(|end| Some((image.get(from..end)?, end))).ok_or_else(|| truncated("bundle's input", from, bytes))
            };
            let (name, end) = piece(at, u64::from(name))?;
            let (data, end) = piece(end, data)?;
            at = end;
            inputs.push(LinkInput { kind, name: std::str::from_utf8(name).unwrap_or("<unnamed>"), data });
        }
        Ok(Bundle { inputs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(inputs in proptest::collection::vec((0..=LAST_KIND, "[a-z ü]{0,9}", proptest::collection::vec(any::<u8>(), 0..40)), 0..5)) {
            let inputs: Vec<LinkInput<'_>> = inputs.iter().map(|(kind, name, data)| LinkInput { kind: *kind, name, data }).collect();
            let image = Bundle { inputs: inputs.clone() }.write();
            prop_assert!(Bundle::is_bundle(&image));
            prop_assert_eq!(image.first_chunk().and_then(Bundle::length), Some(image.len() as u64));
            prop_assert_eq!(Bundle::read(&image).map(|bundle| bundle.inputs), Ok(inputs));
            // Whatever is cut off is missed.
            for end in 0..image.len() {
                prop_assert!(Bundle::read(&image[..end]).is_err());
            }
        }

        #[test]
        fn kinds_that_no_linker_takes_are_refused(kind in LAST_KIND + 1..) {
            let image = Bundle { inputs: vec![LinkInput { kind, name: "a", data: b"b" }] }.write();
            prop_assert!(Bundle::read(&image).is_err());
        }

        #[test]
        fn bytes_of_any_kind_do_no_harm(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), begins: bool) {
            if begins {
                bytes.splice(..bytes.len().min(8), Bundle::MAGIC);
            }
            let _ = Bundle::read(&bytes);
        }
    }
}
