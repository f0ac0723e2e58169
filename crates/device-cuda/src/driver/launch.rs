//! Launching single kernels.

use super::context::Driver;
use super::handle::{Function, Stream};
use crate::fault::{Call, CudaError};
use core::ffi::{c_uint, c_void};
use core::ptr::null_mut;
use cumux_abi::types as t;

/// A launch without its function and parameters. Arrays have one entry for each of x, y, z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LaunchShape {
    /// Blocks of the grid.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks of a cluster. All 0 or all 1: there are no clusters.
    pub cluster: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared: u32,
    /// True for a cooperative launch: all blocks must be resident at the same time.
    pub cooperative: bool,
}

impl LaunchShape {
    /// True if the launch has no thread block clusters.
    pub(crate) fn has_no_clusters(&self) -> bool {
        self.cluster == [0; 3] || self.cluster == [1; 3]
    }

    /// A launch of one block of one thread.
    pub(crate) fn single_thread() -> LaunchShape {
        LaunchShape { grid: [1; 3], block: [1; 3], ..LaunchShape::default() }
    }
}

impl Driver {
    /// Queues a kernel with a packed parameter block.
    ///
    /// # Errors
    /// The driver's. Then nothing was queued.
    pub(crate) fn launch(&self, function: Function, shape: &LaunchShape, parameters: &[u8], stream: Stream) -> Call<()> {
        let table = self.table()?;
        let mut packed = PackedParameters::new(parameters);
        let extra = packed.extra();
        let ([gx, gy, gz], [bx, by, bz]) = (shape.grid, shape.block);
        let mut attributes: [t::CUlaunchAttribute; 2] = Default::default();
        let mut count = 0;
        if shape.cooperative {
            attributes[count].id = t::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
            attributes[count].value.cooperative = 1;
            count += 1;
        }
        if !shape.has_no_clusters() {
            let [x, y, z] = shape.cluster;
            attributes[count].id = t::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
            attributes[count].value.clusterDim = t::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
            count += 1;
        }
        let _turn = self.submission.enter(stream);
        if count == 0 {
            // SAFETY: a live function and stream; the driver copies the parameters, which live in
            // this frame and the caller's, before it returns.
            return CudaError::check(unsafe { (table.cuLaunchKernel)(function.raw(), gx, gy, gz, bx, by, bz, shape.shared, stream.raw(), null_mut(), extra) });
        }
        let config = t::CUlaunchConfig {
            gridDimX: gx,
            gridDimY: gy,
            gridDimZ: gz,
            blockDimX: bx,
            blockDimY: by,
            blockDimZ: bz,
            sharedMemBytes: shape.shared,
            hStream: stream.raw(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: count as c_uint,
        };
        // SAFETY: a live function and stream; the driver copies the parameters and the attributes,
        // which live in this frame and the caller's, before it returns.
        CudaError::check(unsafe { (table.cuLaunchKernelEx)(&raw const config, function.raw(), null_mut(), extra) })
    }
}

/// A parameter block in the form of a launch's `extra` argument.
pub(super) struct PackedParameters<'a> {
    parameters: &'a [u8],
    size: usize,
    list: [*mut c_void; 5],
}

impl<'a> PackedParameters<'a> {
    /// Refers to a packed parameter block.
    pub(super) fn new(parameters: &'a [u8]) -> Self {
        PackedParameters { parameters, size: parameters.len(), list: [null_mut(); 5] }
    }

    /// The argument: a list that points into `self`, or null for a kernel without parameters.
    pub(super) fn extra(&mut self) -> *mut *mut c_void {
        if self.size == 0 {
            return null_mut();
        }
        self.list = [
            cumux_abi::CU_LAUNCH_PARAM_BUFFER_POINTER,
            self.parameters.as_ptr().cast_mut().cast(),
            cumux_abi::CU_LAUNCH_PARAM_BUFFER_SIZE,
            (&raw mut self.size).cast(),
            cumux_abi::CU_LAUNCH_PARAM_END,
        ];
        self.list.as_mut_ptr()
    }
}
