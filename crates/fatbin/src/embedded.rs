//! Device code embedded in an executable or library file, for tools.

use crate::{Error, Result};
use object::{Object, ObjectSection};

/// A section of an executable that holds device code, or points to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedSection<'a> {
    /// `.nv_fatbin` and `__nv_relfatbin` hold containers, `.nvFatBinSegment` wrappers.
    pub name: &'static str,
    /// Where the section lies in the file.
    pub offset: u64,
    /// The section's bytes.
    pub data: &'a [u8],
}

const NAMES: [&str; 3] = [".nv_fatbin", "__nv_relfatbin", ".nvFatBinSegment"];

/// The sections of an ELF file that concern device code.
pub fn sections(file: &[u8]) -> Result<Vec<EmbeddedSection<'_>>> {
    let reason = |error: object::Error| Error::NotAnExecutable { reason: error.to_string() };
    let parsed = object::File::parse(file).map_err(reason)?;
    let mut found = Vec::new();
    for section in parsed.sections() {
        let name = section.name().unwrap_or_default();
        if let Some(name) = NAMES.into_iter().find(|known| *known == name) {
            found.push(EmbeddedSection { name, offset: section.file_range().map_or(0, |range| range.0), data: section.data().map_err(reason)? });
        }
    }
    Ok(found)
}
