// Made by `cargo xtask surface` from the CUDA 13.0 driver header. Never edited by hand; a list may
// be long.

use super::types::*;

pub type cuArray3DCreate = unsafe extern "C" fn(pHandle: *mut CUarray, pAllocateArray: *const CUDA_ARRAY3D_DESCRIPTOR_v1) -> CUresult;
pub type cuArray3DCreate_v2 = unsafe extern "C" fn(pHandle: *mut CUarray, pAllocateArray: *const CUDA_ARRAY3D_DESCRIPTOR) -> CUresult;
pub type cuArray3DGetDescriptor = unsafe extern "C" fn(pArrayDescriptor: *mut CUDA_ARRAY3D_DESCRIPTOR_v1, hArray: CUarray) -> CUresult;
pub type cuArray3DGetDescriptor_v2 = unsafe extern "C" fn(pArrayDescriptor: *mut CUDA_ARRAY3D_DESCRIPTOR, hArray: CUarray) -> CUresult;
pub type cuArrayCreate = unsafe extern "C" fn(pHandle: *mut CUarray, pAllocateArray: *const CUDA_ARRAY_DESCRIPTOR_v1) -> CUresult;
pub type cuArrayCreate_v2 = unsafe extern "C" fn(pHandle: *mut CUarray, pAllocateArray: *const CUDA_ARRAY_DESCRIPTOR) -> CUresult;
pub type cuArrayDestroy = unsafe extern "C" fn(hArray: CUarray) -> CUresult;
pub type cuArrayGetDescriptor = unsafe extern "C" fn(pArrayDescriptor: *mut CUDA_ARRAY_DESCRIPTOR_v1, hArray: CUarray) -> CUresult;
pub type cuArrayGetDescriptor_v2 = unsafe extern "C" fn(pArrayDescriptor: *mut CUDA_ARRAY_DESCRIPTOR, hArray: CUarray) -> CUresult;
pub type cuArrayGetMemoryRequirements =
    unsafe extern "C" fn(memoryRequirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS, array: CUarray, device: CUdevice) -> CUresult;
pub type cuArrayGetPlane = unsafe extern "C" fn(pPlaneArray: *mut CUarray, hArray: CUarray, planeIdx: ::core::ffi::c_uint) -> CUresult;
pub type cuArrayGetSparseProperties = unsafe extern "C" fn(sparseProperties: *mut CUDA_ARRAY_SPARSE_PROPERTIES, array: CUarray) -> CUresult;
pub type cuCheckpointProcessCheckpoint = unsafe extern "C" fn(pid: ::core::ffi::c_int, args: *mut CUcheckpointCheckpointArgs) -> CUresult;
pub type cuCheckpointProcessGetRestoreThreadId = unsafe extern "C" fn(pid: ::core::ffi::c_int, tid: *mut ::core::ffi::c_int) -> CUresult;
pub type cuCheckpointProcessGetState = unsafe extern "C" fn(pid: ::core::ffi::c_int, state: *mut CUprocessState) -> CUresult;
pub type cuCheckpointProcessLock = unsafe extern "C" fn(pid: ::core::ffi::c_int, args: *mut CUcheckpointLockArgs) -> CUresult;
pub type cuCheckpointProcessRestore = unsafe extern "C" fn(pid: ::core::ffi::c_int, args: *mut CUcheckpointRestoreArgs) -> CUresult;
pub type cuCheckpointProcessUnlock = unsafe extern "C" fn(pid: ::core::ffi::c_int, args: *mut CUcheckpointUnlockArgs) -> CUresult;
pub type cuCoredumpGetAttribute = unsafe extern "C" fn(attrib: CUcoredumpSettings, value: *mut ::core::ffi::c_void, size: *mut usize) -> CUresult;
pub type cuCoredumpGetAttributeGlobal = unsafe extern "C" fn(attrib: CUcoredumpSettings, value: *mut ::core::ffi::c_void, size: *mut usize) -> CUresult;
pub type cuCoredumpSetAttribute = unsafe extern "C" fn(attrib: CUcoredumpSettings, value: *mut ::core::ffi::c_void, size: *mut usize) -> CUresult;
pub type cuCoredumpSetAttributeGlobal = unsafe extern "C" fn(attrib: CUcoredumpSettings, value: *mut ::core::ffi::c_void, size: *mut usize) -> CUresult;
pub type cuCtxAttach = unsafe extern "C" fn(pctx: *mut CUcontext, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuCtxCreate = unsafe extern "C" fn(pctx: *mut CUcontext, flags: ::core::ffi::c_uint, dev: CUdevice) -> CUresult;
pub type cuCtxCreate_v2 = unsafe extern "C" fn(pctx: *mut CUcontext, flags: ::core::ffi::c_uint, dev: CUdevice) -> CUresult;
pub type cuCtxCreate_v3 = unsafe extern "C" fn(
    pctx: *mut CUcontext,
    paramsArray: *mut CUexecAffinityParam,
    numParams: ::core::ffi::c_int,
    flags: ::core::ffi::c_uint,
    dev: CUdevice,
) -> CUresult;
pub type cuCtxCreate_v4 =
    unsafe extern "C" fn(pctx: *mut CUcontext, ctxCreateParams: *mut CUctxCreateParams, flags: ::core::ffi::c_uint, dev: CUdevice) -> CUresult;
pub type cuCtxDestroy = unsafe extern "C" fn(ctx: CUcontext) -> CUresult;
pub type cuCtxDestroy_v2 = unsafe extern "C" fn(ctx: CUcontext) -> CUresult;
pub type cuCtxDetach = unsafe extern "C" fn(ctx: CUcontext) -> CUresult;
pub type cuCtxDisablePeerAccess = unsafe extern "C" fn(peerContext: CUcontext) -> CUresult;
pub type cuCtxEnablePeerAccess = unsafe extern "C" fn(peerContext: CUcontext, Flags: ::core::ffi::c_uint) -> CUresult;
pub type cuCtxFromGreenCtx = unsafe extern "C" fn(pContext: *mut CUcontext, hCtx: CUgreenCtx) -> CUresult;
pub type cuCtxGetApiVersion = unsafe extern "C" fn(ctx: CUcontext, version: *mut ::core::ffi::c_uint) -> CUresult;
pub type cuCtxGetCacheConfig = unsafe extern "C" fn(pconfig: *mut CUfunc_cache) -> CUresult;
pub type cuCtxGetCurrent = unsafe extern "C" fn(pctx: *mut CUcontext) -> CUresult;
pub type cuCtxGetDevResource = unsafe extern "C" fn(hCtx: CUcontext, resource: *mut CUdevResource, type_: CUdevResourceType) -> CUresult;
pub type cuCtxGetDevice = unsafe extern "C" fn(device: *mut CUdevice) -> CUresult;
pub type cuCtxGetDevice_v2 = unsafe extern "C" fn(device: *mut CUdevice, ctx: CUcontext) -> CUresult;
pub type cuCtxGetExecAffinity = unsafe extern "C" fn(pExecAffinity: *mut CUexecAffinityParam, type_: CUexecAffinityType) -> CUresult;
pub type cuCtxGetFlags = unsafe extern "C" fn(flags: *mut ::core::ffi::c_uint) -> CUresult;
pub type cuCtxGetId = unsafe extern "C" fn(ctx: CUcontext, ctxId: *mut ::core::ffi::c_ulonglong) -> CUresult;
pub type cuCtxGetLimit = unsafe extern "C" fn(pvalue: *mut usize, limit: CUlimit) -> CUresult;
pub type cuCtxGetSharedMemConfig = unsafe extern "C" fn(pConfig: *mut CUsharedconfig) -> CUresult;
pub type cuCtxGetStreamPriorityRange = unsafe extern "C" fn(leastPriority: *mut ::core::ffi::c_int, greatestPriority: *mut ::core::ffi::c_int) -> CUresult;
pub type cuCtxPopCurrent = unsafe extern "C" fn(pctx: *mut CUcontext) -> CUresult;
pub type cuCtxPopCurrent_v2 = unsafe extern "C" fn(pctx: *mut CUcontext) -> CUresult;
pub type cuCtxPushCurrent = unsafe extern "C" fn(ctx: CUcontext) -> CUresult;
pub type cuCtxPushCurrent_v2 = unsafe extern "C" fn(ctx: CUcontext) -> CUresult;
pub type cuCtxRecordEvent = unsafe extern "C" fn(hCtx: CUcontext, hEvent: CUevent) -> CUresult;
pub type cuCtxResetPersistingL2Cache = unsafe extern "C" fn() -> CUresult;
pub type cuCtxSetCacheConfig = unsafe extern "C" fn(config: CUfunc_cache) -> CUresult;
pub type cuCtxSetCurrent = unsafe extern "C" fn(ctx: CUcontext) -> CUresult;
pub type cuCtxSetFlags = unsafe extern "C" fn(flags: ::core::ffi::c_uint) -> CUresult;
pub type cuCtxSetLimit = unsafe extern "C" fn(limit: CUlimit, value: usize) -> CUresult;
pub type cuCtxSetSharedMemConfig = unsafe extern "C" fn(config: CUsharedconfig) -> CUresult;
pub type cuCtxSynchronize = unsafe extern "C" fn() -> CUresult;
pub type cuCtxSynchronize_v2 = unsafe extern "C" fn(ctx: CUcontext) -> CUresult;
pub type cuCtxWaitEvent = unsafe extern "C" fn(hCtx: CUcontext, hEvent: CUevent) -> CUresult;
pub type cuDestroyExternalMemory = unsafe extern "C" fn(extMem: CUexternalMemory) -> CUresult;
pub type cuDestroyExternalSemaphore = unsafe extern "C" fn(extSem: CUexternalSemaphore) -> CUresult;
pub type cuDevResourceGenerateDesc =
    unsafe extern "C" fn(phDesc: *mut CUdevResourceDesc, resources: *mut CUdevResource, nbResources: ::core::ffi::c_uint) -> CUresult;
pub type cuDevSmResourceSplitByCount = unsafe extern "C" fn(
    result: *mut CUdevResource,
    nbGroups: *mut ::core::ffi::c_uint,
    input: *const CUdevResource,
    remaining: *mut CUdevResource,
    useFlags: ::core::ffi::c_uint,
    minCount: ::core::ffi::c_uint,
) -> CUresult;
pub type cuDeviceCanAccessPeer = unsafe extern "C" fn(canAccessPeer: *mut ::core::ffi::c_int, dev: CUdevice, peerDev: CUdevice) -> CUresult;
pub type cuDeviceComputeCapability = unsafe extern "C" fn(major: *mut ::core::ffi::c_int, minor: *mut ::core::ffi::c_int, dev: CUdevice) -> CUresult;
pub type cuDeviceGet = unsafe extern "C" fn(device: *mut CUdevice, ordinal: ::core::ffi::c_int) -> CUresult;
pub type cuDeviceGetAttribute = unsafe extern "C" fn(pi: *mut ::core::ffi::c_int, attrib: CUdevice_attribute, dev: CUdevice) -> CUresult;
pub type cuDeviceGetByPCIBusId = unsafe extern "C" fn(dev: *mut CUdevice, pciBusId: *const ::core::ffi::c_char) -> CUresult;
pub type cuDeviceGetCount = unsafe extern "C" fn(count: *mut ::core::ffi::c_int) -> CUresult;
pub type cuDeviceGetDefaultMemPool = unsafe extern "C" fn(pool_out: *mut CUmemoryPool, dev: CUdevice) -> CUresult;
pub type cuDeviceGetDevResource = unsafe extern "C" fn(device: CUdevice, resource: *mut CUdevResource, type_: CUdevResourceType) -> CUresult;
pub type cuDeviceGetExecAffinitySupport = unsafe extern "C" fn(pi: *mut ::core::ffi::c_int, type_: CUexecAffinityType, dev: CUdevice) -> CUresult;
pub type cuDeviceGetGraphMemAttribute = unsafe extern "C" fn(device: CUdevice, attr: CUgraphMem_attribute, value: *mut ::core::ffi::c_void) -> CUresult;
pub type cuDeviceGetHostAtomicCapabilities =
    unsafe extern "C" fn(capabilities: *mut ::core::ffi::c_uint, operations: *const CUatomicOperation, count: ::core::ffi::c_uint, dev: CUdevice) -> CUresult;
pub type cuDeviceGetLuid = unsafe extern "C" fn(luid: *mut ::core::ffi::c_char, deviceNodeMask: *mut ::core::ffi::c_uint, dev: CUdevice) -> CUresult;
pub type cuDeviceGetMemPool = unsafe extern "C" fn(pool: *mut CUmemoryPool, dev: CUdevice) -> CUresult;
pub type cuDeviceGetName = unsafe extern "C" fn(name: *mut ::core::ffi::c_char, len: ::core::ffi::c_int, dev: CUdevice) -> CUresult;
pub type cuDeviceGetNvSciSyncAttributes =
    unsafe extern "C" fn(nvSciSyncAttrList: *mut ::core::ffi::c_void, dev: CUdevice, flags: ::core::ffi::c_int) -> CUresult;
pub type cuDeviceGetP2PAtomicCapabilities = unsafe extern "C" fn(
    capabilities: *mut ::core::ffi::c_uint,
    operations: *const CUatomicOperation,
    count: ::core::ffi::c_uint,
    srcDevice: CUdevice,
    dstDevice: CUdevice,
) -> CUresult;
pub type cuDeviceGetP2PAttribute =
    unsafe extern "C" fn(value: *mut ::core::ffi::c_int, attrib: CUdevice_P2PAttribute, srcDevice: CUdevice, dstDevice: CUdevice) -> CUresult;
pub type cuDeviceGetPCIBusId = unsafe extern "C" fn(pciBusId: *mut ::core::ffi::c_char, len: ::core::ffi::c_int, dev: CUdevice) -> CUresult;
pub type cuDeviceGetProperties = unsafe extern "C" fn(prop: *mut CUdevprop, dev: CUdevice) -> CUresult;
pub type cuDeviceGetTexture1DLinearMaxWidth =
    unsafe extern "C" fn(maxWidthInElements: *mut usize, format: CUarray_format, numChannels: ::core::ffi::c_uint, dev: CUdevice) -> CUresult;
pub type cuDeviceGetUuid = unsafe extern "C" fn(uuid: *mut CUuuid, dev: CUdevice) -> CUresult;
pub type cuDeviceGetUuid_v2 = unsafe extern "C" fn(uuid: *mut CUuuid, dev: CUdevice) -> CUresult;
pub type cuDeviceGraphMemTrim = unsafe extern "C" fn(device: CUdevice) -> CUresult;
pub type cuDevicePrimaryCtxGetState = unsafe extern "C" fn(dev: CUdevice, flags: *mut ::core::ffi::c_uint, active: *mut ::core::ffi::c_int) -> CUresult;
pub type cuDevicePrimaryCtxRelease = unsafe extern "C" fn(dev: CUdevice) -> CUresult;
pub type cuDevicePrimaryCtxRelease_v2 = unsafe extern "C" fn(dev: CUdevice) -> CUresult;
pub type cuDevicePrimaryCtxReset = unsafe extern "C" fn(dev: CUdevice) -> CUresult;
pub type cuDevicePrimaryCtxReset_v2 = unsafe extern "C" fn(dev: CUdevice) -> CUresult;
pub type cuDevicePrimaryCtxRetain = unsafe extern "C" fn(pctx: *mut CUcontext, dev: CUdevice) -> CUresult;
pub type cuDevicePrimaryCtxSetFlags = unsafe extern "C" fn(dev: CUdevice, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuDevicePrimaryCtxSetFlags_v2 = unsafe extern "C" fn(dev: CUdevice, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuDeviceRegisterAsyncNotification =
    unsafe extern "C" fn(device: CUdevice, callbackFunc: CUasyncCallback, userData: *mut ::core::ffi::c_void, callback: *mut CUasyncCallbackHandle) -> CUresult;
pub type cuDeviceSetGraphMemAttribute = unsafe extern "C" fn(device: CUdevice, attr: CUgraphMem_attribute, value: *mut ::core::ffi::c_void) -> CUresult;
pub type cuDeviceSetMemPool = unsafe extern "C" fn(dev: CUdevice, pool: CUmemoryPool) -> CUresult;
pub type cuDeviceTotalMem = unsafe extern "C" fn(bytes: *mut ::core::ffi::c_uint, dev: CUdevice) -> CUresult;
pub type cuDeviceTotalMem_v2 = unsafe extern "C" fn(bytes: *mut usize, dev: CUdevice) -> CUresult;
pub type cuDeviceUnregisterAsyncNotification = unsafe extern "C" fn(device: CUdevice, callback: CUasyncCallbackHandle) -> CUresult;
pub type cuDriverGetVersion = unsafe extern "C" fn(driverVersion: *mut ::core::ffi::c_int) -> CUresult;
pub type cuEventCreate = unsafe extern "C" fn(phEvent: *mut CUevent, Flags: ::core::ffi::c_uint) -> CUresult;
pub type cuEventDestroy = unsafe extern "C" fn(hEvent: CUevent) -> CUresult;
pub type cuEventDestroy_v2 = unsafe extern "C" fn(hEvent: CUevent) -> CUresult;
pub type cuEventElapsedTime = unsafe extern "C" fn(pMilliseconds: *mut f32, hStart: CUevent, hEnd: CUevent) -> CUresult;
pub type cuEventElapsedTime_v2 = unsafe extern "C" fn(pMilliseconds: *mut f32, hStart: CUevent, hEnd: CUevent) -> CUresult;
pub type cuEventQuery = unsafe extern "C" fn(hEvent: CUevent) -> CUresult;
pub type cuEventRecord = unsafe extern "C" fn(hEvent: CUevent, hStream: CUstream) -> CUresult;
pub type cuEventRecordWithFlags = unsafe extern "C" fn(hEvent: CUevent, hStream: CUstream, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuEventRecordWithFlags_ptsz = unsafe extern "C" fn(hEvent: CUevent, hStream: CUstream, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuEventRecord_ptsz = unsafe extern "C" fn(hEvent: CUevent, hStream: CUstream) -> CUresult;
pub type cuEventSynchronize = unsafe extern "C" fn(hEvent: CUevent) -> CUresult;
pub type cuExternalMemoryGetMappedBuffer =
    unsafe extern "C" fn(devPtr: *mut CUdeviceptr, extMem: CUexternalMemory, bufferDesc: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC) -> CUresult;
pub type cuExternalMemoryGetMappedMipmappedArray =
    unsafe extern "C" fn(mipmap: *mut CUmipmappedArray, extMem: CUexternalMemory, mipmapDesc: *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC) -> CUresult;
pub type cuFlushGPUDirectRDMAWrites = unsafe extern "C" fn(target: CUflushGPUDirectRDMAWritesTarget, scope: CUflushGPUDirectRDMAWritesScope) -> CUresult;
pub type cuFuncGetAttribute = unsafe extern "C" fn(pi: *mut ::core::ffi::c_int, attrib: CUfunction_attribute, hfunc: CUfunction) -> CUresult;
pub type cuFuncGetModule = unsafe extern "C" fn(hmod: *mut CUmodule, hfunc: CUfunction) -> CUresult;
pub type cuFuncGetName = unsafe extern "C" fn(name: *mut *const ::core::ffi::c_char, hfunc: CUfunction) -> CUresult;
pub type cuFuncGetParamInfo = unsafe extern "C" fn(func: CUfunction, paramIndex: usize, paramOffset: *mut usize, paramSize: *mut usize) -> CUresult;
pub type cuFuncIsLoaded = unsafe extern "C" fn(state: *mut CUfunctionLoadingState, function: CUfunction) -> CUresult;
pub type cuFuncLoad = unsafe extern "C" fn(function: CUfunction) -> CUresult;
pub type cuFuncSetAttribute = unsafe extern "C" fn(hfunc: CUfunction, attrib: CUfunction_attribute, value: ::core::ffi::c_int) -> CUresult;
pub type cuFuncSetBlockShape = unsafe extern "C" fn(hfunc: CUfunction, x: ::core::ffi::c_int, y: ::core::ffi::c_int, z: ::core::ffi::c_int) -> CUresult;
pub type cuFuncSetCacheConfig = unsafe extern "C" fn(hfunc: CUfunction, config: CUfunc_cache) -> CUresult;
pub type cuFuncSetSharedMemConfig = unsafe extern "C" fn(hfunc: CUfunction, config: CUsharedconfig) -> CUresult;
pub type cuFuncSetSharedSize = unsafe extern "C" fn(hfunc: CUfunction, bytes: ::core::ffi::c_uint) -> CUresult;
pub type cuGetErrorName = unsafe extern "C" fn(error: CUresult, pStr: *mut *const ::core::ffi::c_char) -> CUresult;
pub type cuGetErrorString = unsafe extern "C" fn(error: CUresult, pStr: *mut *const ::core::ffi::c_char) -> CUresult;
pub type cuGetExportTable = unsafe extern "C" fn(ppExportTable: *mut *const ::core::ffi::c_void, pExportTableId: *const CUuuid) -> CUresult;
pub type cuGetProcAddress = unsafe extern "C" fn(
    symbol: *const ::core::ffi::c_char,
    pfn: *mut *mut ::core::ffi::c_void,
    cudaVersion: ::core::ffi::c_int,
    flags: cuuint64_t,
) -> CUresult;
pub type cuGetProcAddress_v2 = unsafe extern "C" fn(
    symbol: *const ::core::ffi::c_char,
    pfn: *mut *mut ::core::ffi::c_void,
    cudaVersion: ::core::ffi::c_int,
    flags: cuuint64_t,
    symbolStatus: *mut CUdriverProcAddressQueryResult,
) -> CUresult;
pub type cuGraphAddBatchMemOpNode = unsafe extern "C" fn(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    nodeParams: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> CUresult;
pub type cuGraphAddChildGraphNode = unsafe extern "C" fn(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    childGraph: CUgraph,
) -> CUresult;
pub type cuGraphAddDependencies = unsafe extern "C" fn(hGraph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, numDependencies: usize) -> CUresult;
pub type cuGraphAddDependencies_v2 = unsafe extern "C" fn(
    hGraph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    edgeData: *const CUgraphEdgeData,
    numDependencies: usize,
) -> CUresult;
pub type cuGraphAddEmptyNode =
    unsafe extern "C" fn(phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize) -> CUresult;
pub type cuGraphAddEventRecordNode =
    unsafe extern "C" fn(phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, event: CUevent) -> CUresult;
pub type cuGraphAddEventWaitNode =
    unsafe extern "C" fn(phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, event: CUevent) -> CUresult;
pub type cuGraphAddExternalSemaphoresSignalNode = unsafe extern "C" fn(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    nodeParams: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
) -> CUresult;
pub type cuGraphAddExternalSemaphoresWaitNode = unsafe extern "C" fn(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    nodeParams: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS,
) -> CUresult;
pub type cuGraphAddHostNode = unsafe extern "C" fn(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    nodeParams: *const CUDA_HOST_NODE_PARAMS,
) -> CUresult;
pub type cuGraphAddKernelNode = unsafe extern "C" fn(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> CUresult;
pub type cuGraphAddKernelNode_v2 = unsafe extern "C" fn(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    nodeParams: *const CUDA_KERNEL_NODE_PARAMS,
) -> CUresult;
pub type cuGraphAddMemAllocNode = unsafe extern "C" fn(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    nodeParams: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> CUresult;
pub type cuGraphAddMemFreeNode = unsafe extern "C" fn(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    dptr: CUdeviceptr,
) -> CUresult;
pub type cuGraphAddMemcpyNode = unsafe extern "C" fn(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    copyParams: *const CUDA_MEMCPY3D,
    ctx: CUcontext,
) -> CUresult;
pub type cuGraphAddMemsetNode = unsafe extern "C" fn(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    memsetParams: *const CUDA_MEMSET_NODE_PARAMS,
    ctx: CUcontext,
) -> CUresult;
pub type cuGraphAddNode = unsafe extern "C" fn(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    nodeParams: *mut CUgraphNodeParams,
) -> CUresult;
pub type cuGraphAddNode_v2 = unsafe extern "C" fn(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    dependencyData: *const CUgraphEdgeData,
    numDependencies: usize,
    nodeParams: *mut CUgraphNodeParams,
) -> CUresult;
pub type cuGraphBatchMemOpNodeGetParams = unsafe extern "C" fn(hNode: CUgraphNode, nodeParams_out: *mut CUDA_BATCH_MEM_OP_NODE_PARAMS) -> CUresult;
pub type cuGraphBatchMemOpNodeSetParams = unsafe extern "C" fn(hNode: CUgraphNode, nodeParams: *const CUDA_BATCH_MEM_OP_NODE_PARAMS) -> CUresult;
pub type cuGraphChildGraphNodeGetGraph = unsafe extern "C" fn(hNode: CUgraphNode, phGraph: *mut CUgraph) -> CUresult;
pub type cuGraphClone = unsafe extern "C" fn(phGraphClone: *mut CUgraph, originalGraph: CUgraph) -> CUresult;
pub type cuGraphConditionalHandleCreate = unsafe extern "C" fn(
    pHandle_out: *mut CUgraphConditionalHandle,
    hGraph: CUgraph,
    ctx: CUcontext,
    defaultLaunchValue: ::core::ffi::c_uint,
    flags: ::core::ffi::c_uint,
) -> CUresult;
pub type cuGraphCreate = unsafe extern "C" fn(phGraph: *mut CUgraph, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuGraphDebugDotPrint = unsafe extern "C" fn(hGraph: CUgraph, path: *const ::core::ffi::c_char, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuGraphDestroy = unsafe extern "C" fn(hGraph: CUgraph) -> CUresult;
pub type cuGraphDestroyNode = unsafe extern "C" fn(hNode: CUgraphNode) -> CUresult;
pub type cuGraphEventRecordNodeGetEvent = unsafe extern "C" fn(hNode: CUgraphNode, event_out: *mut CUevent) -> CUresult;
pub type cuGraphEventRecordNodeSetEvent = unsafe extern "C" fn(hNode: CUgraphNode, event: CUevent) -> CUresult;
pub type cuGraphEventWaitNodeGetEvent = unsafe extern "C" fn(hNode: CUgraphNode, event_out: *mut CUevent) -> CUresult;
pub type cuGraphEventWaitNodeSetEvent = unsafe extern "C" fn(hNode: CUgraphNode, event: CUevent) -> CUresult;
pub type cuGraphExecBatchMemOpNodeSetParams =
    unsafe extern "C" fn(hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *const CUDA_BATCH_MEM_OP_NODE_PARAMS) -> CUresult;
pub type cuGraphExecChildGraphNodeSetParams = unsafe extern "C" fn(hGraphExec: CUgraphExec, hNode: CUgraphNode, childGraph: CUgraph) -> CUresult;
pub type cuGraphExecDestroy = unsafe extern "C" fn(hGraphExec: CUgraphExec) -> CUresult;
pub type cuGraphExecEventRecordNodeSetEvent = unsafe extern "C" fn(hGraphExec: CUgraphExec, hNode: CUgraphNode, event: CUevent) -> CUresult;
pub type cuGraphExecEventWaitNodeSetEvent = unsafe extern "C" fn(hGraphExec: CUgraphExec, hNode: CUgraphNode, event: CUevent) -> CUresult;
pub type cuGraphExecExternalSemaphoresSignalNodeSetParams =
    unsafe extern "C" fn(hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS) -> CUresult;
pub type cuGraphExecExternalSemaphoresWaitNodeSetParams =
    unsafe extern "C" fn(hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS) -> CUresult;
pub type cuGraphExecGetFlags = unsafe extern "C" fn(hGraphExec: CUgraphExec, flags: *mut cuuint64_t) -> CUresult;
pub type cuGraphExecHostNodeSetParams = unsafe extern "C" fn(hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *const CUDA_HOST_NODE_PARAMS) -> CUresult;
pub type cuGraphExecKernelNodeSetParams =
    unsafe extern "C" fn(hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1) -> CUresult;
pub type cuGraphExecKernelNodeSetParams_v2 =
    unsafe extern "C" fn(hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *const CUDA_KERNEL_NODE_PARAMS) -> CUresult;
pub type cuGraphExecMemcpyNodeSetParams =
    unsafe extern "C" fn(hGraphExec: CUgraphExec, hNode: CUgraphNode, copyParams: *const CUDA_MEMCPY3D, ctx: CUcontext) -> CUresult;
pub type cuGraphExecMemsetNodeSetParams =
    unsafe extern "C" fn(hGraphExec: CUgraphExec, hNode: CUgraphNode, memsetParams: *const CUDA_MEMSET_NODE_PARAMS, ctx: CUcontext) -> CUresult;
pub type cuGraphExecNodeSetParams = unsafe extern "C" fn(hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *mut CUgraphNodeParams) -> CUresult;
pub type cuGraphExecUpdate = unsafe extern "C" fn(
    hGraphExec: CUgraphExec,
    hGraph: CUgraph,
    hErrorNode_out: *mut CUgraphNode,
    updateResult_out: *mut CUgraphExecUpdateResult,
) -> CUresult;
pub type cuGraphExecUpdate_v2 = unsafe extern "C" fn(hGraphExec: CUgraphExec, hGraph: CUgraph, resultInfo: *mut CUgraphExecUpdateResultInfo) -> CUresult;
pub type cuGraphExternalSemaphoresSignalNodeGetParams = unsafe extern "C" fn(hNode: CUgraphNode, params_out: *mut CUDA_EXT_SEM_SIGNAL_NODE_PARAMS) -> CUresult;
pub type cuGraphExternalSemaphoresSignalNodeSetParams =
    unsafe extern "C" fn(hNode: CUgraphNode, nodeParams: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS) -> CUresult;
pub type cuGraphExternalSemaphoresWaitNodeGetParams = unsafe extern "C" fn(hNode: CUgraphNode, params_out: *mut CUDA_EXT_SEM_WAIT_NODE_PARAMS) -> CUresult;
pub type cuGraphExternalSemaphoresWaitNodeSetParams = unsafe extern "C" fn(hNode: CUgraphNode, nodeParams: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS) -> CUresult;
pub type cuGraphGetEdges = unsafe extern "C" fn(hGraph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, numEdges: *mut usize) -> CUresult;
pub type cuGraphGetEdges_v2 =
    unsafe extern "C" fn(hGraph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, edgeData: *mut CUgraphEdgeData, numEdges: *mut usize) -> CUresult;
pub type cuGraphGetNodes = unsafe extern "C" fn(hGraph: CUgraph, nodes: *mut CUgraphNode, numNodes: *mut usize) -> CUresult;
pub type cuGraphGetRootNodes = unsafe extern "C" fn(hGraph: CUgraph, rootNodes: *mut CUgraphNode, numRootNodes: *mut usize) -> CUresult;
pub type cuGraphHostNodeGetParams = unsafe extern "C" fn(hNode: CUgraphNode, nodeParams: *mut CUDA_HOST_NODE_PARAMS) -> CUresult;
pub type cuGraphHostNodeSetParams = unsafe extern "C" fn(hNode: CUgraphNode, nodeParams: *const CUDA_HOST_NODE_PARAMS) -> CUresult;
pub type cuGraphInstantiate = unsafe extern "C" fn(
    phGraphExec: *mut CUgraphExec,
    hGraph: CUgraph,
    phErrorNode: *mut CUgraphNode,
    logBuffer: *mut ::core::ffi::c_char,
    bufferSize: usize,
) -> CUresult;
pub type cuGraphInstantiateWithFlags = unsafe extern "C" fn(phGraphExec: *mut CUgraphExec, hGraph: CUgraph, flags: ::core::ffi::c_ulonglong) -> CUresult;
pub type cuGraphInstantiateWithParams =
    unsafe extern "C" fn(phGraphExec: *mut CUgraphExec, hGraph: CUgraph, instantiateParams: *mut CUDA_GRAPH_INSTANTIATE_PARAMS) -> CUresult;
pub type cuGraphInstantiateWithParams_ptsz =
    unsafe extern "C" fn(phGraphExec: *mut CUgraphExec, hGraph: CUgraph, instantiateParams: *mut CUDA_GRAPH_INSTANTIATE_PARAMS) -> CUresult;
pub type cuGraphInstantiate_v2 = unsafe extern "C" fn(
    phGraphExec: *mut CUgraphExec,
    hGraph: CUgraph,
    phErrorNode: *mut CUgraphNode,
    logBuffer: *mut ::core::ffi::c_char,
    bufferSize: usize,
) -> CUresult;
pub type cuGraphKernelNodeCopyAttributes = unsafe extern "C" fn(dst: CUgraphNode, src: CUgraphNode) -> CUresult;
pub type cuGraphKernelNodeGetAttribute = unsafe extern "C" fn(hNode: CUgraphNode, attr: CUkernelNodeAttrID, value_out: *mut CUkernelNodeAttrValue) -> CUresult;
pub type cuGraphKernelNodeGetParams = unsafe extern "C" fn(hNode: CUgraphNode, nodeParams: *mut CUDA_KERNEL_NODE_PARAMS_v1) -> CUresult;
pub type cuGraphKernelNodeGetParams_v2 = unsafe extern "C" fn(hNode: CUgraphNode, nodeParams: *mut CUDA_KERNEL_NODE_PARAMS) -> CUresult;
pub type cuGraphKernelNodeSetAttribute = unsafe extern "C" fn(hNode: CUgraphNode, attr: CUkernelNodeAttrID, value: *const CUkernelNodeAttrValue) -> CUresult;
pub type cuGraphKernelNodeSetParams = unsafe extern "C" fn(hNode: CUgraphNode, nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1) -> CUresult;
pub type cuGraphKernelNodeSetParams_v2 = unsafe extern "C" fn(hNode: CUgraphNode, nodeParams: *const CUDA_KERNEL_NODE_PARAMS) -> CUresult;
pub type cuGraphLaunch = unsafe extern "C" fn(hGraph: CUgraphExec, hStream: CUstream) -> CUresult;
pub type cuGraphLaunch_ptsz = unsafe extern "C" fn(hGraphExec: CUgraphExec, hStream: CUstream) -> CUresult;
pub type cuGraphMemAllocNodeGetParams = unsafe extern "C" fn(hNode: CUgraphNode, params_out: *mut CUDA_MEM_ALLOC_NODE_PARAMS) -> CUresult;
pub type cuGraphMemFreeNodeGetParams = unsafe extern "C" fn(hNode: CUgraphNode, dptr_out: *mut CUdeviceptr) -> CUresult;
pub type cuGraphMemcpyNodeGetParams = unsafe extern "C" fn(hNode: CUgraphNode, nodeParams: *mut CUDA_MEMCPY3D) -> CUresult;
pub type cuGraphMemcpyNodeSetParams = unsafe extern "C" fn(hNode: CUgraphNode, nodeParams: *const CUDA_MEMCPY3D) -> CUresult;
pub type cuGraphMemsetNodeGetParams = unsafe extern "C" fn(hNode: CUgraphNode, nodeParams: *mut CUDA_MEMSET_NODE_PARAMS) -> CUresult;
pub type cuGraphMemsetNodeSetParams = unsafe extern "C" fn(hNode: CUgraphNode, nodeParams: *const CUDA_MEMSET_NODE_PARAMS) -> CUresult;
pub type cuGraphNodeFindInClone = unsafe extern "C" fn(phNode: *mut CUgraphNode, hOriginalNode: CUgraphNode, hClonedGraph: CUgraph) -> CUresult;
pub type cuGraphNodeGetDependencies = unsafe extern "C" fn(hNode: CUgraphNode, dependencies: *mut CUgraphNode, numDependencies: *mut usize) -> CUresult;
pub type cuGraphNodeGetDependencies_v2 =
    unsafe extern "C" fn(hNode: CUgraphNode, dependencies: *mut CUgraphNode, edgeData: *mut CUgraphEdgeData, numDependencies: *mut usize) -> CUresult;
pub type cuGraphNodeGetDependentNodes = unsafe extern "C" fn(hNode: CUgraphNode, dependentNodes: *mut CUgraphNode, numDependentNodes: *mut usize) -> CUresult;
pub type cuGraphNodeGetDependentNodes_v2 =
    unsafe extern "C" fn(hNode: CUgraphNode, dependentNodes: *mut CUgraphNode, edgeData: *mut CUgraphEdgeData, numDependentNodes: *mut usize) -> CUresult;
pub type cuGraphNodeGetEnabled = unsafe extern "C" fn(hGraphExec: CUgraphExec, hNode: CUgraphNode, isEnabled: *mut ::core::ffi::c_uint) -> CUresult;
pub type cuGraphNodeGetType = unsafe extern "C" fn(hNode: CUgraphNode, type_: *mut CUgraphNodeType) -> CUresult;
pub type cuGraphNodeSetEnabled = unsafe extern "C" fn(hGraphExec: CUgraphExec, hNode: CUgraphNode, isEnabled: ::core::ffi::c_uint) -> CUresult;
pub type cuGraphNodeSetParams = unsafe extern "C" fn(hNode: CUgraphNode, nodeParams: *mut CUgraphNodeParams) -> CUresult;
pub type cuGraphReleaseUserObject = unsafe extern "C" fn(graph: CUgraph, object: CUuserObject, count: ::core::ffi::c_uint) -> CUresult;
pub type cuGraphRemoveDependencies =
    unsafe extern "C" fn(hGraph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, numDependencies: usize) -> CUresult;
pub type cuGraphRemoveDependencies_v2 = unsafe extern "C" fn(
    hGraph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    edgeData: *const CUgraphEdgeData,
    numDependencies: usize,
) -> CUresult;
pub type cuGraphRetainUserObject =
    unsafe extern "C" fn(graph: CUgraph, object: CUuserObject, count: ::core::ffi::c_uint, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuGraphUpload = unsafe extern "C" fn(hGraph: CUgraphExec, hStream: CUstream) -> CUresult;
pub type cuGraphUpload_ptsz = unsafe extern "C" fn(hGraphExec: CUgraphExec, hStream: CUstream) -> CUresult;
pub type cuGraphicsMapResources = unsafe extern "C" fn(count: ::core::ffi::c_uint, resources: *mut CUgraphicsResource, hStream: CUstream) -> CUresult;
pub type cuGraphicsMapResources_ptsz = unsafe extern "C" fn(count: ::core::ffi::c_uint, resources: *mut CUgraphicsResource, hStream: CUstream) -> CUresult;
pub type cuGraphicsResourceGetMappedMipmappedArray = unsafe extern "C" fn(pMipmappedArray: *mut CUmipmappedArray, resource: CUgraphicsResource) -> CUresult;
pub type cuGraphicsResourceGetMappedPointer =
    unsafe extern "C" fn(pDevPtr: *mut CUdeviceptr_v1, pSize: *mut ::core::ffi::c_uint, resource: CUgraphicsResource) -> CUresult;
pub type cuGraphicsResourceGetMappedPointer_v2 = unsafe extern "C" fn(pDevPtr: *mut CUdeviceptr, pSize: *mut usize, resource: CUgraphicsResource) -> CUresult;
pub type cuGraphicsResourceSetMapFlags = unsafe extern "C" fn(resource: CUgraphicsResource, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuGraphicsResourceSetMapFlags_v2 = unsafe extern "C" fn(resource: CUgraphicsResource, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuGraphicsSubResourceGetMappedArray =
    unsafe extern "C" fn(pArray: *mut CUarray, resource: CUgraphicsResource, arrayIndex: ::core::ffi::c_uint, mipLevel: ::core::ffi::c_uint) -> CUresult;
pub type cuGraphicsUnmapResources = unsafe extern "C" fn(count: ::core::ffi::c_uint, resources: *mut CUgraphicsResource, hStream: CUstream) -> CUresult;
pub type cuGraphicsUnmapResources_ptsz = unsafe extern "C" fn(count: ::core::ffi::c_uint, resources: *mut CUgraphicsResource, hStream: CUstream) -> CUresult;
pub type cuGraphicsUnregisterResource = unsafe extern "C" fn(resource: CUgraphicsResource) -> CUresult;
pub type cuGreenCtxCreate = unsafe extern "C" fn(phCtx: *mut CUgreenCtx, desc: CUdevResourceDesc, dev: CUdevice, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuGreenCtxDestroy = unsafe extern "C" fn(hCtx: CUgreenCtx) -> CUresult;
pub type cuGreenCtxGetDevResource = unsafe extern "C" fn(hCtx: CUgreenCtx, resource: *mut CUdevResource, type_: CUdevResourceType) -> CUresult;
pub type cuGreenCtxGetId = unsafe extern "C" fn(greenCtx: CUgreenCtx, greenCtxId: *mut ::core::ffi::c_ulonglong) -> CUresult;
pub type cuGreenCtxRecordEvent = unsafe extern "C" fn(hCtx: CUgreenCtx, hEvent: CUevent) -> CUresult;
pub type cuGreenCtxStreamCreate =
    unsafe extern "C" fn(phStream: *mut CUstream, greenCtx: CUgreenCtx, flags: ::core::ffi::c_uint, priority: ::core::ffi::c_int) -> CUresult;
pub type cuGreenCtxWaitEvent = unsafe extern "C" fn(hCtx: CUgreenCtx, hEvent: CUevent) -> CUresult;
pub type cuImportExternalMemory = unsafe extern "C" fn(extMem_out: *mut CUexternalMemory, memHandleDesc: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC) -> CUresult;
pub type cuImportExternalSemaphore =
    unsafe extern "C" fn(extSem_out: *mut CUexternalSemaphore, semHandleDesc: *const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC) -> CUresult;
pub type cuInit = unsafe extern "C" fn(Flags: ::core::ffi::c_uint) -> CUresult;
pub type cuIpcCloseMemHandle = unsafe extern "C" fn(dptr: CUdeviceptr) -> CUresult;
pub type cuIpcGetEventHandle = unsafe extern "C" fn(pHandle: *mut CUipcEventHandle, event: CUevent) -> CUresult;
pub type cuIpcGetMemHandle = unsafe extern "C" fn(pHandle: *mut CUipcMemHandle, dptr: CUdeviceptr) -> CUresult;
pub type cuIpcOpenEventHandle = unsafe extern "C" fn(phEvent: *mut CUevent, handle: CUipcEventHandle) -> CUresult;
pub type cuIpcOpenMemHandle = unsafe extern "C" fn(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, Flags: ::core::ffi::c_uint) -> CUresult;
pub type cuIpcOpenMemHandle_v2 = unsafe extern "C" fn(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, Flags: ::core::ffi::c_uint) -> CUresult;
pub type cuKernelGetAttribute = unsafe extern "C" fn(pi: *mut ::core::ffi::c_int, attrib: CUfunction_attribute, kernel: CUkernel, dev: CUdevice) -> CUresult;
pub type cuKernelGetFunction = unsafe extern "C" fn(pFunc: *mut CUfunction, kernel: CUkernel) -> CUresult;
pub type cuKernelGetLibrary = unsafe extern "C" fn(pLib: *mut CUlibrary, kernel: CUkernel) -> CUresult;
pub type cuKernelGetName = unsafe extern "C" fn(name: *mut *const ::core::ffi::c_char, hfunc: CUkernel) -> CUresult;
pub type cuKernelGetParamInfo = unsafe extern "C" fn(kernel: CUkernel, paramIndex: usize, paramOffset: *mut usize, paramSize: *mut usize) -> CUresult;
pub type cuKernelSetAttribute = unsafe extern "C" fn(attrib: CUfunction_attribute, val: ::core::ffi::c_int, kernel: CUkernel, dev: CUdevice) -> CUresult;
pub type cuKernelSetCacheConfig = unsafe extern "C" fn(kernel: CUkernel, config: CUfunc_cache, dev: CUdevice) -> CUresult;
pub type cuLaunch = unsafe extern "C" fn(f: CUfunction) -> CUresult;
pub type cuLaunchCooperativeKernel = unsafe extern "C" fn(
    f: CUfunction,
    gridDimX: ::core::ffi::c_uint,
    gridDimY: ::core::ffi::c_uint,
    gridDimZ: ::core::ffi::c_uint,
    blockDimX: ::core::ffi::c_uint,
    blockDimY: ::core::ffi::c_uint,
    blockDimZ: ::core::ffi::c_uint,
    sharedMemBytes: ::core::ffi::c_uint,
    hStream: CUstream,
    kernelParams: *mut *mut ::core::ffi::c_void,
) -> CUresult;
pub type cuLaunchCooperativeKernelMultiDevice =
    unsafe extern "C" fn(launchParamsList: *mut CUDA_LAUNCH_PARAMS, numDevices: ::core::ffi::c_uint, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuLaunchCooperativeKernel_ptsz = unsafe extern "C" fn(
    f: CUfunction,
    gridDimX: ::core::ffi::c_uint,
    gridDimY: ::core::ffi::c_uint,
    gridDimZ: ::core::ffi::c_uint,
    blockDimX: ::core::ffi::c_uint,
    blockDimY: ::core::ffi::c_uint,
    blockDimZ: ::core::ffi::c_uint,
    sharedMemBytes: ::core::ffi::c_uint,
    hStream: CUstream,
    kernelParams: *mut *mut ::core::ffi::c_void,
) -> CUresult;
pub type cuLaunchGrid = unsafe extern "C" fn(f: CUfunction, grid_width: ::core::ffi::c_int, grid_height: ::core::ffi::c_int) -> CUresult;
pub type cuLaunchGridAsync =
    unsafe extern "C" fn(f: CUfunction, grid_width: ::core::ffi::c_int, grid_height: ::core::ffi::c_int, hStream: CUstream) -> CUresult;
pub type cuLaunchHostFunc = unsafe extern "C" fn(hStream: CUstream, fn_: CUhostFn, userData: *mut ::core::ffi::c_void) -> CUresult;
pub type cuLaunchHostFunc_ptsz = unsafe extern "C" fn(hStream: CUstream, fn_: CUhostFn, userData: *mut ::core::ffi::c_void) -> CUresult;
pub type cuLaunchKernel = unsafe extern "C" fn(
    f: CUfunction,
    gridDimX: ::core::ffi::c_uint,
    gridDimY: ::core::ffi::c_uint,
    gridDimZ: ::core::ffi::c_uint,
    blockDimX: ::core::ffi::c_uint,
    blockDimY: ::core::ffi::c_uint,
    blockDimZ: ::core::ffi::c_uint,
    sharedMemBytes: ::core::ffi::c_uint,
    hStream: CUstream,
    kernelParams: *mut *mut ::core::ffi::c_void,
    extra: *mut *mut ::core::ffi::c_void,
) -> CUresult;
pub type cuLaunchKernelEx = unsafe extern "C" fn(
    config: *const CUlaunchConfig,
    f: CUfunction,
    kernelParams: *mut *mut ::core::ffi::c_void,
    extra: *mut *mut ::core::ffi::c_void,
) -> CUresult;
pub type cuLaunchKernelEx_ptsz = unsafe extern "C" fn(
    config: *const CUlaunchConfig,
    f: CUfunction,
    kernelParams: *mut *mut ::core::ffi::c_void,
    extra: *mut *mut ::core::ffi::c_void,
) -> CUresult;
pub type cuLaunchKernel_ptsz = unsafe extern "C" fn(
    f: CUfunction,
    gridDimX: ::core::ffi::c_uint,
    gridDimY: ::core::ffi::c_uint,
    gridDimZ: ::core::ffi::c_uint,
    blockDimX: ::core::ffi::c_uint,
    blockDimY: ::core::ffi::c_uint,
    blockDimZ: ::core::ffi::c_uint,
    sharedMemBytes: ::core::ffi::c_uint,
    hStream: CUstream,
    kernelParams: *mut *mut ::core::ffi::c_void,
    extra: *mut *mut ::core::ffi::c_void,
) -> CUresult;
pub type cuLibraryEnumerateKernels = unsafe extern "C" fn(kernels: *mut CUkernel, numKernels: ::core::ffi::c_uint, lib: CUlibrary) -> CUresult;
pub type cuLibraryGetGlobal = unsafe extern "C" fn(dptr: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const ::core::ffi::c_char) -> CUresult;
pub type cuLibraryGetKernel = unsafe extern "C" fn(pKernel: *mut CUkernel, library: CUlibrary, name: *const ::core::ffi::c_char) -> CUresult;
pub type cuLibraryGetKernelCount = unsafe extern "C" fn(count: *mut ::core::ffi::c_uint, lib: CUlibrary) -> CUresult;
pub type cuLibraryGetManaged =
    unsafe extern "C" fn(dptr: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const ::core::ffi::c_char) -> CUresult;
pub type cuLibraryGetModule = unsafe extern "C" fn(pMod: *mut CUmodule, library: CUlibrary) -> CUresult;
pub type cuLibraryGetUnifiedFunction =
    unsafe extern "C" fn(fptr: *mut *mut ::core::ffi::c_void, library: CUlibrary, symbol: *const ::core::ffi::c_char) -> CUresult;
pub type cuLibraryLoadData = unsafe extern "C" fn(
    library: *mut CUlibrary,
    code: *const ::core::ffi::c_void,
    jitOptions: *mut CUjit_option,
    jitOptionsValues: *mut *mut ::core::ffi::c_void,
    numJitOptions: ::core::ffi::c_uint,
    libraryOptions: *mut CUlibraryOption,
    libraryOptionValues: *mut *mut ::core::ffi::c_void,
    numLibraryOptions: ::core::ffi::c_uint,
) -> CUresult;
pub type cuLibraryLoadFromFile = unsafe extern "C" fn(
    library: *mut CUlibrary,
    fileName: *const ::core::ffi::c_char,
    jitOptions: *mut CUjit_option,
    jitOptionsValues: *mut *mut ::core::ffi::c_void,
    numJitOptions: ::core::ffi::c_uint,
    libraryOptions: *mut CUlibraryOption,
    libraryOptionValues: *mut *mut ::core::ffi::c_void,
    numLibraryOptions: ::core::ffi::c_uint,
) -> CUresult;
pub type cuLibraryUnload = unsafe extern "C" fn(library: CUlibrary) -> CUresult;
pub type cuLinkAddData = unsafe extern "C" fn(
    state: CUlinkState,
    type_: CUjitInputType,
    data: *mut ::core::ffi::c_void,
    size: usize,
    name: *const ::core::ffi::c_char,
    numOptions: ::core::ffi::c_uint,
    options: *mut CUjit_option,
    optionValues: *mut *mut ::core::ffi::c_void,
) -> CUresult;
pub type cuLinkAddData_v2 = unsafe extern "C" fn(
    state: CUlinkState,
    type_: CUjitInputType,
    data: *mut ::core::ffi::c_void,
    size: usize,
    name: *const ::core::ffi::c_char,
    numOptions: ::core::ffi::c_uint,
    options: *mut CUjit_option,
    optionValues: *mut *mut ::core::ffi::c_void,
) -> CUresult;
pub type cuLinkAddFile = unsafe extern "C" fn(
    state: CUlinkState,
    type_: CUjitInputType,
    path: *const ::core::ffi::c_char,
    numOptions: ::core::ffi::c_uint,
    options: *mut CUjit_option,
    optionValues: *mut *mut ::core::ffi::c_void,
) -> CUresult;
pub type cuLinkAddFile_v2 = unsafe extern "C" fn(
    state: CUlinkState,
    type_: CUjitInputType,
    path: *const ::core::ffi::c_char,
    numOptions: ::core::ffi::c_uint,
    options: *mut CUjit_option,
    optionValues: *mut *mut ::core::ffi::c_void,
) -> CUresult;
pub type cuLinkComplete = unsafe extern "C" fn(state: CUlinkState, cubinOut: *mut *mut ::core::ffi::c_void, sizeOut: *mut usize) -> CUresult;
pub type cuLinkCreate = unsafe extern "C" fn(
    numOptions: ::core::ffi::c_uint,
    options: *mut CUjit_option,
    optionValues: *mut *mut ::core::ffi::c_void,
    stateOut: *mut CUlinkState,
) -> CUresult;
pub type cuLinkCreate_v2 = unsafe extern "C" fn(
    numOptions: ::core::ffi::c_uint,
    options: *mut CUjit_option,
    optionValues: *mut *mut ::core::ffi::c_void,
    stateOut: *mut CUlinkState,
) -> CUresult;
pub type cuLinkDestroy = unsafe extern "C" fn(state: CUlinkState) -> CUresult;
pub type cuLogsCurrent = unsafe extern "C" fn(iterator_out: *mut CUlogIterator, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuLogsDumpToFile = unsafe extern "C" fn(iterator: *mut CUlogIterator, pathToFile: *const ::core::ffi::c_char, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuLogsDumpToMemory =
    unsafe extern "C" fn(iterator: *mut CUlogIterator, buffer: *mut ::core::ffi::c_char, size: *mut usize, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuLogsRegisterCallback =
    unsafe extern "C" fn(callbackFunc: CUlogsCallback, userData: *mut ::core::ffi::c_void, callback_out: *mut CUlogsCallbackHandle) -> CUresult;
pub type cuLogsUnregisterCallback = unsafe extern "C" fn(callback: CUlogsCallbackHandle) -> CUresult;
pub type cuMemAddressFree = unsafe extern "C" fn(ptr: CUdeviceptr, size: usize) -> CUresult;
pub type cuMemAddressReserve =
    unsafe extern "C" fn(ptr: *mut CUdeviceptr, size: usize, alignment: usize, addr: CUdeviceptr, flags: ::core::ffi::c_ulonglong) -> CUresult;
pub type cuMemAdvise = unsafe extern "C" fn(devPtr: CUdeviceptr, count: usize, advice: CUmem_advise, device: CUdevice) -> CUresult;
pub type cuMemAdvise_v2 = unsafe extern "C" fn(devPtr: CUdeviceptr, count: usize, advice: CUmem_advise, location: CUmemLocation) -> CUresult;
pub type cuMemAlloc = unsafe extern "C" fn(dptr: *mut CUdeviceptr_v1, bytesize: ::core::ffi::c_uint) -> CUresult;
pub type cuMemAllocAsync = unsafe extern "C" fn(dptr: *mut CUdeviceptr, bytesize: usize, hStream: CUstream) -> CUresult;
pub type cuMemAllocAsync_ptsz = unsafe extern "C" fn(dptr: *mut CUdeviceptr, bytesize: usize, hStream: CUstream) -> CUresult;
pub type cuMemAllocFromPoolAsync = unsafe extern "C" fn(dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, hStream: CUstream) -> CUresult;
pub type cuMemAllocFromPoolAsync_ptsz = unsafe extern "C" fn(dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, hStream: CUstream) -> CUresult;
pub type cuMemAllocHost = unsafe extern "C" fn(pp: *mut *mut ::core::ffi::c_void, bytesize: ::core::ffi::c_uint) -> CUresult;
pub type cuMemAllocHost_v2 = unsafe extern "C" fn(pp: *mut *mut ::core::ffi::c_void, bytesize: usize) -> CUresult;
pub type cuMemAllocManaged = unsafe extern "C" fn(dptr: *mut CUdeviceptr, bytesize: usize, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuMemAllocPitch = unsafe extern "C" fn(
    dptr: *mut CUdeviceptr_v1,
    pPitch: *mut ::core::ffi::c_uint,
    WidthInBytes: ::core::ffi::c_uint,
    Height: ::core::ffi::c_uint,
    ElementSizeBytes: ::core::ffi::c_uint,
) -> CUresult;
pub type cuMemAllocPitch_v2 =
    unsafe extern "C" fn(dptr: *mut CUdeviceptr, pPitch: *mut usize, WidthInBytes: usize, Height: usize, ElementSizeBytes: ::core::ffi::c_uint) -> CUresult;
pub type cuMemAlloc_v2 = unsafe extern "C" fn(dptr: *mut CUdeviceptr, bytesize: usize) -> CUresult;
pub type cuMemBatchDecompressAsync = unsafe extern "C" fn(
    paramsArray: *mut CUmemDecompressParams,
    count: usize,
    flags: ::core::ffi::c_uint,
    errorIndex: *mut usize,
    stream: CUstream,
) -> CUresult;
pub type cuMemBatchDecompressAsync_ptsz = unsafe extern "C" fn(
    paramsArray: *mut CUmemDecompressParams,
    count: usize,
    flags: ::core::ffi::c_uint,
    errorIndex: *mut usize,
    stream: CUstream,
) -> CUresult;
pub type cuMemCreate =
    unsafe extern "C" fn(handle: *mut CUmemGenericAllocationHandle, size: usize, prop: *const CUmemAllocationProp, flags: ::core::ffi::c_ulonglong) -> CUresult;
pub type cuMemDiscardAndPrefetchBatchAsync = unsafe extern "C" fn(
    dptrs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    prefetchLocs: *mut CUmemLocation,
    prefetchLocIdxs: *mut usize,
    numPrefetchLocs: usize,
    flags: ::core::ffi::c_ulonglong,
    hStream: CUstream,
) -> CUresult;
pub type cuMemDiscardAndPrefetchBatchAsync_ptsz = unsafe extern "C" fn(
    dptrs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    prefetchLocs: *mut CUmemLocation,
    prefetchLocIdxs: *mut usize,
    numPrefetchLocs: usize,
    flags: ::core::ffi::c_ulonglong,
    hStream: CUstream,
) -> CUresult;
pub type cuMemDiscardBatchAsync =
    unsafe extern "C" fn(dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, flags: ::core::ffi::c_ulonglong, hStream: CUstream) -> CUresult;
pub type cuMemDiscardBatchAsync_ptsz =
    unsafe extern "C" fn(dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, flags: ::core::ffi::c_ulonglong, hStream: CUstream) -> CUresult;
pub type cuMemExportToShareableHandle = unsafe extern "C" fn(
    shareableHandle: *mut ::core::ffi::c_void,
    handle: CUmemGenericAllocationHandle,
    handleType: CUmemAllocationHandleType,
    flags: ::core::ffi::c_ulonglong,
) -> CUresult;
pub type cuMemFree = unsafe extern "C" fn(dptr: CUdeviceptr_v1) -> CUresult;
pub type cuMemFreeAsync = unsafe extern "C" fn(dptr: CUdeviceptr, hStream: CUstream) -> CUresult;
pub type cuMemFreeAsync_ptsz = unsafe extern "C" fn(dptr: CUdeviceptr, hStream: CUstream) -> CUresult;
pub type cuMemFreeHost = unsafe extern "C" fn(p: *mut ::core::ffi::c_void) -> CUresult;
pub type cuMemFree_v2 = unsafe extern "C" fn(dptr: CUdeviceptr) -> CUresult;
pub type cuMemGetAccess = unsafe extern "C" fn(flags: *mut ::core::ffi::c_ulonglong, location: *const CUmemLocation, ptr: CUdeviceptr) -> CUresult;
pub type cuMemGetAddressRange = unsafe extern "C" fn(pbase: *mut CUdeviceptr_v1, psize: *mut ::core::ffi::c_uint, dptr: CUdeviceptr_v1) -> CUresult;
pub type cuMemGetAddressRange_v2 = unsafe extern "C" fn(pbase: *mut CUdeviceptr, psize: *mut usize, dptr: CUdeviceptr) -> CUresult;
pub type cuMemGetAllocationGranularity =
    unsafe extern "C" fn(granularity: *mut usize, prop: *const CUmemAllocationProp, option: CUmemAllocationGranularity_flags) -> CUresult;
pub type cuMemGetAllocationPropertiesFromHandle = unsafe extern "C" fn(prop: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle) -> CUresult;
pub type cuMemGetDefaultMemPool = unsafe extern "C" fn(pool_out: *mut CUmemoryPool, location: *mut CUmemLocation, type_: CUmemAllocationType) -> CUresult;
pub type cuMemGetHandleForAddressRange = unsafe extern "C" fn(
    handle: *mut ::core::ffi::c_void,
    dptr: CUdeviceptr,
    size: usize,
    handleType: CUmemRangeHandleType,
    flags: ::core::ffi::c_ulonglong,
) -> CUresult;
pub type cuMemGetInfo = unsafe extern "C" fn(free: *mut ::core::ffi::c_uint, total: *mut ::core::ffi::c_uint) -> CUresult;
pub type cuMemGetInfo_v2 = unsafe extern "C" fn(free: *mut usize, total: *mut usize) -> CUresult;
pub type cuMemGetMemPool = unsafe extern "C" fn(pool: *mut CUmemoryPool, location: *mut CUmemLocation, type_: CUmemAllocationType) -> CUresult;
pub type cuMemHostAlloc = unsafe extern "C" fn(pp: *mut *mut ::core::ffi::c_void, bytesize: usize, Flags: ::core::ffi::c_uint) -> CUresult;
pub type cuMemHostGetDevicePointer = unsafe extern "C" fn(pdptr: *mut CUdeviceptr_v1, p: *mut ::core::ffi::c_void, Flags: ::core::ffi::c_uint) -> CUresult;
pub type cuMemHostGetDevicePointer_v2 = unsafe extern "C" fn(pdptr: *mut CUdeviceptr, p: *mut ::core::ffi::c_void, Flags: ::core::ffi::c_uint) -> CUresult;
pub type cuMemHostGetFlags = unsafe extern "C" fn(pFlags: *mut ::core::ffi::c_uint, p: *mut ::core::ffi::c_void) -> CUresult;
pub type cuMemHostRegister = unsafe extern "C" fn(p: *mut ::core::ffi::c_void, bytesize: usize, Flags: ::core::ffi::c_uint) -> CUresult;
pub type cuMemHostRegister_v2 = unsafe extern "C" fn(p: *mut ::core::ffi::c_void, bytesize: usize, Flags: ::core::ffi::c_uint) -> CUresult;
pub type cuMemHostUnregister = unsafe extern "C" fn(p: *mut ::core::ffi::c_void) -> CUresult;
pub type cuMemImportFromShareableHandle =
    unsafe extern "C" fn(handle: *mut CUmemGenericAllocationHandle, osHandle: *mut ::core::ffi::c_void, shHandleType: CUmemAllocationHandleType) -> CUresult;
pub type cuMemMap =
    unsafe extern "C" fn(ptr: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: ::core::ffi::c_ulonglong) -> CUresult;
pub type cuMemMapArrayAsync = unsafe extern "C" fn(mapInfoList: *mut CUarrayMapInfo, count: ::core::ffi::c_uint, hStream: CUstream) -> CUresult;
pub type cuMemMapArrayAsync_ptsz = unsafe extern "C" fn(mapInfoList: *mut CUarrayMapInfo, count: ::core::ffi::c_uint, hStream: CUstream) -> CUresult;
pub type cuMemPoolCreate = unsafe extern "C" fn(pool: *mut CUmemoryPool, poolProps: *const CUmemPoolProps) -> CUresult;
pub type cuMemPoolDestroy = unsafe extern "C" fn(pool: CUmemoryPool) -> CUresult;
pub type cuMemPoolExportPointer = unsafe extern "C" fn(shareData_out: *mut CUmemPoolPtrExportData, ptr: CUdeviceptr) -> CUresult;
pub type cuMemPoolExportToShareableHandle = unsafe extern "C" fn(
    handle_out: *mut ::core::ffi::c_void,
    pool: CUmemoryPool,
    handleType: CUmemAllocationHandleType,
    flags: ::core::ffi::c_ulonglong,
) -> CUresult;
pub type cuMemPoolGetAccess = unsafe extern "C" fn(flags: *mut CUmemAccess_flags, memPool: CUmemoryPool, location: *mut CUmemLocation) -> CUresult;
pub type cuMemPoolGetAttribute = unsafe extern "C" fn(pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut ::core::ffi::c_void) -> CUresult;
pub type cuMemPoolImportFromShareableHandle = unsafe extern "C" fn(
    pool_out: *mut CUmemoryPool,
    handle: *mut ::core::ffi::c_void,
    handleType: CUmemAllocationHandleType,
    flags: ::core::ffi::c_ulonglong,
) -> CUresult;
pub type cuMemPoolImportPointer = unsafe extern "C" fn(ptr_out: *mut CUdeviceptr, pool: CUmemoryPool, shareData: *mut CUmemPoolPtrExportData) -> CUresult;
pub type cuMemPoolSetAccess = unsafe extern "C" fn(pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize) -> CUresult;
pub type cuMemPoolSetAttribute = unsafe extern "C" fn(pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut ::core::ffi::c_void) -> CUresult;
pub type cuMemPoolTrimTo = unsafe extern "C" fn(pool: CUmemoryPool, minBytesToKeep: usize) -> CUresult;
pub type cuMemPrefetchAsync = unsafe extern "C" fn(devPtr: CUdeviceptr, count: usize, dstDevice: CUdevice, hStream: CUstream) -> CUresult;
pub type cuMemPrefetchAsync_ptsz = unsafe extern "C" fn(devPtr: CUdeviceptr, count: usize, dstDevice: CUdevice, hStream: CUstream) -> CUresult;
pub type cuMemPrefetchAsync_v2 =
    unsafe extern "C" fn(devPtr: CUdeviceptr, count: usize, location: CUmemLocation, flags: ::core::ffi::c_uint, hStream: CUstream) -> CUresult;
pub type cuMemPrefetchAsync_v2_ptsz =
    unsafe extern "C" fn(devPtr: CUdeviceptr, count: usize, location: CUmemLocation, flags: ::core::ffi::c_uint, hStream: CUstream) -> CUresult;
pub type cuMemPrefetchBatchAsync = unsafe extern "C" fn(
    dptrs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    prefetchLocs: *mut CUmemLocation,
    prefetchLocIdxs: *mut usize,
    numPrefetchLocs: usize,
    flags: ::core::ffi::c_ulonglong,
    hStream: CUstream,
) -> CUresult;
pub type cuMemPrefetchBatchAsync_ptsz = unsafe extern "C" fn(
    dptrs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    prefetchLocs: *mut CUmemLocation,
    prefetchLocIdxs: *mut usize,
    numPrefetchLocs: usize,
    flags: ::core::ffi::c_ulonglong,
    hStream: CUstream,
) -> CUresult;
pub type cuMemRangeGetAttribute =
    unsafe extern "C" fn(data: *mut ::core::ffi::c_void, dataSize: usize, attribute: CUmem_range_attribute, devPtr: CUdeviceptr, count: usize) -> CUresult;
pub type cuMemRangeGetAttributes = unsafe extern "C" fn(
    data: *mut *mut ::core::ffi::c_void,
    dataSizes: *mut usize,
    attributes: *mut CUmem_range_attribute,
    numAttributes: usize,
    devPtr: CUdeviceptr,
    count: usize,
) -> CUresult;
pub type cuMemRelease = unsafe extern "C" fn(handle: CUmemGenericAllocationHandle) -> CUresult;
pub type cuMemRetainAllocationHandle = unsafe extern "C" fn(handle: *mut CUmemGenericAllocationHandle, addr: *mut ::core::ffi::c_void) -> CUresult;
pub type cuMemSetAccess = unsafe extern "C" fn(ptr: CUdeviceptr, size: usize, desc: *const CUmemAccessDesc, count: usize) -> CUresult;
pub type cuMemSetMemPool = unsafe extern "C" fn(location: *mut CUmemLocation, type_: CUmemAllocationType, pool: CUmemoryPool) -> CUresult;
pub type cuMemUnmap = unsafe extern "C" fn(ptr: CUdeviceptr, size: usize) -> CUresult;
pub type cuMemcpy = unsafe extern "C" fn(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize) -> CUresult;
pub type cuMemcpy2D = unsafe extern "C" fn(pCopy: *const CUDA_MEMCPY2D_v1) -> CUresult;
pub type cuMemcpy2DAsync = unsafe extern "C" fn(pCopy: *const CUDA_MEMCPY2D_v1, hStream: CUstream) -> CUresult;
pub type cuMemcpy2DAsync_v2 = unsafe extern "C" fn(pCopy: *const CUDA_MEMCPY2D, hStream: CUstream) -> CUresult;
pub type cuMemcpy2DAsync_v2_ptsz = unsafe extern "C" fn(pCopy: *const CUDA_MEMCPY2D, hStream: CUstream) -> CUresult;
pub type cuMemcpy2DUnaligned = unsafe extern "C" fn(pCopy: *const CUDA_MEMCPY2D_v1) -> CUresult;
pub type cuMemcpy2DUnaligned_v2 = unsafe extern "C" fn(pCopy: *const CUDA_MEMCPY2D) -> CUresult;
pub type cuMemcpy2DUnaligned_v2_ptds = unsafe extern "C" fn(pCopy: *const CUDA_MEMCPY2D) -> CUresult;
pub type cuMemcpy2D_v2 = unsafe extern "C" fn(pCopy: *const CUDA_MEMCPY2D) -> CUresult;
pub type cuMemcpy2D_v2_ptds = unsafe extern "C" fn(pCopy: *const CUDA_MEMCPY2D) -> CUresult;
pub type cuMemcpy3D = unsafe extern "C" fn(pCopy: *const CUDA_MEMCPY3D_v1) -> CUresult;
pub type cuMemcpy3DAsync = unsafe extern "C" fn(pCopy: *const CUDA_MEMCPY3D_v1, hStream: CUstream) -> CUresult;
pub type cuMemcpy3DAsync_v2 = unsafe extern "C" fn(pCopy: *const CUDA_MEMCPY3D, hStream: CUstream) -> CUresult;
pub type cuMemcpy3DAsync_v2_ptsz = unsafe extern "C" fn(pCopy: *const CUDA_MEMCPY3D, hStream: CUstream) -> CUresult;
pub type cuMemcpy3DBatchAsync = unsafe extern "C" fn(
    numOps: usize,
    opList: *mut CUDA_MEMCPY3D_BATCH_OP,
    failIdx: *mut usize,
    flags: ::core::ffi::c_ulonglong,
    hStream: CUstream,
) -> CUresult;
pub type cuMemcpy3DBatchAsync_ptsz = unsafe extern "C" fn(
    numOps: usize,
    opList: *mut CUDA_MEMCPY3D_BATCH_OP,
    failIdx: *mut usize,
    flags: ::core::ffi::c_ulonglong,
    hStream: CUstream,
) -> CUresult;
pub type cuMemcpy3DBatchAsync_v2 =
    unsafe extern "C" fn(numOps: usize, opList: *mut CUDA_MEMCPY3D_BATCH_OP, flags: ::core::ffi::c_ulonglong, hStream: CUstream) -> CUresult;
pub type cuMemcpy3DBatchAsync_v2_ptsz =
    unsafe extern "C" fn(numOps: usize, opList: *mut CUDA_MEMCPY3D_BATCH_OP, flags: ::core::ffi::c_ulonglong, hStream: CUstream) -> CUresult;
pub type cuMemcpy3DPeer = unsafe extern "C" fn(pCopy: *const CUDA_MEMCPY3D_PEER) -> CUresult;
pub type cuMemcpy3DPeerAsync = unsafe extern "C" fn(pCopy: *const CUDA_MEMCPY3D_PEER, hStream: CUstream) -> CUresult;
pub type cuMemcpy3DPeerAsync_ptsz = unsafe extern "C" fn(pCopy: *const CUDA_MEMCPY3D_PEER, hStream: CUstream) -> CUresult;
pub type cuMemcpy3DPeer_ptds = unsafe extern "C" fn(pCopy: *const CUDA_MEMCPY3D_PEER) -> CUresult;
pub type cuMemcpy3D_v2 = unsafe extern "C" fn(pCopy: *const CUDA_MEMCPY3D) -> CUresult;
pub type cuMemcpy3D_v2_ptds = unsafe extern "C" fn(pCopy: *const CUDA_MEMCPY3D) -> CUresult;
pub type cuMemcpyAsync = unsafe extern "C" fn(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize, hStream: CUstream) -> CUresult;
pub type cuMemcpyAsync_ptsz = unsafe extern "C" fn(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize, hStream: CUstream) -> CUresult;
pub type cuMemcpyAtoA = unsafe extern "C" fn(
    dstArray: CUarray,
    dstOffset: ::core::ffi::c_uint,
    srcArray: CUarray,
    srcOffset: ::core::ffi::c_uint,
    ByteCount: ::core::ffi::c_uint,
) -> CUresult;
pub type cuMemcpyAtoA_v2 = unsafe extern "C" fn(dstArray: CUarray, dstOffset: usize, srcArray: CUarray, srcOffset: usize, ByteCount: usize) -> CUresult;
pub type cuMemcpyAtoA_v2_ptds = unsafe extern "C" fn(dstArray: CUarray, dstOffset: usize, srcArray: CUarray, srcOffset: usize, ByteCount: usize) -> CUresult;
pub type cuMemcpyAtoD =
    unsafe extern "C" fn(dstDevice: CUdeviceptr_v1, srcArray: CUarray, srcOffset: ::core::ffi::c_uint, ByteCount: ::core::ffi::c_uint) -> CUresult;
pub type cuMemcpyAtoD_v2 = unsafe extern "C" fn(dstDevice: CUdeviceptr, srcArray: CUarray, srcOffset: usize, ByteCount: usize) -> CUresult;
pub type cuMemcpyAtoD_v2_ptds = unsafe extern "C" fn(dstDevice: CUdeviceptr, srcArray: CUarray, srcOffset: usize, ByteCount: usize) -> CUresult;
pub type cuMemcpyAtoH =
    unsafe extern "C" fn(dstHost: *mut ::core::ffi::c_void, srcArray: CUarray, srcOffset: ::core::ffi::c_uint, ByteCount: ::core::ffi::c_uint) -> CUresult;
pub type cuMemcpyAtoHAsync = unsafe extern "C" fn(
    dstHost: *mut ::core::ffi::c_void,
    srcArray: CUarray,
    srcOffset: ::core::ffi::c_uint,
    ByteCount: ::core::ffi::c_uint,
    hStream: CUstream,
) -> CUresult;
pub type cuMemcpyAtoHAsync_v2 =
    unsafe extern "C" fn(dstHost: *mut ::core::ffi::c_void, srcArray: CUarray, srcOffset: usize, ByteCount: usize, hStream: CUstream) -> CUresult;
pub type cuMemcpyAtoHAsync_v2_ptsz =
    unsafe extern "C" fn(dstHost: *mut ::core::ffi::c_void, srcArray: CUarray, srcOffset: usize, ByteCount: usize, hStream: CUstream) -> CUresult;
pub type cuMemcpyAtoH_v2 = unsafe extern "C" fn(dstHost: *mut ::core::ffi::c_void, srcArray: CUarray, srcOffset: usize, ByteCount: usize) -> CUresult;
pub type cuMemcpyAtoH_v2_ptds = unsafe extern "C" fn(dstHost: *mut ::core::ffi::c_void, srcArray: CUarray, srcOffset: usize, ByteCount: usize) -> CUresult;
pub type cuMemcpyBatchAsync = unsafe extern "C" fn(
    dsts: *mut CUdeviceptr,
    srcs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attrs: *mut CUmemcpyAttributes,
    attrsIdxs: *mut usize,
    numAttrs: usize,
    failIdx: *mut usize,
    hStream: CUstream,
) -> CUresult;
pub type cuMemcpyBatchAsync_ptsz = unsafe extern "C" fn(
    dsts: *mut CUdeviceptr,
    srcs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attrs: *mut CUmemcpyAttributes,
    attrsIdxs: *mut usize,
    numAttrs: usize,
    failIdx: *mut usize,
    hStream: CUstream,
) -> CUresult;
pub type cuMemcpyBatchAsync_v2 = unsafe extern "C" fn(
    dsts: *mut CUdeviceptr,
    srcs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attrs: *mut CUmemcpyAttributes,
    attrsIdxs: *mut usize,
    numAttrs: usize,
    hStream: CUstream,
) -> CUresult;
pub type cuMemcpyBatchAsync_v2_ptsz = unsafe extern "C" fn(
    dsts: *mut CUdeviceptr,
    srcs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attrs: *mut CUmemcpyAttributes,
    attrsIdxs: *mut usize,
    numAttrs: usize,
    hStream: CUstream,
) -> CUresult;
pub type cuMemcpyDtoA =
    unsafe extern "C" fn(dstArray: CUarray, dstOffset: ::core::ffi::c_uint, srcDevice: CUdeviceptr_v1, ByteCount: ::core::ffi::c_uint) -> CUresult;
pub type cuMemcpyDtoA_v2 = unsafe extern "C" fn(dstArray: CUarray, dstOffset: usize, srcDevice: CUdeviceptr, ByteCount: usize) -> CUresult;
pub type cuMemcpyDtoA_v2_ptds = unsafe extern "C" fn(dstArray: CUarray, dstOffset: usize, srcDevice: CUdeviceptr, ByteCount: usize) -> CUresult;
pub type cuMemcpyDtoD = unsafe extern "C" fn(dstDevice: CUdeviceptr_v1, srcDevice: CUdeviceptr_v1, ByteCount: ::core::ffi::c_uint) -> CUresult;
pub type cuMemcpyDtoDAsync =
    unsafe extern "C" fn(dstDevice: CUdeviceptr_v1, srcDevice: CUdeviceptr_v1, ByteCount: ::core::ffi::c_uint, hStream: CUstream) -> CUresult;
pub type cuMemcpyDtoDAsync_v2 = unsafe extern "C" fn(dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream) -> CUresult;
pub type cuMemcpyDtoDAsync_v2_ptsz = unsafe extern "C" fn(dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream) -> CUresult;
pub type cuMemcpyDtoD_v2 = unsafe extern "C" fn(dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize) -> CUresult;
pub type cuMemcpyDtoD_v2_ptds = unsafe extern "C" fn(dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize) -> CUresult;
pub type cuMemcpyDtoH = unsafe extern "C" fn(dstHost: *mut ::core::ffi::c_void, srcDevice: CUdeviceptr_v1, ByteCount: ::core::ffi::c_uint) -> CUresult;
pub type cuMemcpyDtoHAsync =
    unsafe extern "C" fn(dstHost: *mut ::core::ffi::c_void, srcDevice: CUdeviceptr_v1, ByteCount: ::core::ffi::c_uint, hStream: CUstream) -> CUresult;
pub type cuMemcpyDtoHAsync_v2 =
    unsafe extern "C" fn(dstHost: *mut ::core::ffi::c_void, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream) -> CUresult;
pub type cuMemcpyDtoHAsync_v2_ptsz =
    unsafe extern "C" fn(dstHost: *mut ::core::ffi::c_void, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream) -> CUresult;
pub type cuMemcpyDtoH_v2 = unsafe extern "C" fn(dstHost: *mut ::core::ffi::c_void, srcDevice: CUdeviceptr, ByteCount: usize) -> CUresult;
pub type cuMemcpyDtoH_v2_ptds = unsafe extern "C" fn(dstHost: *mut ::core::ffi::c_void, srcDevice: CUdeviceptr, ByteCount: usize) -> CUresult;
pub type cuMemcpyHtoA =
    unsafe extern "C" fn(dstArray: CUarray, dstOffset: ::core::ffi::c_uint, srcHost: *const ::core::ffi::c_void, ByteCount: ::core::ffi::c_uint) -> CUresult;
pub type cuMemcpyHtoAAsync = unsafe extern "C" fn(
    dstArray: CUarray,
    dstOffset: ::core::ffi::c_uint,
    srcHost: *const ::core::ffi::c_void,
    ByteCount: ::core::ffi::c_uint,
    hStream: CUstream,
) -> CUresult;
pub type cuMemcpyHtoAAsync_v2 =
    unsafe extern "C" fn(dstArray: CUarray, dstOffset: usize, srcHost: *const ::core::ffi::c_void, ByteCount: usize, hStream: CUstream) -> CUresult;
pub type cuMemcpyHtoAAsync_v2_ptsz =
    unsafe extern "C" fn(dstArray: CUarray, dstOffset: usize, srcHost: *const ::core::ffi::c_void, ByteCount: usize, hStream: CUstream) -> CUresult;
pub type cuMemcpyHtoA_v2 = unsafe extern "C" fn(dstArray: CUarray, dstOffset: usize, srcHost: *const ::core::ffi::c_void, ByteCount: usize) -> CUresult;
pub type cuMemcpyHtoA_v2_ptds = unsafe extern "C" fn(dstArray: CUarray, dstOffset: usize, srcHost: *const ::core::ffi::c_void, ByteCount: usize) -> CUresult;
pub type cuMemcpyHtoD = unsafe extern "C" fn(dstDevice: CUdeviceptr_v1, srcHost: *const ::core::ffi::c_void, ByteCount: ::core::ffi::c_uint) -> CUresult;
pub type cuMemcpyHtoDAsync =
    unsafe extern "C" fn(dstDevice: CUdeviceptr_v1, srcHost: *const ::core::ffi::c_void, ByteCount: ::core::ffi::c_uint, hStream: CUstream) -> CUresult;
pub type cuMemcpyHtoDAsync_v2 =
    unsafe extern "C" fn(dstDevice: CUdeviceptr, srcHost: *const ::core::ffi::c_void, ByteCount: usize, hStream: CUstream) -> CUresult;
pub type cuMemcpyHtoDAsync_v2_ptsz =
    unsafe extern "C" fn(dstDevice: CUdeviceptr, srcHost: *const ::core::ffi::c_void, ByteCount: usize, hStream: CUstream) -> CUresult;
pub type cuMemcpyHtoD_v2 = unsafe extern "C" fn(dstDevice: CUdeviceptr, srcHost: *const ::core::ffi::c_void, ByteCount: usize) -> CUresult;
pub type cuMemcpyHtoD_v2_ptds = unsafe extern "C" fn(dstDevice: CUdeviceptr, srcHost: *const ::core::ffi::c_void, ByteCount: usize) -> CUresult;
pub type cuMemcpyPeer =
    unsafe extern "C" fn(dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext, ByteCount: usize) -> CUresult;
pub type cuMemcpyPeerAsync = unsafe extern "C" fn(
    dstDevice: CUdeviceptr,
    dstContext: CUcontext,
    srcDevice: CUdeviceptr,
    srcContext: CUcontext,
    ByteCount: usize,
    hStream: CUstream,
) -> CUresult;
pub type cuMemcpyPeerAsync_ptsz = unsafe extern "C" fn(
    dstDevice: CUdeviceptr,
    dstContext: CUcontext,
    srcDevice: CUdeviceptr,
    srcContext: CUcontext,
    ByteCount: usize,
    hStream: CUstream,
) -> CUresult;
pub type cuMemcpyPeer_ptds =
    unsafe extern "C" fn(dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext, ByteCount: usize) -> CUresult;
pub type cuMemcpy_ptds = unsafe extern "C" fn(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize) -> CUresult;
pub type cuMemsetD16 = unsafe extern "C" fn(dstDevice: CUdeviceptr_v1, us: ::core::ffi::c_ushort, N: ::core::ffi::c_uint) -> CUresult;
pub type cuMemsetD16Async = unsafe extern "C" fn(dstDevice: CUdeviceptr, us: ::core::ffi::c_ushort, N: usize, hStream: CUstream) -> CUresult;
pub type cuMemsetD16Async_ptsz = unsafe extern "C" fn(dstDevice: CUdeviceptr, us: ::core::ffi::c_ushort, N: usize, hStream: CUstream) -> CUresult;
pub type cuMemsetD16_v2 = unsafe extern "C" fn(dstDevice: CUdeviceptr, us: ::core::ffi::c_ushort, N: usize) -> CUresult;
pub type cuMemsetD16_v2_ptds = unsafe extern "C" fn(dstDevice: CUdeviceptr, us: ::core::ffi::c_ushort, N: usize) -> CUresult;
pub type cuMemsetD2D16 = unsafe extern "C" fn(
    dstDevice: CUdeviceptr_v1,
    dstPitch: ::core::ffi::c_uint,
    us: ::core::ffi::c_ushort,
    Width: ::core::ffi::c_uint,
    Height: ::core::ffi::c_uint,
) -> CUresult;
pub type cuMemsetD2D16Async =
    unsafe extern "C" fn(dstDevice: CUdeviceptr, dstPitch: usize, us: ::core::ffi::c_ushort, Width: usize, Height: usize, hStream: CUstream) -> CUresult;
pub type cuMemsetD2D16Async_ptsz =
    unsafe extern "C" fn(dstDevice: CUdeviceptr, dstPitch: usize, us: ::core::ffi::c_ushort, Width: usize, Height: usize, hStream: CUstream) -> CUresult;
pub type cuMemsetD2D16_v2 = unsafe extern "C" fn(dstDevice: CUdeviceptr, dstPitch: usize, us: ::core::ffi::c_ushort, Width: usize, Height: usize) -> CUresult;
pub type cuMemsetD2D16_v2_ptds =
    unsafe extern "C" fn(dstDevice: CUdeviceptr, dstPitch: usize, us: ::core::ffi::c_ushort, Width: usize, Height: usize) -> CUresult;
pub type cuMemsetD2D32 = unsafe extern "C" fn(
    dstDevice: CUdeviceptr_v1,
    dstPitch: ::core::ffi::c_uint,
    ui: ::core::ffi::c_uint,
    Width: ::core::ffi::c_uint,
    Height: ::core::ffi::c_uint,
) -> CUresult;
pub type cuMemsetD2D32Async =
    unsafe extern "C" fn(dstDevice: CUdeviceptr, dstPitch: usize, ui: ::core::ffi::c_uint, Width: usize, Height: usize, hStream: CUstream) -> CUresult;
pub type cuMemsetD2D32Async_ptsz =
    unsafe extern "C" fn(dstDevice: CUdeviceptr, dstPitch: usize, ui: ::core::ffi::c_uint, Width: usize, Height: usize, hStream: CUstream) -> CUresult;
pub type cuMemsetD2D32_v2 = unsafe extern "C" fn(dstDevice: CUdeviceptr, dstPitch: usize, ui: ::core::ffi::c_uint, Width: usize, Height: usize) -> CUresult;
pub type cuMemsetD2D32_v2_ptds =
    unsafe extern "C" fn(dstDevice: CUdeviceptr, dstPitch: usize, ui: ::core::ffi::c_uint, Width: usize, Height: usize) -> CUresult;
pub type cuMemsetD2D8 = unsafe extern "C" fn(
    dstDevice: CUdeviceptr_v1,
    dstPitch: ::core::ffi::c_uint,
    uc: ::core::ffi::c_uchar,
    Width: ::core::ffi::c_uint,
    Height: ::core::ffi::c_uint,
) -> CUresult;
pub type cuMemsetD2D8Async =
    unsafe extern "C" fn(dstDevice: CUdeviceptr, dstPitch: usize, uc: ::core::ffi::c_uchar, Width: usize, Height: usize, hStream: CUstream) -> CUresult;
pub type cuMemsetD2D8Async_ptsz =
    unsafe extern "C" fn(dstDevice: CUdeviceptr, dstPitch: usize, uc: ::core::ffi::c_uchar, Width: usize, Height: usize, hStream: CUstream) -> CUresult;
pub type cuMemsetD2D8_v2 = unsafe extern "C" fn(dstDevice: CUdeviceptr, dstPitch: usize, uc: ::core::ffi::c_uchar, Width: usize, Height: usize) -> CUresult;
pub type cuMemsetD2D8_v2_ptds =
    unsafe extern "C" fn(dstDevice: CUdeviceptr, dstPitch: usize, uc: ::core::ffi::c_uchar, Width: usize, Height: usize) -> CUresult;
pub type cuMemsetD32 = unsafe extern "C" fn(dstDevice: CUdeviceptr_v1, ui: ::core::ffi::c_uint, N: ::core::ffi::c_uint) -> CUresult;
pub type cuMemsetD32Async = unsafe extern "C" fn(dstDevice: CUdeviceptr, ui: ::core::ffi::c_uint, N: usize, hStream: CUstream) -> CUresult;
pub type cuMemsetD32Async_ptsz = unsafe extern "C" fn(dstDevice: CUdeviceptr, ui: ::core::ffi::c_uint, N: usize, hStream: CUstream) -> CUresult;
pub type cuMemsetD32_v2 = unsafe extern "C" fn(dstDevice: CUdeviceptr, ui: ::core::ffi::c_uint, N: usize) -> CUresult;
pub type cuMemsetD32_v2_ptds = unsafe extern "C" fn(dstDevice: CUdeviceptr, ui: ::core::ffi::c_uint, N: usize) -> CUresult;
pub type cuMemsetD8 = unsafe extern "C" fn(dstDevice: CUdeviceptr_v1, uc: ::core::ffi::c_uchar, N: ::core::ffi::c_uint) -> CUresult;
pub type cuMemsetD8Async = unsafe extern "C" fn(dstDevice: CUdeviceptr, uc: ::core::ffi::c_uchar, N: usize, hStream: CUstream) -> CUresult;
pub type cuMemsetD8Async_ptsz = unsafe extern "C" fn(dstDevice: CUdeviceptr, uc: ::core::ffi::c_uchar, N: usize, hStream: CUstream) -> CUresult;
pub type cuMemsetD8_v2 = unsafe extern "C" fn(dstDevice: CUdeviceptr, uc: ::core::ffi::c_uchar, N: usize) -> CUresult;
pub type cuMemsetD8_v2_ptds = unsafe extern "C" fn(dstDevice: CUdeviceptr, uc: ::core::ffi::c_uchar, N: usize) -> CUresult;
pub type cuMipmappedArrayCreate =
    unsafe extern "C" fn(pHandle: *mut CUmipmappedArray, pMipmappedArrayDesc: *const CUDA_ARRAY3D_DESCRIPTOR, numMipmapLevels: ::core::ffi::c_uint) -> CUresult;
pub type cuMipmappedArrayDestroy = unsafe extern "C" fn(hMipmappedArray: CUmipmappedArray) -> CUresult;
pub type cuMipmappedArrayGetLevel = unsafe extern "C" fn(pLevelArray: *mut CUarray, hMipmappedArray: CUmipmappedArray, level: ::core::ffi::c_uint) -> CUresult;
pub type cuMipmappedArrayGetMemoryRequirements =
    unsafe extern "C" fn(memoryRequirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS, mipmap: CUmipmappedArray, device: CUdevice) -> CUresult;
pub type cuMipmappedArrayGetSparseProperties = unsafe extern "C" fn(sparseProperties: *mut CUDA_ARRAY_SPARSE_PROPERTIES, mipmap: CUmipmappedArray) -> CUresult;
pub type cuModuleEnumerateFunctions = unsafe extern "C" fn(functions: *mut CUfunction, numFunctions: ::core::ffi::c_uint, mod_: CUmodule) -> CUresult;
pub type cuModuleGetFunction = unsafe extern "C" fn(hfunc: *mut CUfunction, hmod: CUmodule, name: *const ::core::ffi::c_char) -> CUresult;
pub type cuModuleGetFunctionCount = unsafe extern "C" fn(count: *mut ::core::ffi::c_uint, mod_: CUmodule) -> CUresult;
pub type cuModuleGetGlobal =
    unsafe extern "C" fn(dptr: *mut CUdeviceptr_v1, bytes: *mut ::core::ffi::c_uint, hmod: CUmodule, name: *const ::core::ffi::c_char) -> CUresult;
pub type cuModuleGetGlobal_v2 = unsafe extern "C" fn(dptr: *mut CUdeviceptr, bytes: *mut usize, hmod: CUmodule, name: *const ::core::ffi::c_char) -> CUresult;
pub type cuModuleGetLoadingMode = unsafe extern "C" fn(mode: *mut CUmoduleLoadingMode) -> CUresult;
pub type cuModuleGetSurfRef = unsafe extern "C" fn(pSurfRef: *mut CUsurfref, hmod: CUmodule, name: *const ::core::ffi::c_char) -> CUresult;
pub type cuModuleGetTexRef = unsafe extern "C" fn(pTexRef: *mut CUtexref, hmod: CUmodule, name: *const ::core::ffi::c_char) -> CUresult;
pub type cuModuleLoad = unsafe extern "C" fn(module: *mut CUmodule, fname: *const ::core::ffi::c_char) -> CUresult;
pub type cuModuleLoadData = unsafe extern "C" fn(module: *mut CUmodule, image: *const ::core::ffi::c_void) -> CUresult;
pub type cuModuleLoadDataEx = unsafe extern "C" fn(
    module: *mut CUmodule,
    image: *const ::core::ffi::c_void,
    numOptions: ::core::ffi::c_uint,
    options: *mut CUjit_option,
    optionValues: *mut *mut ::core::ffi::c_void,
) -> CUresult;
pub type cuModuleLoadFatBinary = unsafe extern "C" fn(module: *mut CUmodule, fatCubin: *const ::core::ffi::c_void) -> CUresult;
pub type cuModuleUnload = unsafe extern "C" fn(hmod: CUmodule) -> CUresult;
pub type cuMulticastAddDevice = unsafe extern "C" fn(mcHandle: CUmemGenericAllocationHandle, dev: CUdevice) -> CUresult;
pub type cuMulticastBindAddr = unsafe extern "C" fn(
    mcHandle: CUmemGenericAllocationHandle,
    mcOffset: usize,
    memptr: CUdeviceptr,
    size: usize,
    flags: ::core::ffi::c_ulonglong,
) -> CUresult;
pub type cuMulticastBindMem = unsafe extern "C" fn(
    mcHandle: CUmemGenericAllocationHandle,
    mcOffset: usize,
    memHandle: CUmemGenericAllocationHandle,
    memOffset: usize,
    size: usize,
    flags: ::core::ffi::c_ulonglong,
) -> CUresult;
pub type cuMulticastCreate = unsafe extern "C" fn(mcHandle: *mut CUmemGenericAllocationHandle, prop: *const CUmulticastObjectProp) -> CUresult;
pub type cuMulticastGetGranularity =
    unsafe extern "C" fn(granularity: *mut usize, prop: *const CUmulticastObjectProp, option: CUmulticastGranularity_flags) -> CUresult;
pub type cuMulticastUnbind = unsafe extern "C" fn(mcHandle: CUmemGenericAllocationHandle, dev: CUdevice, mcOffset: usize, size: usize) -> CUresult;
pub type cuOccupancyAvailableDynamicSMemPerBlock =
    unsafe extern "C" fn(dynamicSmemSize: *mut usize, func: CUfunction, numBlocks: ::core::ffi::c_int, blockSize: ::core::ffi::c_int) -> CUresult;
pub type cuOccupancyMaxActiveBlocksPerMultiprocessor =
    unsafe extern "C" fn(numBlocks: *mut ::core::ffi::c_int, func: CUfunction, blockSize: ::core::ffi::c_int, dynamicSMemSize: usize) -> CUresult;
pub type cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags = unsafe extern "C" fn(
    numBlocks: *mut ::core::ffi::c_int,
    func: CUfunction,
    blockSize: ::core::ffi::c_int,
    dynamicSMemSize: usize,
    flags: ::core::ffi::c_uint,
) -> CUresult;
pub type cuOccupancyMaxActiveClusters = unsafe extern "C" fn(numClusters: *mut ::core::ffi::c_int, func: CUfunction, config: *const CUlaunchConfig) -> CUresult;
pub type cuOccupancyMaxPotentialBlockSize = unsafe extern "C" fn(
    minGridSize: *mut ::core::ffi::c_int,
    blockSize: *mut ::core::ffi::c_int,
    func: CUfunction,
    blockSizeToDynamicSMemSize: CUoccupancyB2DSize,
    dynamicSMemSize: usize,
    blockSizeLimit: ::core::ffi::c_int,
) -> CUresult;
pub type cuOccupancyMaxPotentialBlockSizeWithFlags = unsafe extern "C" fn(
    minGridSize: *mut ::core::ffi::c_int,
    blockSize: *mut ::core::ffi::c_int,
    func: CUfunction,
    blockSizeToDynamicSMemSize: CUoccupancyB2DSize,
    dynamicSMemSize: usize,
    blockSizeLimit: ::core::ffi::c_int,
    flags: ::core::ffi::c_uint,
) -> CUresult;
pub type cuOccupancyMaxPotentialClusterSize =
    unsafe extern "C" fn(clusterSize: *mut ::core::ffi::c_int, func: CUfunction, config: *const CUlaunchConfig) -> CUresult;
pub type cuParamSetSize = unsafe extern "C" fn(hfunc: CUfunction, numbytes: ::core::ffi::c_uint) -> CUresult;
pub type cuParamSetTexRef = unsafe extern "C" fn(hfunc: CUfunction, texunit: ::core::ffi::c_int, hTexRef: CUtexref) -> CUresult;
pub type cuParamSetf = unsafe extern "C" fn(hfunc: CUfunction, offset: ::core::ffi::c_int, value: f32) -> CUresult;
pub type cuParamSeti = unsafe extern "C" fn(hfunc: CUfunction, offset: ::core::ffi::c_int, value: ::core::ffi::c_uint) -> CUresult;
pub type cuParamSetv =
    unsafe extern "C" fn(hfunc: CUfunction, offset: ::core::ffi::c_int, ptr: *mut ::core::ffi::c_void, numbytes: ::core::ffi::c_uint) -> CUresult;
pub type cuPointerGetAttribute = unsafe extern "C" fn(data: *mut ::core::ffi::c_void, attribute: CUpointer_attribute, ptr: CUdeviceptr) -> CUresult;
pub type cuPointerGetAttributes = unsafe extern "C" fn(
    numAttributes: ::core::ffi::c_uint,
    attributes: *mut CUpointer_attribute,
    data: *mut *mut ::core::ffi::c_void,
    ptr: CUdeviceptr,
) -> CUresult;
pub type cuPointerSetAttribute = unsafe extern "C" fn(value: *const ::core::ffi::c_void, attribute: CUpointer_attribute, ptr: CUdeviceptr) -> CUresult;
pub type cuProfilerInitialize =
    unsafe extern "C" fn(configFile: *const ::core::ffi::c_char, outputFile: *const ::core::ffi::c_char, outputMode: ::core::ffi::c_int) -> CUresult;
pub type cuProfilerStart = unsafe extern "C" fn() -> CUresult;
pub type cuProfilerStop = unsafe extern "C" fn() -> CUresult;
pub type cuSignalExternalSemaphoresAsync = unsafe extern "C" fn(
    extSemArray: *const CUexternalSemaphore,
    paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
    numExtSems: ::core::ffi::c_uint,
    stream: CUstream,
) -> CUresult;
pub type cuSignalExternalSemaphoresAsync_ptsz = unsafe extern "C" fn(
    extSemArray: *const CUexternalSemaphore,
    paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
    numExtSems: ::core::ffi::c_uint,
    stream: CUstream,
) -> CUresult;
pub type cuStreamAddCallback =
    unsafe extern "C" fn(hStream: CUstream, callback: CUstreamCallback, userData: *mut ::core::ffi::c_void, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamAddCallback_ptsz =
    unsafe extern "C" fn(hStream: CUstream, callback: CUstreamCallback, userData: *mut ::core::ffi::c_void, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamAttachMemAsync = unsafe extern "C" fn(hStream: CUstream, dptr: CUdeviceptr, length: usize, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamAttachMemAsync_ptsz = unsafe extern "C" fn(hStream: CUstream, dptr: CUdeviceptr, length: usize, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamBatchMemOp =
    unsafe extern "C" fn(stream: CUstream, count: ::core::ffi::c_uint, paramArray: *mut CUstreamBatchMemOpParams, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamBatchMemOp_ptsz =
    unsafe extern "C" fn(stream: CUstream, count: ::core::ffi::c_uint, paramArray: *mut CUstreamBatchMemOpParams, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamBatchMemOp_v2 =
    unsafe extern "C" fn(stream: CUstream, count: ::core::ffi::c_uint, paramArray: *mut CUstreamBatchMemOpParams, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamBatchMemOp_v2_ptsz =
    unsafe extern "C" fn(stream: CUstream, count: ::core::ffi::c_uint, paramArray: *mut CUstreamBatchMemOpParams, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamBeginCapture = unsafe extern "C" fn(hStream: CUstream) -> CUresult;
pub type cuStreamBeginCaptureToGraph = unsafe extern "C" fn(
    hStream: CUstream,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    dependencyData: *const CUgraphEdgeData,
    numDependencies: usize,
    mode: CUstreamCaptureMode,
) -> CUresult;
pub type cuStreamBeginCaptureToGraph_ptsz = unsafe extern "C" fn(
    hStream: CUstream,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    dependencyData: *const CUgraphEdgeData,
    numDependencies: usize,
    mode: CUstreamCaptureMode,
) -> CUresult;
pub type cuStreamBeginCapture_ptsz = unsafe extern "C" fn(hStream: CUstream) -> CUresult;
pub type cuStreamBeginCapture_v2 = unsafe extern "C" fn(hStream: CUstream, mode: CUstreamCaptureMode) -> CUresult;
pub type cuStreamBeginCapture_v2_ptsz = unsafe extern "C" fn(hStream: CUstream, mode: CUstreamCaptureMode) -> CUresult;
pub type cuStreamCopyAttributes = unsafe extern "C" fn(dstStream: CUstream, srcStream: CUstream) -> CUresult;
pub type cuStreamCopyAttributes_ptsz = unsafe extern "C" fn(dst: CUstream, src: CUstream) -> CUresult;
pub type cuStreamCreate = unsafe extern "C" fn(phStream: *mut CUstream, Flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamCreateWithPriority = unsafe extern "C" fn(phStream: *mut CUstream, flags: ::core::ffi::c_uint, priority: ::core::ffi::c_int) -> CUresult;
pub type cuStreamDestroy = unsafe extern "C" fn(hStream: CUstream) -> CUresult;
pub type cuStreamDestroy_v2 = unsafe extern "C" fn(hStream: CUstream) -> CUresult;
pub type cuStreamEndCapture = unsafe extern "C" fn(hStream: CUstream, phGraph: *mut CUgraph) -> CUresult;
pub type cuStreamEndCapture_ptsz = unsafe extern "C" fn(hStream: CUstream, phGraph: *mut CUgraph) -> CUresult;
pub type cuStreamGetAttribute = unsafe extern "C" fn(hStream: CUstream, attr: CUstreamAttrID, value: *mut CUstreamAttrValue) -> CUresult;
pub type cuStreamGetAttribute_ptsz = unsafe extern "C" fn(hStream: CUstream, attr: CUstreamAttrID, value_out: *mut CUstreamAttrValue) -> CUresult;
pub type cuStreamGetCaptureInfo = unsafe extern "C" fn(hStream: CUstream, captureStatus_out: *mut CUstreamCaptureStatus, id_out: *mut cuuint64_t) -> CUresult;
pub type cuStreamGetCaptureInfo_ptsz =
    unsafe extern "C" fn(hStream: CUstream, captureStatus_out: *mut CUstreamCaptureStatus, id_out: *mut cuuint64_t) -> CUresult;
pub type cuStreamGetCaptureInfo_v2 = unsafe extern "C" fn(
    hStream: CUstream,
    captureStatus_out: *mut CUstreamCaptureStatus,
    id_out: *mut cuuint64_t,
    graph_out: *mut CUgraph,
    dependencies_out: *mut *const CUgraphNode,
    numDependencies_out: *mut usize,
) -> CUresult;
pub type cuStreamGetCaptureInfo_v2_ptsz = unsafe extern "C" fn(
    hStream: CUstream,
    captureStatus_out: *mut CUstreamCaptureStatus,
    id_out: *mut cuuint64_t,
    graph_out: *mut CUgraph,
    dependencies_out: *mut *const CUgraphNode,
    numDependencies_out: *mut usize,
) -> CUresult;
pub type cuStreamGetCaptureInfo_v3 = unsafe extern "C" fn(
    hStream: CUstream,
    captureStatus_out: *mut CUstreamCaptureStatus,
    id_out: *mut cuuint64_t,
    graph_out: *mut CUgraph,
    dependencies_out: *mut *const CUgraphNode,
    edgeData_out: *mut *const CUgraphEdgeData,
    numDependencies_out: *mut usize,
) -> CUresult;
pub type cuStreamGetCaptureInfo_v3_ptsz = unsafe extern "C" fn(
    hStream: CUstream,
    captureStatus_out: *mut CUstreamCaptureStatus,
    id_out: *mut cuuint64_t,
    graph_out: *mut CUgraph,
    dependencies_out: *mut *const CUgraphNode,
    edgeData_out: *mut *const CUgraphEdgeData,
    numDependencies_out: *mut usize,
) -> CUresult;
pub type cuStreamGetCtx = unsafe extern "C" fn(hStream: CUstream, pctx: *mut CUcontext) -> CUresult;
pub type cuStreamGetCtx_ptsz = unsafe extern "C" fn(hStream: CUstream, pctx: *mut CUcontext) -> CUresult;
pub type cuStreamGetCtx_v2 = unsafe extern "C" fn(hStream: CUstream, pCtx: *mut CUcontext, pGreenCtx: *mut CUgreenCtx) -> CUresult;
pub type cuStreamGetCtx_v2_ptsz = unsafe extern "C" fn(hStream: CUstream, pCtx: *mut CUcontext, pGreenCtx: *mut CUgreenCtx) -> CUresult;
pub type cuStreamGetDevice = unsafe extern "C" fn(hStream: CUstream, device: *mut CUdevice) -> CUresult;
pub type cuStreamGetDevice_ptsz = unsafe extern "C" fn(hStream: CUstream, device: *mut CUdevice) -> CUresult;
pub type cuStreamGetFlags = unsafe extern "C" fn(hStream: CUstream, flags: *mut ::core::ffi::c_uint) -> CUresult;
pub type cuStreamGetFlags_ptsz = unsafe extern "C" fn(hStream: CUstream, flags: *mut ::core::ffi::c_uint) -> CUresult;
pub type cuStreamGetGreenCtx = unsafe extern "C" fn(hStream: CUstream, phCtx: *mut CUgreenCtx) -> CUresult;
pub type cuStreamGetId = unsafe extern "C" fn(hStream: CUstream, streamId: *mut ::core::ffi::c_ulonglong) -> CUresult;
pub type cuStreamGetId_ptsz = unsafe extern "C" fn(hStream: CUstream, streamId: *mut ::core::ffi::c_ulonglong) -> CUresult;
pub type cuStreamGetPriority = unsafe extern "C" fn(hStream: CUstream, priority: *mut ::core::ffi::c_int) -> CUresult;
pub type cuStreamGetPriority_ptsz = unsafe extern "C" fn(hStream: CUstream, priority: *mut ::core::ffi::c_int) -> CUresult;
pub type cuStreamIsCapturing = unsafe extern "C" fn(hStream: CUstream, captureStatus: *mut CUstreamCaptureStatus) -> CUresult;
pub type cuStreamIsCapturing_ptsz = unsafe extern "C" fn(hStream: CUstream, captureStatus: *mut CUstreamCaptureStatus) -> CUresult;
pub type cuStreamQuery = unsafe extern "C" fn(hStream: CUstream) -> CUresult;
pub type cuStreamQuery_ptsz = unsafe extern "C" fn(hStream: CUstream) -> CUresult;
pub type cuStreamSetAttribute = unsafe extern "C" fn(hStream: CUstream, attr: CUstreamAttrID, param: *const CUstreamAttrValue) -> CUresult;
pub type cuStreamSetAttribute_ptsz = unsafe extern "C" fn(hStream: CUstream, attr: CUstreamAttrID, value: *const CUstreamAttrValue) -> CUresult;
pub type cuStreamSynchronize = unsafe extern "C" fn(hStream: CUstream) -> CUresult;
pub type cuStreamSynchronize_ptsz = unsafe extern "C" fn(hStream: CUstream) -> CUresult;
pub type cuStreamUpdateCaptureDependencies =
    unsafe extern "C" fn(hStream: CUstream, dependencies: *mut CUgraphNode, numDependencies: usize, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamUpdateCaptureDependencies_ptsz =
    unsafe extern "C" fn(hStream: CUstream, dependencies: *mut CUgraphNode, numDependencies: usize, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamUpdateCaptureDependencies_v2 = unsafe extern "C" fn(
    hStream: CUstream,
    dependencies: *mut CUgraphNode,
    dependencyData: *const CUgraphEdgeData,
    numDependencies: usize,
    flags: ::core::ffi::c_uint,
) -> CUresult;
pub type cuStreamUpdateCaptureDependencies_v2_ptsz = unsafe extern "C" fn(
    hStream: CUstream,
    dependencies: *mut CUgraphNode,
    dependencyData: *const CUgraphEdgeData,
    numDependencies: usize,
    flags: ::core::ffi::c_uint,
) -> CUresult;
pub type cuStreamWaitEvent = unsafe extern "C" fn(hStream: CUstream, hEvent: CUevent, Flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamWaitEvent_ptsz = unsafe extern "C" fn(hStream: CUstream, hEvent: CUevent, Flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamWaitValue32 = unsafe extern "C" fn(stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamWaitValue32_ptsz = unsafe extern "C" fn(stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamWaitValue32_v2 = unsafe extern "C" fn(stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamWaitValue32_v2_ptsz = unsafe extern "C" fn(stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamWaitValue64 = unsafe extern "C" fn(stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamWaitValue64_ptsz = unsafe extern "C" fn(stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamWaitValue64_v2 = unsafe extern "C" fn(stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamWaitValue64_v2_ptsz = unsafe extern "C" fn(stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamWriteValue32 = unsafe extern "C" fn(stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamWriteValue32_ptsz = unsafe extern "C" fn(stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamWriteValue32_v2 = unsafe extern "C" fn(stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamWriteValue32_v2_ptsz = unsafe extern "C" fn(stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamWriteValue64 = unsafe extern "C" fn(stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamWriteValue64_ptsz = unsafe extern "C" fn(stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamWriteValue64_v2 = unsafe extern "C" fn(stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuStreamWriteValue64_v2_ptsz = unsafe extern "C" fn(stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: ::core::ffi::c_uint) -> CUresult;
pub type cuSurfObjectCreate = unsafe extern "C" fn(pSurfObject: *mut CUsurfObject, pResDesc: *const CUDA_RESOURCE_DESC) -> CUresult;
pub type cuSurfObjectDestroy = unsafe extern "C" fn(surfObject: CUsurfObject) -> CUresult;
pub type cuSurfObjectGetResourceDesc = unsafe extern "C" fn(pResDesc: *mut CUDA_RESOURCE_DESC, surfObject: CUsurfObject) -> CUresult;
pub type cuSurfRefGetArray = unsafe extern "C" fn(phArray: *mut CUarray, hSurfRef: CUsurfref) -> CUresult;
pub type cuSurfRefSetArray = unsafe extern "C" fn(hSurfRef: CUsurfref, hArray: CUarray, Flags: ::core::ffi::c_uint) -> CUresult;
pub type cuTensorMapEncodeIm2col = unsafe extern "C" fn(
    tensorMap: *mut CUtensorMap,
    tensorDataType: CUtensorMapDataType,
    tensorRank: cuuint32_t,
    globalAddress: *mut ::core::ffi::c_void,
    globalDim: *const cuuint64_t,
    globalStrides: *const cuuint64_t,
    pixelBoxLowerCorner: *const ::core::ffi::c_int,
    pixelBoxUpperCorner: *const ::core::ffi::c_int,
    channelsPerPixel: cuuint32_t,
    pixelsPerColumn: cuuint32_t,
    elementStrides: *const cuuint32_t,
    interleave: CUtensorMapInterleave,
    swizzle: CUtensorMapSwizzle,
    l2Promotion: CUtensorMapL2promotion,
    oobFill: CUtensorMapFloatOOBfill,
) -> CUresult;
pub type cuTensorMapEncodeIm2colWide = unsafe extern "C" fn(
    tensorMap: *mut CUtensorMap,
    tensorDataType: CUtensorMapDataType,
    tensorRank: cuuint32_t,
    globalAddress: *mut ::core::ffi::c_void,
    globalDim: *const cuuint64_t,
    globalStrides: *const cuuint64_t,
    pixelBoxLowerCornerWidth: ::core::ffi::c_int,
    pixelBoxUpperCornerWidth: ::core::ffi::c_int,
    channelsPerPixel: cuuint32_t,
    pixelsPerColumn: cuuint32_t,
    elementStrides: *const cuuint32_t,
    interleave: CUtensorMapInterleave,
    mode: CUtensorMapIm2ColWideMode,
    swizzle: CUtensorMapSwizzle,
    l2Promotion: CUtensorMapL2promotion,
    oobFill: CUtensorMapFloatOOBfill,
) -> CUresult;
pub type cuTensorMapEncodeTiled = unsafe extern "C" fn(
    tensorMap: *mut CUtensorMap,
    tensorDataType: CUtensorMapDataType,
    tensorRank: cuuint32_t,
    globalAddress: *mut ::core::ffi::c_void,
    globalDim: *const cuuint64_t,
    globalStrides: *const cuuint64_t,
    boxDim: *const cuuint32_t,
    elementStrides: *const cuuint32_t,
    interleave: CUtensorMapInterleave,
    swizzle: CUtensorMapSwizzle,
    l2Promotion: CUtensorMapL2promotion,
    oobFill: CUtensorMapFloatOOBfill,
) -> CUresult;
pub type cuTensorMapReplaceAddress = unsafe extern "C" fn(tensorMap: *mut CUtensorMap, globalAddress: *mut ::core::ffi::c_void) -> CUresult;
pub type cuTexObjectCreate = unsafe extern "C" fn(
    pTexObject: *mut CUtexObject,
    pResDesc: *const CUDA_RESOURCE_DESC,
    pTexDesc: *const CUDA_TEXTURE_DESC,
    pResViewDesc: *const CUDA_RESOURCE_VIEW_DESC,
) -> CUresult;
pub type cuTexObjectDestroy = unsafe extern "C" fn(texObject: CUtexObject) -> CUresult;
pub type cuTexObjectGetResourceDesc = unsafe extern "C" fn(pResDesc: *mut CUDA_RESOURCE_DESC, texObject: CUtexObject) -> CUresult;
pub type cuTexObjectGetResourceViewDesc = unsafe extern "C" fn(pResViewDesc: *mut CUDA_RESOURCE_VIEW_DESC, texObject: CUtexObject) -> CUresult;
pub type cuTexObjectGetTextureDesc = unsafe extern "C" fn(pTexDesc: *mut CUDA_TEXTURE_DESC, texObject: CUtexObject) -> CUresult;
pub type cuTexRefCreate = unsafe extern "C" fn(pTexRef: *mut CUtexref) -> CUresult;
pub type cuTexRefDestroy = unsafe extern "C" fn(hTexRef: CUtexref) -> CUresult;
pub type cuTexRefGetAddress = unsafe extern "C" fn(pdptr: *mut CUdeviceptr_v1, hTexRef: CUtexref) -> CUresult;
pub type cuTexRefGetAddressMode = unsafe extern "C" fn(pam: *mut CUaddress_mode, hTexRef: CUtexref, dim: ::core::ffi::c_int) -> CUresult;
pub type cuTexRefGetAddress_v2 = unsafe extern "C" fn(pdptr: *mut CUdeviceptr, hTexRef: CUtexref) -> CUresult;
pub type cuTexRefGetArray = unsafe extern "C" fn(phArray: *mut CUarray, hTexRef: CUtexref) -> CUresult;
pub type cuTexRefGetBorderColor = unsafe extern "C" fn(pBorderColor: *mut f32, hTexRef: CUtexref) -> CUresult;
pub type cuTexRefGetFilterMode = unsafe extern "C" fn(pfm: *mut CUfilter_mode, hTexRef: CUtexref) -> CUresult;
pub type cuTexRefGetFlags = unsafe extern "C" fn(pFlags: *mut ::core::ffi::c_uint, hTexRef: CUtexref) -> CUresult;
pub type cuTexRefGetFormat = unsafe extern "C" fn(pFormat: *mut CUarray_format, pNumChannels: *mut ::core::ffi::c_int, hTexRef: CUtexref) -> CUresult;
pub type cuTexRefGetMaxAnisotropy = unsafe extern "C" fn(pmaxAniso: *mut ::core::ffi::c_int, hTexRef: CUtexref) -> CUresult;
pub type cuTexRefGetMipmapFilterMode = unsafe extern "C" fn(pfm: *mut CUfilter_mode, hTexRef: CUtexref) -> CUresult;
pub type cuTexRefGetMipmapLevelBias = unsafe extern "C" fn(pbias: *mut f32, hTexRef: CUtexref) -> CUresult;
pub type cuTexRefGetMipmapLevelClamp = unsafe extern "C" fn(pminMipmapLevelClamp: *mut f32, pmaxMipmapLevelClamp: *mut f32, hTexRef: CUtexref) -> CUresult;
pub type cuTexRefGetMipmappedArray = unsafe extern "C" fn(phMipmappedArray: *mut CUmipmappedArray, hTexRef: CUtexref) -> CUresult;
pub type cuTexRefSetAddress =
    unsafe extern "C" fn(ByteOffset: *mut ::core::ffi::c_uint, hTexRef: CUtexref, dptr: CUdeviceptr_v1, bytes: ::core::ffi::c_uint) -> CUresult;
pub type cuTexRefSetAddress2D =
    unsafe extern "C" fn(hTexRef: CUtexref, desc: *const CUDA_ARRAY_DESCRIPTOR_v1, dptr: CUdeviceptr_v1, Pitch: ::core::ffi::c_uint) -> CUresult;
pub type cuTexRefSetAddress2D_v2 = unsafe extern "C" fn(hTexRef: CUtexref, desc: *const CUDA_ARRAY_DESCRIPTOR, dptr: CUdeviceptr, Pitch: usize) -> CUresult;
pub type cuTexRefSetAddress2D_v3 = unsafe extern "C" fn(hTexRef: CUtexref, desc: *const CUDA_ARRAY_DESCRIPTOR, dptr: CUdeviceptr, Pitch: usize) -> CUresult;
pub type cuTexRefSetAddressMode = unsafe extern "C" fn(hTexRef: CUtexref, dim: ::core::ffi::c_int, am: CUaddress_mode) -> CUresult;
pub type cuTexRefSetAddress_v2 = unsafe extern "C" fn(ByteOffset: *mut usize, hTexRef: CUtexref, dptr: CUdeviceptr, bytes: usize) -> CUresult;
pub type cuTexRefSetArray = unsafe extern "C" fn(hTexRef: CUtexref, hArray: CUarray, Flags: ::core::ffi::c_uint) -> CUresult;
pub type cuTexRefSetBorderColor = unsafe extern "C" fn(hTexRef: CUtexref, pBorderColor: *mut f32) -> CUresult;
pub type cuTexRefSetFilterMode = unsafe extern "C" fn(hTexRef: CUtexref, fm: CUfilter_mode) -> CUresult;
pub type cuTexRefSetFlags = unsafe extern "C" fn(hTexRef: CUtexref, Flags: ::core::ffi::c_uint) -> CUresult;
pub type cuTexRefSetFormat = unsafe extern "C" fn(hTexRef: CUtexref, fmt: CUarray_format, NumPackedComponents: ::core::ffi::c_int) -> CUresult;
pub type cuTexRefSetMaxAnisotropy = unsafe extern "C" fn(hTexRef: CUtexref, maxAniso: ::core::ffi::c_uint) -> CUresult;
pub type cuTexRefSetMipmapFilterMode = unsafe extern "C" fn(hTexRef: CUtexref, fm: CUfilter_mode) -> CUresult;
pub type cuTexRefSetMipmapLevelBias = unsafe extern "C" fn(hTexRef: CUtexref, bias: f32) -> CUresult;
pub type cuTexRefSetMipmapLevelClamp = unsafe extern "C" fn(hTexRef: CUtexref, minMipmapLevelClamp: f32, maxMipmapLevelClamp: f32) -> CUresult;
pub type cuTexRefSetMipmappedArray = unsafe extern "C" fn(hTexRef: CUtexref, hMipmappedArray: CUmipmappedArray, Flags: ::core::ffi::c_uint) -> CUresult;
pub type cuThreadExchangeStreamCaptureMode = unsafe extern "C" fn(mode: *mut CUstreamCaptureMode) -> CUresult;
pub type cuUserObjectCreate = unsafe extern "C" fn(
    object_out: *mut CUuserObject,
    ptr: *mut ::core::ffi::c_void,
    destroy: CUhostFn,
    initialRefcount: ::core::ffi::c_uint,
    flags: ::core::ffi::c_uint,
) -> CUresult;
pub type cuUserObjectRelease = unsafe extern "C" fn(object: CUuserObject, count: ::core::ffi::c_uint) -> CUresult;
pub type cuUserObjectRetain = unsafe extern "C" fn(object: CUuserObject, count: ::core::ffi::c_uint) -> CUresult;
pub type cuWaitExternalSemaphoresAsync = unsafe extern "C" fn(
    extSemArray: *const CUexternalSemaphore,
    paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    numExtSems: ::core::ffi::c_uint,
    stream: CUstream,
) -> CUresult;
pub type cuWaitExternalSemaphoresAsync_ptsz = unsafe extern "C" fn(
    extSemArray: *const CUexternalSemaphore,
    paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    numExtSems: ::core::ffi::c_uint,
    stream: CUstream,
) -> CUresult;
