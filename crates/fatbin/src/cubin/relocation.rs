//! The relocations by which code refers to variables and functions. Names and numbers are those
//! that `nvlink` prints for CUDA's ELF files (`R_CUDA_...`); what they do was read from images that
//! nvcc made for several architectures.

/// `R_CUDA_64` and `R_CUDA_G64`: an address of 64 bits. Generic addresses (G) of global memory are
/// the addresses themselves.
const WORDS: [u32; 2] = [2, 4];
/// `R_CUDA_ABS32_LO_32`: the lower half of an address, in bits 32 to 63 of an instruction.
const LOW_HALF: u32 = 56;
/// `R_CUDA_ABS32_HI_32`: the upper half.
const HIGH_HALF: u32 = 57;
/// `R_CUDA_8_0` to `R_CUDA_8_56`, and `R_CUDA_G8_0` to `R_CUDA_G8_56`: one byte of an address.
const BYTES: [u32; 2] = [76, 84];
/// `R_CUDA_PCREL_IMM24_26`, `R_CUDA_PCREL_IMM24_23`, `R_CUDA_ABS47_34`, `R_CUDA_ABS55_16_34` and
/// `R_CUDA_ABS56_16_34`: the target of a call or a jump.
const BRANCHES: [u32; 5] = [40, 41, 58, 75, 114];
/// `R_CUDA_NONE`.
pub(super) const NONE: u32 = 0;

/// Where in an instruction the halves of addresses are.
const HALF_AT: usize = 4;
/// Bytes of an instruction.
const INSTRUCTION: usize = 16;

/// What is written at the place of a relocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    /// The whole address.
    Word,
    /// Its lower half, in an instruction.
    LowHalf,
    /// Its upper half, in an instruction.
    HighHalf,
    /// One byte of it.
    Byte(u8),
}

impl Field {
    /// The field of a relocation in data, or in code; `None` for a type that is not known there.
    pub(super) fn of(kind: u32, in_code: bool) -> Option<Field> {
        if in_code {
            return match kind {
                LOW_HALF => Some(Field::LowHalf),
                HIGH_HALF => Some(Field::HighHalf),
                _ => None,
            };
        }
        if WORDS.contains(&kind) {
            return Some(Field::Word);
        }
        let byte = BYTES.iter().find_map(|first| kind.checked_sub(*first).filter(|byte| *byte < 8))?;
        Some(Field::Byte(byte as u8))
    }

    /// Bytes that must be there from the relocation's place on.
    pub(super) fn span(self) -> usize {
        match self {
            Field::Word => 8,
            Field::LowHalf | Field::HighHalf => INSTRUCTION,
            Field::Byte(_) => 1,
        }
    }

    /// What the field holds now; `None` if it is not in the image.
    pub(super) fn read(self, image: &[u8], at: usize) -> Option<u64> {
        match self {
            Field::Word => Some(u64::from_le_bytes(*image.get(at..)?.first_chunk()?)),
            Field::LowHalf | Field::HighHalf => {
                let half = image.get(at.checked_add(HALF_AT)?..)?.first_chunk()?;
                Some(u64::from(u32::from_le_bytes(*half)))
            }
            Field::Byte(_) => image.get(at).map(|byte| u64::from(*byte)),
        }
    }

    /// Writes its part of an address; `None` if the field is not in the image.
    pub(super) fn write(self, image: &mut [u8], at: usize, address: u64) -> Option<()> {
        match self {
            Field::Word => *image.get_mut(at..)?.first_chunk_mut()? = address.to_le_bytes(),
            Field::LowHalf => *image.get_mut(at.checked_add(HALF_AT)?..)?.first_chunk_mut()? = (address as u32).to_le_bytes(),
            Field::HighHalf => *image.get_mut(at.checked_add(HALF_AT)?..)?.first_chunk_mut()? = ((address >> 32) as u32).to_le_bytes(),
            Field::Byte(byte) => *image.get_mut(at)? = address.to_le_bytes()[usize::from(byte & 7)],
        }
        Some(())
    }
}

/// True if a relocation of this type in code is part of a call or a jump.
pub(super) fn is_branch(kind: u32) -> bool {
    BRANCHES.contains(&kind)
}

/// True for half of an address in an instruction.
pub(super) fn is_half(kind: u32) -> bool {
    kind == LOW_HALF || kind == HIGH_HALF
}

/// Makes the relocation whose `r_info` is here one that does nothing: the type is in the lower
/// half.
pub(super) fn disarm(image: &mut [u8], info_at: usize) -> Option<()> {
    *image.get_mut(info_at..)?.first_chunk_mut()? = NONE.to_le_bytes();
    Some(())
}
