//! A kernel launch as a record carries it.

use super::fields::{Field, Reader};
use super::{DecodeError, MAX_PARAMETERS};
use crate::limits::volume;

/// A kernel's parameters. Those of most kernels need no memory of their own: they go from thread to
/// thread, and freeing memory on another thread than the one that allocated it costs both.
pub type Parameters = smallvec::SmallVec<[u8; 64]>;

/// Most threads of a block on every device (CUDA programming guide, compute capabilities).
const MAX_BLOCK_THREADS: u64 = 1024;

/// How a launch is to be run. Blocks and threads in x, y, z; shared memory is the dynamic part in
/// bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Launch {
    /// The module's number.
    pub module: u32,
    /// Index of the function in the module's [`crate::module::ModuleInfo`].
    pub function: u32,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Blocks of a cluster in x, y, z; zeros where the launch asks for none.
    pub cluster: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared: u32,
    /// All blocks must be resident together (grid-wide barrier).
    pub cooperative: bool,
    /// The parameter block, laid out as the kernel's parameters are.
    pub parameters: Parameters,
}

/// What a launch says beside its parameter block. The fields are those of [`Launch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "the fields are described with the launch")]
pub struct LaunchFields {
    pub module: u32,
    pub function: u32,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    pub shared: u32,
    pub cooperative: bool,
}

impl From<&Launch> for LaunchFields {
    fn from(launch: &Launch) -> Self {
        let Launch { module, function, grid, block, cluster, shared, cooperative, .. } = *launch;
        Self { module, function, grid, block, cluster, shared, cooperative }
    }
}

impl LaunchFields {
    /// The words of a record between its header and the parameter block, which has `length` bytes.
    #[inline]
    pub(super) fn words(&self, length: u32) -> [u32; 14] {
        let Self { module, function, grid: [gx, gy, gz], block: [bx, by, bz], cluster: [cx, cy, cz], shared, cooperative } = *self;
        [module, function, gx, gy, gz, bx, by, bz, cx, cy, cz, shared, u32::from(cooperative), length]
    }
}

impl Field for Launch {
    fn write(&self, out: &mut Vec<u8>) {
        LaunchFields::from(self).words(self.parameters.len() as u32).write(out);
        out.extend_from_slice(&self.parameters);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let [module, function] = Field::read(reader)?;
        let (grid, block, cluster): ([u32; 3], [u32; 3], [u32; 3]) = (Field::read(reader)?, Field::read(reader)?, Field::read(reader)?);
        let (shared, cooperative) = (Field::read(reader)?, Field::read(reader)?);
        let length = u32::read(reader)? as usize;
        if length > MAX_PARAMETERS {
            return Err(DecodeError::Field("parameter bytes"));
        }
        if !(1..=MAX_BLOCK_THREADS).contains(&volume(block)) || grid.contains(&0) {
            return Err(DecodeError::Field("launch dimensions"));
        }
        let parameters = Parameters::from_slice(reader.bytes(length)?);
        Ok(Self { module, function, grid, block, cluster, shared, cooperative, parameters })
    }
}
