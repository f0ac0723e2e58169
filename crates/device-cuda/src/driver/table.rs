//! The functions of the driver that this crate calls. They are looked up by name once.

use cumux_abi::functions as f;
use libloading::os::unix::Library;

/// Declares the table and its loader. It has one field for each function, of the type that the
/// public header gives to that name.
macro_rules! table {
    ($($name:ident),* $(,)?) => {
        /// The driver's functions, by name.
        #[allow(non_snake_case)]
        pub(super) struct Table { $(pub(super) $name: f::$name),* }

        impl Table {
            /// Looks up all functions.
            ///
            /// # Errors
            /// The name of the first function that the library lacks.
            pub(super) fn load(library: &Library) -> Result<Table, String> {
                Ok(Table { $($name: {
                    let name = concat!(stringify!($name), "\0");
                    // SAFETY: the driver's public header gives this type to this name.
                    *unsafe { library.get::<f::$name>(name.as_bytes()) }.map_err(|_| stringify!($name).to_owned())?
                }),* })
            }
        }
    };
}

table! {
    cuInit, cuDeviceGetCount, cuDeviceGet, cuDeviceGetName, cuDeviceGetUuid_v2, cuDeviceTotalMem_v2, cuDeviceGetAttribute,
    cuDeviceCanAccessPeer, cuDeviceGetP2PAttribute,
    cuCoredumpSetAttributeGlobal,
    cuDevicePrimaryCtxSetFlags_v2, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRelease_v2, cuCtxSetCurrent, cuCtxSynchronize, cuCtxGetLimit, cuCtxSetLimit,
    cuCtxGetStreamPriorityRange, cuGetErrorString,
    cuMemGetAllocationGranularity, cuMemCreate, cuMemRelease, cuMemExportToShareableHandle, cuMemImportFromShareableHandle,
    cuMemAddressReserve, cuMemAddressFree, cuMemMap, cuMemUnmap, cuMemSetAccess,
    cuMemHostAlloc, cuMemFreeHost, cuMemHostRegister_v2, cuMemHostUnregister,
    cuMemcpyAsync, cuMemcpyDtoHAsync_v2, cuMemcpyHtoDAsync_v2, cuMemcpy2DAsync_v2, cuMemcpy3DAsync_v2,
    cuMemsetD8Async, cuMemsetD16Async, cuMemsetD32Async, cuMemsetD2D8Async, cuMemsetD2D16Async, cuMemsetD2D32Async,
    cuStreamCreateWithPriority, cuStreamDestroy_v2, cuStreamQuery, cuStreamSynchronize, cuStreamWriteValue32_v2, cuStreamWriteValue64_v2,
    cuLaunchKernel, cuLaunchKernelEx,
    cuModuleLoadDataEx, cuModuleUnload, cuModuleGetFunctionCount, cuModuleEnumerateFunctions, cuModuleGetGlobal_v2,
    cuLinkCreate_v2, cuLinkAddData_v2, cuLinkComplete, cuLinkDestroy,
    cuFuncLoad, cuFuncGetName, cuFuncGetParamInfo, cuFuncGetAttribute, cuFuncSetAttribute,
    cuGraphCreate, cuGraphDestroy, cuGraphAddKernelNode_v2, cuGraphKernelNodeSetAttribute, cuGraphInstantiateWithFlags,
    cuGraphExecKernelNodeSetParams_v2, cuGraphLaunch, cuGraphUpload, cuGraphExecDestroy,
    cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col,
    cuArray3DCreate_v2, cuArrayDestroy, cuMipmappedArrayCreate, cuMipmappedArrayGetLevel, cuMipmappedArrayDestroy,
    cuTexObjectCreate, cuTexObjectDestroy, cuSurfObjectCreate, cuSurfObjectDestroy,
    cuDeviceGetDevResource, cuDevSmResourceSplitByCount, cuDevResourceGenerateDesc, cuGreenCtxCreate, cuGreenCtxDestroy, cuGreenCtxStreamCreate,
}
