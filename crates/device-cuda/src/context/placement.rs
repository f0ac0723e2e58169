//! A module's variables in its client's own memory, so that they outlive the executor (decision
//! 0113). This happens before the module is loaded.
//!
//! - The image is rewritten so that its code uses addresses of the client's. The rewritten image is
//!   loaded, and no other.
//! - `__constant__` variables stay in the driver's bank and have a copy in the client's memory.
//! - `__managed__` variables go to the client's window, which host and card reach at one address.
//! - What cannot be placed is loaded as it is, and its client is not resumable.

use super::extents::{Extents, MemoryKind};
use super::pinned_window::PinnedWindow;
use super::symbols::Symbols;
use crate::driver::CardAddress;
use cumux_device::{DeviceError, GlobalInfo, GlobalsAllocator};
use cumux_fatbin::cubin::{Cubin, Home, Literals, Variable};

/// The name under which the copy of the constant bank is allocated.
const CONSTANTS: &str = ".nv.constant3";
/// Its alignment. Single constants are aligned less.
const CONSTANTS_ALIGN: u64 = 256;

/// What a successor can do with a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Resumption {
    /// It can load the module again, and everything is as it was.
    Possible,
    /// It cannot, for this reason (a part of a sentence).
    Impossible(String),
}

/// Where the copy of a module's `__constant__` variables is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlacedConstants {
    /// The first byte of the copy.
    base: CardAddress,
    /// True if the copy is a predecessor's: the bank gets what it holds. Else the copy gets what
    /// the bank holds.
    pub restored: bool,
    variables: Vec<Variable>,
}

impl PlacedConstants {
    /// The names, addresses in the client's memory and sizes of the variables.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&str, CardAddress, u64)> {
        self.variables.iter().map(|variable| (variable.name.as_str(), self.base + variable.offset, variable.bytes))
    }
}

/// The memory of a module's variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placement {
    /// The image to load in place of the one that the client brought.
    pub image: Option<Vec<u8>>,
    /// The variables in the client's memory.
    pub globals: Vec<GlobalInfo>,
    /// The `__constant__` variables, if there are any.
    pub constants: Option<PlacedConstants>,
}

/// What is to be done with the variables of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Variables {
    /// Nothing: the driver places what there is.
    LeftToDriver(Resumption),
    /// They are in the client's memory.
    Placed(Placement),
}

impl Variables {
    fn impossible(why: &impl ToString) -> Variables {
        Variables::LeftToDriver(Resumption::Impossible(why.to_string()))
    }
}

/// Bytes of initial values that are kept for variables of a shared module. A module with more is
/// not shared.
const MOST_IDLE_BYTES: usize = 1 << 20;

/// A block of variables that hold nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
struct IdleBlock {
    name: String,
    bytes: u64,
    align: u64,
    /// The initial values; `None` if all are zero.
    contents: Option<Vec<u8>>,
}

/// Variables of a module that hold nothing ([`Cubin::keeps_no_state`]): clients share the module,
/// and each has variables of its own, which only its host program sees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IdleVariables {
    blocks: Vec<IdleBlock>,
    variables: Vec<Variable>,
}

impl IdleVariables {
    /// The variables of compiled code; `None` if they may hold something.
    pub(super) fn find(code: &[u8]) -> Option<IdleVariables> {
        let cubin = Cubin::read(code).ok().filter(Cubin::keeps_no_state)?;
        // The host program writes managed variables whenever it likes.
        if cubin.blocks.iter().any(|block| block.managed) {
            return None;
        }
        let is_named = |variable: &Variable| !variable.literal && matches!(variable.home, Home::Block(_));
        if !cubin.variables.iter().any(is_named) {
            // There are texts at most, which stay with the driver.
            return Some(IdleVariables::default());
        }
        let blocks: Vec<IdleBlock> = cubin
            .blocks
            .iter()
            .map(|block| IdleBlock { name: block.name.clone(), bytes: block.bytes, align: block.align, contents: block.contents(code).map(<[u8]>::to_vec) })
            .collect();
        let kept: usize = blocks.iter().filter_map(|block| block.contents.as_ref()).map(Vec::len).sum();
        let variables = cubin.variables.into_iter().filter(is_named).collect();
        (kept <= MOST_IDLE_BYTES).then_some(IdleVariables { blocks, variables })
    }

    /// Gives a client variables of its own, initialised unless they are a predecessor's. Returns
    /// their places.
    ///
    /// # Errors
    /// The allocator's, for example that the client's limit is reached; or the driver's.
    pub(crate) fn place(&self, place: &mut dyn GlobalsAllocator, extents: &Extents) -> Result<Vec<GlobalInfo>, DeviceError> {
        if self.variables.is_empty() {
            return Ok(Vec::new());
        }
        let mut addresses = Vec::new();
        for block in &self.blocks {
            let (address, restored) = match place.variable(&block.name, block.bytes, block.align, false) {
                // A caller that keeps no memory for clients, such as a test.
                Err(DeviceError::NotSupported(_)) => return Ok(Vec::new()),
                placed => placed?,
            };
            match &block.contents {
                _ if restored => {}
                Some(contents) => place.fill(&mut || extents.write(address, contents, MemoryKind::Extent))?,
                None => place.fill(&mut || extents.clear(address, block.bytes))?,
            }
            addresses.push(address);
        }
        let address = |variable: &Variable| match variable.home {
            Home::Block(block) => addresses.get(block).map(|address| address + variable.offset),
            Home::Constants => None,
        };
        let globals = self.variables.iter().filter_map(|variable| {
            let address = address(variable)?;
            Some(GlobalInfo { name: variable.name.clone(), address, bytes: variable.bytes, constant: false, managed: false })
        });
        Ok(globals.collect())
    }
}

/// Examines compiled code whose module has no variables.
pub(super) fn examine(code: &[u8]) -> Resumption {
    match Cubin::read(code) {
        Ok(cubin) => why_impossible(&cubin).map_or(Resumption::Possible, Resumption::Impossible),
        Err(obstacle) => Resumption::Impossible(obstacle.to_string()),
    }
}

/// What the code keeps on the card that cannot be placed, if it does.
fn why_impossible(cubin: &Cubin) -> Option<String> {
    if cubin.allocates {
        return Some("its kernels may allocate memory on the card (malloc), which belongs to the executor".into());
    }
    let function = cubin.address_taken.as_ref()?;
    Some(format!("its kernels may have stored the address of {function}, which lies where the driver puts it"))
}

/// Places the variables of compiled code, and initialises those that are not a predecessor's.
///
/// # Errors
/// The allocator's, for example that the client's limit is reached; or the driver's.
pub(super) fn place_variables(code: Vec<u8>, symbols: &Symbols, place: &mut dyn GlobalsAllocator, extents: &Extents) -> Result<Variables, DeviceError> {
    let cubin = match Cubin::read(&code) {
        Ok(cubin) => cubin,
        Err(obstacle) => return Ok(Variables::impossible(&obstacle)),
    };
    if let Some(obstacle) = &cubin.obstacle {
        return Ok(Variables::impossible(obstacle));
    }
    if let Some(why) = why_impossible(&cubin) {
        return Ok(Variables::impossible(&why));
    }
    match place_blocks(&cubin, code, symbols, place, extents) {
        // A caller that keeps no memory for clients, such as a test.
        Err(DeviceError::NotSupported(why)) => Ok(Variables::impossible(&why)),
        placed => placed.map(Variables::Placed),
    }
}

/// Writes to the window of a client, in host memory.
fn write_window(address: CardAddress, contents: &[u8]) -> Result<(), DeviceError> {
    if PinnedWindow::write_any(address, contents) {
        return Ok(());
    }
    Err(DeviceError::Invalid(format!("{} bytes at {address:#x} are in no window", contents.len())))
}

/// Sets bytes in the window of a client to zero.
fn clear_window(address: CardAddress, bytes: u64) -> Result<(), DeviceError> {
    static PIECE: [u8; 1 << 16] = [0; 1 << 16];
    (0..bytes).step_by(PIECE.len()).try_for_each(|at| {
        let rest = usize::try_from(bytes - at).unwrap_or(usize::MAX).min(PIECE.len());
        write_window(address + at, &PIECE[..rest])
    })
}

fn place_blocks(cubin: &Cubin, mut code: Vec<u8>, symbols: &Symbols, place: &mut dyn GlobalsAllocator, extents: &Extents) -> Result<Placement, DeviceError> {
    let mut blocks = Vec::new();
    for block in &cubin.blocks {
        blocks.push(place.variable(&block.name, block.bytes, block.align, block.managed)?);
    }
    let addresses: Vec<CardAddress> = blocks.iter().map(|(address, _)| *address).collect();
    // The driver reads the texts of assertions. It is known to do so where it put them itself; it
    // reads formats of printf anywhere.
    let literals = if symbols.asserts { Literals::LeftToDriver } else { Literals::Placed };
    let damaged = |obstacle: cumux_fatbin::cubin::Obstacle| DeviceError::Invalid(obstacle.to_string());
    cubin.place(&mut code, &addresses, literals).map_err(damaged)?;
    for (block, (address, restored)) in cubin.blocks.iter().zip(&blocks) {
        match block.contents(&code) {
            _ if *restored => {}
            Some(contents) if block.managed => place.fill(&mut || write_window(*address, contents))?,
            // A module that is unloaded may have had the memory before a takeover.
            None if block.managed => place.fill(&mut || clear_window(*address, block.bytes))?,
            Some(contents) => place.fill(&mut || extents.write(*address, contents, MemoryKind::Extent))?,
            None => place.fill(&mut || extents.clear(*address, block.bytes))?,
        }
    }
    let (mut globals, mut constants) = (Vec::new(), Vec::new());
    for variable in cubin.variables.iter().filter(|variable| !variable.literal) {
        match variable.home {
            Home::Block(block) => globals.push(GlobalInfo {
                name: variable.name.clone(),
                address: addresses.get(block).copied().unwrap_or(0) + variable.offset,
                bytes: variable.bytes,
                constant: false,
                managed: cubin.blocks.get(block).is_some_and(|block| block.managed),
            }),
            Home::Constants => constants.push(variable.clone()),
        }
    }
    let constants = if constants.is_empty() {
        None
    } else {
        let (base, restored) = place.variable(CONSTANTS, cubin.constant_bytes, CONSTANTS_ALIGN, false)?;
        Some(PlacedConstants { base, restored, variables: constants })
    };
    // Without blocks nothing was rewritten, and the client's own image does as well.
    let image = (!cubin.blocks.is_empty()).then_some(code);
    Ok(Placement { image, globals, constants })
}
