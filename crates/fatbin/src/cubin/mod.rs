//! What the code of a compiled image (a cubin) expects of memory, and how it can be made to use
//! variables at addresses that the caller chooses.
//!
//! Code names a variable by relocations: the driver chooses where the sections `.nv.global` and
//! `.nv.global.init` lie and writes the addresses. [`Cubin::place`] does the same with addresses of
//! the caller's, and turns the relocations into relocations of type 0, with which the driver does
//! nothing. The layout inside a section stays, so symbols, pointers to neighbours and initial
//! values keep their meaning.
//!
//! - **All or nothing.** A relocation that refers to a variable and is not known makes the whole
//!   image unplaceable ([`Cubin::obstacle`]). It is then loaded as it is.
//! - `__constant__` variables (`.nv.constant3`) lie in a bank of the driver's and are not moved.
//! - Images are hostile: nothing panics, and every place is checked before it is used.
//! - The time is linear in the image's relocations and symbols, and nothing is copied.

mod divide;
mod relocation;
mod survey;
mod tables;

use relocation::Field;
use std::collections::BTreeMap;
use std::ops::Range;

pub use divide::{Division, Undivided};
pub use survey::is_literal;

/// Why variables of an image cannot be placed, as a part of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// The image cannot be read.
    #[error("the compiled image is damaged ({what} at byte {at})")]
    Damaged {
        /// The part that makes no sense.
        what: &'static str,
        /// Where it is in the image.
        at: u64,
    },
    /// The image is no linked 64-bit image for a card.
    #[error("the image is not linked 64-bit code for a card")]
    NotLinked,
    /// The driver may compile the image anew, out of a second form of its code.
    #[error("the image has its code in a second form (section {section}), which refers to variables in ways that are not known")]
    SecondForm {
        /// The section with that form.
        section: String,
    },
    /// A variable is in a section of which nothing is known.
    #[error("variables lie in the section {section}, of which nothing is known")]
    Section {
        /// The section, or what the symbol says instead.
        section: String,
    },
    /// A relocation refers to a variable in a way that is not known.
    #[error("{section} refers to the variable {symbol} by a relocation of type {kind}, which is not known")]
    Relocation {
        /// The section in which an address is to be written.
        section: String,
        /// The variable.
        symbol: String,
        /// The relocation's type.
        kind: u32,
    },
    /// There are more managed variables than a program has.
    #[error("the image has more than {most} managed variables")]
    Managed {
        /// So many there may be.
        most: usize,
    },
    /// A variable is initialised with the address of code, which only the driver knows.
    #[error("a variable is initialised with the address of {function}, which lies where the driver puts it")]
    CodeAddress {
        /// The function.
        function: String,
    },
}

/// Variables that lie in memory one after another: a section of the image, or one `__managed__`
/// variable, whose place in its section stays empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The section's name, and for a `__managed__` variable its place there. No two blocks of an
    /// image have the same name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Its alignment, a power of two.
    pub align: u64,
    /// True for a `__managed__` variable: the host reaches it at the same address.
    pub managed: bool,
    /// Where the initial values are in the image; none if all are zero.
    contents: Option<Range<usize>>,
}

impl Block {
    /// The initial values; `None` if all are zero. After [`Cubin::place`], pointers in them are
    /// right.
    #[must_use]
    pub fn contents<'a>(&self, image: &'a [u8]) -> Option<&'a [u8]> {
        image.get(self.contents.clone()?)
    }
}

/// What a variable is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// The block with this index in [`Cubin::blocks`].
    Block(usize),
    /// The bank of `__constant__` variables.
    Constants,
}

/// A variable of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// The name in the image (mangled, for C++).
    pub name: String,
    /// What it is part of.
    pub home: Home,
    /// Where it begins there.
    pub offset: u64,
    /// Its size.
    pub bytes: u64,
    /// True for a text constant that the compiler made. No code writes it.
    pub literal: bool,
}

/// How the mangled name of a variable begins that is declared inside of a function (Itanium C++
/// ABI, 5.1.6). Only code of that function can name it.
const LOCAL: &str = "_ZZ";

/// How the mangled name of a variable of a namespace begins that each source file has for itself,
/// as nvcc renames those of headers.
const INTERNAL: &str = "_INTERNAL_";
/// Namespaces of NVIDIA's own headers, mangled. What lies there and takes one byte, the size of an
/// object without members, is no variable of anybody's.
const LIBRARIES: [&str; 3] = ["4cuda3std", "6thrust", "3cub"];

/// True for the mangled name of an object that NVIDIA's headers define in each source file.
fn is_in_library(name: &str) -> bool {
    let nested = name.strip_prefix("_ZN").and_then(|rest| rest.strip_prefix(|c: char| c.is_ascii_digit()));
    let Some(rest) = nested.map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit())) else { return false };
    // The digits before give the length of the renamed namespace.
    let digits = name.len() - 3 - rest.len();
    let length = name.get(3..3 + digits).and_then(|digits| digits.parse::<usize>().ok());
    let inner = length.and_then(|length| rest.get(length..));
    rest.starts_with(INTERNAL) && inner.is_some_and(|inner| LIBRARIES.iter().any(|library| inner.starts_with(library)))
}

/// Where text constants of the compiler's are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Literals {
    /// In the caller's memory, like variables.
    Placed,
    /// Where the driver puts them, as far as code refers to them. Pointers in variables point to
    /// the caller's copy.
    LeftToDriver,
}

/// A place in the image at which an address of a variable is written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reference {
    /// The relocation's type and symbol, in the image.
    info_at: usize,
    /// The first byte of the field.
    at: usize,
    field: Field,
    /// The index of the block to which the address belongs.
    block: usize,
    /// The address minus that of the block, wrapping.
    offset: u64,
    /// True for code that refers to a text constant of the compiler's.
    literal: bool,
}

/// What is known of a compiled image. Made by [`Cubin::read`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cubin {
    /// What has to be in memory while the code runs, besides the code.
    pub blocks: Vec<Block>,
    /// The bytes of the bank of `__constant__` variables; 0 if there are none.
    pub constant_bytes: u64,
    /// All variables.
    pub variables: Vec<Variable>,
    /// True if kernels allocate memory on the card (`malloc`, `new`).
    pub allocates: bool,
    /// A function of which code takes the address as the driver chose it. Kernels may have stored
    /// it anywhere. `None` if there is no such function.
    pub address_taken: Option<String>,
    /// Why [`Cubin::place`] cannot be done; `None` if it can.
    pub obstacle: Option<Obstacle>,
    references: Vec<Reference>,
}

impl Cubin {
    /// Reads an image.
    ///
    /// # Errors
    /// [`Obstacle::Damaged`] or [`Obstacle::NotLinked`] where nothing can be said of it.
    pub fn read(image: &[u8]) -> Result<Cubin, Obstacle> {
        survey::read(image)
    }

    /// True if no variable can hold anything: one copy of the image serves all clients. Most
    /// images of libraries are of this kind. Their headers define function objects without members
    /// (`cuda::std::ranges::begin`, `thrust::seq`), and constants inside of functions, which no
    /// host program can name.
    #[must_use]
    pub fn keeps_no_state(&self) -> bool {
        let is_empty = |variable: &Variable| match variable.home {
            Home::Block(_) => variable.bytes <= 1 && is_in_library(&variable.name),
            Home::Constants => variable.name.starts_with(LOCAL),
        };
        let is_harmless = |variable: &Variable| variable.literal || is_empty(variable);
        // The ends of variables by their places. A reference may lead to one without a name.
        let mut ends = BTreeMap::new();
        for variable in &self.variables {
            if let Home::Block(block) = variable.home {
                let end = variable.offset.saturating_add(variable.bytes.max(1));
                ends.entry((block, variable.offset)).and_modify(|known: &mut u64| *known = end.max(*known)).or_insert(end);
            }
        }
        let leads_to_known = |reference: &Reference| {
            let before = ends.range(..=(reference.block, reference.offset)).next_back();
            before.is_some_and(|((block, _), end)| *block == reference.block && reference.offset < *end)
        };
        self.obstacle.is_none() && self.variables.iter().all(is_harmless) && self.references.iter().all(leads_to_known)
    }

    /// Makes the code in `image`, from which `self` was read, use blocks at these addresses, which
    /// are those of [`Cubin::blocks`], in order.
    ///
    /// # Errors
    /// [`Cubin::obstacle`]; and [`Obstacle::Damaged`] if `image` or `addresses` are not those of
    /// `self`. The image must not be used then.
    pub fn place(&self, image: &mut [u8], addresses: &[u64], literals: Literals) -> Result<(), Obstacle> {
        if let Some(obstacle) = &self.obstacle {
            return Err(obstacle.clone());
        }
        for reference in &self.references {
            if reference.literal && literals == Literals::LeftToDriver {
                continue;
            }
            let damaged = || Obstacle::Damaged { what: "a relocation", at: reference.info_at as u64 };
            let base = addresses.get(reference.block).ok_or_else(damaged)?;
            let address = base.wrapping_add(reference.offset);
            reference.field.write(image, reference.at, address).ok_or_else(damaged)?;
            relocation::disarm(image, reference.info_at).ok_or_else(damaged)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &str, home: Home, bytes: u64) -> Variable {
        Variable { name: name.into(), home, offset: 0, bytes, literal: is_literal(name.as_bytes()) }
    }

    fn keeps_no_state(variables: &[Variable]) -> bool {
        Cubin { variables: variables.to_vec(), ..Cubin::default() }.keeps_no_state()
    }

    #[test]
    fn objects_of_headers_are_no_state() {
        let begin = variable("_ZN30_INTERNAL_eaa61bfb_4_a_cu_idle4cuda3std3__45__cpo5beginE", Home::Block(0), 1);
        let seq = variable("_ZN30_INTERNAL_eaa61bfb_4_a_cu_idle6thrust23THRUST_300001_SM_900_NS6system6detail10sequential3seqE", Home::Block(0), 1);
        let nan = variable("_ZZN7cutlass4arch12cp_async_nanILi16ELNS0_14CacheOperation4KindE0EEC1EPvPKvbE13OOB_NAN_F16x8", Home::Constants, 16);
        assert!(keeps_no_state(&[]) && keeps_no_state(&[begin.clone(), seq, nan.clone(), variable("$str", Home::Block(0), 9)]));
        let others = [
            variable("used", Home::Block(0), 1),
            variable("_ZN4mine7counterE", Home::Block(0), 1),
            variable("_ZN30_INTERNAL_eaa61bfb_4_a_cu_idle4mine4cuda3stdE", Home::Block(0), 1),
            variable("_ZN99_INTERNAL_eaa61bfb_4_a_cu_idle4cuda3std1xE", Home::Block(0), 1),
            variable("_ZN4cuda3std1xE", Home::Block(0), 1),
            variable("_ZN", Home::Block(0), 1),
            variable("table", Home::Constants, 1),
            variable("_ZZ1fvE5count", Home::Block(0), 1),
            Variable { bytes: 2, ..begin.clone() },
            Variable { bytes: 4, ..begin.clone() },
        ];
        for state in others {
            assert!(!keeps_no_state(&[nan.clone(), state.clone()]), "{state:?}");
        }
        let reference = |offset| Reference { info_at: 0, at: 0, field: Field::Word, block: 0, offset, literal: false };
        let begin = variable("_ZN30_INTERNAL_eaa61bfb_4_a_cu_idle4cuda3std3__45__cpo5beginE", Home::Block(0), 1);
        let refers = |offset| Cubin { variables: vec![begin.clone()], references: vec![reference(offset)], ..Cubin::default() }.keeps_no_state();
        assert!(refers(0) && !refers(1), "what lies behind has no name, and may hold something");
        let obstacle = Some(Obstacle::NotLinked);
        assert!(!Cubin { obstacle, ..Cubin::default() }.keeps_no_state());
    }
}
